// What it takes to write and to check IP packets that are not RoCE: address resolution, group membership.
// Pure: usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "urdma/wire/frame.hpp"
#include "urdma/wire/ip.hpp"

namespace urdma::wire {

inline constexpr std::uint8_t kProtocolIcmpv6 = 58;
inline constexpr std::uint32_t kIpv6Version = 0x60000000;  // of version_class_flow
inline constexpr std::size_t kIpv4Start = 12;              // of an IPv4 address in a GID

// The Internet checksum (RFC 1071) of `bytes`, with an even sum of what else it covers; 0 where it is there
// already and right.
[[nodiscard]] inline std::uint16_t internet_checksum(std::span<const std::uint8_t> bytes,
                                                     std::uint32_t sum = 0) {
  for (std::size_t i = 0; i < bytes.size(); ++i) sum += i % 2 == 0 ? std::uint32_t{bytes[i]} << 8 : bytes[i];
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

// The same of an ICMPv6 message with its pseudo-header (RFC 8200, 8.1).
[[nodiscard]] inline std::uint16_t icmpv6_checksum(const Ipv6Address& source, const Ipv6Address& dest,
                                                   std::span<const std::uint8_t> message) {
  std::uint32_t sum = static_cast<std::uint32_t>(message.size()) + kProtocolIcmpv6;
  for (std::size_t i = 0; i < source.size(); i += 2) {
    sum += (std::uint32_t{source[i]} << 8) + source[i + 1] + (std::uint32_t{dest[i]} << 8) + dest[i + 1];
  }
  return internet_checksum(message, sum);
}

[[nodiscard]] inline Gid gid_of(const Ipv4Address& address) {
  Gid gid = gid_from_ipv4(0);
  std::copy(address.begin(), address.end(), gid.begin() + kIpv4Start);
  return gid;
}

[[nodiscard]] inline Ipv4Address ipv4_of(const Gid& gid) {
  Ipv4Address address{};
  std::copy(gid.begin() + kIpv4Start, gid.end(), address.begin());
  return address;
}

// Writes a structure that has no alignment; returns where the next one goes.
template <typename Wire>
std::uint8_t* append(std::uint8_t* to, const Wire& wire) {
  static_assert(alignof(Wire) == 1);
  std::memcpy(to, &wire, sizeof wire);
  return to + sizeof wire;
}

}  // namespace urdma::wire
