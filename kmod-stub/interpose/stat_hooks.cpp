// The stat family: the node's devices, by path or by descriptor, are character devices with the number that
// the tree names. libibverbs compares it. Everything else is as the kernel says.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "interpose/device_socket.hpp"
#include "interpose/hook.hpp"
#include "rdma_cm/channel.hpp"
#include "uverbs/device.hpp"

namespace urdma::stub {
namespace {

// The permission bits are the socket's: whoever may connect may open.
constexpr unsigned kPermissions = 07777;

template <typename Status>
[[gnu::cold]] void show_device(dev_t number, Status& status) {
  status.st_mode = S_IFCHR | (status.st_mode & kPermissions);
  status.st_rdev = number;
  status.st_size = 0;
}

[[gnu::cold]] void show_device(dev_t number, struct statx& status) {
  status.stx_mode = static_cast<std::uint16_t>(S_IFCHR | (status.stx_mode & kPermissions));
  status.stx_rdev_major = major(number);
  status.stx_rdev_minor = minor(number);
  status.stx_size = 0;
}

template <typename Status>
bool is_socket(const Status& status) {
  return S_ISSOCK(status.st_mode);
}
bool is_socket(const struct statx& status) { return S_ISSOCK(status.stx_mode); }

// `result` of a stat call by path.
template <typename Status>
int finish(int result, const Claim& claim, Status* status) {
  if (result == 0 && claim.kind == ClaimKind::kDevice) show_device(device_number(claim.uverbs), *status);
  if (result == 0 && claim.kind == ClaimKind::kRdmaCm) show_device(channel_number(), *status);
  return result;
}

// `result` of a stat call on a descriptor: only sockets cost a second look.
template <typename Status>
int finish_descriptor(int result, int fd, Status* status) {
  if (result != 0 || !is_socket(*status)) [[likely]]
    return result;
  sockaddr_un address;
  const std::string_view name = device_name(fd, address);
  std::uint32_t uverbs = 0;
  if (parse_uverbs(name, uverbs)) show_device(device_number(uverbs), *status);
  if (name == kRdmaCm) show_device(channel_number(), *status);
  return result;
}

bool names_descriptor(const char* path, int flags) {
  return (flags & AT_EMPTY_PATH) != 0 && (!is_readable_pointer(path) || path[0] == '\0');
}

// `call(directory, path)` of a function that takes both and flags.
template <typename Status, typename Call>
int stat_at(int directory, const char* path, int flags, Status* status, Call call) {
  if (names_descriptor(path, flags)) return finish_descriptor(call(directory, path), directory, status);
  return route(directory, path,
               [&](const Claim& claim) { return finish(call(claim.directory, claim.path), claim, status); });
}

template <typename Status, typename Call>
int stat_path(const char* path, Status* status, Call call) {
  return route(AT_FDCWD, path, [&](const Claim& claim) { return finish(call(claim.path), claim, status); });
}

}  // namespace

// Each function exists twice, for two names of one structure, and since glibc 2.33 once more, for programs
// that were linked before: with a version as the first parameter.
#define URDMA_STAT_HOOKS(suffix, Status)                                                                   \
  URDMA_HOOK(int, stat##suffix, const char* path, Status* status) {                                        \
    return stat_path(path, status, [&](const char* where) { return real::stat##suffix(where, status); });  \
  }                                                                                                        \
  URDMA_HOOK(int, lstat##suffix, const char* path, Status* status) {                                       \
    return stat_path(path, status, [&](const char* where) { return real::lstat##suffix(where, status); }); \
  }                                                                                                        \
  URDMA_HOOK(int, fstat##suffix, int fd, Status* status) {                                                 \
    return finish_descriptor(real::fstat##suffix(fd, status), fd, status);                                 \
  }                                                                                                        \
  URDMA_HOOK(int, fstatat##suffix, int directory, const char* path, Status* status, int flags) {           \
    return stat_at(directory, path, flags, status, [&](int at, const char* where) {                        \
      return real::fstatat##suffix(at, where, status, flags);                                              \
    });                                                                                                    \
  }                                                                                                        \
  URDMA_HOOK(int, __xstat##suffix, int version, const char* path, Status* status) {                        \
    return stat_path(path, status,                                                                         \
                     [&](const char* where) { return real::__xstat##suffix(version, where, status); });    \
  }                                                                                                        \
  URDMA_HOOK(int, __lxstat##suffix, int version, const char* path, Status* status) {                       \
    return stat_path(path, status,                                                                         \
                     [&](const char* where) { return real::__lxstat##suffix(version, where, status); });   \
  }                                                                                                        \
  URDMA_HOOK(int, __fxstat##suffix, int version, int fd, Status* status) {                                 \
    return finish_descriptor(real::__fxstat##suffix(version, fd, status), fd, status);                     \
  }                                                                                                        \
  URDMA_HOOK(int, __fxstatat##suffix, int version, int directory, const char* path, Status* status,        \
             int flags) {                                                                                  \
    return stat_at(directory, path, flags, status, [&](int at, const char* where) {                        \
      return real::__fxstatat##suffix(version, at, where, status, flags);                                  \
    });                                                                                                    \
  }

URDMA_STAT_HOOKS(, struct stat)
URDMA_STAT_HOOKS(64, struct stat64)

URDMA_HOOK(int, statx, int directory, const char* path, int flags, unsigned mask, struct statx* status) {
  return stat_at(directory, path, flags, status,
                 [&](int at, const char* where) { return real::statx(at, where, flags, mask, status); });
}

}  // namespace urdma::stub
