// A socket whose close() takes long, as a client may pass one.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "urdma/base/unique_fd.hpp"

namespace urdma::control {

// A TCP socket whose close() waits for 30 seconds, or until the peer is closed, which takes nothing.
struct Lingering {
  UniqueFd socket;
  UniqueFd peer;
};

inline Lingering make_lingering() {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(listener.get(), generic, size), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), generic, &size), 0);
  Lingering made{UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), {}};
  EXPECT_EQ(::connect(made.socket.get(), generic, size), 0);
  made.peer.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const std::vector<char> bytes(65536);
  while (::send(made.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) continue;
  const linger wait{1, 30};
  EXPECT_EQ(::setsockopt(made.socket.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)), 0);
  return made;
}

// Sends a message with the descriptor in it, which is closed here.
inline void pass_on(int to, UniqueFd fd, std::span<const char> bytes = std::span("x", 1)) {
  const int raw = fd.get();
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(raw))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(raw));
  std::memcpy(CMSG_DATA(rights), &raw, sizeof(raw));
  EXPECT_EQ(::sendmsg(to, &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

}  // namespace urdma::control
