// A binary heap of deadlines.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/timer_heap.hpp"

#include "datapath/engine/qp.hpp"

namespace urdma::engine {

TimerHeap::TimerHeap(std::uint32_t capacity) {
  heap_.reserve(capacity + 1);
  heap_.push_back(nullptr);
}

Instant TimerHeap::next() const { return heap_.size() > 1 ? heap_[1]->timer_at : Instant::never(); }

void TimerHeap::place(std::uint32_t index, Qp& qp) {
  heap_[index] = &qp;
  qp.timer_index = index;
}

void TimerHeap::rise(std::uint32_t index) {
  Qp& qp = *heap_[index];
  while (index > 1 && qp.timer_at < heap_[index / 2]->timer_at) {
    place(index, *heap_[index / 2]);
    index /= 2;
  }
  place(index, qp);
}

void TimerHeap::sink(std::uint32_t index) {
  Qp& qp = *heap_[index];
  const auto size = static_cast<std::uint32_t>(heap_.size());
  for (std::uint32_t child = index * 2; child < size; child = index * 2) {
    if (child + 1 < size && heap_[child + 1]->timer_at < heap_[child]->timer_at) ++child;
    if (qp.timer_at <= heap_[child]->timer_at) break;
    place(index, *heap_[child]);
    index = child;
  }
  place(index, qp);
}

void TimerHeap::remove(Qp& qp) {
  const std::uint32_t hole = qp.timer_index;
  qp.timer_index = 0;
  Qp& last = *heap_.back();
  heap_.pop_back();
  if (&last == &qp) return;
  place(hole, last);
  rise(hole);
  sink(last.timer_index);
}

void TimerHeap::set(Qp& qp, Instant at) {
  if (qp.timer_index == 0) {
    if (at.is_never()) return;
    qp.timer_at = at;
    heap_.push_back(&qp);
    rise(static_cast<std::uint32_t>(heap_.size() - 1));
    return;
  }
  if (at.is_never()) {
    remove(qp);
    qp.timer_at = at;
    return;
  }
  if (at == qp.timer_at) return;
  qp.timer_at = at;
  rise(qp.timer_index);
  sink(qp.timer_index);
}

Qp* TimerHeap::take_due(Instant now) {
  if (heap_.size() < 2 || heap_[1]->timer_at > now) return nullptr;
  Qp* due = heap_[1];
  remove(*due);
  due->timer_at = Instant::never();
  return due;
}

}  // namespace urdma::engine
