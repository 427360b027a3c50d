// Whether the daemon still serves a context. Once it does not, it never does again.
//
// One a context. Any thread; is_gone() is one relaxed load of a line that hardly ever changes, so that
// every empty poll may ask.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "urdma/abi/pages.hpp"

namespace urdma::provider {

class Liveness {
 public:
  // What declare_gone() calls, once. Set before other threads know the object.
  void on_gone(std::function<void()> action) { action_ = std::move(action); }
  void watch(const abi::EnginePage* page) { page_ = page; }

  [[nodiscard]] bool is_gone() const { return gone_.load(std::memory_order_acquire); }

  // Looks at the daemon's own mark. Reads a line of shared memory, so not at every poll.
  bool look() {
    if (is_gone()) return true;
    if (page_ == nullptr || !abi::daemon_is_gone(*page_)) return false;
    declare_gone();
    return true;
  }

  // The caller holds no lock of a queue: the action writes events into channels.
  void declare_gone() {
    if (gone_.exchange(true, std::memory_order_acq_rel)) return;
    if (action_) action_();
  }

  // As declare_gone, without the action: for a child that inherited the context by fork.
  void disown() { gone_.store(true, std::memory_order_release); }

 private:
  std::atomic<bool> gone_{false};
  const abi::EnginePage* page_ = nullptr;
  std::function<void()> action_;
};

}  // namespace urdma::provider
