// What the daemon asks of the kernel's network: addresses of interfaces and their changes, and the link
// address of a peer (route, then neighbour table). Over libnl; control thread only.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "urdma/base/result.hpp"
#include "urdma/base/time.hpp"
#include "urdma/wire/frame.hpp"

namespace urdma::control {

struct InterfaceAddress {
  wire::Gid gid{};
  std::uint8_t prefix_bits = 0;  // counted in the GID
};

struct InterfaceState {
  int index = 0;
  std::string name;
  wire::MacAddress mac{};
  std::uint32_t mtu = 0;
  bool is_up = false;  // administratively up, with carrier
  // IPv6 link-local first, then IPv4, then other IPv6; within each in the kernel's order. Tentative and
  // deprecated-by-DAD addresses are left out.
  std::vector<InterfaceAddress> addresses;
};

// Where packets to an address begin.
struct RouteSource {
  int index = 0;                    // of the interface that they leave by
  std::optional<wire::Gid> source;  // that the kernel would give them
};

class Netlink {
 public:
  // `on_change` is called from handle() when addresses or links of any interface changed, or a neighbour
  // that resolve() gave has another link address now.
  [[nodiscard]] static Result<std::unique_ptr<Netlink>> create(std::function<void()> on_change);
  virtual ~Netlink() = default;

  // Readable when handle() has something to do.
  [[nodiscard]] virtual int descriptor() const = 0;
  virtual void handle() = 0;

  // ENODEV with words when there is no such interface.
  [[nodiscard]] virtual Result<InterfaceState> interface(const std::string& name) = 0;
  // All interfaces of this network namespace.
  [[nodiscard]] virtual std::vector<InterfaceState> interfaces() = 0;

  // Finds the link address for packets from `source` to `dest` out of interface `index`: multicast by
  // rule, the gateway's where a route has one, else the neighbour's. Makes the kernel resolve it when it is
  // not known. `done` is called exactly once, from this call, handle() or expire(): with the address, or with
  // ENETUNREACH (no route out of this interface), EHOSTUNREACH (the neighbour failed), ETIMEDOUT, or
  // ENOBUFS (too many are being looked for).
  using ResolveDone = std::function<void(Result<wire::MacAddress>)>;
  virtual void resolve(int index, const wire::Gid& source, const wire::Gid& dest, Instant deadline,
                       ResolveDone done) = 0;
  // The hop limit of packets from `source` to `dest` out of interface `index`, as the kernel would send
  // them; nothing for groups, whose reach is for the sender to choose.
  [[nodiscard]] virtual std::optional<std::uint8_t> hop_limit(int index, const wire::Gid& source,
                                                              const wire::Gid& dest) = 0;
  // How the kernel would send to `dest`, out of interface `index` where that is not 0; nothing where it has
  // no route. Multicast groups have one where the kernel has been told of it.
  [[nodiscard]] virtual std::optional<RouteSource> find_source(int index, const wire::Gid& dest) = 0;
  // Ends what is overdue; returns the next deadline.
  virtual Instant expire(Instant now) = 0;
};

}  // namespace urdma::control
