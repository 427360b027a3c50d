// Threads that close descriptors (see close_aside.hpp). Any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/close_aside.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>

#include "datapath/control/passed_descriptors.hpp"

namespace urdma::control {
namespace {

constexpr std::size_t kMostThreads = 32;  // beyond as many stuck ones, descriptors wait
constexpr int kProcBlockBytes = 1024;     // of procfs; what users may mount has pages

// Its threads live only while there is something to close: a node at rest has none.
class Closer {
 public:
  void take(int fd) {
    const std::lock_guard guard(lock_);
    waiting_.push_back(fd);
    if (threads_ == kMostThreads) return;
    ++threads_;
    std::thread([this] { work(); }).detach();
  }

 private:
  void work() {
    std::unique_lock guard(lock_);
    while (!waiting_.empty()) {
      const int fd = waiting_.front();
      waiting_.pop_front();
      guard.unlock();
      ::close(fd);
      guard.lock();
    }
    --threads_;
  }

  std::mutex lock_;
  std::deque<int> waiting_;
  std::size_t threads_ = 0;
};

// Whether nothing is in the socket. Once it is shut nothing comes, and at the end recvmsg gives 0; so does a
// message without bytes, but with SO_PASSCRED each has a control part. What the look finds in it is closed
// aside: who has a copy of the socket may take it out meanwhile, and this thread is then the last to have it.
// It is not taken out, since this process may have no descriptor left for it.
bool is_empty(int socket) {
  constexpr std::size_t kOtherControlBytes = 8192;  // credentials, and a security label
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
  ::shutdown(socket, SHUT_RDWR);
  char byte = 0;
  alignas(cmsghdr) std::array<std::byte, kPassedFdsBytes + kOtherControlBytes> control;
  iovec part{&byte, sizeof(byte)};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket, &header, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return false;  // one that listens, say: its connections have queues
  for (UniqueFd& fd : take_descriptors(header)) close_aside(fd.release());
  return got == 0 && header.msg_controllen == 0;
}

}  // namespace

bool is_expected_kind(int fd) {
  if (::fcntl(fd, F_GET_SEALS) >= 0) return true;
  char text[512];
  const ssize_t size = ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), text, sizeof(text));
  if (size <= 0) return false;
  const std::string_view name(text, static_cast<std::size_t>(size));
  if (name.starts_with("pipe:[")) return true;
  int block_bytes = 0;
  return name.ends_with("/mem") && ::ioctl(fd, FIGETBSZ, &block_bytes) == 0 && block_bytes == kProcBlockBytes;
}

void close_aside(int fd) {
  // Never destroyed: its threads may be stuck when the daemon ends.
  static auto* const closer = new Closer;
  if (fd >= 0) closer->take(fd);
}

void close_socket(int socket) {
  if (socket < 0) return;
  if (is_empty(socket))
    ::close(socket);
  else
    close_aside(socket);
}

}  // namespace urdma::control
