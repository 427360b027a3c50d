// Messages of channels (see channel_socket.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/rdma_cm/channel_socket.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "datapath/control/close_aside.hpp"

namespace urdma::control::rdma_cm {
namespace {

constexpr std::size_t kMostPassedFds = 253;  // that one message can bring

bool is_unix_socket(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

std::vector<int> take_descriptors(msghdr& header) {
  std::vector<int> fds;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const std::size_t before = fds.size();
    fds.resize(before + count);
    std::memcpy(fds.data() + before, CMSG_DATA(control), count * sizeof(int));
  }
  return fds;
}

// What a client may have put into the socket would be closed with it, and that may take long. Once it is
// shut, nothing more comes.
void close_socket(UniqueFd socket) {
  char byte = 0;
  ::shutdown(socket.get(), SHUT_RDWR);
  const bool is_empty = ::recv(socket.get(), &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) <= 0;
  if (!is_empty) close_aside(socket.release());
}

}  // namespace

Received receive(int channel, ChannelMessage& message) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kMostPassedFds)> control;
  iovec part{message.bytes.data(), message.bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(channel, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Received::kNothing : Received::kEnd;
  const std::vector<int> fds = take_descriptors(header);
  const bool is_whole = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  if (got > 0 && is_whole && fds.size() == 1 && is_unix_socket(fds.front())) {
    message.size = static_cast<std::size_t>(got);
    message.answer.reset(fds.front());
    return Received::kMessage;
  }
  for (const int fd : fds) close_aside(fd);
  return got == 0 ? Received::kEnd : Received::kNonsense;
}

void answer(UniqueFd socket, const Reply& reply) {
  const abi::rdma_cm::Answer head{static_cast<std::uint32_t>(reply.error),
                                  static_cast<std::uint32_t>(reply.bytes.size())};
  iovec parts[] = {{const_cast<abi::rdma_cm::Answer*>(&head), sizeof(head)},
                   {const_cast<std::byte*>(reply.bytes.data()), reply.bytes.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  (void)::sendmsg(socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  close_socket(std::move(socket));
}

}  // namespace urdma::control::rdma_cm
