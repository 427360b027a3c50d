// The functions that the stub stands in front of, as the next library has them (libc, or another
// preloaded library). All are looked up when this library starts, so that a hook in a signal handler or in
// a child of fork looks up nothing; a call that comes before that looks up its own.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <dirent.h>
#include <glob.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

// Every hooked function: X(result, name, parameters...).
#define URDMA_HOOKED_FUNCTIONS(X)                                                 \
  X(int, open, const char*, int, ...)                                             \
  X(int, open64, const char*, int, ...)                                           \
  X(int, __open_2, const char*, int)                                              \
  X(int, __open64_2, const char*, int)                                            \
  X(int, openat, int, const char*, int, ...)                                      \
  X(int, openat64, int, const char*, int, ...)                                    \
  X(int, __openat_2, int, const char*, int)                                       \
  X(int, __openat64_2, int, const char*, int)                                     \
  X(FILE*, fopen, const char*, const char*)                                       \
  X(FILE*, fopen64, const char*, const char*)                                     \
  X(FILE*, freopen, const char*, const char*, FILE*)                              \
  X(FILE*, freopen64, const char*, const char*, FILE*)                            \
  X(DIR*, opendir, const char*)                                                   \
  X(int, scandir, const char*, dirent***, ScanFilter*, ScanOrder*)                \
  X(int, scandir64, const char*, dirent64***, ScanFilter64*, ScanOrder64*)        \
  X(int, scandirat, int, const char*, dirent***, ScanFilter*, ScanOrder*)         \
  X(int, scandirat64, int, const char*, dirent64***, ScanFilter64*, ScanOrder64*) \
  X(int, glob, const char*, int, GlobError*, glob_t*)                             \
  X(int, glob64, const char*, int, GlobError*, glob64_t*)                         \
  X(char*, realpath, const char*, char*)                                          \
  X(char*, __realpath_chk, const char*, char*, std::size_t)                       \
  X(char*, canonicalize_file_name, const char*)                                   \
  X(ssize_t, readlink, const char*, char*, std::size_t)                           \
  X(ssize_t, __readlink_chk, const char*, char*, std::size_t, std::size_t)        \
  X(ssize_t, readlinkat, int, const char*, char*, std::size_t)                    \
  X(ssize_t, __readlinkat_chk, int, const char*, char*, std::size_t, std::size_t) \
  X(char*, getcwd, char*, std::size_t)                                            \
  X(char*, __getcwd_chk, char*, std::size_t, std::size_t)                         \
  X(char*, get_current_dir_name)                                                  \
  X(int, chdir, const char*)                                                      \
  X(int, access, const char*, int)                                                \
  X(int, eaccess, const char*, int)                                               \
  X(int, euidaccess, const char*, int)                                            \
  X(int, faccessat, int, const char*, int, int)                                   \
  X(int, inotify_add_watch, int, const char*, std::uint32_t)                      \
  X(ssize_t, getxattr, const char*, const char*, void*, std::size_t)              \
  X(ssize_t, lgetxattr, const char*, const char*, void*, std::size_t)             \
  X(ssize_t, listxattr, const char*, char*, std::size_t)                          \
  X(ssize_t, llistxattr, const char*, char*, std::size_t)                         \
  X(int, stat, const char*, struct stat*)                                         \
  X(int, stat64, const char*, struct stat64*)                                     \
  X(int, lstat, const char*, struct stat*)                                        \
  X(int, lstat64, const char*, struct stat64*)                                    \
  X(int, fstat, int, struct stat*)                                                \
  X(int, fstat64, int, struct stat64*)                                            \
  X(int, fstatat, int, const char*, struct stat*, int)                            \
  X(int, fstatat64, int, const char*, struct stat64*, int)                        \
  X(int, __xstat, int, const char*, struct stat*)                                 \
  X(int, __xstat64, int, const char*, struct stat64*)                             \
  X(int, __lxstat, int, const char*, struct stat*)                                \
  X(int, __lxstat64, int, const char*, struct stat64*)                            \
  X(int, __fxstat, int, int, struct stat*)                                        \
  X(int, __fxstat64, int, int, struct stat64*)                                    \
  X(int, __fxstatat, int, int, const char*, struct stat*, int)                    \
  X(int, __fxstatat64, int, int, const char*, struct stat64*, int)                \
  X(int, statx, int, const char*, int, unsigned, struct statx*)                   \
  X(ssize_t, write, int, const void*, std::size_t)                                \
  X(ssize_t, writev, int, const iovec*, int)                                      \
  X(int, ioctl, int, unsigned long, ...)                                          \
  X(int, socket, int, int, int)

namespace urdma::stub {

using ScanFilter = int(const dirent*);
using ScanOrder = int(const dirent**, const dirent**);
using ScanFilter64 = int(const dirent64*);
using ScanOrder64 = int(const dirent64**, const dirent64**);
using GlobError = int(const char*, int);

// Null when no library has it.
[[nodiscard]] void* look_up(const char* name);

template <typename Signature>
class Real;

template <typename Result, typename... Parameters>
class Real<Result(Parameters...)> {
 public:
  constexpr explicit Real(const char* name) : name_(name) {}
  Result operator()(Parameters... arguments) { return get()(arguments...); }

  Result (*get())(Parameters...) {
    if (auto* function = function_.load(std::memory_order_relaxed)) [[likely]]
      return function;
    auto* function = reinterpret_cast<Result (*)(Parameters...)>(look_up(name_));
    function_.store(function, std::memory_order_relaxed);
    return function;
  }

 private:
  const char* name_;
  std::atomic<Result (*)(Parameters...)> function_{nullptr};
};

template <typename Result, typename... Parameters>
class Real<Result(Parameters..., ...)> {
 public:
  constexpr explicit Real(const char* name) : name_(name) {}
  template <typename... Arguments>
  Result operator()(Arguments... arguments) {
    return get()(arguments...);
  }

  Result (*get())(Parameters..., ...) {
    if (auto* function = function_.load(std::memory_order_relaxed)) [[likely]]
      return function;
    auto* function = reinterpret_cast<Result (*)(Parameters..., ...)>(look_up(name_));
    function_.store(function, std::memory_order_relaxed);
    return function;
  }

 private:
  const char* name_;
  std::atomic<Result (*)(Parameters..., ...)> function_{nullptr};
};

namespace real {
#define URDMA_DECLARE_REAL(result, name, ...) inline constinit Real<result(__VA_ARGS__)> name{#name};
URDMA_HOOKED_FUNCTIONS(URDMA_DECLARE_REAL)
#undef URDMA_DECLARE_REAL
// Not hooked, but to be libc's own also where another preloaded library has one.
inline constinit Real<ssize_t(int, void*, std::size_t, int)> recv{"recv"};
}  // namespace real

}  // namespace urdma::stub
