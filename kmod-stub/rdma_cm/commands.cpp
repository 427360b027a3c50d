// Carrying commands to the daemon, and answers back.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "rdma_cm/commands.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>

#include "interpose/device_socket.hpp"
#include "interpose/libc.hpp"
#include "interpose/raw.hpp"
#include "rdma_cm/channel.hpp"
#include "rdma_cm/removal.hpp"
#include "urdma/abi/rdma_cm.hpp"

namespace urdma::stub {
namespace {

namespace abi = urdma::abi::rdma_cm;

// One question to the daemon. What is not of the body goes behind it.
struct Question {
  std::uint32_t command = 0;
  const void* body = nullptr;
  std::size_t body_bytes = 0;
  const void* extra = nullptr;
  std::size_t extra_bytes = 0;
  void* response = nullptr;
  std::size_t response_bytes = 0;
};

class Descriptor {
 public:
  Descriptor() = default;
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  void set(int fd) { fd_ = fd; }
  void close() {
    if (fd_ >= 0) raw::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

// A command is not interrupted, and waits for room also where GET_EVENT would not wait for events. A user has
// no more descriptors under way than one program may have open: the daemon takes them out.
long send_uninterrupted(int channel, const msghdr& message) {
  for (;;) {
    const long sent = raw::call(SYS_sendmsg, channel, &message, MSG_NOSIGNAL);
    if (sent == -EAGAIN) {
      pollfd waiting{channel, POLLOUT, 0};
      raw::call(SYS_poll, &waiting, 1, -1);
    } else if (sent == -ETOOMANYREFS) {
      raw::call(SYS_poll, nullptr, 0, 1);
    } else if (sent != -EINTR) {
      return sent;
    }
  }
}

long send_question(int channel, const Question& question, int answer_end) {
  const abi::Command command{question.command, static_cast<std::uint32_t>(question.body_bytes),
                             static_cast<std::uint32_t>(question.extra_bytes),
                             static_cast<std::uint32_t>(question.response_bytes)};
  iovec parts[] = {{const_cast<abi::Command*>(&command), sizeof(command)},
                   {const_cast<void*>(question.body), question.body_bytes},
                   {const_cast<void*>(question.extra), question.extra_bytes}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 3;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &answer_end, sizeof(answer_end));
  return send_uninterrupted(channel, message);
}

// The daemon's end goes when the daemon does: there is no waiting for nobody.
long receive_answer(int fd, const Question& question) {
  abi::Answer answer{};
  iovec parts[] = {{&answer, sizeof(answer)}, {question.response, question.response_bytes}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  long got = 0;
  do {
    got = raw::call(SYS_recvmsg, fd, &message, 0);
  } while (got == -EINTR);
  if (got == -EFAULT) return got;
  if (got < static_cast<long>(sizeof(answer))) return -EIO;
  return -static_cast<long>(answer.error);
}

// Where one answer comes to. Made before anything is done that cannot be undone: a program may have no
// descriptors.
class AnswerSocket {
 public:
  AnswerSocket() {
    int ends[2] = {-1, -1};
    error_ = raw::call(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
    own_.set(ends[0]);
    daemons_.set(ends[1]);
  }
  // 0, or a negative errno.
  [[nodiscard]] long error() const { return error_; }
  [[nodiscard]] long ask(int channel, const Question& question) {
    const long sent = send_question(channel, question, daemons_.get());
    if (sent < 0) return sent == -EPIPE || sent == -ECONNRESET ? -EIO : sent;
    daemons_.close();
    return receive_answer(own_.get(), question);
  }

 private:
  long error_;
  Descriptor own_;
  Descriptor daemons_;
};

// Returns 0, or a negative errno.
long ask(int channel, const Question& question) {
  AnswerSocket socket;
  return socket.error() < 0 ? socket.error() : socket.ask(channel, question);
}

// Takes the sign of an event, if there is one: 1. 0 at the channel's end.
long take_token(int channel) {
  abi::EventToken token{};
  long got = 0;
  do {
    got = raw::call(SYS_recvfrom, channel, &token, sizeof(token), MSG_DONTWAIT, nullptr, nullptr);
  } while (got == -EINTR);
  return got > 0 ? 1 : got;
}

// Events may have gone, whose signs are still there: poll() must not tell of them.
void return_tokens(int channel) {
  pollfd state{channel, POLLIN, 0};
  if (raw::call(SYS_poll, &state, 1, 0) <= 0) return;
  AnswerSocket socket;
  abi::ReturnTokens taken{};
  if (socket.error() < 0) return;
  while (taken.count < abi::kMostTokens && take_token(channel) > 0) ++taken.count;
  Question question;
  question.command = abi::kReturnTokens;
  question.body = &taken;
  question.body_bytes = sizeof(taken);
  if (taken.count > 0) (void)socket.ask(channel, question);
}

// Waits for the sign of an event, as long as the descriptor's own mode says, and leaves it there. The thread
// may be cancelled meanwhile, as in write(2).
long wait_for_token(int channel) {
  abi::EventToken token{};
  const int errno_before = errno;
  const ssize_t got = real::recv(channel, &token, sizeof(token), MSG_PEEK);
  const long error = errno;
  errno = errno_before;
  if (got > 0) return 0;
  return got == 0 || error == ECONNRESET ? -EIO : -error;
}

long get_event(int channel, const Question& question) {
  for (;;) {
    if (const long waited = wait_for_token(channel); waited < 0) return waited;
    AnswerSocket socket;
    if (socket.error() < 0) return socket.error();
    // Only now, that nothing can go wrong: of a sign that is taken for nothing, the event would be lost.
    if (take_token(channel) == -EAGAIN) continue;  // somebody else was faster
    const long result = socket.ask(channel, question);
    if (result != -EAGAIN) return result;  // otherwise the event has gone meanwhile
  }
}

long set_option(int channel, Question& question) {
  constexpr std::size_t kMostBytes = abi::kMostCommandBytes - sizeof(rdma_ucm_set_option);
  rdma_ucm_set_option option;
  if (question.body_bytes < sizeof(option)) return -EINVAL;
  std::memcpy(&option, question.body, sizeof(option));
  const void* const value = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(option.optval));
  if (option.optlen > kMostBytes) return -EINVAL;
  if (option.optlen != 0 && !is_readable_pointer(value)) return -EFAULT;
  question.extra = value;
  question.extra_bytes = option.optlen;
  return ask(channel, question);
}

// The ID leaves its channel, which only this process can name, before the new one takes it.
long migrate(int channel, Question& question) {
  rdma_ucm_migrate_id request;
  if (question.body_bytes < sizeof(request)) return -EINVAL;
  std::memcpy(&request, question.body, sizeof(request));
  const int old = static_cast<int>(request.fd);
  if (!is_channel(old)) return -EINVAL;
  const abi::OfferId offer{request.id};
  abi::OfferIdResponse response{};
  const Question first{abi::kOfferId, &offer, sizeof(offer), nullptr, 0, &response, sizeof(response)};
  if (const long offered = ask(old, first); offered < 0) return offered;
  question.extra = &response.ticket;
  question.extra_bytes = sizeof(response.ticket);
  const long moved = ask(channel, question);
  if (moved == 0) return_tokens(old);
  return moved;
}

// Where its structure has the pointer to the room for the answer; false: it has none.
bool response_offset(std::uint32_t command, std::size_t& offset) {
  switch (command) {
    case RDMA_USER_CM_CMD_CREATE_ID:
      offset = offsetof(rdma_ucm_create_id, response);
      return true;
    case RDMA_USER_CM_CMD_DESTROY_ID:
    case RDMA_USER_CM_CMD_LEAVE_MCAST:
    case RDMA_USER_CM_CMD_QUERY_ROUTE:
    case RDMA_USER_CM_CMD_QUERY:
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
    case RDMA_USER_CM_CMD_GET_EVENT:
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
    case RDMA_USER_CM_CMD_JOIN_MCAST:
    case RDMA_USER_CM_CMD_MIGRATE_ID:
      offset = 0;
      return true;
    default:
      return false;
  }
}

void complain_about_version() {
  static constinit std::atomic<bool> has_complained = false;
  complain_once(has_complained,
                "this program was started with another version of urdma than the daemon's: start it anew");
}

// Sets where the answer goes to.
long find_response(std::size_t room_bytes, Question& question) {
  std::size_t offset = 0;
  if (!response_offset(question.command, offset)) return 0;
  std::uint64_t address = 0;
  if (question.body_bytes < offset + sizeof(address)) return -EINVAL;
  std::memcpy(&address, static_cast<const char*>(question.body) + offset, sizeof(address));
  question.response = reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
  question.response_bytes = room_bytes < abi::kMostResponseBytes ? room_bytes : abi::kMostResponseBytes;
  return question.response_bytes == 0 || is_readable_pointer(question.response) ? 0 : -EFAULT;
}

}  // namespace

long execute_channel_command(int channel, const void* bytes, std::size_t size) {
  rdma_ucm_cmd_hdr header;
  std::memcpy(&header, bytes, sizeof(header));
  if (header.in > size - sizeof(header) || header.in > abi::kMostCommandBytes) return -EINVAL;
  Question question;
  question.command = header.cmd;
  question.body = static_cast<const char*>(bytes) + sizeof(header);
  question.body_bytes = header.in;
  long result = find_response(header.out, question);
  if (result == 0) {
    switch (header.cmd) {
      case RDMA_USER_CM_CMD_GET_EVENT:
        result = get_event(channel, question);
        break;
      case RDMA_USER_CM_CMD_SET_OPTION:
        result = set_option(channel, question);
        break;
      case RDMA_USER_CM_CMD_MIGRATE_ID:
        result = migrate(channel, question);
        break;
      case RDMA_USER_CM_CMD_DESTROY_ID:
      case RDMA_USER_CM_CMD_LEAVE_MCAST:
        result = ask(channel, question);
        if (result == 0) return_tokens(channel);
        break;
      default:
        result = ask(channel, question);
    }
  }
  const Exchange exchange{question.command, question.body, question.body_bytes, question.response,
                          question.response_bytes};
  if (result == 0) note_success(channel, exchange);
  if (result == -EPROTO) complain_about_version();
  if (result == -EIO && is_abandoned(channel)) result = execute_abandoned(channel, exchange);
  return result < 0 ? result : static_cast<long>(size);
}

}  // namespace urdma::stub
