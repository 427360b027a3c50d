// The regions of a context by their key, for what is done to them without the daemon: advice about their
// pages. Any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace urdma::provider {

struct IndexedRegion {
  std::uint32_t pd = 0;       // handle
  std::uint64_t iova = 0;     // what work requests call its first byte
  std::uint64_t address = 0;  // where that is
  std::uint64_t length = 0;
  bool is_writable = false;

  // Where [iova, iova + bytes) is in the program; nothing when it is not all in the region.
  [[nodiscard]] std::optional<std::uint64_t> address_of(std::uint64_t from, std::uint64_t bytes) const;
};

class RegionIndex {
 public:
  void set(std::uint32_t key, const IndexedRegion& region);
  void erase(std::uint32_t key);
  [[nodiscard]] std::optional<IndexedRegion> find(std::uint32_t key) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint32_t, IndexedRegion> regions_;  // guarded by mutex_
};

}  // namespace urdma::provider
