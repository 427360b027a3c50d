// The request connection of a context: one request, then its reply.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/control/request_channel.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace urdma::provider {

namespace {

// Whether `error` of a socket says that the other end has gone.
bool is_loss(int error) {
  return error == EPIPE || error == ECONNRESET || error == ENOTCONN || error == EBADF;
}

int take_reply(abi::MessageType type, abi::Received& message, std::span<std::byte> reply,
               std::vector<UniqueFd>* reply_fds) {
  std::vector<UniqueFd> fds;
  for (std::size_t i = 0; i < message.fd_count; ++i) fds.emplace_back(message.fds[i]);
  if (message.header.error != 0) {
    log_refusal(type, message);
    return static_cast<int>(message.header.error);
  }
  if (message.body_bytes != reply.size()) return EPROTO;
  if (!reply.empty()) std::memcpy(reply.data(), message.body, reply.size());
  if (reply_fds != nullptr) *reply_fds = std::move(fds);
  return 0;
}

}  // namespace

void log_refusal(abi::MessageType type, const abi::Received& reply) {
  static const bool wanted = std::getenv("URDMA_LOG") != nullptr;
  if (!wanted) return;
  const auto* text = reinterpret_cast<const char*>(reply.body);
  const std::size_t length = ::strnlen(text, std::min(reply.body_bytes, sizeof(abi::ErrorText)));
  std::fprintf(stderr, "urdma: request %u was refused: %s: %.*s\n", static_cast<unsigned>(type),
               std::strerror(static_cast<int>(reply.header.error)), static_cast<int>(length), text);
}

int RequestChannel::exchange(abi::MessageType type, std::span<const std::byte> request,
                             std::span<const int> fds, std::span<std::byte> reply,
                             std::vector<UniqueFd>* reply_fds) {
  // Asked before the lock is taken: in a forked child some other thread of the parent may have held it.
  if (liveness_.is_gone()) return EIO;
  int error;
  {
    const std::lock_guard lock(mutex_);
    const abi::Header header{static_cast<std::uint32_t>(type), 0, ++sequence_};
    error = abi::send_message(socket_.get(), header, request, fds);
    abi::Received message;
    if (error == 0) error = abi::receive_message(socket_.get(), message);
    if (error == 0 && (message.header.type != header.type || message.header.sequence != header.sequence)) {
      message.close_fds();
      error = EPIPE;  // the two ends are out of step: nothing on this connection can be believed any more
    }
    if (error == 0) return take_reply(type, message, reply, reply_fds);
  }
  if (!is_loss(error)) return error;
  liveness_.declare_gone();
  return EIO;
}

}  // namespace urdma::provider
