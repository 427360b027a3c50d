// Queue pair numbers (see qpn_allocator.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/qpn_allocator.hpp"

namespace urdma::control {

std::optional<Qpn> QpnAllocator::allocate() {
  if (used_.size() >= capacity_) return std::nullopt;
  for (;;) {
    const std::uint32_t candidate = next_;
    next_ = candidate == kLast ? kFirst : candidate + 1;
    if (is_taken_ && is_taken_(Qpn{candidate})) continue;
    if (used_.insert(candidate).second) return Qpn{candidate};
  }
}

}  // namespace urdma::control
