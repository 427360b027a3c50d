// Opening a session with a fake daemon, and what happens when that dies or the program forks.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/control/session.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

#include <chrono>

#include "tests/unit/provider/fake_daemon.hpp"

namespace urdma::provider::testing {
namespace {

// True as soon as `condition` is, false after two seconds.
template <typename Condition>
bool eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class SessionTest : public ::testing::Test {
 protected:
  void open() {
    auto opened = Session::open(identity_.get());
    ASSERT_TRUE(opened) << opened.error().message;
    session_ = std::move(*opened);
    session_->start([this] { ++deaths_; });
  }
  int alloc_pd(abi::Handle& reply) {
    return session_->requests().call(abi::MessageType::kAllocPd, abi::AllocPd{}, reply);
  }

  FakeDaemon daemon_;
  UniqueFd identity_ = daemon_.open_device();
  std::atomic<int> deaths_{0};
  std::unique_ptr<Session> session_;
};

TEST_F(SessionTest, Open_MapsThePagesAndLeavesTheWelcome) {
  open();
  EXPECT_EQ(session_->doorbells().engine_count, 1U);
  EXPECT_EQ(session_->doorbells().engines->magic, abi::kMagic);
  EXPECT_GE(session_->doorbells().eventfds[0], 0);
  abi::Received welcome;
  ASSERT_EQ(abi::receive_message(identity_.get(), welcome, MSG_DONTWAIT), 0)
      << "another copy wants to read it, too";
  EXPECT_EQ(welcome.body_bytes, sizeof(abi::Welcome));
}

TEST_F(SessionTest, Call_YieldsReplyOrErrno) {
  open();
  abi::Handle reply{};
  EXPECT_EQ(alloc_pd(reply), 0);
  EXPECT_EQ(reply.handle, 7U);
  daemon_.answer_errno = EBUSY;
  EXPECT_EQ(alloc_pd(reply), EBUSY);
  daemon_.answer_errno = 0;
  EXPECT_EQ(alloc_pd(reply), 0) << "an error is an answer like any other";
}

TEST_F(SessionTest, Call_RefusesAReplyOfAnotherSize) {
  open();
  abi::CreateCqReply reply{};
  EXPECT_EQ(session_->requests().call(abi::MessageType::kAllocPd, abi::AllocPd{}, reply), EPROTO);
}

TEST_F(SessionTest, Service_SeesTheDaemonDieAtOnce) {
  open();
  EXPECT_FALSE(session_->liveness().is_gone());
  daemon_.close();
  EXPECT_TRUE(eventually([&] { return deaths_ == 1; }));
  EXPECT_TRUE(session_->liveness().is_gone());
  abi::Handle reply{};
  EXPECT_EQ(alloc_pd(reply), EIO);
  EXPECT_EQ(deaths_, 1) << "told once";
}

TEST_F(SessionTest, Service_SurvivesUpcallsOfAnyKind) {
  open();
  daemon_.send_upcall({1, 0, 0x1000, 0x1000});
  abi::Handle reply{};
  EXPECT_EQ(alloc_pd(reply), 0);
  EXPECT_EQ(deaths_, 0);
}

TEST_F(SessionTest, BecomeInherited_ChildNeverSpeaksForTheParent) {
  open();
  const pid_t child = ::fork();
  if (child == 0) {
    abi::Handle reply{};
    const bool is_right = session_->is_inherited() && alloc_pd(reply) == EIO;
    session_.reset();
    ::_exit(is_right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(daemon_.requests, 0U);
  EXPECT_FALSE(session_->is_inherited());
  abi::Handle reply{};
  EXPECT_EQ(alloc_pd(reply), 0);
  EXPECT_EQ(deaths_, 0);
}

TEST_F(SessionTest, TakeAsyncFd_IsAPipeWithoutEnd) {
  open();
  const UniqueFd async(session_->take_async_fd());
  pollfd wait{async.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 0), 0);
}

TEST(SessionOpenTest, Open_SaysClearlyThatVersionsDiffer) {
  FakeDaemon daemon(abi::kVersion + 1);
  const UniqueFd identity = daemon.open_device();
  const auto session = Session::open(identity.get());
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, EPROTONOSUPPORT);
  EXPECT_NE(session.error().message.find("version 2"), std::string::npos) << session.error().message;
}

TEST(SessionOpenTest, Open_RefusesADescriptorThatIsNoConnection) {
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const auto session = Session::open(null.get());
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, ENOTSOCK);
}

}  // namespace
}  // namespace urdma::provider::testing
