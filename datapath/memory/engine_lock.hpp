// A lock for what several engines write: held for a few dozen instructions, never over a system call or a
// copy of payload. With one engine there is nothing to exclude, and it is not taken at all.
//
// Any engine's thread; enable() while all of them stand still.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <sched.h>
#include <time.h>

#include <atomic>

namespace urdma::memory {

class EngineLock {
 public:
  // There are several engines.
  void enable() { is_needed_ = true; }

  void lock() {
    if (is_needed_ && is_taken_.exchange(true, std::memory_order_acquire)) wait();
  }
  [[nodiscard]] bool try_lock() {
    return !is_needed_ || !is_taken_.exchange(true, std::memory_order_acquire);
  }
  void unlock() {
    if (is_needed_) is_taken_.store(false, std::memory_order_release);
  }

 private:
  // Who holds it may have lost its core to this very thread. Engines of equal real-time priority do not
  // preempt one another, but get the core when one yields; a thread of a lower one, such as has memory that
  // the holder waits for, gets it only from one that sleeps.
  [[gnu::cold]] void wait() {
    constexpr int kLooks = 200;
    constexpr int kYields = 10;
    constexpr timespec kSleep{0, 20'000};
    int yields = 0;
    do {
      for (int i = 0; i < kLooks && is_taken_.load(std::memory_order_relaxed); ++i) {
      }
      if (!is_taken_.load(std::memory_order_relaxed)) continue;
      if (yields++ < kYields) {
        ::sched_yield();
      } else {
        ::nanosleep(&kSleep, nullptr);
      }
    } while (is_taken_.exchange(true, std::memory_order_acquire));
  }

  bool is_needed_ = false;
  std::atomic<bool> is_taken_{false};
};

}  // namespace urdma::memory
