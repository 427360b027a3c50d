// What a thread that runs ahead of all others (SCHED_FIFO) owes them. Nothing else runs on its core until it
// sleeps; where such threads keep all cores busy, whoever else there is gets a twentieth by the kernel's
// mercy, and nothing for most of each second: this daemon's control thread, and the programs that it serves.
// So these threads sleep once in a while if together they have left next to nothing over. Where a core is
// left alone none does. Only threads of this process are counted.
//
// An object belongs to one thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include "urdma/base/time.hpp"

namespace urdma::memory {

class RealtimeShare {
 public:
  RealtimeShare() = default;
  ~RealtimeShare();
  RealtimeShare(const RealtimeShare&) = delete;
  RealtimeShare& operator=(const RealtimeShare&) = delete;

  // Makes the calling thread a real-time one; false if that is not allowed here.
  bool become_realtime();
  // Between two pieces of work, with nothing locked; `now` is of CLOCK_MONOTONIC. Sleeps for half a
  // millisecond if it is time to. True if it has.
  bool look(Instant now) {
    if (now < next_look_) [[likely]]
      return false;
    return judge(now);
  }

  struct Use;  // of its core by a thread, as the others see it

 private:
  [[gnu::cold]] bool judge(Instant now);
  void begin_span();

  Use* own_ = nullptr;
  Instant next_look_ = Instant::never();
  Instant begun_;           // of the span that is judged next
  Duration used_at_begin_;  // processor time of the thread
};

}  // namespace urdma::memory
