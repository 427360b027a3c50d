// Tests of datapath/engine/meeting.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/meeting.hpp"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace urdma::engine {
namespace {

// Threads as engines are: between two rounds each looks whether it is invited.
class Attendants {
 public:
  explicit Attendants(std::uint32_t count) : invited_(count) {
    for (std::uint32_t i = 0; i < count; ++i) threads_.emplace_back([this, i] { work(i); });
  }
  ~Attendants() {
    stop_.store(true);
    for (std::thread& thread : threads_) thread.join();
  }
  void run(void (*call)(void*), void* argument) {
    meeting_.prepare(call, argument, static_cast<std::uint32_t>(invited_.size()));
    for (std::atomic<bool>& invited : invited_) invited.store(true, std::memory_order_release);
    meeting_.await_end();
  }
  std::array<std::uint64_t, 8> rounds{};  // written by the threads without any lock: TSan looks

 private:
  void work(std::uint32_t index) {
    while (!stop_.load()) {
      ++rounds[index];
      if (invited_[index].exchange(false, std::memory_order_acquire)) meeting_.attend();
      std::this_thread::yield();
    }
  }
  Meeting meeting_;
  std::vector<std::atomic<bool>> invited_;
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

}  // namespace
}  // namespace urdma::engine
