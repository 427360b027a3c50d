// Messages of channels (urdma/abi/rdma_cm.hpp): a command in, with the socket for its answer; the answer out.
// Never blocks, whatever the client has sent. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "datapath/control/connection.hpp"
#include "datapath/control/rdma_cm/context.hpp"
#include "urdma/abi/rdma_cm.hpp"
#include "urdma/base/unique_fd.hpp"

namespace urdma::control::rdma_cm {

// Where an answer goes: a SOCK_SEQPACKET socket of a client's making. It has no other way to be closed than
// one that does not wait for what the client has put into it.
class AnswerSocket {
 public:
  AnswerSocket() = default;
  explicit AnswerSocket(UniqueFd fd) : fd_(std::move(fd)) {}
  AnswerSocket(AnswerSocket&&) = default;
  AnswerSocket& operator=(AnswerSocket&& other) noexcept;
  ~AnswerSocket();

  [[nodiscard]] int get() const { return fd_.get(); }
  [[nodiscard]] bool is_open() const { return fd_.is_open(); }

 private:
  UniqueFd fd_;
};

struct ChannelMessage {
  std::array<std::byte, sizeof(abi::rdma_cm::Command) + abi::rdma_cm::kMostCommandBytes> bytes;
  std::size_t size = 0;
  AnswerSocket answer;  // not open: the message brings none

  [[nodiscard]] std::span<const std::byte> view() const { return {bytes.data(), size}; }
};

[[nodiscard]] Received receive(int channel, ChannelMessage& message);

// Sends the answer and lets go of its socket. A client that does not want it does without.
void answer(AnswerSocket socket, const Reply& reply);

}  // namespace urdma::control::rdma_cm
