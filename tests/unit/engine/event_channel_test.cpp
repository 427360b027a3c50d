// The daemon's end of event pipes.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/event_channel.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "tests/support/withheld_page.hpp"

namespace urdma::engine {
namespace {

class EventChannelTest : public ::testing::Test {
 protected:
  EventChannelTest() {
    EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0);
    ::signal(SIGPIPE, SIG_IGN);  // engines block it
  }
  ~EventChannelTest() override {
    close_reader();
    ::close(ends_[1]);
  }
  void close_reader() {
    if (ends_[0] >= 0) ::close(std::exchange(ends_[0], -1));
  }
  EventChannel open() {
    auto channel = EventChannel::open(ends_[1]);
    EXPECT_TRUE(channel);
    return std::move(*channel);
  }
  static bool write(EventChannel& channel, std::uint64_t value) {
    return channel.write(std::as_bytes(std::span(&value, 1)));
  }
  std::uint64_t read() {
    std::uint64_t value = 0;
    EXPECT_EQ(::read(ends_[0], &value, sizeof value), static_cast<ssize_t>(sizeof value));
    return value;
  }

  int ends_[2] = {-1, -1};
};

TEST_F(EventChannelTest, Open_OnlyPipes) {
  EXPECT_FALSE(EventChannel::open(-1));
  const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  EXPECT_FALSE(EventChannel::open(file));
  ::close(file);
}

// The read end serves as well: the program passes the one it has.
TEST_F(EventChannelTest, Open_EitherEnd) {
  auto channel = EventChannel::open(ends_[0]);
  ASSERT_TRUE(channel);
  EXPECT_TRUE(write(*channel, 17));
  EXPECT_EQ(read(), 17U);
}

TEST_F(EventChannelTest, Write_FullPipeDoesNotBlock) {
  EventChannel channel = open();
  ::fcntl(ends_[1], F_SETFL, 0);  // whatever the program does to its own end
  std::uint64_t written = 0;
  while (write(channel, written)) ++written;
  EXPECT_GT(written, 100U);
  EXPECT_EQ(read(), 0U);
  for (std::uint64_t i = 1; i < written; ++i) ASSERT_EQ(read(), i) << "nothing is cut or lost";
  EXPECT_TRUE(write(channel, 5));
}

TEST_F(EventChannelTest, Write_NobodyReads) {
  EventChannel channel = open();
  close_reader();
  EXPECT_TRUE(write(channel, 1)) << "it is not for the owner to try again";
}

TEST_F(EventChannelTest, Write_NotOpen) {
  EventChannel channel;
  EXPECT_FALSE(channel.is_open());
  EXPECT_TRUE(write(channel, 1));
}

// Several queues tell of their events by one channel of the program: that is one descriptor.
TEST_F(EventChannelTest, Pipe_IsSharedByItsChannels) {
  auto pipe = EventPipe::open(ends_[1]);
  ASSERT_TRUE(pipe);
  const std::weak_ptr<EventPipe> seen = *pipe;
  EventChannel first(*pipe);
  EventChannel second(std::move(*pipe));
  EXPECT_TRUE(write(first, 1));
  EXPECT_TRUE(write(second, 2));
  EXPECT_EQ(read(), 1U);
  EXPECT_EQ(read(), 2U);
  first = EventChannel();
  EXPECT_TRUE(write(second, 3)) << "it is there for the other one";
  EXPECT_EQ(read(), 3U);
  second = EventChannel();
  EXPECT_TRUE(seen.expired());
}

// ---- With a copier ----

class CarriedEventTest : public EventChannelTest {
 protected:
  CarriedEventTest() : channel_(open()) { channel_.carry_by(copier_); }
  // Takes jobs back until the channel is not busy; false if that takes longer than a few seconds.
  bool settle() {
    for (int i = 0; i < 5000 && channel_.is_busy(); ++i) {
      while (memory::CopyJob* job = copier_.take_done()) EventChannel::finish(*job);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return !channel_.is_busy();
  }

  int wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  memory::Copier copier_{-1, {wake_}};
  EventChannel channel_;
};

TEST_F(CarriedEventTest, Write_TrueOnceItIsWritten) {
  EXPECT_FALSE(write(channel_, 11));
  EXPECT_TRUE(channel_.is_busy());
  ASSERT_TRUE(settle());
  EXPECT_TRUE(write(channel_, 11));
  EXPECT_EQ(read(), 11U);
  EXPECT_FALSE(write(channel_, 11)) << "the next one, though it looks the same";
  ASSERT_TRUE(settle());
  EXPECT_EQ(read(), 11U);
}

TEST_F(CarriedEventTest, Write_AnotherEventMeanwhile) {
  EXPECT_FALSE(write(channel_, 1));
  ASSERT_TRUE(settle());
  EXPECT_FALSE(write(channel_, 2)) << "what was written is not this one";
  ASSERT_TRUE(settle());
  EXPECT_TRUE(write(channel_, 2));
  EXPECT_EQ(read(), 1U);
  EXPECT_EQ(read(), 2U);
}

TEST_F(CarriedEventTest, Write_FullPipeIsTriedAgain) {
  const int bytes = ::fcntl(ends_[1], F_SETPIPE_SZ, 4096);
  ASSERT_GT(bytes, 0);
  const auto room = static_cast<std::uint64_t>(bytes) / 8;
  for (std::uint64_t i = 0; i < room; ++i) {
    ASSERT_EQ(::write(ends_[1], &i, sizeof i), static_cast<ssize_t>(sizeof i));
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(write(channel_, room)) << "there is no room";
    ASSERT_TRUE(settle());
  }
  for (std::uint64_t i = 0; i < room; ++i) ASSERT_EQ(read(), i);
  EXPECT_FALSE(write(channel_, room)) << "it is under way";
  ASSERT_TRUE(settle());
  EXPECT_TRUE(write(channel_, room));
  EXPECT_EQ(read(), room);
}

TEST_F(CarriedEventTest, Gone_WhileTheCopierWrites) {
  EXPECT_FALSE(write(channel_, 5));
  channel_ = EventChannel();
  memory::CopyJob* job = nullptr;
  for (int i = 0; i < 5000 && job == nullptr; ++i) {
    job = copier_.take_done();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_NE(job, nullptr);
  EventChannel::finish(*job);  // the last to know the channel
  EXPECT_EQ(read(), 5U);
}

// A reader that withholds the memory it reads into keeps the pipe's lock: only the copier waits for it.
TEST_F(CarriedEventTest, Write_ReaderWithholdsItsMemory) {
  test::WithheldPage page;
  if (!page.is_withheld()) GTEST_SKIP() << "userfaultfd that holds the kernel is not allowed here";
  const std::uint64_t first = 1;
  ASSERT_EQ(::write(ends_[1], &first, sizeof first), static_cast<ssize_t>(sizeof first));
  std::thread reader(
      [&] { [[maybe_unused]] const ssize_t got = ::read(ends_[0], page.data(), sizeof first); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until it hangs, with the lock

  const auto before = std::chrono::steady_clock::now();
  EXPECT_FALSE(write(channel_, 2));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(write(channel_, 2));
  EXPECT_EQ(copier_.take_done(), nullptr) << "the copier is held up";
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(2));

  page.give();
  reader.join();
  ASSERT_TRUE(settle());
  EXPECT_TRUE(write(channel_, 2));
  EXPECT_EQ(read(), 2U);
}

TEST_F(EventChannelTest, Move_OneOwner) {
  EventChannel first = open();
  EventChannel second(std::move(first));
  EXPECT_FALSE(first.is_open());  // NOLINT: what a moved-from object is, is what is tested
  EXPECT_TRUE(write(second, 3));
  EXPECT_EQ(read(), 3U);
}

}  // namespace
}  // namespace urdma::engine
