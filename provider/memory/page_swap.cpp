// Page replacement under userfaultfd write protection. Raw system calls: communication libraries intercept
// those of libc.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/memory/page_swap.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <initializer_list>

#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)  // Linux 6.4; the headers of Debian 12 are older
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)  // Linux 5.19
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace urdma::provider {

namespace {

void* raw_mmap(std::uint64_t address, std::size_t length, int flags, int file, std::uint64_t offset) {
  const long result = ::syscall(SYS_mmap, address, length, PROT_READ | PROT_WRITE, flags, file, offset);
  return reinterpret_cast<void*>(result);  // NOLINT: the kernel's own form of an address
}

// Holding writers in the kernel (a system call that writes to the page) needs a right that most
// processes lack; without it such a call fails with EFAULT for the moment.
int open_descriptor() {
  const int device = ::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (device >= 0) {
    const int fd = ::ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
    ::close(device);
    if (fd >= 0) return fd;
  }
  const auto whole = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
  if (whole >= 0) return whole;
  return static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
}

bool negotiate(int fd, std::uint64_t features) {
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = features;
  return ::ioctl(fd, UFFDIO_API, &api) == 0;
}

bool copy_to_file(std::uint64_t address, std::size_t length, int file, std::uint64_t offset) {
  while (length > 0) {
    const long written = ::syscall(SYS_pwrite64, file, address, length, offset);
    if (written <= 0) return false;
    address += static_cast<std::uint64_t>(written);
    offset += static_cast<std::uint64_t>(written);
    length -= static_cast<std::size_t>(written);
  }
  return true;
}

// A write through /proc/PID/mem, as the daemon makes it, finds its page and fills it under the lock of this
// process's map: one that found the page before it was protected may still be filling it. Changing the map
// takes that lock alone, and so waits for it.
void wait_for_writes_in_hand() {
  void* page = raw_mmap(0, 4096, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED) ::syscall(SYS_munmap, page, 4096);
}

// Copies whole pages. Not memcpy: a program may have replaced it by one that allocates or logs.
void copy_pages(std::uint64_t to, std::uint64_t from, std::size_t length) {
#if defined(__x86_64__)
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(length) : : "memory");
#else
  auto* const target = reinterpret_cast<std::uint64_t*>(to);                // NOLINT: the kernel's own form
  const auto* const source = reinterpret_cast<const std::uint64_t*>(from);  // NOLINT
  for (std::size_t i = 0; i < length / sizeof(*target); ++i) {
    target[i] = source[i];
    asm volatile("" : : : "memory");  // or the compiler would make a call of memcpy of the loop
  }
#endif
}

}  // namespace

PageSwap& PageSwap::instance() {
  static PageSwap swap;
  return swap;
}

bool PageSwap::open() {
  const std::uint64_t base = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
  const std::uint64_t shared = base | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
  // UFFDIO_API may be asked once a descriptor: from the most to the least.
  for (const std::uint64_t features : {shared | UFFD_FEATURE_WP_UNPOPULATED, shared}) {
    fd_ = open_descriptor();
    if (fd_ < 0) return false;
    if (negotiate(fd_, features)) {
      protects_untouched_ = (features & UFFD_FEATURE_WP_UNPOPULATED) != 0;
      return true;
    }
    ::close(fd_);
    fd_ = -1;
  }
  return false;
}

bool PageSwap::is_usable() {
  if (!is_tried_) {
    is_tried_ = true;
    open();
  }
  return fd_ >= 0;
}

void PageSwap::forget() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  is_tried_ = false;
}

bool PageSwap::protect(std::uint64_t address, std::size_t length) const {
  // Protection does not hold on pages that are not there, unless the kernel says so.
  if (!protects_untouched_ && ::syscall(SYS_madvise, address, length, MADV_POPULATE_READ) != 0) return false;
  uffdio_register registration{};
  registration.range = {address, length};
  registration.mode = UFFDIO_REGISTER_MODE_WP;
  if (::ioctl(fd_, UFFDIO_REGISTER, &registration) != 0) return false;
  uffdio_writeprotect protection{};
  protection.range = {address, length};
  protection.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  if (::ioctl(fd_, UFFDIO_WRITEPROTECT, &protection) != 0) {
    release(address, length);
    return false;
  }
  wait_for_writes_in_hand();
  return true;
}

// Takes protection and registration away from whatever is mapped there now, and lets held writers go:
// they would sleep for ever otherwise, also when the range is mapped anew.
void PageSwap::release(std::uint64_t address, std::size_t length) const {
  uffdio_range range{address, length};
  uffdio_writeprotect protection{};
  protection.range = range;
  ::ioctl(fd_, UFFDIO_WRITEPROTECT, &protection);
  ::ioctl(fd_, UFFDIO_UNREGISTER, &range);
  ::ioctl(fd_, UFFDIO_WAKE, &range);
}

void PageSwap::copy_alone(std::uint64_t address, std::size_t length) {
  unsigned char resident[(std::size_t{2} << 20) / 4096];
  if (length / 4096 > sizeof resident || ::syscall(SYS_mincore, address, length, resident) != 0) return;
  void* fresh = raw_mmap(0, length, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return;
  const auto from = reinterpret_cast<std::uint64_t>(fresh);
  copy_pages(from, address, length);
  ::syscall(SYS_mremap, from, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, address);
}

bool PageSwap::to_shared(std::uint64_t address, std::size_t length, int file, std::uint64_t offset) {
  if (!is_usable() || !protect(address, length)) return false;
  const bool replaced = copy_to_file(address, length, file, offset) &&
                        raw_mmap(address, length, MAP_SHARED | MAP_FIXED, file, offset) != MAP_FAILED;
  release(address, length);
  return replaced;
}

bool PageSwap::to_private(std::uint64_t address, std::size_t length) {
  if (!is_usable()) return false;
  // Room first: what is unmapped in between could be taken by another thread.
  void* fresh = raw_mmap(0, length, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return false;
  const auto from = reinterpret_cast<std::uint64_t>(fresh);
  if (!protect(address, length)) {
    ::syscall(SYS_munmap, from, length);
    return false;
  }
  copy_pages(from, address, length);
  const long moved = ::syscall(SYS_mremap, from, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, address);
  release(address, length);
  if (moved == -1) ::syscall(SYS_munmap, from, length);
  return moved != -1;
}

}  // namespace urdma::provider
