// Opening and recognising the sockets that stand for devices.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "interpose/device_socket.hpp"

#include <sys/socket.h>

#include <cstddef>
#include <cstring>

#include "interpose/node.hpp"
#include "interpose/raw.hpp"
#include "urdma/abi/control.hpp"

namespace urdma::stub {
namespace {

constinit std::atomic<bool> has_complained = false;

// The errno for the program, once a person has been told.
[[gnu::cold]] long explain_failure(long error) {
  switch (-error) {
    case ECONNREFUSED:
    case ENOENT:
      complain_once(has_complained, "the daemon is not running; start it with `urdma up`");
      return -ENODEV;
    case EACCES:
    case EPERM:
      complain_once(has_complained,
                    "no permission to use the daemon; ask its owner, or start your own with `urdma up`");
      return -EACCES;
    default:
      return error;
  }
}

// A node's directory is never so long that its sockets have no address: the daemon sees to that.
long connect_device(int fd, std::string_view name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  PathBuffer path;
  append_device_path(name, path);
  if (path.is_too_long() || path.view().size() >= sizeof(address.sun_path)) return -ENAMETOOLONG;
  std::memcpy(address.sun_path, path.c_str(), path.view().size() + 1);
  return raw::call(SYS_connect, fd, &address, sizeof(address));
}

// open() of a device is not interrupted, so neither is this.
long connect_uninterrupted(int fd, std::string_view name) {
  long result = 0;
  do {
    result = connect_device(fd, name);
  } while (result == -EINTR);
  return result;
}

}  // namespace

[[gnu::cold]] void complain_once(std::atomic<bool>& complained, std::string_view reason) {
  if (complained.exchange(true, std::memory_order_relaxed)) return;
  PathBuffer sentence;
  sentence.append("urdma: ").append(reason).append(" (node ").append(node_directory()).append(")\n");
  raw::write(STDERR_FILENO, sentence.c_str(), sentence.view().size());
}

void append_device_path(std::string_view name, PathBuffer& path) {
  path.append(node_directory()).append("/").append(abi::kDeviceDirectory).append("/").append(name);
}

int open_device_socket(std::string_view name, int flags) {
  if ((flags & O_CREAT) != 0 && (flags & O_EXCL) != 0) return raw::as_libc(-EEXIST);
  if ((flags & O_DIRECTORY) != 0) return raw::as_libc(-ENOTDIR);
  const int type = SOCK_SEQPACKET | ((flags & O_CLOEXEC) != 0 ? SOCK_CLOEXEC : 0);
  const long fd = raw::call(SYS_socket, AF_UNIX, type, 0);
  if (fd < 0) return raw::as_libc(fd);
  const long connected = connect_uninterrupted(static_cast<int>(fd), name);
  if (connected < 0) {
    raw::close(static_cast<int>(fd));
    return raw::as_libc(explain_failure(connected));
  }
  // Only now: a busy daemon is worth waiting for.
  if ((flags & O_NONBLOCK) != 0) raw::call(SYS_fcntl, fd, F_SETFL, O_RDWR | O_NONBLOCK);
  return static_cast<int>(fd);
}

std::string_view device_name(int fd, sockaddr_un& address) {
  if (node_directory().empty()) return {};
  socklen_t size = sizeof(address);
  if (raw::call(SYS_getpeername, fd, &address, &size) < 0 || address.sun_family != AF_UNIX) return {};
  if (size <= offsetof(sockaddr_un, sun_path) || size > sizeof(address) || address.sun_path[0] == '\0')
    return {};
  const std::string_view path{address.sun_path,
                              ::strnlen(address.sun_path, size - offsetof(sockaddr_un, sun_path))};
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || !std::string_view{path.data(), slash}.ends_with("/dev")) return {};
  int type = 0;
  socklen_t type_size = sizeof(type);
  const bool is_told = raw::call(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &type_size) == 0;
  return is_told && type == SOCK_SEQPACKET ? rest_of(path, slash + 1) : std::string_view{};
}

}  // namespace urdma::stub
