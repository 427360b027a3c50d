// RoCEv2 frames: Ethernet, IPv4 or IPv6, UDP to port 4791, transport headers, payload, pad, ICRC
// (IBTA annex A17). A frame is parsed into a FrameView, once, and built from a FlowTemplate.
// Pure: usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "urdma/wire/headers.hpp"

namespace urdma::wire {

inline constexpr std::uint16_t kRocePort = 4791;
inline constexpr std::uint16_t kFirstSourcePort = 0xC000;
inline constexpr std::size_t kEthernetBytes = 14;
inline constexpr std::size_t kIpv4Bytes = 20;
inline constexpr std::size_t kIpv6Bytes = 40;
inline constexpr std::size_t kUdpBytes = 8;
// The most that stands in front of a payload, and behind it.
inline constexpr std::size_t kMaxFrameHeaderBytes = kEthernetBytes + kIpv6Bytes + kUdpBytes + kMaxHeaderBytes;
inline constexpr std::size_t kMaxFrameTrailerBytes = 3 + kIcrcBytes;

using MacAddress = std::array<std::uint8_t, 6>;

// A GID: an IPv6 address, or an IPv4 address as ::ffff:a.b.c.d.
using Gid = std::array<std::uint8_t, 16>;

[[nodiscard]] bool is_ipv4_mapped(const Gid& gid);
[[nodiscard]] Gid gid_from_ipv4(std::uint32_t address_host_order);
// Whether a GID names a multicast group: an IPv6 multicast address, or ::ffff:224.0.0.0/100.
[[nodiscard]] bool is_multicast_gid(const Gid& gid);

// A received frame whose lengths, version, opcode and ICRC have been checked. `payload` points into
// the frame. Source and destination are given as GIDs.
struct FrameView {
  Headers headers;
  std::span<const std::uint8_t> payload;
  Gid source_gid{};
  Gid dest_gid{};
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint16_t udp_source_port = 0;
};

// Whether the ICRC is computed and compared. A port whose frames never left this process's memory
// may say kTrusted; everything else says kCheck.
enum class IcrcPolicy : std::uint8_t { kCheck, kTrusted };

// Parses one Ethernet frame of `frame.size()` bytes (trailing bytes beyond the IP length are
// ignored). On kNone `view` is complete. P_Key and destination QP are for the caller to judge.
[[nodiscard]] ParseError parse_frame(std::span<const std::uint8_t> frame, IcrcPolicy policy, FrameView& view);

// The destination QP of what may be a RoCE frame, without a look at anything that need not be looked at to
// find it; nothing where it can be none. For who hands frames to others, which parse them.
[[nodiscard]] std::optional<Qpn> peek_dest_qp(std::span<const std::uint8_t> frame);

// The Ethernet, IP and UDP headers of one flow, made once when a QP gets its path.
struct FlowTemplate {
  std::array<std::uint8_t, kEthernetBytes + kIpv6Bytes + kUdpBytes> bytes{};
  std::uint8_t size = 0;  // Ethernet to UDP
  bool is_ipv6 = false;
  // Of the IPv4 header's words, but for total length and identification: the constant part of its checksum.
  std::uint32_t ipv4_sum = 0;
};

struct FlowAddress {
  MacAddress source_mac{};
  MacAddress dest_mac{};
  Gid source_gid{};
  Gid dest_gid{};
  std::uint16_t udp_source_port = kFirstSourcePort;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;  // IPv6 only, 20 bits
};

// IPv4 when both GIDs are IPv4-mapped, otherwise IPv6.
[[nodiscard]] FlowTemplate make_flow(const FlowAddress& address);

// Sends a flow to another link address, or from one.
void set_link_addresses(FlowTemplate& flow, const MacAddress& source, const MacAddress& dest);
// Gives the frames of a flow another UDP source port.
void set_source_port(FlowTemplate& flow, std::uint16_t port);

// Size of a whole frame, pad and ICRC included.
[[nodiscard]] std::size_t frame_bytes(const FlowTemplate& flow, const Headers& headers);

// Writes Ethernet to the last extended header to `frame`, lengths and IPv4 checksum included (the
// IPv4 identification is `ip_id`; don't-fragment is set). Returns the offset of the payload.
std::size_t write_frame_headers(const FlowTemplate& flow, const Headers& headers, std::uint16_t ip_id,
                                std::uint8_t* frame);

// What a datagram's receive has in front of its payload (IBTA 1, 11.4.1.2; annex A17).
inline constexpr std::size_t kGrhBytes = 40;
// Writes it over the headers of a datagram's frame, into the kGrhBytes before `payload`, which stands in it:
// the IPv6 header as it came, or 20 zeros and the IPv4 header.
void write_grh(std::uint8_t* frame, std::uint8_t* payload);

// Zeroes the pad and writes the ICRC of a frame whose headers and payload are in place.
void finish_frame(std::span<std::uint8_t> frame);

}  // namespace urdma::wire
