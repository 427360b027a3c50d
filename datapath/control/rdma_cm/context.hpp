// What the handlers of rdma_cm's commands and the events of connections share: channels, IDs and ports.
// Owner: the service; control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "datapath/cm/types.hpp"
#include "datapath/control/connection.hpp"
#include "datapath/control/objects.hpp"
#include "datapath/control/rdma_cm/network.hpp"
#include "datapath/control/rdma_cm/port_table.hpp"
#include "datapath/control/rdma_cm/socket_address.hpp"
#include "datapath/limits.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::control::rdma_cm {

// As librdmacm numbers them.
enum class EventType : std::uint32_t {
  kAddressResolved = 0,
  kAddressError = 1,
  kRouteResolved = 2,
  kRouteError = 3,
  kConnectRequest = 4,
  kConnectResponse = 5,
  kConnectError = 6,
  kUnreachable = 7,
  kRejected = 8,
  kEstablished = 9,
  kDisconnected = 10,
  kDeviceRemoval = 11,
  kMulticastJoin = 12,
  kMulticastError = 13,
  kAddressChange = 14,
  kTimeWaitExit = 15,
};

struct QueuedEvent {
  std::uint32_t owner = 0;  // the ID whose program is to acknowledge it: of a request, the listener
  std::uint32_t child = 0;  // of a request: the new ID
  std::uint32_t group = 0;  // of a multicast group: its handle
  rdma_ucm_event_resp body{};
};
using EventQueue = std::list<QueuedEvent>;

// What open("/dev/infiniband/rdma_cm") gave a program.
struct Channel {
  std::uint64_t key = 0;
  UniqueFd fd;
  Peer peer;
  EventQueue events;
  std::uint32_t tokens = 0;  // signs of events that it has, and has not come for
  std::set<std::uint32_t> ids;
};

// rdma_cm's states, with CONNECT told apart by what is waited for; kConnected is also what datagram services
// are once they are resolved.
enum class IdState : std::uint8_t {
  kIdle,
  kBound,
  kResolvingAddress,
  kAddressResolved,
  kRouteResolved,
  kListening,
  kRequested,   // a peer asks, and the program has not answered
  kConnecting,  // we have asked, or accepted
  kConnected,
  kDisconnected,
  kOver,  // rejected, or not reached
};

// What the QP's attributes are made of (init_qp_attr), from this side.
struct ConnectionParameters {
  Qpn peer_qpn{};
  Psn own_psn{};   // that the peer begins with
  Psn peer_psn{};  // that we begin with
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t path_mtu = 0;     // code
  std::uint8_t ack_timeout = 0;  // code
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
};

struct JoinedGroup {
  std::uint32_t handle = 0;
  std::uint64_t uid = 0;
  wire::Gid gid{};
  std::uint32_t events_reported = 0;
};

struct Id {
  std::uint32_t number = 0;
  std::uint64_t uid = 0;  // the program's name for it; 0: it does not know of it yet
  std::uint64_t channel = 0;
  uid_t user = 0;
  PortSpace created_space = PortSpace::kTcp;
  PortSpace space = PortSpace::kTcp;  // of its port
  QpType type = QpType::kRc;
  IdState state = IdState::kIdle;
  bool has_port = false;
  SocketAddress source;
  SocketAddress dest;

  // ---- Options ----
  bool reuses_address = false;
  std::optional<bool> family_only;
  std::uint8_t type_of_service = 0;
  std::optional<std::uint8_t> ack_timeout;

  // ---- Where it is, once that is known ----
  std::optional<LocalEnd> local;
  bool is_bound_to_device = false;  // and stays with it, also where a destination is not found
  wire::Gid remote_gid{};
  std::uint32_t resolution = 0;  // counts them: the answer to an earlier one is late
  Instant deadline = Instant::never();

  cm::ConnectionId connection;  // of the device's manager; 0: none
  ConnectionParameters parameters;
  std::optional<cm::Request> asked;  // until it is answered
  std::uint8_t traffic_class = 0;
  std::uint32_t qkey = 0;
  std::uint32_t listener = 0;          // of a request that the program has not taken
  std::uint32_t waiting_requests = 0;  // of a listener: those that its program has not taken
  std::vector<JoinedGroup> groups;
  std::uint64_t ticket = 0;  // of its offer; 0: there is none
  // Those of the channel's that it owns, in their order: an ID goes without a look at those of others.
  std::vector<EventQueue::iterator> events;
  std::uint32_t events_queued = 0;  // of these, all but requests
  std::uint32_t events_reported = 0;

