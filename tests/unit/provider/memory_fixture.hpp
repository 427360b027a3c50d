// What the tests of page conversion share: a daemon as far as extents go, memory that threads count in, and
// children that a test makes.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "provider/control/request_channel.hpp"
#include "provider/memory/vma.hpp"
#include "urdma/abi/client.hpp"

namespace urdma::provider::testing {

inline constexpr std::size_t kPage = 4096;

inline int stress_rounds(int by_default) {
  const char* factor = std::getenv("URDMA_TEST_STRESS");
  return factor != nullptr ? by_default * std::atoi(factor) : by_default;
}

// Anonymous private pages.
class Pages {
 public:
  explicit Pages(std::size_t pages) : bytes_(pages * kPage) {
    data_ = static_cast<std::byte*>(
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~Pages() { ::munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::uint64_t start() const { return reinterpret_cast<std::uint64_t>(data_); }
  [[nodiscard]] std::uint64_t end() const { return start() + bytes_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

// The mapping that holds `address`.
inline Vma mapping_at(const void* address) {
  const auto at = reinterpret_cast<std::uint64_t>(address);
  const std::vector<Vma> found = mappings_of(at, at + 1, true);
  EXPECT_EQ(found.size(), 1U);
  return found.empty() ? Vma{} : found[0];
}
inline bool is_shared(const void* address) { return mapping_at(address).is_shared; }

// The daemon, as far as extents go: a thread at the other end of the request connection.
class ExtentPeer {
 public:
  ExtentPeer() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    requests_.attach(UniqueFd(ends[0]));
    socket_ = ends[1];
    thread_ = std::thread([this] { serve(); });
  }
  ~ExtentPeer() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
    for (auto& [id, extent] : extents_) ::munmap(extent.data, extent.length);
  }
  [[nodiscard]] RequestChannel& requests() { return requests_; }
  // Extents that the client has said are converted.
  [[nodiscard]] std::size_t extent_count() {
    const std::lock_guard guard(mutex_);
    std::size_t count = 0;
    for (const auto& [id, extent] : extents_) count += extent.is_done ? 1 : 0;
    return count;
  }
  // Where the daemon sees this byte of the program; null where it has no extent.
  [[nodiscard]] std::byte* view(const void* address) {
    const std::lock_guard guard(mutex_);
    const auto at = reinterpret_cast<std::uint64_t>(address);
    for (const auto& [id, extent] : extents_) {
      if (extent.is_done && at >= extent.address && at - extent.address < extent.length)
        return extent.data + (at - extent.address);
    }
    return nullptr;
  }
  std::atomic<std::uint32_t> begins{0};
  std::atomic<bool> refuses_done{false};  // the daemon dislikes what has been converted

 private:
  struct Extent {
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::byte* data = nullptr;
    bool is_done = false;
  };

  void serve() {
    abi::Received message;
    while (abi::receive_message(socket_, message) == 0) {
      const UniqueFd file(message.fd_count > 0 ? ::dup(message.fds[0]) : -1);
      message.close_fds();
      const auto type = static_cast<abi::MessageType>(message.header.type);
      if (type == abi::MessageType::kConvertBegin) {
        begin(message);
      } else if (type == abi::MessageType::kConvertDone) {
        finish(message);
      } else if (type == abi::MessageType::kShareMapping) {
        share(message, file.get());
      } else {
        revert(message);
      }
    }
  }
  template <typename Body>
  void answer(const abi::Received& request, std::uint32_t error, const Body& body,
              std::span<const int> fds = {}) {
    abi::send_message(socket_, {request.header.type, error, request.header.sequence}, abi::bytes_of(body),
                      fds);
  }
  void begin(const abi::Received& message) {
    ++begins;
    abi::ConvertBegin wanted;
    std::memcpy(&wanted, message.body, sizeof wanted);
    const UniqueFd file(::memfd_create("extent", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(wanted.length)), 0);
    auto* data = static_cast<std::byte*>(
        ::mmap(nullptr, wanted.length, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
    std::uint32_t id = 0;
    {
      const std::lock_guard guard(mutex_);
      id = ++last_id_;
      extents_[id] = {wanted.address, wanted.length, data, false};
    }
    const int fd = file.get();
    answer(message, 0, abi::Handle{id, 0}, std::span(&fd, 1));
  }
  void share(const abi::Received& message, int file) {
    abi::ShareMapping wanted;
    std::memcpy(&wanted, message.body, sizeof wanted);
    auto* data = static_cast<std::byte*>(::mmap(nullptr, wanted.length, PROT_READ | PROT_WRITE, MAP_SHARED,
                                                file, static_cast<off_t>(wanted.offset)));
    std::uint32_t id = 0;
    {
      const std::lock_guard guard(mutex_);
      id = ++last_id_;
      extents_[id] = {wanted.address, wanted.length, data, true};
    }
    answer(message, 0, abi::Handle{id, 0});
  }
  void finish(const abi::Received& message) {
    abi::ConvertDone done;
    std::memcpy(&done, message.body, sizeof done);
    if (done.converted == 0) erase(done.extent);
    if (refuses_done) return answer(message, EEXIST, abi::ErrorText{});
    const std::lock_guard guard(mutex_);
    if (extents_.contains(done.extent)) extents_[done.extent].is_done = true;
    answer(message, 0, abi::AllocPd{});
  }
  void revert(const abi::Received& message) {
    abi::Revert wanted;
    std::memcpy(&wanted, message.body, sizeof wanted);
    erase(wanted.extent);
    answer(message, 0, abi::AllocPd{});
  }
  void erase(std::uint32_t id) {
    const std::lock_guard guard(mutex_);
    const auto found = extents_.find(id);
    if (found == extents_.end()) return;
    ::munmap(found->second.data, found->second.length);
    extents_.erase(found);
  }

  Liveness liveness_;
  RequestChannel requests_{liveness_};
  int socket_ = -1;
  std::mutex mutex_;
  std::map<std::uint32_t, Extent> extents_;
  std::uint32_t last_id_ = 0;
  std::thread thread_;
};

// Threads that raise counters all over a range by plain stores, each its own: what is lost shows in the sum.
class Counting {
 public:
  Counting(std::byte* data, std::size_t bytes, unsigned threads) : data_(data), bytes_(bytes) {
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this, i] { count(i); });
  }
  ~Counting() { stop(); }
  void stop() {
    stopping_ = true;
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }
  // After stop(): the counters add up to what the threads have counted.
  void expect_nothing_lost() {
    while (counted_ == 0) std::this_thread::yield();
    stop();
    std::uint64_t sum = 0;
    for (std::size_t at = 0; at < bytes_; at += kStride) {
      for (unsigned i = 0; i < threads_.size(); ++i) sum += word(at, i);
    }
    EXPECT_EQ(sum, counted_.load());
  }
  [[nodiscard]] std::uint64_t counted() const { return counted_.load(); }

 private:
  static constexpr std::size_t kStride = 1024;

  [[nodiscard]] volatile std::uint64_t& word(std::size_t at, unsigned thread) const {
    return *reinterpret_cast<volatile std::uint64_t*>(data_ + at + std::size_t{thread} * 64);
  }
  void count(unsigned thread) {
    std::uint64_t mine = 0;
    for (std::size_t at = 0; !stopping_.load(std::memory_order_relaxed); at = (at + 37 * kStride) % bytes_) {
      word(at, thread) = word(at, thread) + 1;
      if (++mine % 64 == 0) counted_.fetch_add(64, std::memory_order_relaxed);
    }
    counted_.fetch_add(mine % 64, std::memory_order_relaxed);
  }

  std::byte* data_;
  std::size_t bytes_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> counted_{0};
  std::vector<std::thread> threads_;
};

// Runs `body` in a child; what it returns is the result, 128 + n where signal n ended it (SIGALRM after 20
// s).
template <typename Body>
int in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(body());
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// In a child of the test's: 0 unless an expectation has failed there.
inline int failures() { return ::testing::Test::HasFailure() ? 1 : 0; }

// A sandbox that refuses userfaultfd, by either door. 77 where that cannot be made.
inline int forbid_userfaultfd() {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 77;
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(USERFAULTFD_IOC_NEW), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{sizeof program / sizeof program[0], program};
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0 ? 0 : 77;
}

}  // namespace urdma::provider::testing
