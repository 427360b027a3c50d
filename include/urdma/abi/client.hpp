// The client's end of the control sockets: connecting to a node's socket, sending one message and receiving
// one, with the descriptors that travel along. Used by the provider and the kernel stand-in.
//
// Stateless; any thread, but one socket's requests and replies are for its owner to serialise. Header-only,
// allocates nothing, and never raises SIGPIPE. All functions return 0 or a positive errno.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>

#include "urdma/abi/control.hpp"

namespace urdma::abi {

// A message as it came. The receiver owns the first `fd_count` descriptors, all close-on-exec.
struct Received {
  Header header;
  std::size_t body_bytes;
  std::size_t fd_count;
  int fds[kMaxMessageFds];
  alignas(8) std::byte body[kMaxMessageBytes - sizeof(Header)];

  void close_fds() {
    for (std::size_t i = 0; i < fd_count; ++i) ::close(fds[i]);
    fd_count = 0;
  }
};

namespace detail {

inline constexpr std::size_t kControlBytes = CMSG_SPACE(kMaxMessageFds * sizeof(int));

inline int connect_named(int socket, const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, std::strlen(path) + 1);
  int result;
  do {
    result = ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } while (result < 0 && errno == EINTR);
  return result < 0 ? errno : 0;
}

inline void take_fds(const msghdr& header, Received& message) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(const_cast<msghdr*>(&header), control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count && message.fd_count < kMaxMessageFds; ++i)
      std::memcpy(&message.fds[message.fd_count++], CMSG_DATA(control) + i * sizeof(int), sizeof(int));
  }
}

}  // namespace detail

// Connects `socket` to DIRECTORY/NAME. A path that is too long for a socket's address goes through a
// descriptor of its directory.
inline int connect_to(int socket, const char* directory, const char* name) {
  char path[sizeof(sockaddr_un::sun_path)];
  const int length = std::snprintf(path, sizeof(path), "%s/%s", directory, name);
  if (length >= 0 && static_cast<std::size_t>(length) < sizeof(path))
    return detail::connect_named(socket, path);
  const int directory_fd = ::open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (directory_fd < 0) return errno;
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", directory_fd, name);
  const int error = detail::connect_named(socket, path);
  ::close(directory_fd);
  return error;
}

// Sends one message. `fds` stay the caller's, at most kMaxMessageFds. A user has no more descriptors under
// way than one program may have open: then it waits until the daemon has taken some.
inline int send_message(int socket, const Header& header, std::span<const std::byte> body,
                        std::span<const int> fds) {
  if (body.size() > kMaxMessageBytes - sizeof(Header) || fds.size() > kMaxMessageFds) return EMSGSIZE;
  iovec parts[2] = {{const_cast<Header*>(&header), sizeof(header)},
                    {const_cast<std::byte*>(body.data()), body.size()}};
  alignas(cmsghdr) char control[detail::kControlBytes] = {};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = body.empty() ? 1 : 2;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* first = CMSG_FIRSTHDR(&message);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(first), fds.data(), fds.size_bytes());
  }
  for (;;) {
    if (::sendmsg(socket, &message, MSG_NOSIGNAL) >= 0) return 0;
    if (errno == ETOOMANYREFS)
      ::usleep(1000);
    else if (errno != EINTR)
      return errno;
  }
}

// Receives one message; `flags` as recvmsg has them (MSG_PEEK, MSG_DONTWAIT). EPIPE: the peer has closed.
// EMFILE: this process may open no more files, and some of the message's are lost. EPROTO: what came is no
// message. In both cases its descriptors have been closed.
inline int receive_message(int socket, Received& received, int flags = 0) {
  iovec parts[2] = {{&received.header, sizeof(received.header)}, {received.body, sizeof(received.body)}};
  alignas(cmsghdr) char control[detail::kControlBytes];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  received.fd_count = 0;
  received.body_bytes = 0;
  ssize_t got;
  do {
    got = ::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return errno;
  if (got == 0) return EPIPE;
  detail::take_fds(message, received);
  // There is room for all that the daemon sends.
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    received.close_fds();
    return EMFILE;
  }
  if ((message.msg_flags & MSG_TRUNC) != 0 || static_cast<std::size_t>(got) < sizeof(Header)) {
    received.close_fds();
    return EPROTO;
  }
  received.body_bytes = static_cast<std::size_t>(got) - sizeof(Header);
  return 0;
}

// The bytes of a message's body.
template <typename Body>
std::span<const std::byte> bytes_of(const Body& body) {
  if constexpr (std::is_empty_v<Body>)
    return {};
  else
    return std::as_bytes(std::span<const Body, 1>(&body, 1));
}

}  // namespace urdma::abi
