// How the control thread has a function run while all engines stand still: each engine comes between two
// rounds, the last one runs the function, and the others wait for it. One meeting at a time.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <atomic>
#include <cstdint>

#include "datapath/engine/cpu.hpp"

namespace urdma::engine {

class Meeting {
 public:
  // ---- Control thread ----
  // Before any engine is told of it.
  void prepare(void (*call)(void*), void* argument, std::uint32_t engines) {
    call_ = call;
    argument_ = argument;
    absent_.store(engines, std::memory_order_relaxed);
  }
  // Returns once the function has been run.
  void await_end() {
    held_.wait(begun_, std::memory_order_acquire);
    ++begun_;
  }

  // ---- Engines, once each a meeting ----
  void attend() {
    const std::uint32_t number = held_.load(std::memory_order_relaxed);
    if (absent_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      call_(argument_);
      held_.store(number + 1, std::memory_order_release);
      held_.notify_all();
      return;
    }
    // The others are on their way: one that polls comes within a round, one that sleeps is being woken.
    constexpr int kLooks = 400;
    for (int i = 0; i < kLooks; ++i) {
      if (held_.load(std::memory_order_acquire) != number) return;
      pause_cpu();
    }
    held_.wait(number, std::memory_order_acquire);
  }

 private:
  void (*call_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::uint32_t begun_ = 0;  // the control thread's: as held_
  std::atomic<std::uint32_t> absent_{0};
  std::atomic<std::uint32_t> held_{0};  // how many meetings are over
};

}  // namespace urdma::engine
