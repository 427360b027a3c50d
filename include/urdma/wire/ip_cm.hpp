// The RDMA IP connection manager's part of a REQ or SIDR_REQ (IBTA 1, annex A11): service IDs that stand for
// ports, and the header in front of the program's private data, with the addresses and the source port.
// Pure: usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "urdma/wire/frame.hpp"

namespace urdma::wire {

inline constexpr std::size_t kIpCmHeaderBytes = 36;
// Port spaces, as rdma_cm numbers them: the second byte is the IP protocol.
inline constexpr std::uint16_t kPortSpaceTcp = 0x0106;
inline constexpr std::uint16_t kPortSpaceUdp = 0x0111;

// Host order: 00 00 00 00 01, the protocol, the port.
constexpr std::uint64_t ip_service_id(std::uint16_t port_space, std::uint16_t port) {
  return (std::uint64_t{port_space} << 16) | port;
}

// Addresses as GIDs, IPv4 as ::ffff:a.b.c.d. Both are of one family.
struct IpCmHeader {
  bool is_ipv6 = false;
  std::uint16_t source_port = 0;
  Gid source{};
  Gid dest{};
};

// Nothing where the bytes are too few, or the version or the family is not known.
[[nodiscard]] std::optional<IpCmHeader> parse_ip_cm(std::span<const std::uint8_t> private_data);
// An IPv4 address is taken from the last four bytes of its GID.
void write_ip_cm(const IpCmHeader& header, std::span<std::uint8_t, kIpCmHeaderBytes> out);

}  // namespace urdma::wire
