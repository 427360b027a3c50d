// Replaces pages of this process by others with the same bytes, while its threads go on: writers are held
// for the moment by userfaultfd's write protection, readers never are. Works without privileges; says
// is_usable() == false where the kernel or a sandbox forbids it.
//
// Between protecting and waking nothing here allocates, locks or uses stdio: a held writer may hold the
// lock. One call at a time (the caller's lock); never on a range that holds the calling thread's stack.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>

namespace urdma::provider {

class PageSwap {
 public:
  // Opens a userfaultfd, which lives as long as the process; a child after fork needs its own.
  static PageSwap& instance();

  [[nodiscard]] bool is_usable();
  // [address, address + length), whole readable and writable private pages, become the pages of `file` at
  // `offset`, shared, with the same bytes. On false they are as before.
  [[nodiscard]] bool to_shared(std::uint64_t address, std::size_t length, int file, std::uint64_t offset);
  // Shared pages become private ones with the same bytes. On false they are as before.
  [[nodiscard]] bool to_private(std::uint64_t address, std::size_t length);
  // After fork, in the child, which has one thread: shared pages become private copies without protection.
  // What is not mapped there is left alone.
  static void copy_alone(std::uint64_t address, std::size_t length);
  void forget();

 private:
  PageSwap() = default;
  bool open();
  [[nodiscard]] bool protect(std::uint64_t address, std::size_t length) const;
  void release(std::uint64_t address, std::size_t length) const;

  int fd_ = -1;
  bool is_tried_ = false;
  bool protects_untouched_ = false;  // UFFD_FEATURE_WP_UNPOPULATED
};

}  // namespace urdma::provider
