// Messages of channels (see channel_socket.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/rdma_cm/channel_socket.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "datapath/control/close_aside.hpp"
#include "datapath/control/passed_descriptors.hpp"

namespace urdma::control::rdma_cm {
namespace {

int option(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  return ::getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

bool may_take_an_answer(int fd) {
  return option(fd, SO_DOMAIN) == AF_UNIX && option(fd, SO_TYPE) == SOCK_SEQPACKET;
}

}  // namespace

AnswerSocket& AnswerSocket::operator=(AnswerSocket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

AnswerSocket::~AnswerSocket() { close_socket(fd_.release()); }

Received receive(int channel, ChannelMessage& message) {
  alignas(cmsghdr) std::array<std::byte, kPassedFdsBytes> control;
  iovec part{message.bytes.data(), message.bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(channel, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Received::kNothing : Received::kEnd;
  std::vector<UniqueFd> fds = take_descriptors(header);
  if (got > 0 && fds.empty()) {
    message.size = 0;
    message.answer = {};
    return Received::kMessage;
  }
  const bool is_whole = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  if (got > 0 && is_whole && fds.size() == 1 && may_take_an_answer(fds.front().get())) {
    message.size = static_cast<std::size_t>(got);
    message.answer = AnswerSocket(std::move(fds.front()));
    return Received::kMessage;
  }
  for (UniqueFd& fd : fds) close_aside(fd.release());
  return got == 0 ? Received::kEnd : Received::kNonsense;
}

void answer(AnswerSocket socket, const Reply& reply) {
  const abi::rdma_cm::Answer head{static_cast<std::uint32_t>(reply.error),
                                  static_cast<std::uint32_t>(reply.bytes.size())};
  iovec parts[] = {{const_cast<abi::rdma_cm::Answer*>(&head), sizeof(head)},
                   {const_cast<std::byte*>(reply.bytes.data()), reply.bytes.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  (void)::sendmsg(socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace urdma::control::rdma_cm
