// Calls on descriptors. Each looks first for the shape of a request, which costs a comparison or two, and
// asks the kernel what the descriptor is only then.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <linux/netlink.h>
#include <sys/socket.h>

#include <cstdarg>

#include "interpose/hook.hpp"
#include "interpose/node.hpp"
#include "interpose/raw.hpp"
#include "rdma_cm/channel.hpp"
#include "rdma_cm/commands.hpp"
#include "uverbs/commands.hpp"
#include "uverbs/device.hpp"

namespace urdma::stub {
namespace {

template <typename Write>
ssize_t write_bytes(int fd, const void* bytes, std::size_t size, Write write_real) {
  std::uint32_t uverbs = 0;
  if (is_channel_command(bytes, size) && is_channel(fd)) [[unlikely]]
    return raw::as_libc(execute_channel_command(fd, bytes, size));
  if (!is_command(bytes, size) || !is_device(fd, uverbs)) [[likely]]
    return write_real();
  return raw::as_libc(execute_command(bytes, size));
}

}  // namespace

URDMA_HOOK(ssize_t, write, int fd, const void* bytes, std::size_t size) {
  return write_bytes(fd, bytes, size, [&] { return real::write(fd, bytes, size); });
}

URDMA_HOOK(ssize_t, writev, int fd, const iovec* parts, int count) {
  if (count != 1 || !is_readable_pointer(parts)) return real::writev(fd, parts, count);
  return write_bytes(fd, parts->iov_base, parts->iov_len, [&] { return real::writev(fd, parts, count); });
}

URDMA_HOOK(int, ioctl, int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  std::uint32_t uverbs = 0;
  if (!is_verbs_ioctl(request) || !is_device(fd, uverbs)) [[likely]]
    return real::ioctl(fd, request, argument);
  return raw::as_libc(execute_ioctl(uverbs, argument));
}

// Where the kernel has ib_core, this socket loads it and answers that there is no device: libibverbs would
// not read the tree. Without it, libibverbs and librdmacm do.
URDMA_HOOK(int, socket, int domain, int type, int protocol) {
  if (domain == AF_NETLINK && protocol == NETLINK_RDMA && is_node_present()) [[unlikely]]
    return raw::as_libc(-EPROTONOSUPPORT);
  return real::socket(domain, type, protocol);
}

}  // namespace urdma::stub
