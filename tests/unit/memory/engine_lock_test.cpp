// Tests of datapath/memory/engine_lock.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/engine_lock.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

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

}  // namespace
}  // namespace urdma::memory
