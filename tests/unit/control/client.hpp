// A client of the daemon for tests: it speaks the control messages of abi/control.hpp as a provider does, or
// as none should. Blocking, with a time limit.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "datapath/control/connection.hpp"

namespace urdma::control {

inline constexpr int kAnswerLimitMs = 5'000;

inline UniqueFd connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return {};
  return fd;
}

// The next message; nothing at the end of the connection, or when none comes in time.
inline std::optional<Message> next_message(Connection& connection) {
  pollfd waiting{connection.descriptor(), POLLIN, 0};
  if (::poll(&waiting, 1, kAnswerLimitMs) <= 0) return std::nullopt;
  Message message;
  if (connection.receive(message) != Received::kMessage) return std::nullopt;
  return message;
}

template <typename Body>
Body body_of(const Message& message) {
  Body body{};
  EXPECT_EQ(message.body.size(), sizeof(Body)) << "of a message of type " << message.header.type;
  std::memcpy(&body, message.body.data(), std::min(message.body.size(), sizeof(Body)));
  return body;
}

class Client {
 public:
  // Opens device 0 of the node, as open("/dev/infiniband/uverbs0") does.
  explicit Client(const std::string& node)
      : node_(node),
        identity(connect_to(node + "/dev/uverbs0")),
        request(connect_to(node + "/control.sock")) {
    const auto welcomed = next_message(identity);
    if (welcomed) welcome = body_of<abi::Welcome>(*welcomed);
  }

  // Sends one request and returns its reply; nothing when the connection has ended instead.
  std::optional<Message> ask(abi::MessageType type, std::span<const std::byte> body,
                             std::span<const int> fds = {}) {
    if (!request.send({static_cast<std::uint32_t>(type), 0, ++sequence_}, body, fds)) return std::nullopt;
    auto reply = next_message(request);
    if (reply) {
      EXPECT_EQ(reply->header.sequence, sequence_);
      EXPECT_EQ(reply->header.type, static_cast<std::uint32_t>(type));
    }
    return reply;
  }
  template <typename Body>
  std::optional<Message> ask(abi::MessageType type, const Body& body, std::span<const int> fds = {}) {
    return ask(type, bytes_of(body), fds);
  }
  // The error of a request: 0, an errno, or -1 when the connection has ended.
  template <typename Body>
  int error_of(abi::MessageType type, const Body& body, std::span<const int> fds = {}) {
    const auto reply = ask(type, body, fds);
    if (!reply) return -1;
    if (reply->header.error != 0) {
      EXPECT_NE(body_of<abi::ErrorText>(*reply).text[0], '\0') << "an error comes with a sentence";
    }
    return static_cast<int>(reply->header.error);
  }
  // The handle that a making request gives; 0 when it fails.
  template <typename Body>
  std::uint32_t make(abi::MessageType type, const Body& body, std::span<const int> fds = {}) {
    const auto reply = ask(type, body, fds);
    std::uint32_t handle = 0;
    const bool is_made = reply && reply->header.error == 0 && reply->body.size() >= sizeof(handle);
    if (is_made) std::memcpy(&handle, reply->body.data(), sizeof(handle));
    return handle;
  }
  std::uint32_t make_pd() {
    const auto reply = ask(abi::MessageType::kAllocPd, std::span<const std::byte>());
    return reply ? body_of<abi::Handle>(*reply).handle : 0;
  }

  abi::Hello hello_body() const {
    abi::Hello hello{abi::kMagic, abi::kVersion, welcome.token, "unit-test"};
    return hello;
  }
  // -1 when the connection has ended.
  int hello(const abi::Hello& body, const char* memory = "/proc/self/mem") {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    events = UniqueFd(ends[0]);
    const UniqueFd pipe(ends[1]);
    const UniqueFd mem(::open(memory, O_RDWR | O_CLOEXEC));
    const int fds[] = {mem.get(), pipe.get()};
    auto reply = ask(abi::MessageType::kHello, body, fds);
    if (!reply) return -1;
    if (reply->header.error == 0) {
      info = body_of<abi::HelloReply>(*reply);
      hello_fds = std::move(reply->fds);
    }
    return static_cast<int>(reply->header.error);
  }

 private:
  std::string node_;
  std::uint64_t sequence_ = 0;

 public:
  Connection identity;
  Connection request;
  abi::Welcome welcome{};
  abi::HelloReply info{};
  UniqueFd events;
  std::vector<UniqueFd> hello_fds;
};

}  // namespace urdma::control
