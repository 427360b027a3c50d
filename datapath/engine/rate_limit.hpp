// So many a second and no more, with some in advance: what keeps a flood from the control thread.
// Owner and thread: whoever has it. No clock of its own.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <algorithm>
#include <cstdint>

#include "urdma/base/time.hpp"

namespace urdma::engine {

class RateLimit {
 public:
  // At most `burst` at once, and `per_second` in the long run; neither is 0.
  RateLimit(std::uint32_t per_second, std::uint32_t burst)
      : cost_(nanoseconds(1'000'000'000 / per_second)), most_(cost_ * burst), credit_(most_) {}

  // Whether one more may pass now. `now` never goes back.
  [[nodiscard]] bool take(Instant now) {
    // Compared before it is added: after a long time the sum would not fit.
    const Duration passed = now - last_;
    credit_ = passed >= most_ ? most_ : std::min(most_, credit_ + passed);
    last_ = now;
    if (credit_ < cost_) return false;
    credit_ = Duration{credit_.ns - cost_.ns};
    return true;
  }

 private:
  Duration cost_;
  Duration most_;
  Duration credit_;
  Instant last_;
};

}  // namespace urdma::engine
