// A memory window as the program holds it, with the key that its next bind replaces.
//
// The program serialises what it does to one window; no locking.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace urdma::provider {

struct MemoryWindow : ibv_mw {
  // The key of the latest bind that was posted. The program's own copy, ibv_mw::rkey, stays that of the
  // allocation in windows of type 2.
  std::uint32_t latest_key = 0;
};

inline MemoryWindow& window_of(ibv_mw* mw) { return *static_cast<MemoryWindow*>(mw); }

}  // namespace urdma::provider
