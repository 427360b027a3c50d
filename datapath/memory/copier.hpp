// A thread that moves bytes between the daemon and one client process through that process's own
// /proc/self/mem. Such a call can be made to hang by the client (userfaultfd), so that it never runs on an
// engine; a copier that hangs holds up its own client only.
//
// Jobs are done one at a time, in the order submitted: so an atomic is one with respect to all other
// access by copier, and a fence is done when all before it are. Several threads submit, each by its own lane,
// and get back what they have submitted there (engines, by their index). No allocation; jobs are the caller's
// and stay put until taken back.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "urdma/base/result.hpp"

namespace urdma::memory {

// One piece of a job: `length` bytes at `address` of the program, and at `local` here.
struct CopySegment {
  std::uint64_t address = 0;
  std::byte* local = nullptr;
  std::uint32_t length = 0;
};

struct CopyJob {
  enum class Kind : std::uint8_t { kRead, kWrite, kCompareSwap, kFetchAdd, kFence, kCall };

  Kind kind = Kind::kRead;
  bool failed = false;              // out: the memory is not there
  bool ends_message = true;         // kWrite: the last byte becomes visible after all others
  std::span<CopySegment> segments;  // in order
  std::uint64_t address = 0;        // atomics: 8 bytes, aligned
  std::uint64_t operand = 0;        // atomics: swap or add
  std::uint64_t compare = 0;
  std::uint64_t original = 0;           // out: atomics
  bool (*call)(void* owner) = nullptr;  // kCall: something else that the client can hold up; false: failed
  void (*errand)(void* argument) = nullptr;  // kFence: the same, for the control thread; may be null
  void* argument = nullptr;                  // kFence: the errand's
  void* owner = nullptr;                     // the submitter's
  CopyJob* next = nullptr;                   // the copier's while submitted, then the submitter's
  std::uint32_t lane = 0;                    // set by submit()

  [[nodiscard]] bool is_atomic() const { return kind == Kind::kCompareSwap || kind == Kind::kFetchAdd; }
};

class Copier {
 public:
  static constexpr std::uint32_t kMostLanes = 8;

  // `mem_descriptor` and the descriptors stay the caller's, and outlive this object. One for each lane: an
  // eventfd that is written when jobs of the lane are done.
  Copier(int mem_descriptor, const std::vector<int>& wake_descriptors);
  // Waits for the jobs that the thread has taken. Those that are still queued are dropped.
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  // Only the lane's own thread calls these two.
  void submit(CopyJob& job, std::uint32_t lane = 0);
  // A job of the lane that is done, or null.
  [[nodiscard]] CopyJob* take_done(std::uint32_t lane = 0);
  // Submitted by any lane and not yet taken back. Any lane's thread.
  [[nodiscard]] std::uint32_t outstanding() const { return outstanding_.load(std::memory_order_relaxed); }
  // Atomics among them. While there are any, an engine must not do one itself on the same memory.
  [[nodiscard]] std::uint32_t outstanding_atomics() const {
    return outstanding_atomics_.load(std::memory_order_relaxed);
  }

 private:
  struct State;
  struct alignas(64) Lane {
    std::uint32_t outstanding = 0;
    CopyJob* taken = nullptr;  // done jobs in order
  };

  std::unique_ptr<State> state_;
  std::array<Lane, kMostLanes> lanes_;
  std::atomic<std::uint32_t> outstanding_{0};
  std::atomic<std::uint32_t> outstanding_atomics_{0};
};

}  // namespace urdma::memory
