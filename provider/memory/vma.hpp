// The mappings of this process, as /proc/self tells them. Any thread; allocates: never to be called while
// pages are write-protected.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace urdma::provider {

struct Vma {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;  // in its file
  std::uint64_t inode = 0;   // 0: anonymous
  std::uint32_t device_major = 0;
  std::uint32_t device_minor = 0;
  bool is_readable = false;
  bool is_writable = false;
  bool is_executable = false;
  bool is_shared = false;
  std::string path;       // of its file; may be stale, or a description in brackets
  bool is_stack = false;  // the main thread's
  // From smaps, where it was asked for.
  bool is_locked = false;     // mlock
  bool is_dont_fork = false;  // MADV_DONTFORK
  bool is_dont_dump = false;  // MADV_DONTDUMP
};

// The mappings that overlap [start, end), in order. `with_flags` reads smaps, which costs milliseconds in a
// large process. Empty where /proc cannot be read.
[[nodiscard]] std::vector<Vma> mappings_of(std::uint64_t start, std::uint64_t end, bool with_flags);

}  // namespace urdma::provider
