// The judgement of access to regions and windows.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/region_table.hpp"

#include <mutex>

namespace urdma::memory {

namespace {

// What the region below allows peers does not matter: a window grants that itself. Its bounds were judged
// when the window was bound, and a region with windows stays as it is (IBTA 1, 10.6.7.2).
bool permit_window(const Region& window, const Accessor& who, std::uint32_t access, std::uint64_t address,
                   std::uint64_t bytes, Place& place) {
  const bool is_remote = access != 0 && (access & ~kAccessRemoteMask) == 0;
  if (!is_remote || window.binding.region == nullptr) return false;
  if (window.binding.type == WindowType::kType2 && window.binding.qp != who.qp) return false;
  place.region = window.binding.region;
  return translate(window, who.pd, access, address, bytes, place.address);
}

}  // namespace

bool permit(const RegionTable& table, MemoryKey key, const Accessor& who, std::uint32_t access,
            std::uint64_t address, std::uint64_t bytes, Place& place) {
  Region* found = table.find(key);
  if (found == nullptr) return false;
  switch (found->kind) {
    case Region::Kind::kMemory:
      place.region = found;
      return translate(*found, who.pd, access, address, bytes, place.address);
    case Region::Kind::kNull:
      place = {found, 0};
      return found->pd == who.pd && (found->access & access) == access;
    case Region::Kind::kWindow: {
      const std::lock_guard guard(table.windows_lock());
      return found->key == key && permit_window(*found, who, access, address, bytes, place);
    }
  }
  return false;
}

bool translate(const Region& region, PdId pd, std::uint32_t access, std::uint64_t address,
               std::uint64_t bytes, std::uint64_t& program_address) {
  if (region.pd != pd || (region.access & access) != access) return false;
  if (address < region.iova) return false;
  const std::uint64_t offset = address - region.iova;
  if (bytes > region.length || offset > region.length - bytes) return false;
  program_address = region.address + offset;
  return true;
}

}  // namespace urdma::memory
