// What the connection manager needs of the node: its devices and their addresses, ways to others, and a
// manager of communication for each device. Of the node: node_network.hpp; tests bring their own. Control
// thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "datapath/cm/manager.hpp"
#include "datapath/control/rdma_cm/socket_address.hpp"
#include "urdma/base/result.hpp"
#include "urdma/base/time.hpp"

namespace urdma::control::rdma_cm {

// One address of one device.
struct LocalEnd {
  std::uint32_t device = 0;
  wire::Gid gid{};
};

struct DeviceFacts {
  std::uint64_t node_guid = 0;  // network order
  std::uint8_t path_mtu = 0;    // code
  std::uint8_t rate = 0;        // code of IBTA 1, 15.2.5.16
};

class Network {
 public:
  virtual ~Network() = default;

  [[nodiscard]] virtual Instant now() const = 0;
  // The device that has the address. A loopback address is that of the first device with one of its family.
  // EADDRNOTAVAIL: the host does not have it, ENODEV: it has, but no device.
  [[nodiscard]] virtual Result<LocalEnd> find_local(const SocketAddress& address) const = 0;
  // The end from which `dest` is reached. ENETUNREACH, or ENODEV: the way goes out of no device.
  [[nodiscard]] virtual Result<LocalEnd> find_source(const SocketAddress& dest) = 0;
  // Makes sure that there is a way to `dest`. `done` is called once, from here or later: with 0 or an errno;
  // ENOBUFS: too many ways are being looked for. `id` asks for one at a time.
  using Done = std::function<void(int error)>;
  virtual void resolve(std::uint32_t id, const LocalEnd& source, const wire::Gid& dest, const Done& done) = 0;
  // The ID does not ask any more: its `done` is not called.
  virtual void stop_resolving(std::uint32_t id) = 0;
  [[nodiscard]] virtual DeviceFacts facts(std::uint32_t device) const = 0;
  // Its index in the device's GID table; nothing when it has gone.
  [[nodiscard]] virtual std::optional<std::uint8_t> gid_index(const LocalEnd& end) const = 0;
  [[nodiscard]] virtual cm::Manager& manager(std::uint32_t device) = 0;
};

}  // namespace urdma::control::rdma_cm
