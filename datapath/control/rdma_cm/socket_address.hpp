// The socket addresses of rdma_cm: IPv4, IPv6, and those of InfiniBand (AF_IB), whose service IDs stand for
// ports. For RoCE an IP address and a GID are the same thing. Values only; any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "urdma/wire/frame.hpp"

namespace urdma::control::rdma_cm {

enum class Family : std::uint8_t { kNone, kIpv4, kIpv6, kIb };

struct SocketAddress {
  Family family = Family::kNone;
  wire::Gid gid{};  // IPv4 as ::ffff:a.b.c.d
  std::uint16_t port = 0;
  std::uint32_t flow_info = 0;  // IPv6, in network order as the program gave it
  std::uint32_t scope = 0;      // IPv6: the interface of a link-local address
  std::uint16_t pkey = 0;       // InfiniBand, from here on
  std::uint64_t service_id = 0;
  std::uint64_t service_mask = 0;

  [[nodiscard]] bool is_ip() const { return family == Family::kIpv4 || family == Family::kIpv6; }
  // No address in particular.
  [[nodiscard]] bool is_any() const;
  [[nodiscard]] bool is_loopback() const;
  // Whoever binds it is bound to no device and listens on all: Linux has it so for loopback addresses, too.
  [[nodiscard]] bool is_of_all_devices() const { return is_any() || is_loopback(); }
  [[nodiscard]] bool is_multicast() const { return is_ip() && wire::is_multicast_gid(gid); }
  [[nodiscard]] bool has_same_address(const SocketAddress& other) const {
    return family == other.family && gid == other.gid && scope == other.scope;
  }
};

// sizeof sockaddr_in, sockaddr_in6 or sockaddr_ib.
[[nodiscard]] std::size_t address_bytes(Family family);

// Reads what stands in `bytes`: nothing where there is no room for its family, or the family is unknown.
[[nodiscard]] std::optional<SocketAddress> read_address(std::span<const std::byte> bytes);

// Writes address_bytes() of it to `bytes`, and returns how many; zeros where it has none, or there is no
// room.
std::size_t write_address(const SocketAddress& address, std::span<std::byte> bytes);

[[nodiscard]] SocketAddress any_address(Family family);
[[nodiscard]] SocketAddress address_of(const wire::Gid& gid, std::uint16_t port);

}  // namespace urdma::control::rdma_cm
