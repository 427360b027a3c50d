// What a person writes to name a port: `loopback`, `af_packet:IFACE`, `af_xdp:IFACE`, `tap:NAME`,
// `pci:ADDRESS`, `vdev:DPDK-DEVICE-ARGUMENTS`, each with `,ip=ADDRESS/LEN` where wanted, and `,gw=ADDRESS`
// where the kernel has no interface, and so no route.
// Pure: usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "urdma/base/result.hpp"
#include "urdma/wire/frame.hpp"

namespace urdma::io {

struct PortAddress {
  wire::Gid gid{};
  std::uint8_t prefix_bits = 128;  // counted in the GID: 96 + the IPv4 prefix length
};

struct PortSpec {
  enum class Kind : std::uint8_t { kLoopback, kAfPacket, kVdev };

  Kind kind = Kind::kLoopback;
  std::string text;                    // as the person wrote it
  std::string interface;               // af_packet: the interface
  std::string device;                  // vdev: DPDK's device name and arguments
  std::vector<PortAddress> addresses;  // ip=...
  std::vector<wire::Gid> gateways;     // gw=..., vdev only: where the kernel has no routes for it
};

// Whether `gid` is in the network of `network`, which is of the same address family.
[[nodiscard]] bool is_in_network(const wire::Gid& gid, const PortAddress& network);

// A spec of a known kind that this version does not have (af_xdp, tap, pci) fails with ENOTSUP, one
// that cannot be read with EINVAL; the message says which words were meant.
[[nodiscard]] Result<PortSpec> parse_port_spec(const std::string& text);

}  // namespace urdma::io
