// The objects of a client context (see objects.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/objects.hpp"

#include <algorithm>

#include "urdma/base/check.hpp"

namespace urdma::control {

std::optional<std::uint32_t> NumberPool::take() {
  while (lowest_free_ < used_.size() && used_[lowest_free_]) ++lowest_free_;
  if (lowest_free_ >= capacity_) return std::nullopt;
  if (lowest_free_ == used_.size()) used_.push_back(false);
  used_[lowest_free_] = true;
  return lowest_free_++;
}

void NumberPool::give_back(std::uint32_t number) {
  URDMA_CHECK(number < used_.size() && used_[number]);
  used_[number] = false;
  lowest_free_ = std::min(lowest_free_, number);
}

}  // namespace urdma::control
