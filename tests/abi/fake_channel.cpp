// The daemon's end of a channel (see fake_channel.hpp).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "fake_channel.hpp"

#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "urdma/abi/rdma_cm.hpp"

namespace urdma::test {
namespace {

namespace cm = urdma::abi::rdma_cm;

void answer_with(int answer, std::uint32_t error, const void* bytes = nullptr, std::size_t size = 0) {
  const cm::Answer head{error, static_cast<std::uint32_t>(size)};
  iovec parts[] = {{const_cast<cm::Answer*>(&head), sizeof(head)}, {const_cast<void*>(bytes), size}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  static_cast<void>(::sendmsg(answer, &message, MSG_NOSIGNAL));
}

template <typename Body>
Body take(std::span<const char> bytes) {
  Body body{};
  std::memcpy(&body, bytes.data(), bytes.size() < sizeof(body) ? bytes.size() : sizeof(body));
  return body;
}

}  // namespace

FakeChannel::~FakeChannel() { ::close(fd_); }

bool FakeChannel::serve() {
  for (;;) {
    std::array<char, 2048> bytes{};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t size = ::recvmsg(fd_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0 && errno == EAGAIN) return true;
    const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    if (size <= 0 || rights == nullptr) return false;
    int answer = -1;
    std::memcpy(&answer, CMSG_DATA(rights), sizeof(answer));
    const bool goes_on = carry_out({bytes.data(), static_cast<std::size_t>(size)}, answer);
    ::close(answer);
    if (!goes_on) return false;
  }
}

bool FakeChannel::carry_out(std::span<const char> message, int answer) {
  const auto command = take<cm::Command>(message);
  const auto body = message.subspan(sizeof(command), command.body_bytes);
  const auto extra = message.subspan(sizeof(command) + command.body_bytes);
  if (command.command == 62) {
    answer_with(answer, EPROTO);
    return true;
  }
  switch (command.command) {
    case RDMA_USER_CM_CMD_CREATE_ID: {
      const rdma_ucm_create_id_resp made{static_cast<std::uint32_t>(take<rdma_ucm_create_id>(body).uid)};
      answer_with(answer, 0, &made, sizeof(made));
      return true;
    }
    case RDMA_USER_CM_CMD_DISCONNECT:
      return false;
    case RDMA_USER_CM_CMD_LISTEN:
      events_ = take<rdma_ucm_listen>(body).id;
      sign(take<rdma_ucm_listen>(body).backlog);
      answer_with(answer, 0);
      return true;
    case RDMA_USER_CM_CMD_GET_EVENT: {
      rdma_ucm_event_resp event{};
      event.status = returned_ != 0 ? returned_ : command.response_bytes;
      event.id = events_;
      event.uid = 0x100000000 | events_;
      if (events_ == 0) {
        answer_with(answer, EAGAIN);
      } else {
        answer_with(answer, 0, &event, sizeof(event));
        --events_;
      }
      return true;
    }
    case RDMA_USER_CM_CMD_DESTROY_ID: {
      const bool is_there = take<rdma_ucm_destroy_id>(body).id == 99;
      const std::uint32_t reported = 0;
      answer_with(answer, is_there ? 0 : ENOENT, &reported, is_there ? sizeof(reported) : 0);
      return true;
    }
    case cm::kReturnTokens:
      returned_ = take<cm::ReturnTokens>(body).count;
      answer_with(answer, 0);
      return true;
    case RDMA_USER_CM_CMD_BIND:
    case RDMA_USER_CM_CMD_ACCEPT:
      answer_with(answer, 0);
      return true;
    case RDMA_USER_CM_CMD_SET_OPTION:
      answer_with(answer, extra.empty() ? 0 : static_cast<std::uint32_t>(extra[0]));
      return true;
    case cm::kOfferId: {
      const cm::OfferIdResponse offer{77};
      answer_with(answer, 0, &offer, sizeof(offer));
      return true;
    }
    case RDMA_USER_CM_CMD_MIGRATE_ID: {
      const auto ticket = static_cast<std::uint32_t>(take<std::uint64_t>(extra));
      answer_with(answer, 0, &ticket, sizeof(ticket));
      return true;
    }
    default:
      answer_with(answer, ENOENT);
      return true;
  }
}

void FakeChannel::sign(std::uint32_t count) {
  const cm::EventToken token{};
  for (; count > 0; --count) static_cast<void>(::send(fd_, &token, sizeof(token), MSG_NOSIGNAL));
}

}  // namespace urdma::test
