// One client's connection: whole messages in and out with their descriptors, never blocking. It knows
// nothing of what they mean. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "urdma/abi/control.hpp"
#include "urdma/base/unique_fd.hpp"

namespace urdma::control {

// Whom a connection belongs to, as the kernel says.
struct Peer {
  pid_t pid = 0;  // 0: not in this pid namespace
  uid_t uid = 0;
  gid_t gid = 0;
};

struct Message {
  abi::Header header{};
  std::vector<std::byte> body;
  std::vector<UniqueFd> fds;
};

enum class Received : std::uint8_t {
  kMessage,
  kNothing,   // no more for now
  kEnd,       // the last copy of the other end is closed
  kNonsense,  // shorter than a header, longer than any message, or with too many descriptors
};

class Connection {
 public:
  // `fd` is a connected non-blocking SOCK_SEQPACKET socket.
  explicit Connection(UniqueFd fd);
  Connection(Connection&&) noexcept = default;
  Connection& operator=(Connection&&) noexcept = default;
  // What its client has left unread is closed aside.
  ~Connection();

  [[nodiscard]] int descriptor() const { return fd_.get(); }
  [[nodiscard]] const Peer& peer() const { return peer_; }

  [[nodiscard]] Received receive(Message& message);
  // False when the client does not read (its socket is full) or is gone: the connection is to be ended.
  [[nodiscard]] bool send(const abi::Header& header, std::span<const std::byte> body,
                          std::span<const int> fds);
  // Ends both directions for every copy of this connection.
  void shut_down();

 private:
  UniqueFd fd_;
  Peer peer_;
};

// `header.error` and a sentence, as every refusal has it.
[[nodiscard]] abi::ErrorText error_text(const std::string& sentence);

template <typename Body>
[[nodiscard]] std::span<const std::byte> bytes_of(const Body& body) {
  return std::as_bytes(std::span(&body, 1));
}

}  // namespace urdma::control
