// Memory windows: parts of a region that are opened to peers and closed again by work requests (IBTA 1,
// 10.6.7). Type 1 windows are for every QP of their protection domain; type 2 windows are of kind 2B, for
// the one QP that has bound them.
//
// As the region table: an engine's, or the control thread's inside Engine::run; the last two are for the
// latter alone, which has no other engine beside it. It judges and links; whether accesses through a former
// binding are still under way is for the caller to find out.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

#include "datapath/memory/region_table.hpp"

namespace urdma::memory {

struct BindRequest {
  MemoryKey window;   // its key so far; the index counts
  MemoryKey new_key;  // of the same index
  MemoryKey region;
  std::uint32_t access = 0;  // remote access flags, kAccessZeroBased; others say nothing
  std::uint64_t address = 0;
  std::uint64_t length = 0;  // 0: a type 1 window is bound to nothing
};

// Binds a window. False, and nothing has changed, when that is not allowed. `before` is the region that it
// was bound to, or null.
[[nodiscard]] bool bind_window(const RegionTable& table, const Accessor& who, const BindRequest& request,
                               Region*& before);

// Closes the type 2 window of this key. False for anything else: type 1 windows are closed by binding, and
// regions by deregistration alone. `before` as above.
[[nodiscard]] bool invalidate_window(const RegionTable& table, const Accessor& who, MemoryKey key,
                                     Region*& before);

void unbind_window(Region& window);
// A region goes with its session, whatever is bound to it.
void unbind_all_windows(Region& region);

}  // namespace urdma::memory
