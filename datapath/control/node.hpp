// What the handlers of clients' requests share: the node's limits, its engine, its tables. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <unistd.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "datapath/control/keys.hpp"
#include "datapath/control/multicast.hpp"
#include "datapath/control/qpn_allocator.hpp"
#include "datapath/control/session_table.hpp"
#include "datapath/engine/engine.hpp"
#include "datapath/limits.hpp"

namespace urdma::control {

class Addressing;
class DeviceSet;

// Where the reply to a request goes.
struct ReplyTo {
  ConnectionId connection = 0;
  std::uint32_t type = 0;
  std::uint64_t sequence = 0;
};

struct Reply {
  std::vector<std::byte> body;
  std::vector<int> fds;  // not owned; sent before the handler's caller does anything else
  // Its descriptor is in `fds`, and the daemon needs it no more once the client has it.
  memory::SharedMemory* handed_over = nullptr;
};

// What a handler yields: a reply, a refusal, or nothing yet: the reply comes through Sender later.
using Outcome = Result<std::optional<Reply>>;

// How handlers speak to clients outside of the reply that they return. The server is one.
class Sender {
 public:
  virtual ~Sender() = default;
  // Does nothing when the connection has gone meanwhile. A client that does not read loses its connection,
  // as by close().
  virtual void reply(const ReplyTo& to, const Outcome& outcome) = 0;
  // Sends a message of the daemon's own accord.
  virtual void send(ConnectionId connection, abi::MessageType type, std::span<const std::byte> body) = 0;
  // Ends a connection (0: nothing), and what hangs on it, once the handlers that run now have returned.
  virtual void close(ConnectionId connection) = 0;
};

// Waits for reports of the engine, by cookie.
class EngineWaits {
 public:
  using Done = std::function<void(std::uint64_t cookie)>;

  std::uint64_t add(Done done) {
    waits_.emplace(++last_, std::move(done));
    return last_;
  }
  // There was nothing to wait for.
  void drop(std::uint64_t cookie) { waits_.erase(cookie); }
  // What was waited for has come: takes the wait out and calls it.
  void finish(std::uint64_t cookie) {
    const auto found = waits_.find(cookie);
    if (found == waits_.end()) return;
    const Done done = std::move(found->second);
    waits_.erase(found);
    done(cookie);
  }

 private:
  std::unordered_map<std::uint64_t, Done> waits_;
  std::uint64_t last_ = 0;
};

// Objects of all clients together, against the node's limits.
struct Usage {
  std::uint32_t pds = 0;
  std::uint32_t regions = 0;
  std::uint32_t windows = 0;
  std::uint32_t cqs = 0;
  std::uint32_t qps = 0;
  std::uint32_t srqs = 0;
  std::uint32_t xrcds = 0;  // times that one is open
  std::uint32_t ahs = 0;
};

// What went wrong lately, in words: the QPs and sessions themselves are soon gone, and `urdma status` is
// asked afterwards. The latest kMost are kept.
struct Failure {
  std::int64_t unix_time_s = 0;
  std::string program;
  pid_t pid = 0;
  std::uint32_t qpn = 0;  // 0: of the session as a whole
  std::string peer;       // GID as text
  std::string reason;
};
class FailureHistory {
 public:
  static constexpr std::size_t kMost = 32;
  void add(Failure failure) {
    failures_.push_back(std::move(failure));
    if (failures_.size() > kMost) failures_.pop_front();
  }
  [[nodiscard]] const std::deque<Failure>& all() const { return failures_; }

 private:
  std::deque<Failure> failures_;
};

struct Node {
  Limits limits;
  bool converts = true;
  engine::Engine& engine;
  DeviceSet& devices;
  Addressing& addressing;
  Sender& sender;
  QpnAllocator qpns;
  QpnAllocator srqns;  // of SRQs, as numbers of their own
  XrcDomains xrc_domains;
  KeySet keys;
  Usage usage;
  EngineWaits waits;
  SessionTable sessions;
  FailureHistory failures;
  MulticastGroups groups;
  std::uint32_t last_pd = 0;
  uid_t owner = ::geteuid();  // may have all of it (shares.hpp)
};

template <typename Body>
[[nodiscard]] Outcome reply_with(const Body& body) {
  const auto bytes = bytes_of(body);
  return std::optional<Reply>(Reply{{bytes.begin(), bytes.end()}, {}, nullptr});
}
[[nodiscard]] inline Outcome empty_reply() { return std::optional<Reply>(Reply{}); }
[[nodiscard]] inline Outcome reply_later() { return std::optional<Reply>(); }

}  // namespace urdma::control
