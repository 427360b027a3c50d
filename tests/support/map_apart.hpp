// Memory for tests that unmap some and expect a hole to stay one. The kernel gives a fresh hole to whoever
// asks next for memory anywhere, and others in the process, a sanitizer above all, ask whenever they like.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace urdma::test {

// Anonymous private pages at an address that the kernel gives nobody who did not ask for it by name;
// MAP_FAILED if it is taken. The caller unmaps them. Any thread.
inline void* map_apart(std::size_t bytes) {
  constexpr std::uintptr_t kFirst = 0x1000'0000;  // below what ASan and TSan keep for themselves
  static std::atomic<std::uintptr_t> next{kFirst};
  void* wanted = reinterpret_cast<void*>(next.fetch_add((bytes + 8191) / 4096 * 4096));
  return ::mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
                0);
}

}  // namespace urdma::test
