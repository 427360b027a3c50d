// Questions to the kernel over one netlink socket, each answered at once: interfaces, routes and
// neighbours of this network namespace. Owned by Netlink; control thread only. Knows of no change by itself.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "datapath/control/netlink.hpp"
#include "urdma/base/result.hpp"
#include "urdma/wire/frame.hpp"

struct nl_msg;
struct nl_sock;
struct nlmsghdr;

namespace urdma::control {

enum class NeighbourState : std::uint8_t {
  kUnknown,  // not in the table, or being looked for
  kFailed,   // did not answer
  kStale,    // has an address that should be confirmed
  kUsable,
};

constexpr bool has_address(NeighbourState state) {
  return state == NeighbourState::kStale || state == NeighbourState::kUsable;
}

struct Neighbour {
  int index = 0;  // of the interface
  wire::Gid gid{};
  NeighbourState state = NeighbourState::kUnknown;
  wire::MacAddress mac{};  // kStale and kUsable: never zero
};

// The neighbour that an RTM_NEWNEIGH message speaks of; nothing for other families.
[[nodiscard]] std::optional<Neighbour> parse_neighbour(nlmsghdr* message);

class KernelNetwork {
 public:
  [[nodiscard]] static Result<std::unique_ptr<KernelNetwork>> create();

  [[nodiscard]] std::vector<InterfaceState> interfaces();
  // The neighbour to send to on the way from `source` to `dest` out of the interface: a gateway, or `dest`
  // itself. ENETUNREACH when no route leads out of it.
  [[nodiscard]] Result<wire::Gid> next_hop(int index, const wire::Gid& source, const wire::Gid& dest);
  // See Netlink::find_source.
  [[nodiscard]] std::optional<RouteSource> find_source(int index, const wire::Gid& dest);
  // What a packet on that way begins its life with: the route's own hop limit, else the interface's (IPv6)
  // or the host's (IPv4).
  [[nodiscard]] std::uint8_t hop_limit(int index, const wire::Gid& source, const wire::Gid& dest);
  [[nodiscard]] std::vector<Neighbour> neighbours();
  // Makes the kernel look for, or confirm, `next_hop`, which is on the way from `source` to `dest`.
  void solicit(int index, const wire::Gid& source, const wire::Gid& dest, const wire::Gid& next_hop);

 private:
  struct FreeSocket {
    void operator()(nl_sock* socket) const;
  };
  struct Route {
    std::uint8_t type = 0;  // RTN_*
    int index = 0;
    std::optional<wire::Gid> gateway;
    std::optional<wire::Gid> source;
    std::uint32_t hop_limit = 0;  // 0: it has none of its own
  };
  explicit KernelNetwork(nl_sock* socket) : socket_(socket) {}
  [[nodiscard]] std::optional<Route> route(int index, const wire::Gid* source, const wire::Gid& dest,
                                           std::uint32_t flags);
  // The route from `source`, or from any address where the kernel does not know that one: `source` becomes
  // null then.
  [[nodiscard]] std::optional<Route> route_from(int index, const wire::Gid*& source, const wire::Gid& dest);
  static int on_route(nl_msg* message, void* route);

  std::unique_ptr<nl_sock, FreeSocket> socket_;
};

}  // namespace urdma::control
