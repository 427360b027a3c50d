// Which regions are of which device memory: a piece that has some is busy. Any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace urdma::provider {

class DmRegions {
 public:
  void add(std::uint32_t region, const ibv_dm* dm) {
    const std::lock_guard lock(mutex_);
    memories_[region] = dm;
  }
  // Nothing happens for a region of ordinary memory.
  void remove(std::uint32_t region) {
    const std::lock_guard lock(mutex_);
    memories_.erase(region);
  }
  [[nodiscard]] bool has_regions(const ibv_dm* dm) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(memories_.begin(), memories_.end(),
                       [&](const auto& entry) { return entry.second == dm; });
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint32_t, const ibv_dm*> memories_;  // by region handle; guarded by mutex_
};

}  // namespace urdma::provider
