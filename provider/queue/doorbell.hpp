// Telling the engine that a QP's rings have something new.
//
// A doorbell is three writes to memory of the session's own, and a system call only while the engine
// sleeps. Any thread; holds nothing.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "urdma/abi/pages.hpp"
#include "urdma/abi/queues.hpp"

namespace urdma::provider {

// What all doorbells of a session share. The session owns what it points to.
struct DoorbellPanel {
  abi::SessionPage* session = nullptr;
  const abi::EnginePage* engines = nullptr;
  std::array<int, abi::kMaxEngines> eventfds{};
  std::uint32_t engine_count = 0;
};

class Doorbell {
 public:
  // `number` is CreateQpReply::doorbell.
  Doorbell(const DoorbellPanel& panel, std::uint32_t number) : panel_(&panel), number_(number) {}

  // The caller has published what there is to see. `page` names the engine that serves the QP now.
  void ring(const abi::QpPage& page) const {
    const std::uint32_t engine = page.engine.load(std::memory_order_acquire);
    if (engine >= panel_->engine_count) [[unlikely]]
      return;
    abi::ring(panel_->session->boards[engine], number_);
    // Pairs with the engine's fence between storing `sleeping` and its last look at the boards.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (panel_->engines->engines[engine].sleeping.load(std::memory_order_relaxed) != 0) wake(engine);
  }

 private:
  [[gnu::cold]] void wake(std::uint32_t engine) const {
    const std::uint64_t one = 1;
    // It can fail only when the counter is full: then the engine has been woken already.
    [[maybe_unused]] const ssize_t written = ::write(panel_->eventfds[engine], &one, sizeof(one));
  }

  const DoorbellPanel* panel_;
  std::uint32_t number_;
};

}  // namespace urdma::provider
