// open and its kin. A file of the tree is opened where it really is; a device becomes a connection.
// The descriptors are the kernel's own, so that nothing has to follow them later.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fcntl.h>
#include <sys/epoll.h>

#include <cstdarg>

#include "interpose/hook.hpp"
#include "interpose/raw.hpp"
#include "rdma_cm/channel.hpp"
#include "uverbs/device.hpp"

namespace urdma::stub {
namespace {

// An unused GID's attributes are files whose reading is an error, EINVAL, which no ordinary file can be. They
// are empty in the tree, and an epoll descriptor, of which read() says just that, takes the place of the
// opened one.
[[gnu::cold]] void make_unreadable_if_empty(int fd) {
  struct statx status {};
  if (raw::call(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &status) < 0) return;
  if (!S_ISREG(status.stx_mode) || status.stx_size != 0) return;
  const bool closes_on_exec = (raw::call(SYS_fcntl, fd, F_GETFD) & FD_CLOEXEC) != 0;
  const long epoll = raw::call(SYS_epoll_create1, EPOLL_CLOEXEC);
  if (epoll < 0) return;
  raw::call(SYS_dup3, epoll, fd, closes_on_exec ? O_CLOEXEC : 0);
  raw::close(static_cast<int>(epoll));
}

bool is_gid_attribute(const Claim& claim) {
  return claim.kind == ClaimKind::kTree && std::strstr(claim.path, "/gid_attrs/") != nullptr;
}

int open_device_of(const Claim& claim, int flags) {
  return claim.kind == ClaimKind::kRdmaCm ? open_channel(flags) : open_device(claim.uverbs, flags);
}

// Opens `claim` by `open_real(directory, path)`.
template <typename Open>
int open_claim(const Claim& claim, int flags, Open open_real) {
  // With O_PATH nothing is opened, and the device's place in the file system is all there is.
  if (is_character_device(claim.kind) && (flags & O_PATH) == 0) return open_device_of(claim, flags);
  const int fd = open_real(claim.directory, claim.path);
  if (fd >= 0 && is_gid_attribute(claim)) make_unreadable_if_empty(fd);
  return fd;
}

bool takes_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

template <typename Function>
int hook_open(Function& real_open, const char* path, int flags, mode_t mode) {
  return route(AT_FDCWD, path, [&](const Claim& claim) {
    return open_claim(claim, flags, [&](int, const char* where) { return real_open(where, flags, mode); });
  });
}

template <typename Function>
int hook_openat(Function& real_openat, int directory, const char* path, int flags, mode_t mode) {
  return route(directory, path, [&](const Claim& claim) {
    return open_claim(claim, flags,
                      [&](int at, const char* where) { return real_openat(at, where, flags, mode); });
  });
}

// The access part of open's flags is not needed: a device is opened for everything.
FILE* open_device_stream(const Claim& claim, const char* mode) {
  const int fd = open_device_of(claim, std::strchr(mode, 'e') != nullptr ? O_CLOEXEC : 0);
  if (fd < 0) return nullptr;
  FILE* const stream = ::fdopen(fd, mode);
  if (stream == nullptr) raw::close(fd);
  return stream;
}

template <typename Function>
FILE* hook_fopen(Function& real_fopen, const char* path, const char* mode) {
  return route(AT_FDCWD, path, [&](const Claim& claim) {
    if (is_character_device(claim.kind)) return open_device_stream(claim, mode);
    FILE* const stream = real_fopen(claim.path, mode);
    if (stream != nullptr && is_gid_attribute(claim)) make_unreadable_if_empty(::fileno(stream));
    return stream;
  });
}

template <typename Function>
FILE* hook_freopen(Function& real_freopen, const char* path, const char* mode, FILE* stream) {
  return route(AT_FDCWD, path, [&](const Claim& claim) {
    FILE* const opened = real_freopen(claim.path, mode, stream);
    if (opened != nullptr && is_gid_attribute(claim)) make_unreadable_if_empty(::fileno(opened));
    return opened;
  });
}

}  // namespace

// Reads the mode argument where open() has one.
#define URDMA_TAKE_MODE(mode, flags)                    \
  mode_t mode = 0;                                      \
  if (takes_mode(flags)) {                              \
    va_list arguments;                                  \
    va_start(arguments, flags);                         \
    mode = static_cast<mode_t>(va_arg(arguments, int)); \
    va_end(arguments);                                  \
  }

URDMA_HOOK(int, open, const char* path, int flags, ...) {
  URDMA_TAKE_MODE(mode, flags)
  return hook_open(real::open, path, flags, mode);
}

URDMA_HOOK(int, open64, const char* path, int flags, ...) {
  URDMA_TAKE_MODE(mode, flags)
  return hook_open(real::open64, path, flags, mode);
}

URDMA_HOOK(int, openat, int directory, const char* path, int flags, ...) {
  URDMA_TAKE_MODE(mode, flags)
  return hook_openat(real::openat, directory, path, flags, mode);
}

URDMA_HOOK(int, openat64, int directory, const char* path, int flags, ...) {
  URDMA_TAKE_MODE(mode, flags)
  return hook_openat(real::openat64, directory, path, flags, mode);
}

// The fortified variants take no mode, and end the process if there should be one.
URDMA_HOOK(int, __open_2, const char* path, int flags) {
  return route(AT_FDCWD, path, [&](const Claim& claim) {
    return open_claim(claim, flags, [&](int, const char* where) { return real::__open_2(where, flags); });
  });
}

URDMA_HOOK(int, __open64_2, const char* path, int flags) {
  return route(AT_FDCWD, path, [&](const Claim& claim) {
    return open_claim(claim, flags, [&](int, const char* where) { return real::__open64_2(where, flags); });
  });
}

URDMA_HOOK(int, __openat_2, int directory, const char* path, int flags) {
  return route(directory, path, [&](const Claim& claim) {
    return open_claim(claim, flags,
                      [&](int at, const char* where) { return real::__openat_2(at, where, flags); });
  });
}

URDMA_HOOK(int, __openat64_2, int directory, const char* path, int flags) {
  return route(directory, path, [&](const Claim& claim) {
    return open_claim(claim, flags,
                      [&](int at, const char* where) { return real::__openat64_2(at, where, flags); });
  });
}

URDMA_HOOK(FILE*, fopen, const char* path, const char* mode) { return hook_fopen(real::fopen, path, mode); }
URDMA_HOOK(FILE*, fopen64, const char* path, const char* mode) {
  return hook_fopen(real::fopen64, path, mode);
}

URDMA_HOOK(FILE*, freopen, const char* path, const char* mode, FILE* stream) {
  return hook_freopen(real::freopen, path, mode, stream);
}
URDMA_HOOK(FILE*, freopen64, const char* path, const char* mode, FILE* stream) {
  return hook_freopen(real::freopen64, path, mode, stream);
}

}  // namespace urdma::stub
