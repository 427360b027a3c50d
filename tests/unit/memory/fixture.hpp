// What the tests of memory share: the memory of a process as a client passes it, pages to play with.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/support/map_apart.hpp"

namespace urdma::memory {

// How many rounds a stress test makes: URDMA_TEST_STRESS multiplies its default.
inline int stress_rounds(int by_default) {
  const char* factor = std::getenv("URDMA_TEST_STRESS");
  return factor != nullptr ? by_default * std::atoi(factor) : by_default;
}

// /proc/PID/mem, of this process unless said otherwise.
class OwnMemory {
 public:
  explicit OwnMemory(pid_t process = ::getpid())
      : fd_(::open(("/proc/" + std::to_string(process) + "/mem").c_str(), O_RDWR | O_CLOEXEC)) {
    EXPECT_GE(fd_, 0);
  }
  ~OwnMemory() {
    if (fd_ >= 0) ::close(fd_);
  }
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

class WakeEvent {
 public:
  WakeEvent() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~WakeEvent() { ::close(fd_); }
  WakeEvent(const WakeEvent&) = delete;
  WakeEvent& operator=(const WakeEvent&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  // The count since the last call; 0 when there is none in time.
  [[nodiscard]] std::uint64_t wait_ms(int milliseconds) const {
    pollfd waiting{fd_, POLLIN, 0};
    std::uint64_t count = 0;
    if (::poll(&waiting, 1, milliseconds) != 1) return 0;
    return ::read(fd_, &count, sizeof count) == sizeof count ? count : 0;
  }

 private:
  int fd_;
};

// Anonymous pages of this process, whose addresses stay reserved.
// Pages that stay a hole when they are unmapped.
class ScratchPages {
 public:
  explicit ScratchPages(std::size_t pages) : bytes_(pages * 4096) {
    void* mapped = urdma::test::map_apart(bytes_);
    EXPECT_NE(mapped, MAP_FAILED);
    data_ = static_cast<std::byte*>(mapped);
  }
  ~ScratchPages() { ::munmap(data_, bytes_); }
  ScratchPages(const ScratchPages&) = delete;
  ScratchPages& operator=(const ScratchPages&) = delete;
  void unmap() const { ::munmap(data_, bytes_); }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(data_); }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

}  // namespace urdma::memory
