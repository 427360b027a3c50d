// Tests of datapath/engine/meeting.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/meeting.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <semaphore>
#include <thread>
#include <vector>

namespace urdma::engine {
namespace {

// Threads as engines are: between two rounds each looks whether it is invited.
class Attendants {
 public:
  explicit Attendants(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) threads_.emplace_back([this, i] { work(i); });
  }
  ~Attendants() {
    stop_.store(true);
    for (std::thread& thread : threads_) thread.join();
  }
  void run(void (*call)(void*), void* argument) {
    meeting_.call(call, argument, static_cast<std::uint32_t>(threads_.size()));
    meeting_.await_end();
  }
  std::array<std::uint64_t, 8> rounds{};  // written by the threads without any lock: TSan looks

 private:
  void work(std::uint32_t index) {
    std::uint32_t attended = 0;
    while (!stop_.load()) {
      ++rounds[index];
      if (meeting_.is_called(attended)) meeting_.attend(attended, [] {});
      std::this_thread::yield();
    }
  }
  Meeting meeting_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

struct Look {
  Attendants* attendants;
  std::uint64_t calls = 0;
  std::uint64_t moved = 0;
};

void look_twice(void* argument) {
  Look& look = *static_cast<Look*>(argument);
  const auto before = look.attendants->rounds;
  std::this_thread::yield();
  look.moved += before != look.attendants->rounds ? 1 : 0;
  ++look.calls;
}

TEST(MeetingTest, Attend_TheFunctionRunsOnceWhileAllStandStill) {
  for (const std::uint32_t count : {1U, 2U, 4U}) {
    Attendants attendants(count);
    Look look{&attendants};
    for (int i = 0; i < 100; ++i) attendants.run(look_twice, &look);
    EXPECT_EQ(look.calls, 100U) << count;
    EXPECT_EQ(look.moved, 0U) << count;
  }
}

// The control thread has called and then lost its core: one engine polls, and the other one sleeps.
TEST(MeetingTest, Attend_WhoComesWakesThoseThatSleep) {
  Meeting meeting;
  std::binary_semaphore wake(0);
  std::uint32_t calls = 0;
  std::thread sleeping([&] {
    std::uint32_t attended = 0;
    // Engines have no such limit, but a test ends.
    EXPECT_TRUE(wake.try_acquire_for(std::chrono::seconds(5))) << "nobody has woken it";
    EXPECT_TRUE(meeting.is_called(attended));
    meeting.attend(attended, [] {});
  });
  std::thread polling([&] {
    std::uint32_t attended = 0;
    while (!meeting.is_called(attended)) std::this_thread::yield();
    meeting.attend(attended, [&] { wake.release(); });
    EXPECT_FALSE(meeting.is_called(attended));
  });
  meeting.call([](void* argument) { ++*static_cast<std::uint32_t*>(argument); }, &calls, 2);
  meeting.await_end();
  EXPECT_EQ(calls, 1U);
  polling.join();
  sleeping.join();
}

}  // namespace
}  // namespace urdma::engine