  [[nodiscard]] bool is_datagram() const { return type == QpType::kUd; }
};

// The answer to a command.
struct Reply {
  int error = 0;
  std::vector<std::byte> bytes;
};

template <typename Body>
[[nodiscard]] Reply reply_of(const Body& body) {
  const auto bytes = std::as_bytes(std::span(&body, 1));
  return {0, {bytes.begin(), bytes.end()}};
}
[[nodiscard]] inline Reply refuse(int error) { return {error, {}}; }

// Whether AF_IB may be bound, which makes librdmacm use its newer commands.
struct Options {
  bool supports_af_ib = true;
  std::uint16_t first_port = 32768;  // for whoever asks for none
  std::uint16_t last_port = 60999;
  std::uint64_t seed = 0;
  uid_t owner = 0;  // may have all of it
};

class Context {
 public:
  Context(Network& of_node, const Limits& of_limits, const Options& with)
      : network(of_node),
        limits(of_limits),
        options(with),
        ports(with.first_port, with.last_port, static_cast<std::uint32_t>(with.seed)),
        random(with.seed) {}

  Network& network;
  const Limits limits;
  const Options options;
  PortTable ports;
  std::mt19937_64 random;

  // ---- Channels ----
  std::map<std::uint64_t, std::unique_ptr<Channel>> channels;
  [[nodiscard]] Channel* find_channel(std::uint64_t key) const;

  // ---- IDs ----
  std::map<std::uint32_t, std::unique_ptr<Id>> ids;
  std::set<std::pair<Instant, std::uint32_t>> resolving;  // deadline and number of those that look for a way
  // What another channel may take over, by ticket.
  std::map<std::uint64_t, std::uint32_t> offers;
  // Lets go of the ID's offer, if there is one.
  void withdraw_offer(Id& id);
  // Null where there is no room for another one of this user.
  [[nodiscard]] Id* add_id(Channel& channel);
  [[nodiscard]] Id* find(std::uint32_t number) const;
  // The ID of a command; null and an errno where the channel has none of this number.
  [[nodiscard]] Id* find(const Channel& channel, std::uint32_t number, int& error) const;
  // Ends what it is about, as the peer and the program see it. The ID is gone afterwards.
  void destroy(Id& id);
  void end_resolution(Id& id);

  // ---- Connections ----
  [[nodiscard]] Id* find_connection(std::uint32_t device, cm::ConnectionId connection) const;
  void attach(Id& id, cm::ConnectionId connection);
  void detach(Id& id);  // forgets its connection

  // ---- Events ----
  // What every event of the ID says.
  [[nodiscard]] static rdma_ucm_event_resp event_of(const Id& id, EventType type, int status);
  // Queues an event for the ID's program, and signs it. What a program does not know of yet has no events.
  void post(Id& id, const rdma_ucm_event_resp& body, std::uint32_t group = 0);
  // Queues a request of `child` for the program of the listener. False: too many wait.
  [[nodiscard]] bool post_request(Id& listener, Id& child, const rdma_ucm_event_resp& body);
  // Takes what is next. Nothing: there is none.
  [[nodiscard]] std::optional<QueuedEvent> take_event(Channel& channel);
  void sign_events(Channel& channel);
  // So many signs have been taken, and no event with them.
  void put_back_tokens(Channel& channel, std::uint32_t count);
  // What waits for the ID's program goes along to another channel, in its order, with the requests in it.
  void move_to_channel(Id& id, Channel& to);
  void drop_events_of(Id& id);
  std::uint64_t lost_events = 0;  // of IDs whose programs took none of very many
  void drop_events_of_group(Id& id, std::uint32_t group);

  // ---- Multicast groups ----
  // A handle for a group of this ID; 0: there is none left.
  [[nodiscard]] std::uint32_t new_group_handle(const Id& id);
  void give_back_group_handle(std::uint32_t handle);
  [[nodiscard]] Id* find_group_owner(std::uint32_t handle) const;

  [[nodiscard]] std::size_t connection_count() const { return connections_.size(); }

 private:
  void queue(Id& owner, Channel& channel, const QueuedEvent& event);
  void withdraw_request(const Id& child);

  NumberPool numbers_{kMostNumbers};
  NumberPool group_handles_{kMostNumbers};
  std::map<std::uint32_t, std::uint32_t> group_owners_;                           // handle: ID
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> connections_;  // device, connection: ID
  std::map<uid_t, std::uint32_t> ids_of_users_;

  // librdmacm keeps its IDs in a table of so many.
  static constexpr std::uint32_t kMostNumbers = 65535;
};

}  // namespace urdma::control::rdma_cm
