// Ethernet, IPv4, IPv6 and UDP headers as they stand in a packet (IEEE 802.3, RFC 791, 8200, 768),
// without VLAN tags, options and extension headers, which RoCEv2 senders do not use.
// Values only: usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "urdma/wire/be.hpp"

namespace urdma::wire {

inline constexpr std::uint16_t kEtherTypeIpv4 = 0x0800;
inline constexpr std::uint16_t kEtherTypeIpv6 = 0x86DD;
inline constexpr std::uint8_t kProtocolUdp = 17;
inline constexpr std::uint8_t kIpv4VersionAndWords = 0x45;  // version 4, five words: no options
inline constexpr std::uint16_t kIpv4DontFragment = 0x4000;
inline constexpr std::uint16_t kIpv4MoreFragments = 0x2000;
inline constexpr std::uint16_t kIpv4OffsetMask = 0x1FFF;
inline constexpr unsigned kIpv6ClassShift = 20;
inline constexpr std::uint32_t kIpv6FlowLabelMask = 0xFFFFF;

using Ipv4Address = std::array<std::uint8_t, 4>;
using Ipv6Address = std::array<std::uint8_t, 16>;

struct EthernetWire {
  std::array<std::uint8_t, 6> dest;
  std::array<std::uint8_t, 6> source;
  be16 type;
};
static_assert(sizeof(EthernetWire) == 14 && alignof(EthernetWire) == 1);

struct Ipv4Wire {
  std::uint8_t version_and_words;
  std::uint8_t type_of_service;
  be16 total_bytes;
  be16 identification;
  be16 fragment;  // reserved 0x8000, don't fragment 0x4000, more fragments 0x2000, offset 0x1FFF
  std::uint8_t time_to_live;
  std::uint8_t protocol;
  be16 checksum;
  Ipv4Address source;
  Ipv4Address dest;
};
static_assert(sizeof(Ipv4Wire) == 20 && alignof(Ipv4Wire) == 1);
static_assert(offsetof(Ipv4Wire, checksum) == 10);

struct Ipv6Wire {
  be32 version_class_flow;  // version 0xF0000000, traffic class 0x0FF00000, flow label 0x000FFFFF
  be16 payload_bytes;
  std::uint8_t next_header;
  std::uint8_t hop_limit;
  Ipv6Address source;
  Ipv6Address dest;
};
static_assert(sizeof(Ipv6Wire) == 40 && alignof(Ipv6Wire) == 1);
static_assert(offsetof(Ipv6Wire, hop_limit) == 7);

struct UdpWire {
  be16 source_port;
  be16 dest_port;
  be16 bytes;  // header and all behind it
  be16 checksum;
};
static_assert(sizeof(UdpWire) == 8 && alignof(UdpWire) == 1);

}  // namespace urdma::wire
