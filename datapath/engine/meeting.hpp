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
  // Calls so many engines. Those that sleep are to be woken. An engine that comes does so as well, so that
  // it does not wait for the control thread, which may lose its core at this moment.
  void call(void (*function)(void*), void* argument, std::uint32_t engines) {
    function_ = function;
    argument_ = argument;
    absent_.store(engines, std::memory_order_relaxed);
    called_.store(++begun_, std::memory_order_release);
  }
  // Returns once the function has been run.
  void await_end() { held_.wait(begun_ - 1, std::memory_order_acquire); }

  // ---- Engines ----
  // Whether there is a meeting that the engine has not been to; `attended` is how many it has.
  [[nodiscard]] bool is_called(std::uint32_t attended) const {
    return called_.load(std::memory_order_acquire) != attended;
  }
  // Once for each meeting.
  template <typename Wake>
  void attend(std::uint32_t& attended, Wake&& wake_others) {
    const std::uint32_t number = attended++;
    const std::uint32_t absent = absent_.fetch_sub(1, std::memory_order_acq_rel) - 1;
    if (absent == 0) {
      function_(argument_);
      held_.store(attended, std::memory_order_release);
      held_.notify_all();
      return;
    }
    wake_others();
    // They are on their way.
    constexpr int kLooks = 400;
    for (int i = 0; i < kLooks; ++i) {
      if (held_.load(std::memory_order_acquire) != number) return;
      pause_cpu();
    }
    held_.wait(number, std::memory_order_acquire);
  }

 private:
  void (*function_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::uint32_t begun_ = 0;  // the control thread's: as called_
  std::atomic<std::uint32_t> called_{0};
  std::atomic<std::uint32_t> absent_{0};
  std::atomic<std::uint32_t> held_{0};  // how many meetings are over
};

}  // namespace urdma::engine
