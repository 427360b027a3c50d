// Tests of datapath/control/event_loop.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/event_loop.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <array>

namespace urdma::control {
namespace {

int full_eventfd() { return ::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK); }

TEST(EventLoopTest, RunOnce_CallsWhatIsReady) {
  const auto loop = std::move(*EventLoop::create());
  const UniqueFd ready(full_eventfd());
  const UniqueFd idle(::eventfd(0, EFD_CLOEXEC));
  int calls = 0;
  ASSERT_TRUE(loop->add(ready.get(), [&](std::uint32_t) { ++calls; }));
  ASSERT_TRUE(loop->add(idle.get(), [&](std::uint32_t) { calls += 100; }));
  loop->run_once(monotonic_now());
  EXPECT_EQ(calls, 1);
}

TEST(EventLoopTest, RunOnce_DoesNotCallWhatAnotherHandlerRemoved) {
  const auto loop = std::move(*EventLoop::create());
  const std::array fds = {UniqueFd(full_eventfd()), UniqueFd(full_eventfd())};
  int calls = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(loop->add(fds[i].get(), [&, i](std::uint32_t) {
      ++calls;
      loop->remove(fds[1 - i].get());
    }));
  }
  loop->run_once(monotonic_now());
  EXPECT_EQ(calls, 1);
}

TEST(EventLoopTest, RunOnce_AllowsAHandlerToRemoveItself) {
  const auto loop = std::move(*EventLoop::create());
  const UniqueFd fd(full_eventfd());
  int calls = 0;
  ASSERT_TRUE(loop->add(fd.get(), [&](std::uint32_t) {
    loop->remove(fd.get());
    ++calls;
  }));
  loop->run_once(monotonic_now());
  loop->run_once(monotonic_now());
  EXPECT_EQ(calls, 1);
}

TEST(EventLoopTest, RunOnce_ReturnsAtTheDeadline) {
  const auto loop = std::move(*EventLoop::create());
  const Instant start = monotonic_now();
  loop->run_once(start + milliseconds(20));
  EXPECT_GE((monotonic_now() - start).ns, milliseconds(19).ns);
}

}  // namespace
}  // namespace urdma::control
