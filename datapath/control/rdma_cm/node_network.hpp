// The node as the connection manager sees it (network.hpp): devices, routes of the kernel and of ports that
// find their own, and the managers of communication, whose datagrams go in and out of QP 1 of the engine.
// Owner: the daemon; control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "datapath/cm/manager.hpp"
#include "datapath/control/netlink.hpp"
#include "datapath/control/node.hpp"
#include "datapath/control/rdma_cm/network.hpp"

namespace urdma::control::rdma_cm {

class NodeNetwork final : public Network {
 public:
  // `node` and `netlink` outlive it. `secret` is random, and told to nobody.
  NodeNetwork(Node& node, Netlink& netlink, const cm::Key& secret);

  [[nodiscard]] Instant now() const override;
  [[nodiscard]] Result<LocalEnd> find_local(const SocketAddress& address) const override;
  [[nodiscard]] Result<LocalEnd> find_source(const SocketAddress& dest) override;
  void resolve(std::uint32_t id, const LocalEnd& source, const wire::Gid& dest, const Done& done) override;
  void stop_resolving(std::uint32_t id) override;
  [[nodiscard]] DeviceFacts facts(std::uint32_t device) const override;
  [[nodiscard]] std::optional<std::uint8_t> gid_index(const LocalEnd& end) const override;
  [[nodiscard]] cm::Manager& manager(std::uint32_t device) override { return *managers_[device]; }

  // Whether a connection of some device is about that has, or had, this QP.
  [[nodiscard]] bool is_in_use(Qpn qpn) const;
  // Takes what has come to QP 1.
  void take_received();
  // Sends what the managers have to send, but not too much at once: tend() says when there is more. Hands
  // their events on. Whatever calls a manager has this called
  // before the control thread sleeps.
  using OnEvent = std::function<void(std::uint32_t device, const cm::Event& event)>;
  void pump(const OnEvent& on_event);
  // Does what is due; when it is to be called next.
  [[nodiscard]] Instant tend(Instant now);

  struct Counters {
    std::uint64_t ways_asked = 0;
    // Messages that were not sent; those that matter are repeated.
    std::uint64_t dropped_without_way = 0;
    std::uint64_t dropped_no_room = 0;  // too many wait for one way, or there are too many ways
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  // Where messages between two addresses go. It is found anew after a while, when there is something to send.
  struct Way {
    engine::Path path;
    Instant until;
    bool is_asking = false;
    // While it is asked for: what is sent then, and the IDs that are told.
    std::vector<cm::Mad> waiting;
    std::map<std::uint32_t, Done> resolving;
  };
  using Ends = std::tuple<std::uint32_t, wire::Gid, wire::Gid, std::uint8_t>;  // device, GIDs, traffic class
  using Outgoing = std::pair<engine::Path, cm::Mad>;

  [[nodiscard]] Result<LocalEnd> find_loopback(const SocketAddress& address) const;
  [[nodiscard]] std::optional<LocalEnd> find_on_link(const wire::Gid& dest) const;
  [[nodiscard]] std::optional<LocalEnd> find_by_route(const RouteSource& route, const wire::Gid& dest) const;
  [[nodiscard]] std::optional<LocalEnd> find_by_gateway(const wire::Gid& dest) const;
  // The way, for something that waits for it; null: there are too many.
  [[nodiscard]] Way* reserve_way(const Ends& ends);
  void ask_way(const Ends& ends);
  void end_asking(const Ends& ends, const Result<engine::Path>& path);
  void send(std::uint32_t device, const cm::OutgoingMad& outgoing);
  void flush();

  Node& node_;
  Netlink& netlink_;
  std::vector<std::unique_ptr<cm::Manager>> managers_;  // by device
  std::map<Ends, Way> ways_;
  std::map<std::uint32_t, Ends> resolving_;  // what IDs wait for
  Counters counters_;
  std::deque<Outgoing> outgoing_;  // for the engine
};

}  // namespace urdma::control::rdma_cm
