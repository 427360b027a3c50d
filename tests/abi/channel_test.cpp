// /dev/infiniband/rdma_cm, as a program with the stand-in sees it.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_user_cm.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace urdma::test {
namespace {

constexpr std::uint32_t kDeviceRemoval = 11;
constexpr const char* kDevice = "/dev/infiniband/rdma_cm";

template <typename Body>
struct Written {
  rdma_ucm_cmd_hdr header;
  Body body;
};

// The result of a command; a failure is -errno.
template <typename Body>
long command(int fd, std::uint32_t number, const Body& body, std::size_t room = 0) {
  const Written<Body> all{{number, sizeof(body), static_cast<__u16>(room)}, body};
  const ssize_t result = ::write(fd, &all, sizeof(all));
  return result < 0 ? -errno : result;
}

std::uint64_t address_of(void* where) { return reinterpret_cast<std::uintptr_t>(where); }

class Channel : public testing::Test {
 protected:
  void SetUp() override {
    fd_ = ::open(kDevice, O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd_, 0);
  }
  void TearDown() override { ::close(fd_); }

  static long create(int fd, std::uint64_t uid, std::uint32_t& id) {
    rdma_ucm_create_id_resp response{};
    rdma_ucm_create_id body{};
    body.uid = uid;
    body.response = address_of(&response);
    const long result = command(fd, RDMA_USER_CM_CMD_CREATE_ID, body, sizeof(response));
    id = response.id;
    return result;
  }
  static long get_event(int fd, rdma_ucm_event_resp& event) {
    return command(fd, RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{address_of(&event)}, sizeof(event));
  }
  // `signs` of events, of which `events` are there.
  long sign(std::uint32_t events, std::uint32_t signs) {
    return command(fd_, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{events, signs});
  }
  void set_nonblocking() { ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK); }

  int fd_ = -1;
};

TEST_F(Channel, Stat_IsTheDeviceThatTheTreeNames) {
  struct stat by_path {};
  struct stat by_descriptor {};
  ASSERT_EQ(::stat(kDevice, &by_path), 0);
  ASSERT_EQ(::fstat(fd_, &by_descriptor), 0);
  EXPECT_TRUE(S_ISCHR(by_path.st_mode));
  EXPECT_TRUE(S_ISCHR(by_descriptor.st_mode));
  const int tree = ::open("/sys/class/misc/rdma_cm/dev", O_RDONLY);
  ASSERT_GE(tree, 0);
  char text[32] = "";
  ASSERT_GT(::read(tree, text, sizeof(text) - 1), 0);
  ::close(tree);
  EXPECT_EQ(by_descriptor.st_rdev, makedev(std::atoi(text), std::atoi(std::strchr(text, ':') + 1)));
  EXPECT_EQ(by_path.st_rdev, by_descriptor.st_rdev);
  char name[4096];
  EXPECT_STREQ(::realpath(kDevice, name), kDevice);
  const int abi = ::open("/sys/class/misc/rdma_cm/abi_version", O_RDONLY);
  ASSERT_EQ(::read(abi, text, 2), 2);
  ::close(abi);
  EXPECT_EQ(text[0], '4');
}

TEST_F(Channel, Write_AnswerComesToItsPointer) {
  std::uint32_t id = 0;
  errno = 77;
  EXPECT_EQ(create(fd_, 0x100000005, id), ssize_t{sizeof(Written<rdma_ucm_create_id>)});
  EXPECT_EQ(errno, 77);
  EXPECT_EQ(id, 5U);
  rdma_ucm_destroy_id destroy{address_of(&id), 5, 0};
  EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_DESTROY_ID, destroy, sizeof(id)), -ENOENT);
}

TEST_F(Channel, Write_BadPointersAndSizes) {
  rdma_ucm_create_id body{};
  EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_CREATE_ID, body, 4), -EFAULT);
  body.response = 0x1000;  // where nothing is
  EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_CREATE_ID, body, 4), -EFAULT);
  EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_CREATE_ID, std::uint32_t{1}, 4), -EINVAL);
  std::uint32_t id = 0;
  EXPECT_GT(create(fd_, 9, id), 0) << "and it still works";
}

// Newer programs may have newer commands: what they are is the daemon's affair. (This one knows none.)
TEST_F(Channel, Write_UnknownCommandsGoToTheDaemon) {
  std::uint32_t id = 0;
  for (const std::uint32_t number : {23U, 40U, 63U}) {
    EXPECT_EQ(command(fd_, number, rdma_ucm_listen{1, 1}), -ENOENT) << number;
    EXPECT_GT(create(fd_, 9, id), 0) << "after " << number;
  }
}

TEST_F(Channel, Write_ToADaemonOfAnotherVersionIsExplainedOnce) {
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(command(fd_, 62, rdma_ucm_listen{1, 1}), -EPROTO);
  const std::string said = testing::internal::GetCapturedStderr();
  const std::size_t found = said.find("another version");
  EXPECT_NE(found, std::string::npos) << said;
  EXPECT_EQ(said.find("another version", found + 1), std::string::npos) << said;
}

