// The memory that a session shares with its daemon beside its queues: doorbells and sleep words.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "urdma/abi/version.hpp"

namespace urdma::abi {

// One bit a QP of the session (CreateQpReply::doorbell), in two levels. A set bit says "look at this
// QP's rings"; it is a hint, so that any pattern that a client writes is harmless.
// Writers: the client sets bits (leaf first, then summary, both fetch_or release), the engine clears them
// (summary exchange, then leaf exchange, both acquire).
struct DoorbellBoard {
  static constexpr std::uint32_t kSummaryWords = 4;
  static constexpr std::uint32_t kLeafWords = kSummaryWords * 64;
  static constexpr std::uint32_t kDoorbells = kLeafWords * 64;

  alignas(kCacheLine) std::atomic<std::uint64_t> summary[kSummaryWords];
  alignas(kCacheLine) std::atomic<std::uint64_t> leaf[kLeafWords];
};
static_assert(sizeof(DoorbellBoard) == 64 + 2048);

// The session's own page: one board an engine. The client writes it.
struct SessionPage {
  std::uint32_t magic;
  std::uint32_t version;
  DoorbellBoard boards[kMaxEngines];
};
static_assert(std::is_standard_layout_v<SessionPage>);

// The daemon's page, which all clients map read-only.
struct EnginePage {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t engine_count;
  // Set by a daemon that stops in good order.
  std::atomic<std::uint32_t> stopped;
  // A robust, process-shared mutex that the daemon's main thread holds for life. When the daemon dies in
  // any way the kernel sets FUTEX_OWNER_DIED in its first word. Clients read that word and lock nothing:
  // they must not be able to write here, since the kernel and libc follow the list inside.
  alignas(kCacheLine) pthread_mutex_t alive;
  // Not zero while an engine sleeps or is about to: who has rung a doorbell then writes the engine's
  // eventfd. Handshake: the engine stores it, fences, and looks at all doorbells again; the client sets
  // the bit, fences, then reads this (both fences sequentially consistent).
  struct alignas(kCacheLine) EngineWords {
    std::atomic<std::uint32_t> sleeping;
  } engines[kMaxEngines];
};
static_assert(std::is_standard_layout_v<EnginePage>);
inline constexpr std::uint32_t kOwnerDied = 0x40000000;  // FUTEX_OWNER_DIED

// Whether the daemon behind `page` is gone. Costs one read of a line that is rarely written.
inline bool daemon_is_gone(const EnginePage& page) {
  static_assert(offsetof(pthread_mutex_t, __data) == 0 && offsetof(__pthread_mutex_s, __lock) == 0);
  const auto* lock_word = reinterpret_cast<const std::atomic<std::uint32_t>*>(&page.alive);
  return (lock_word->load(std::memory_order_acquire) & kOwnerDied) != 0 ||
         page.stopped.load(std::memory_order_acquire) != 0;
}

// Rings doorbell `number` (below kDoorbells) on `board`. The caller then fences and looks at
// the engine's sleep word.
inline void ring(DoorbellBoard& board, std::uint32_t number) {
  const std::uint32_t word = number / 64;
  board.leaf[word].fetch_or(std::uint64_t{1} << (number % 64), std::memory_order_release);
  board.summary[word / 64].fetch_or(std::uint64_t{1} << (word % 64), std::memory_order_release);
}

}  // namespace urdma::abi
