// Regions by their key.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/memory/region_index.hpp"

namespace urdma::provider {

std::optional<std::uint64_t> IndexedRegion::address_of(std::uint64_t from, std::uint64_t bytes) const {
  const std::uint64_t offset = from - iova;
  if (from < iova || bytes > length || offset > length - bytes) return std::nullopt;
  return address + offset;
}

void RegionIndex::set(std::uint32_t key, const IndexedRegion& region) {
  const std::lock_guard guard(mutex_);
  regions_[key] = region;
}

void RegionIndex::erase(std::uint32_t key) {
  const std::lock_guard guard(mutex_);
  regions_.erase(key);
}

std::optional<IndexedRegion> RegionIndex::find(std::uint32_t key) const {
  const std::lock_guard guard(mutex_);
  const auto found = regions_.find(key);
  if (found == regions_.end()) return std::nullopt;
  return found->second;
}

}  // namespace urdma::provider