TEST_F(Channel, Write_LengthsThatTheBytesDoNotHold) {
  const Written<rdma_ucm_listen> longer{{RDMA_USER_CM_CMD_LISTEN, sizeof(rdma_ucm_listen) + 1, 0}, {1, 1}};
  EXPECT_EQ(::write(fd_, &longer, sizeof(longer)), -1);
  EXPECT_EQ(errno, EINVAL);
  const rdma_ucm_cmd_hdr bare{RDMA_USER_CM_CMD_LISTEN, 0xFFFF, 0};
  EXPECT_EQ(::write(fd_, &bare, sizeof(bare)), -1);
  EXPECT_EQ(errno, EINVAL);
  std::uint32_t id = 0;
  EXPECT_GT(create(fd_, 9, id), 0) << "and it still works";
}

TEST_F(Channel, SetOption_ValueGoesAlong) {
  unsigned char value = ENOTTY;
  rdma_ucm_set_option option{address_of(&value), 1, 0, 0, sizeof(value)};
  EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_SET_OPTION, option), -ENOTTY);
  option.optval = 8;
  EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_SET_OPTION, option), -EFAULT);
  option.optlen = 1U << 20;
  EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_SET_OPTION, option), -EINVAL);
}

TEST_F(Channel, GetEvent_PollSaysWhen) {
  pollfd waiting{fd_, POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 0);
  ASSERT_GT(sign(2, 2), 0);
  rdma_ucm_event_resp event{};
  for (std::uint32_t left = 2; left > 0; --left) {
    EXPECT_EQ(::poll(&waiting, 1, 1000), 1);
    EXPECT_GT(get_event(fd_, event), 0);
    EXPECT_EQ(event.id, left);
    EXPECT_EQ(event.status, sizeof(event)) << "the room that it had";
  }
  EXPECT_EQ(::poll(&waiting, 1, 0), 0);
}

TEST_F(Channel, GetEvent_WithoutWaiting) {
  set_nonblocking();
  rdma_ucm_event_resp event{};
  EXPECT_EQ(get_event(fd_, event), -EAGAIN);
  ASSERT_GT(sign(1, 3), 0) << "the events of two signs have gone meanwhile";
  EXPECT_GT(get_event(fd_, event), 0);
  EXPECT_EQ(get_event(fd_, event), -EAGAIN);
  std::uint32_t id = 0;
  EXPECT_GT(create(fd_, 9, id), 0) << "commands work all the same";
}

TEST_F(Channel, GetEvent_WaitsAndIsInterrupted) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
  std::atomic<long> result = 0;
  std::thread waiter([&] {
    rdma_ucm_event_resp event{};
    result = get_event(fd_, event);
  });
  // Until it has come: a signal before that would be lost.
  while (result == 0) {
    ::usleep(10'000);
    ::pthread_kill(waiter.native_handle(), SIGUSR1);
  }
  waiter.join();
  EXPECT_EQ(result, -EINTR);
}

TEST_F(Channel, GetEvent_WaitsUntilItComes) {
  std::atomic<long> result = 0;
  std::thread waiter([&] {
    rdma_ucm_event_resp event{};
    result = get_event(fd_, event);
  });
  ::usleep(20'000);
  EXPECT_EQ(result, 0);
  ASSERT_GT(sign(1, 1), 0);
  waiter.join();
  EXPECT_GT(result, 0);
}

TEST_F(Channel, MigrateId_BringsTheTicketOfTheOldChannel) {
  const int other = ::open(kDevice, O_RDWR | O_CLOEXEC);
  rdma_ucm_migrate_resp response{};
  rdma_ucm_migrate_id move{address_of(&response), 1, static_cast<std::uint32_t>(fd_)};
  EXPECT_GT(command(other, RDMA_USER_CM_CMD_MIGRATE_ID, move, sizeof(response)), 0);
  EXPECT_EQ(response.events_reported, 77U);
  move.fd = STDIN_FILENO;
  EXPECT_EQ(command(other, RDMA_USER_CM_CMD_MIGRATE_ID, move, sizeof(response)), -EINVAL);
  ::close(other);
}

TEST_F(Channel, Threads_GetTheirOwnAnswers) {
  constexpr std::uint32_t kThreads = 8;
  constexpr std::uint32_t kRounds = 200;
  std::atomic<std::uint32_t> good = 0;
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        std::uint32_t id = 0;
        const std::uint32_t wanted = thread << 16 | (round + 1);
        if (create(fd_, wanted, id) > 0 && id == wanted) ++good;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, kThreads * kRounds);
}

