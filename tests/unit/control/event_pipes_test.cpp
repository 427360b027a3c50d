// Tests of datapath/control/event_pipes: one pipe for all queues that tell of their events by it.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/event_pipes.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>

namespace urdma::control {
namespace {

// The daemon's descriptor of a pipe of its own.
std::shared_ptr<engine::EventPipe> make_pipe() {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  auto pipe = engine::EventPipe::open(ends[1]);
  EXPECT_TRUE(pipe);
  ::close(ends[0]);
  ::close(ends[1]);
  return std::move(*pipe);
}

TEST(EventPipesTest, Find_TheSameForTheSameFile) {
  EventPipes pipes;
  const auto one = make_pipe();
  const auto two = make_pipe();
  EXPECT_EQ(pipes.find({7, 1, {}}), nullptr);
  pipes.add({7, 1, {}}, one);
  pipes.add({7, 2, {}}, two);
  EXPECT_EQ(pipes.find({7, 1, {}}), one);
  EXPECT_EQ(pipes.find({7, 2, {}}), two);
  EXPECT_EQ(pipes.find({8, 1, {}}), nullptr) << "of another file system";
  EXPECT_EQ(pipes.size(), 2U);
}

TEST(EventPipesTest, Find_NothingOnceItsQueuesAreGone) {
  EventPipes pipes;
  auto one = make_pipe();
  pipes.add({7, 1, {}}, one);
  one.reset();
  EXPECT_EQ(pipes.find({7, 1, {}}), nullptr);
  EXPECT_EQ(pipes.size(), 0U);
  one = make_pipe();
  pipes.add({7, 1, {}}, one);  // another file of the same number
  EXPECT_EQ(pipes.find({7, 1, {}}), one);
  EXPECT_EQ(pipes.size(), 1U);
}

}  // namespace
}  // namespace urdma::control
