// Hands out queue pair numbers: the first at random, so that a node that starts again does not take its
// predecessor's packets for its own, then in ascending order, so that a number comes back as late as
// possible. 0 and 1 belong to the special QPs, 0xFFFFFF to multicast (IBTA 1, 3.5.1). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_set>
#include <utility>

#include "urdma/base/ids.hpp"

namespace urdma::control {

class QpnAllocator {
 public:
  static constexpr std::uint32_t kFirst = 2;
  static constexpr std::uint32_t kLast = kQpnMask - 1;

  // `seed` is any number; `capacity` the most numbers in use at once (far fewer than there are).
  QpnAllocator(std::uint32_t seed, std::uint32_t capacity)
      : next_(kFirst + seed % (kLast - kFirst + 1)), capacity_(capacity) {}

  // Numbers that are not to be handed out although no QP has them: those of connections in time-wait. They
  // are far fewer than there are numbers.
  void avoid(std::function<bool(Qpn)> is_taken) { is_taken_ = std::move(is_taken); }
  // Nothing when `capacity` numbers are in use.
  [[nodiscard]] std::optional<Qpn> allocate();
  void release(Qpn qpn) { used_.erase(qpn.value); }
  [[nodiscard]] std::uint32_t in_use() const { return static_cast<std::uint32_t>(used_.size()); }

 private:
  std::uint32_t next_;
  std::uint32_t capacity_;
  std::unordered_set<std::uint32_t> used_;
  std::function<bool(Qpn)> is_taken_;
};

}  // namespace urdma::control
