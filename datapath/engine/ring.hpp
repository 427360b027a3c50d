// What the engine's sides of all rings share: reading what a client may write at the same time, and how a
// slot is laid out.
//
// Any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "datapath/transport/types.hpp"
#include "urdma/abi/queues.hpp"

namespace urdma::engine {

// Copies out of shared memory once. The barrier keeps the compiler from reading there again instead of from
// the copy: the client may change it under our eyes.
template <typename T>
[[nodiscard]] T copy_once(const std::byte* from) {
  T copy;
  std::memcpy(&copy, from, sizeof copy);
  asm volatile("" : "+m"(copy));
  return copy;
}

// The bytes from one slot to the next: whole cache lines.
[[nodiscard]] constexpr std::uint32_t slot_stride(std::size_t bytes) {
  return static_cast<std::uint32_t>((bytes + abi::kCacheLine - 1) / abi::kCacheLine * abi::kCacheLine);
}
// The same for receive requests with as many elements.
[[nodiscard]] constexpr std::uint32_t receive_slot_stride(std::uint32_t max_sge) {
  return slot_stride(sizeof(abi::ReceiveWqe) + std::size_t{max_sge} * sizeof(abi::Sge));
}

// Copies `count` elements into `to`, which has room, and yields them.
[[nodiscard]] inline std::span<const transport::Sge> copy_elements(const std::byte* from, std::uint32_t count,
                                                                   std::vector<transport::Sge>& to) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto sge = copy_once<abi::Sge>(from + std::size_t{i} * sizeof(abi::Sge));
    to[i] = {sge.address, sge.length, MemoryKey{sge.lkey}};
  }
  return {to.data(), count};
}

}  // namespace urdma::engine
