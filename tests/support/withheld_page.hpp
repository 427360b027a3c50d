// A page of memory that its program withholds: whoever touches it waits, in the kernel as well, until it is
// given. What a hostile client has such pages for is to make others wait with it. Any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace urdma::test {

class WithheldPage {
 public:
  static constexpr std::size_t kBytes = 4096;

  WithheldPage() {
    descriptor_ = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
    data_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uffdio_api api{};
    api.api = UFFD_API;
    uffdio_register registration{};
    registration.range = {reinterpret_cast<std::uint64_t>(data_), kBytes};
    registration.mode = UFFDIO_REGISTER_MODE_MISSING;
    is_withheld_ = data_ != MAP_FAILED && descriptor_ >= 0 && ::ioctl(descriptor_, UFFDIO_API, &api) == 0 &&
                   ::ioctl(descriptor_, UFFDIO_REGISTER, &registration) == 0;
  }
  ~WithheldPage() {
    if (is_withheld_) give();
    if (descriptor_ >= 0) ::close(descriptor_);
    if (data_ != MAP_FAILED) ::munmap(data_, kBytes);
  }
  WithheldPage(const WithheldPage&) = delete;
  WithheldPage& operator=(const WithheldPage&) = delete;

  // False where userfaultfd that holds the kernel is not allowed.
  [[nodiscard]] bool is_withheld() const { return is_withheld_; }
  [[nodiscard]] void* data() const { return data_; }
  // Whoever waits goes on.
  void give() {
    uffdio_zeropage zero{};
    zero.range = {reinterpret_cast<std::uint64_t>(data_), kBytes};
    is_withheld_ = ::ioctl(descriptor_, UFFDIO_ZEROPAGE, &zero) != 0;
  }

 private:
  int descriptor_ = -1;
  void* data_ = nullptr;
  bool is_withheld_ = false;
};

}  // namespace urdma::test
