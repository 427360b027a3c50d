// Real-time threads: see realtime.hpp. Each tells the others what part of its last span it has used, in a
// table.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/realtime.hpp"

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>

namespace urdma::memory {

struct alignas(64) RealtimeShare::Use {
  std::atomic<bool> is_taken{false};
  std::atomic<std::int64_t> percent{0};
  std::atomic<std::int64_t> valid_until_ns{0};  // of a thread that sleeps nothing is heard
};

namespace {

constexpr Duration kSpan = milliseconds(5);
constexpr Duration kPause = microseconds(500);
constexpr Duration kValidity = kSpan * 4;
// How much of all cores together may be used. Where a host takes time away from a virtual machine, threads
// seem to use less than they do.
constexpr std::int64_t kMostPercent = 80;

constexpr std::size_t kMostThreads = 256;  // those beyond are not counted, and never pause
std::array<RealtimeShare::Use, kMostThreads> uses;

Duration read(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return {time.tv_sec * 1'000'000'000 + time.tv_nsec};
}

// The process's, whatever this thread is pinned to.
std::int64_t count_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(::getpid(), sizeof set, &set) == 0 ? std::max(CPU_COUNT(&set), 1) : 1;
}

std::int64_t percent_of_all(Instant now) {
  std::int64_t sum = 0;
  for (const RealtimeShare::Use& use : uses) {
    if (use.valid_until_ns.load(std::memory_order_relaxed) > now.ns) {
      sum += use.percent.load(std::memory_order_relaxed);
    }
  }
  return sum;
}

}  // namespace

RealtimeShare::~RealtimeShare() {
  if (own_ == nullptr) return;
  own_->valid_until_ns.store(0, std::memory_order_relaxed);
  own_->is_taken.store(false, std::memory_order_release);
}

bool RealtimeShare::become_realtime() {
  sched_param parameter{};
  parameter.sched_priority = 1;
  if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter) != 0) return false;
  for (Use& use : uses) {
    if (own_ == nullptr && !use.is_taken.exchange(true, std::memory_order_acquire)) own_ = &use;
  }
  if (own_ != nullptr) begin_span();
  return true;
}

void RealtimeShare::begin_span() {
  begun_ = {read(CLOCK_MONOTONIC).ns};
  used_at_begin_ = read(CLOCK_THREAD_CPUTIME_ID);
  next_look_ = begun_ + kSpan;
}

bool RealtimeShare::judge(Instant now) {
  const std::int64_t used_ns = read(CLOCK_THREAD_CPUTIME_ID).ns - used_at_begin_.ns;
  own_->percent.store(std::min<std::int64_t>(used_ns * 100 / (now - begun_).ns, 100),
                      std::memory_order_relaxed);
  own_->valid_until_ns.store((now + kValidity).ns, std::memory_order_relaxed);
  const bool is_too_much = percent_of_all(now) > count_cores() * kMostPercent;
  if (is_too_much) {
    const timespec pause{0, kPause.ns};
    ::nanosleep(&pause, nullptr);
  }
  begin_span();
  return is_too_much;
}

}  // namespace urdma::memory
