// One client's connection (see connection.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/connection.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "datapath/control/close_aside.hpp"
#include "datapath/control/passed_descriptors.hpp"
#include "urdma/base/check.hpp"

namespace urdma::control {

Connection::Connection(UniqueFd fd) : fd_(std::move(fd)) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0) {
    peer_ = {credentials.pid, credentials.uid, credentials.gid};
  }
}

Connection::~Connection() { close_aside(fd_.release()); }

Received Connection::receive(Message& message) {
  std::array<std::byte, abi::kMaxMessageBytes> buffer;
  alignas(cmsghdr) std::array<std::byte, kPassedFdsBytes> control;
  iovec part{buffer.data(), buffer.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Received::kNothing : Received::kEnd;
  message.fds = take_descriptors(header);
  if (got == 0) return Received::kEnd;
  const auto size = static_cast<std::size_t>(got);
  const bool is_cut = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  if (is_cut || size < sizeof(abi::Header) || message.fds.size() > abi::kMaxMessageFds)
    return Received::kNonsense;
  std::memcpy(&message.header, buffer.data(), sizeof(abi::Header));
  message.body.assign(buffer.begin() + sizeof(abi::Header), buffer.begin() + got);
  return Received::kMessage;
}

bool Connection::send(const abi::Header& header, std::span<const std::byte> body, std::span<const int> fds) {
  URDMA_CHECK(fds.size() <= abi::kMaxMessageFds && sizeof(header) + body.size() <= abi::kMaxMessageBytes);
  std::array<iovec, 2> parts{iovec{const_cast<abi::Header*>(&header), sizeof(header)},
                             iovec{const_cast<std::byte*>(body.data()), body.size()}};
  alignas(cmsghdr) std::array<std::byte, kPassedFdsBytes> control{};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

void Connection::shut_down() { ::shutdown(fd_.get(), SHUT_RDWR); }

abi::ErrorText error_text(const std::string& sentence) {
  abi::ErrorText text{};
  const std::size_t size = std::min(sentence.size(), sizeof(text.text) - 1);
  std::memcpy(text.text, sentence.data(), size);
  return text;
}

}  // namespace urdma::control
