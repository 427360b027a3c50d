// Tests of datapath/memory/realtime: real-time threads that work without a pause, on all cores or on some.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/realtime.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace urdma::memory {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kFor = std::chrono::milliseconds(1500);

Instant now() { return {std::chrono::nanoseconds(Clock::now().time_since_epoch()).count()}; }

std::uint32_t count_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<std::uint32_t>(CPU_COUNT(&set)) : 1;
}

class RealtimeShareTest : public testing::Test {
 protected:
  // Threads that work for a second and a half.
  void work(std::uint32_t count) {
    const auto end = Clock::now() + kFor;
    for (std::uint32_t i = 0; i < count; ++i) {
      threads_.emplace_back([this, end] {
        RealtimeShare share;
        if (!share.become_realtime()) is_allowed_ = false;
        while (is_allowed_ && Clock::now() < end) respites_ += share.look(now()) ? 1 : 0;
      });
    }
  }
  void await_end() {
    for (std::thread& thread : threads_) thread.join();
  }

  std::vector<std::thread> threads_;
  std::atomic<bool> is_allowed_{true};
  std::atomic<std::uint32_t> respites_{0};
};

// An ordinary thread looks at the clock again and again. Between two looks others may have had its core; the
// kernel alone gives it back after the better part of a second.
TEST_F(RealtimeShareTest, Look_LeavesTimeToOrdinaryThreads) {
  work(count_cores());
  Clock::duration longest{};
  for (auto last = Clock::now(), end = last + kFor; last < end;) {
    const auto look = Clock::now();
    longest = std::max(longest, look - last);
    last = look;
  }
  await_end();
  if (!is_allowed_) GTEST_SKIP() << "SCHED_FIFO is not allowed here";
  EXPECT_GT(respites_, 0U);
  EXPECT_LT(longest, std::chrono::milliseconds(300));
}

TEST_F(RealtimeShareTest, Look_WhereACoreIsLeftNobodyPauses) {
  if (count_cores() < 2) GTEST_SKIP() << "there is one core only";
  work(count_cores() - 1);
  await_end();
  if (!is_allowed_) GTEST_SKIP() << "SCHED_FIFO is not allowed here";
  EXPECT_EQ(respites_, 0U);
}

// They take their turn.
TEST_F(RealtimeShareTest, Look_OrdinaryThreadsAreNotCounted) {
  if (count_cores() < 2) GTEST_SKIP() << "there is one core only";
  work(count_cores() - 1);
  for (const auto end = Clock::now() + kFor; Clock::now() < end;) {
  }
  await_end();
  if (!is_allowed_) GTEST_SKIP() << "SCHED_FIFO is not allowed here";
  EXPECT_EQ(respites_, 0U);
}

TEST(RealtimeShare, Look_AnOrdinaryThreadNeverPauses) {
  RealtimeShare share;
  for (const auto end = Clock::now() + std::chrono::milliseconds(50); Clock::now() < end;) {
    EXPECT_FALSE(share.look(now()));
  }
}

}  // namespace
}  // namespace urdma::memory
