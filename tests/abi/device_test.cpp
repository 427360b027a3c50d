// The uverbs devices of a node, as a program with the stand-in sees them.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "urdma/abi/control.hpp"

extern "C" {
int __open_2(const char*, int);
int __openat64_2(int, const char*, int);
int __xstat(int, const char*, struct stat*);
int __fxstat(int, int, struct stat*);
}

namespace urdma::test {
namespace {

constexpr const char* kDevice = "/dev/infiniband/uverbs0";

bool is_device(int fd, unsigned number = 0) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISCHR(status.st_mode) && status.st_rdev == makedev(231, 192 + number);
}

class UniqueFd {
 public:
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { ::close(fd_); }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  operator int() const { return fd_; }

 private:
  int fd_;
};

int exit_status(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Device, Open_IsConnectedToTheNode) {
  const UniqueFd fd(::open(kDevice, O_RDWR | O_CLOEXEC));
  ASSERT_GE(fd, 0);
  struct {
    abi::Header header;
    abi::Welcome body;
  } welcome{};
  ASSERT_EQ(::recv(fd, &welcome, sizeof(welcome), MSG_PEEK), ssize_t{sizeof(welcome)});
  EXPECT_EQ(welcome.body.magic, abi::kMagic);
  EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
}

TEST(Device, Open_FlagsAreFollowed) {
  const UniqueFd fd(::open(kDevice, O_RDWR | O_NONBLOCK));
  ASSERT_GE(fd, 0);
  EXPECT_EQ(::fcntl(fd, F_GETFD), 0);
  EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(::open(kDevice, O_RDWR | O_CREAT | O_EXCL, 0600), -1);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(::open(kDevice, O_RDONLY | O_DIRECTORY), -1);
  EXPECT_EQ(errno, ENOTDIR);
}

TEST(Device, Open_EveryWay) {
  const UniqueFd root(::open("/", O_RDONLY | O_DIRECTORY));
  const UniqueFd directory(::open("/dev/infiniband", O_RDONLY | O_DIRECTORY));
  ASSERT_GE(directory, 0);
  const UniqueFd opened[] = {
      UniqueFd(::open64(kDevice, O_RDWR)),
      UniqueFd(::openat(AT_FDCWD, kDevice, O_RDWR)),
      UniqueFd(::openat64(-1, kDevice, O_RDWR)),
      UniqueFd(::openat(root, "dev/infiniband/uverbs0", O_RDWR)),
      UniqueFd(::openat(directory, "uverbs0", O_RDWR)),
      UniqueFd(::__open_2(kDevice, O_RDWR)),
      UniqueFd(::__openat64_2(root, "dev/infiniband/uverbs0", O_RDWR)),
  };
  for (const UniqueFd& fd : opened) EXPECT_TRUE(is_device(fd)) << &fd - opened;
  FILE* const stream = ::fopen(kDevice, "r+");
  ASSERT_NE(stream, nullptr);
  EXPECT_TRUE(is_device(::fileno(stream)));
  ::fclose(stream);
}

TEST(Device, Open_PreservesErrno) {
  errno = 77;
  const UniqueFd fd(::open(kDevice, O_RDWR));
  EXPECT_EQ(errno, 77);
  EXPECT_TRUE(is_device(fd));
  EXPECT_EQ(errno, 77);
}

// Device 1's socket refuses, and device 2's is not there. The sentence comes once in a process: so in a
// child.
TEST(Device, Open_WithoutADaemonSaysSoOnce) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    const bool first = ::open("/dev/infiniband/uverbs1", O_RDWR) == -1 && errno == ENODEV;
    const bool second = ::open("/dev/infiniband/uverbs2", O_RDWR) == -1 && errno == ENODEV;
    ::_exit(first && second ? 0 : 1);
  }
  ::close(ends[1]);
  EXPECT_EQ(exit_status(child), 0);
  char text[1024] = "";
  const ssize_t size = ::read(ends[0], text, sizeof(text) - 1);
  const std::string said(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  EXPECT_NE(said.find("start it with `urdma up`"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_EQ(::read(ends[0], text, sizeof(text)), 0);
  ::close(ends[0]);
}

TEST(Device, Open_OneThatNobodyHas) {
  EXPECT_EQ(::open("/dev/infiniband/uverbs9", O_RDWR), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(::open("/dev/infiniband/uverbs01", O_RDWR), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(Device, Stat_IsACharacterDevice) {
  struct stat status[6] = {};
  ASSERT_EQ(::stat(kDevice, &status[0]), 0);
  ASSERT_EQ(::lstat(kDevice, &status[1]), 0);
  ASSERT_EQ(::fstatat(AT_FDCWD, kDevice, &status[2], AT_SYMLINK_NOFOLLOW), 0);
  ASSERT_EQ(::__xstat(1, kDevice, &status[3]), 0);
  const UniqueFd root(::open("/", O_PATH));
  ASSERT_EQ(::fstatat(root, "dev/infiniband/uverbs0", &status[4], 0), 0);
  const UniqueFd directory(::open("/dev/infiniband", O_PATH));
  ASSERT_EQ(::fstatat(directory, "uverbs0", &status[5], 0), 0);
  for (const struct stat& each : status) {
    EXPECT_TRUE(S_ISCHR(each.st_mode)) << &each - status;
    EXPECT_EQ(each.st_rdev, makedev(231, 192)) << &each - status;
  }
  struct statx extended {};
  ASSERT_EQ(::statx(AT_FDCWD, kDevice, 0, STATX_BASIC_STATS, &extended), 0);
  EXPECT_TRUE(S_ISCHR(extended.stx_mode));
  EXPECT_EQ(extended.stx_rdev_major, 231U);
  EXPECT_EQ(extended.stx_rdev_minor, 192U);
}

TEST(Device, Stat_OfADescriptor) {
  const UniqueFd fd(::open(kDevice, O_RDWR));
  struct stat status {};
  EXPECT_TRUE(is_device(fd));
  ASSERT_EQ(::__fxstat(1, fd, &status), 0);
  EXPECT_EQ(status.st_rdev, makedev(231, 192));
  status = {};
  ASSERT_EQ(::fstatat(fd, "", &status, AT_EMPTY_PATH), 0);
  EXPECT_EQ(status.st_rdev, makedev(231, 192));
  struct statx extended {};
  ASSERT_EQ(::statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &extended), 0);
  EXPECT_TRUE(S_ISCHR(extended.stx_mode));
  EXPECT_EQ(extended.stx_rdev_minor, 192U);
}

TEST(Device, Access_IsTheSockets) {
  EXPECT_EQ(::access(kDevice, R_OK | W_OK), 0);
  EXPECT_EQ(::faccessat(AT_FDCWD, kDevice, F_OK, 0), 0);
  EXPECT_EQ(::euidaccess(kDevice, R_OK), 0);
  EXPECT_EQ(::access("/dev/infiniband/uverbs2", F_OK), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(Device, Names_AreTheDevicesOwn) {
  char text[4096];
  ASSERT_NE(::realpath(kDevice, text), nullptr);
  EXPECT_STREQ(text, kDevice);
  EXPECT_EQ(::readlink(kDevice, text, sizeof(text)), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(::realpath("/dev/infiniband/uverbs2", text), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

TEST(Device, Dup_KeepsItsMeaning) {
  const int fd = ::open(kDevice, O_RDWR);
  const UniqueFd copy(::dup(fd));
  const UniqueFd high(::fcntl(fd, F_DUPFD_CLOEXEC, 100));
  ::close(fd);
  EXPECT_TRUE(is_device(copy));
  EXPECT_TRUE(is_device(high));
}

TEST(Device, Close_AndTheNumberIsAnother) {
  const int fd = ::open(kDevice, O_RDWR);
  ::close(fd);
  struct stat status {};
  EXPECT_EQ(::fstat(fd, &status), -1);
  EXPECT_EQ(errno, EBADF);
  const UniqueFd other(::open("/dev/null", O_RDWR));
  ASSERT_EQ(other, fd);
  EXPECT_FALSE(is_device(other));
}

TEST(Device, Fork_ChildHasIt) {
  const UniqueFd fd(::open(kDevice, O_RDWR));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(is_device(fd) && is_device(::open(kDevice, O_RDWR)) ? 0 : 1);
  EXPECT_EQ(exit_status(child), 0);
  EXPECT_TRUE(is_device(fd));
}

TEST(Device, Exec_InheritsItUnlessClosed) {
  const UniqueFd kept(::open(kDevice, O_RDWR));
  const UniqueFd closed(::open(kDevice, O_RDWR | O_CLOEXEC));
  const auto kind_after_exec = [](int fd) {
    const std::string number = std::to_string(fd);
    const pid_t child = ::vfork();
    if (child == 0) {
      ::execl("/proc/self/exe", "abi_kstub", "--tell-kind", number.c_str(), nullptr);
      ::_exit(127);
    }
    return exit_status(child);
  };
  EXPECT_EQ(kind_after_exec(kept), 0);
  EXPECT_EQ(kind_after_exec(closed), 2);
}

TEST(Device, Passed_KeepsItsMeaning) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const UniqueFd near(pair[0]);
  const UniqueFd far(pair[1]);
  const UniqueFd fd(::open(kDevice, O_RDWR));
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  char byte = 0;
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = fd;
  std::memcpy(CMSG_DATA(header), &number, sizeof(number));
  ASSERT_EQ(::sendmsg(near, &message, 0), 1);
  ASSERT_EQ(::recvmsg(far, &message, 0), 1);
  int received_number = -1;
  std::memcpy(&received_number, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(received_number));
  const UniqueFd received(received_number);
  EXPECT_NE(received_number, number);
  EXPECT_TRUE(is_device(received));
}

TEST(Device, Threads_OpenAndCloseAtOnce) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 100;
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const UniqueFd fd(::open(kDevice, O_RDWR | O_CLOEXEC));
        struct stat status {};
        if (is_device(fd) && ::stat("/sys/class/infiniband/urdma0/node_type", &status) == 0) ++good;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, kThreads * kRounds);
}

}  // namespace
}  // namespace urdma::test
