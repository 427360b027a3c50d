// Pipes of events.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/control/event_pipe.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstring>
#include <vector>

namespace urdma::provider {
namespace {

bool write_u64(int fd, std::uint64_t value) { return write_event(fd, std::as_bytes(std::span(&value, 1))); }

bool is_readable(int fd) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, 0) == 1;
}

std::vector<std::uint64_t> read_available(int fd) {
  std::vector<std::uint64_t> events;
  while (is_readable(fd)) {
    std::uint64_t event = 0;
    EXPECT_EQ(::read(fd, &event, sizeof(event)), 8);
    events.push_back(event);
  }
  return events;
}

TEST(EventPipeTest, MakeEventPipe_IsCloseOnExecAndBlocking) {
  const UniqueFd pipe = make_event_pipe();
  ASSERT_TRUE(pipe.is_open());
  EXPECT_NE(::fcntl(pipe.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(::fcntl(pipe.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_FALSE(is_readable(pipe.get())) << "no end-of-file either, though no other writer is there";
}

TEST(EventPipeTest, RemoveEvents_LeavesThoseOfOthersInOrder) {
  const UniqueFd pipe = make_event_pipe();
  for (const std::uint64_t event : {1, 2, 1, 3, 1}) ASSERT_TRUE(write_u64(pipe.get(), event));
  remove_events(pipe.get(), 8, 1);
  EXPECT_EQ(read_available(pipe.get()), (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(::fcntl(pipe.get(), F_GETFL) & O_NONBLOCK, 0) << "the program's flags are its own";
}

TEST(EventPipeTest, RemoveEvents_KnowsEventsByTheirFirstEightBytes) {
  const UniqueFd pipe = make_event_pipe();
  struct Event {
    std::uint64_t element;
    std::uint64_t rest;
  };
  for (const Event event : {Event{1, 2}, Event{2, 1}})
    write_event(pipe.get(), std::as_bytes(std::span(&event, 1)));
  remove_events(pipe.get(), sizeof(Event), 1);
  EXPECT_EQ(read_available(pipe.get()), (std::vector<std::uint64_t>{2, 1}));
}

TEST(EventPipeTest, WriteEvent_DoesNotBlockOnAFullPipe) {
  const UniqueFd pipe = make_event_pipe();
  int written = 0;
  while (write_u64(pipe.get(), 1)) ++written;
  EXPECT_GT(written, 0);
  remove_events(pipe.get(), 8, 1);
  EXPECT_TRUE(read_available(pipe.get()).empty());
}

}  // namespace
}  // namespace urdma::provider