TEST_F(Channel, Fork_ChildAsksOnIt) {
  const int copy = ::dup(fd_);
  const pid_t child = ::fork();
  if (child == 0) {
    std::uint32_t id = 0;
    ::_exit(create(copy, 3, id) > 0 && id == 3 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ::close(copy);
}

// As a thread that is in write(2), which is how programs end those that wait for events.
TEST_F(Channel, GetEvent_IsCancelledWhileItWaits) {
  const auto wait = [](void* channel) -> void* {
    rdma_ucm_event_resp event{};
    get_event(*static_cast<int*>(channel), event);
    return nullptr;
  };
  pthread_t waiter;
  ASSERT_EQ(::pthread_create(&waiter, nullptr, wait, &fd_), 0);
  ::usleep(20'000);
  EXPECT_EQ(::pthread_cancel(waiter), 0);
  void* result = nullptr;
  timespec limit{};
  ::clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += 5;
  ASSERT_EQ(::pthread_timedjoin_np(waiter, &result, &limit), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  ASSERT_GT(sign(1, 1), 0);
  rdma_ucm_event_resp event{};
  EXPECT_GT(get_event(fd_, event), 0) << "it has taken nothing along";
}

TEST_F(Channel, DestroyId_PollDoesNotSayWhatHasGone) {
  ASSERT_GT(sign(1, 3), 0);
  std::uint32_t reported = 0;
  const rdma_ucm_destroy_id destroy{address_of(&reported), 99, 0};
  ASSERT_GT(command(fd_, RDMA_USER_CM_CMD_DESTROY_ID, destroy, sizeof(reported)), 0);
  pollfd waiting{fd_, POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 0);
  ASSERT_GT(sign(1, 1), 0);
  rdma_ucm_event_resp event{};
  ASSERT_GT(get_event(fd_, event), 0);
  EXPECT_EQ(event.status, 3U) << "so many signs were returned";
}

TEST_F(Channel, GetEvent_WithoutDescriptorsLosesNothing) {
  set_nonblocking();
  ASSERT_GT(sign(1, 1), 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{3, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  rdma_ucm_event_resp event{};
  const long refused = get_event(fd_, event);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(refused, -EMFILE);
  EXPECT_GT(get_event(fd_, event), 0);
}

// Linux tells each ID that has a device when the device goes; what has none is not told.
TEST_F(Channel, Death_RemovesTheDeviceOfEachId) {
  std::uint32_t id = 0;
  for (const std::uint64_t uid : {0x100000003, 0x100000004, 0x100000005}) ASSERT_GT(create(fd_, uid, id), 0);
  rdma_ucm_bind bind{};
  bind.addr.ss_family = AF_INET;
  bind.id = 3;
  ASSERT_GT(command(fd_, RDMA_USER_CM_CMD_BIND, bind), 0) << "to every address";
  bind.id = 4;
  reinterpret_cast<sockaddr_in&>(bind.addr).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_GT(command(fd_, RDMA_USER_CM_CMD_BIND, bind), 0);
  rdma_ucm_accept accept{};
  accept.id = 7;
  accept.uid = 0x100000007;
  accept.conn_param.valid = 1;
  ASSERT_GT(command(fd_, RDMA_USER_CM_CMD_ACCEPT, accept), 0);
  ASSERT_GT(sign(5, 1), 0);
  rdma_ucm_event_resp event{};
  ASSERT_GT(get_event(fd_, event), 0) << "the address of ID 5 is resolved";

  EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{1}), -ENODEV);
  for (const std::uint32_t with_device : {4, 5, 7}) {
    ASSERT_GT(get_event(fd_, event), 0);
    EXPECT_EQ(event.id, with_device);
    EXPECT_EQ(event.uid, 0x100000000 | with_device);
    EXPECT_EQ(event.event, kDeviceRemoval);
  }
  EXPECT_EQ(get_event(fd_, event), -EIO);
  std::uint32_t reported = 0;
  for (const auto& [number, events] : {std::pair{3U, 0U}, {4U, 1U}, {5U, 2U}, {7U, 1U}}) {
    const rdma_ucm_destroy_id destroy{address_of(&reported), number, 0};
    EXPECT_GT(command(fd_, RDMA_USER_CM_CMD_DESTROY_ID, destroy, sizeof(reported)), 0);
    EXPECT_EQ(reported, events) << number;
  }
}

TEST_F(Channel, Death_OfAnotherChannelIsNoRemoval) {
  const int other = ::open(kDevice, O_RDWR | O_CLOEXEC);
  rdma_ucm_accept accept{};
  accept.id = 7;
  accept.uid = 7;
  accept.conn_param.valid = 1;
  ASSERT_GT(command(other, RDMA_USER_CM_CMD_ACCEPT, accept), 0);
  EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{1}), -ENODEV);
  rdma_ucm_event_resp event{};
  EXPECT_EQ(get_event(fd_, event), -EIO);
  ::close(other);
}

TEST_F(Channel, Death_IsSeenAtOnce) {
  EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{1}), -ENODEV);
  pollfd waiting{fd_, POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 1000), 1);
  EXPECT_NE(waiting.revents & POLLHUP, 0);
  std::uint32_t id = 0;
  EXPECT_EQ(create(fd_, 3, id), -ENODEV);
  rdma_ucm_event_resp event{};
  EXPECT_EQ(get_event(fd_, event), -EIO);
}

}  // namespace
}  // namespace urdma::test
