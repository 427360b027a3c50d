// System calls for the stub's own needs: not through libc's functions, which the stub stands in front of,
// and errno stays as it is. Async-signal-safe; usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace urdma::stub::raw {

// Returns what the kernel does: a negative errno on failure.
template <typename... Arguments>
long call(long number, Arguments... arguments) {
  const int errno_before = errno;
  const long result = ::syscall(number, arguments...);
  if (result >= 0) return result;
  const long error = -errno;
  errno = errno_before;
  return error;
}

inline int open(const char* path, int flags) {
  return static_cast<int>(call(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0));
}
inline void close(int fd) { call(SYS_close, fd); }
inline long read(int fd, void* bytes, std::size_t size) { return call(SYS_read, fd, bytes, size); }
inline long write(int fd, const void* bytes, std::size_t size) { return call(SYS_write, fd, bytes, size); }
inline long readlink(const char* path, char* text, std::size_t size) {
  return call(SYS_readlinkat, AT_FDCWD, path, text, size);
}
inline bool exists(const char* path) { return call(SYS_faccessat, AT_FDCWD, path, F_OK) == 0; }

// The way that libc reports a result of call().
inline int as_libc(long result) {
  if (result >= 0) return static_cast<int>(result);
  errno = static_cast<int>(-result);
  return -1;
}

}  // namespace urdma::stub::raw
