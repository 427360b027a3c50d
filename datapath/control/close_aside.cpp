// Threads that close descriptors (see close_aside.hpp). Any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/close_aside.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <deque>
#include <mutex>
#include <string_view>
#include <thread>

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

}  // namespace urdma::control
