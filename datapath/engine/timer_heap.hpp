// The deadlines of an engine's QPs: a binary heap with a place number in each QP, so that a deadline is
// moved in O(log n). Owner: one engine.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <vector>

#include "urdma/base/time.hpp"

namespace urdma::engine {

class Qp;

class TimerHeap {
 public:
  explicit TimerHeap(std::uint32_t capacity);

  // Sets, moves or (Instant::never()) removes the deadline of `qp`.
  void set(Qp& qp, Instant at);
  [[nodiscard]] Instant next() const;
  // The QP whose deadline is the earliest and not after `now`, its deadline removed; or null.
  [[nodiscard]] Qp* take_due(Instant now);

 private:
  void place(std::uint32_t index, Qp& qp);
  void rise(std::uint32_t index);
  void sink(std::uint32_t index);
  void remove(Qp& qp);

  std::vector<Qp*> heap_;  // heap_[0] is unused: 0 means "no place"
};

}  // namespace urdma::engine
