// Numbers that nobody can guess: memory keys and session tokens, from the kernel's random source.
// Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <span>
#include <unordered_set>

#include "datapath/memory/region_table.hpp"
#include "urdma/abi/control.hpp"
#include "urdma/base/ids.hpp"

namespace urdma::control {

// Fills `bytes`. Ends the process when the kernel gives no random bytes: nothing is safe then.
void fill_random(std::span<std::byte> bytes);

[[nodiscard]] std::uint32_t random_u32();
[[nodiscard]] abi::Token random_token();
// In constant time, so that a token cannot be found byte by byte.
[[nodiscard]] bool tokens_equal(const abi::Token& a, const abi::Token& b);

// The keys in use on the node, by their index: two keys never differ in their lowest 8 bits alone, since a
// window may have any of those.
class KeySet {
 public:
  [[nodiscard]] MemoryKey draw();
  void release(MemoryKey key) { used_.erase(memory::index_of(key)); }
  [[nodiscard]] std::size_t size() const { return used_.size(); }

 private:
  std::unordered_set<std::uint32_t> used_;
};

}  // namespace urdma::control
