// Tests of datapath/memory/engine_lock.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/engine_lock.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "datapath/memory/realtime.hpp"

namespace urdma::memory {
namespace {

TEST(EngineLockTest, Lock_ExcludesOthers) {
  EngineLock lock;
  lock.enable();
  std::uint64_t value = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        const std::lock_guard guard(lock);
        ++value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(value, 80'000U);
}

TEST(EngineLockTest, TryLock_FailsWhileItIsTaken) {
  EngineLock lock;
  lock.enable();
  ASSERT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
}

TEST(EngineLockTest, Enable_WithoutItNothingIsExcluded) {
  EngineLock lock;
  EXPECT_TRUE(lock.try_lock());
  EXPECT_TRUE(lock.try_lock());
}

// Two threads on one core, of which the one with the lock runs only when the other one sleeps.
TEST(EngineLockTest, Lock_AHolderOfLowerPriorityGoesOn) {
  using Clock = std::chrono::steady_clock;
  const int core = ::sched_getcpu();
  EngineLock lock;
  lock.enable();
  lock.lock();
  bool is_realtime = false;
  Clock::duration waited{};
  const auto pin = [core] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(core), &set);
    return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
  };
  std::thread holder([&] {
    EXPECT_TRUE(pin());
    std::thread waiter([&] {
      EXPECT_TRUE(pin());
      is_realtime = RealtimeShare().become_realtime();
      if (!is_realtime) return;
      const auto begun = Clock::now();
      lock.lock();
      waited = Clock::now() - begun;
      lock.unlock();
    });
    // What it does while it has the lock.
    for (const auto end = Clock::now() + std::chrono::milliseconds(20); Clock::now() < end;) {
    }
    lock.unlock();
    waiter.join();
  });
  holder.join();
  if (!is_realtime) GTEST_SKIP() << "SCHED_FIFO is not allowed here";
  EXPECT_LT(waited, std::chrono::milliseconds(300));
}

}  // namespace
}  // namespace urdma::memory
