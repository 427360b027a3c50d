// The node's sockets and the connections of its clients: reads messages, finds out what each connection is,
// and hands requests to their handlers. A client that sends nonsense, or does not read what it is sent, loses
// its connection and with it its session, and nothing else.
// Owner: the daemon; control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "datapath/control/connection.hpp"
#include "datapath/control/event_loop.hpp"
#include "datapath/control/node.hpp"
#include "datapath/control/node_directory.hpp"

namespace urdma::control {

class Server final : public Sender {
 public:
  struct Config {
    int engine_page = -1;                      // the descriptor of the daemon's page, for clients
    bool is_polling = false;                   // engines never sleep
    std::function<std::string()> status;       // the document that Status asks for
    std::function<void(UniqueFd)> on_channel;  // a program has opened rdma_cm; null: there is none
  };

  explicit Server(EventLoop& loop) : loop_(loop) {}
  ~Server() override;

  // Opens the sockets: control.sock, dev/uverbsN for each device, and dev/rdma_cm. `node` outlives the
  // server.
  [[nodiscard]] Status start(Node& node, const NodeDirectory& directory, Config config);
  // Ends the connections that were closed since the last call, and their sessions. Called after each
  // round of the loop.
  void settle();

  void reply(const ReplyTo& to, const Outcome& outcome) override;
  void send(ConnectionId connection, abi::MessageType type, std::span<const std::byte> body) override;
  void close(ConnectionId connection) override;

 private:
  // What a connection is; a fresh one to control.sock says so with its first message.
  enum class Kind : std::uint8_t { kIdentity, kFresh, kRequest, kUpcall };
  struct Entry {
    Connection connection;
    Kind kind;
    std::uint32_t unanswered = 0;  // requests whose reply comes later
  };

  [[nodiscard]] Status listen(const NodeDirectory& directory, const std::string& name,
                              std::function<void(UniqueFd)> accepted);
  void turn_away(int listener);
  [[nodiscard]] Status check_room(const Peer& peer) const;
  Entry* add(UniqueFd fd, Kind kind, ConnectionId& id);
  void welcome(UniqueFd fd, std::uint32_t device);
  void on_readable(ConnectionId id);
  // False when the connection is to be ended.
  [[nodiscard]] bool take(ConnectionId id, Entry& entry, Message& message);
  [[nodiscard]] bool take_first(ConnectionId id, Entry& entry, Message& message);
  [[nodiscard]] bool take_request(ConnectionId id, Message& message);
  void hello(const ReplyTo& to, Entry& entry, Message& message);
  void attach_upcall(const ReplyTo& to, Entry& entry, const abi::AttachUpcall& attach);
  void tell_status(const ReplyTo& to);
  void end(ConnectionId id);

  EventLoop& loop_;
  Node* node_ = nullptr;
  Config config_;
  std::vector<UniqueFd> listeners_;
  UniqueFd spare_;  // given up for a moment to turn a client away when there are no more descriptors
  std::unordered_map<ConnectionId, std::unique_ptr<Entry>> connections_;
  std::vector<ConnectionId> closing_;
  ConnectionId last_ = 0;
};

}  // namespace urdma::control
