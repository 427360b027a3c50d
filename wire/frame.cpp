// Parsing and building of RoCEv2 frames. Owned by wire; pure, any thread.
// A parser checks every length before the first access that depends on it, and the ICRC before
// anything that the sender of a damaged frame might have meant.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/frame.hpp"

#include <cstring>

#include "urdma/base/check.hpp"
#include "urdma/wire/icrc.hpp"
#include "urdma/wire/ip.hpp"

namespace urdma::wire {
namespace {

constexpr std::size_t kMappedPrefixBytes = 12;
constexpr std::array<std::uint8_t, kMappedPrefixBytes> kMappedPrefix = {0, 0, 0, 0, 0,    0,
                                                                        0, 0, 0, 0, 0xFF, 0xFF};
constexpr std::size_t kMinUdpBytes = kUdpBytes + sizeof(BthWire) + kIcrcBytes;

template <typename Wire>
void store(std::uint8_t* to, const Wire& wire) {
  std::memcpy(to, &wire, sizeof(wire));
}

Gid gid_from_bytes(const Ipv4Address& address) {
  Gid gid;
  std::memcpy(gid.data(), kMappedPrefix.data(), kMappedPrefixBytes);
  std::memcpy(gid.data() + kMappedPrefixBytes, address.data(), address.size());
  return gid;
}

Ipv4Address ipv4_of(const Gid& gid) { return overlay<Ipv4Address>(gid.data() + kMappedPrefixBytes); }

// Each of the two finds the UDP header and says by `ip_bytes` how long the IP packet is, its header
// included. The port is looked at before the lengths, because what is not RoCE is not our fault to
// find; only fields in front of it can come first.
ParseError parse_ipv4(std::span<const std::uint8_t> packet, FrameView& view, std::size_t& ip_bytes) {
  if (packet.size() < kIpv4Bytes + kUdpBytes) return ParseError::kNotRoce;
  const auto& ip = overlay<Ipv4Wire>(packet.data());
  if (ip.version_and_words >> 4 != 4) return ParseError::kBadVersion;
  const bool has_options = ip.version_and_words != kIpv4VersionAndWords;
  const bool is_fragment = (ip.fragment.get() & (kIpv4MoreFragments | kIpv4OffsetMask)) != 0;
  if (ip.protocol != kProtocolUdp || has_options || is_fragment) return ParseError::kNotRoce;
  if (overlay<UdpWire>(packet.data() + kIpv4Bytes).dest_port.get() != kRocePort) return ParseError::kNotRoce;
  ip_bytes = ip.total_bytes.get();
  if (ip_bytes < kIpv4Bytes + kMinUdpBytes || ip_bytes > packet.size()) return ParseError::kTruncated;
  view.source_gid = gid_from_bytes(ip.source);
  view.dest_gid = gid_from_bytes(ip.dest);
  view.traffic_class = ip.type_of_service;
  view.hop_limit = ip.time_to_live;
  return ParseError::kNone;
}

ParseError parse_ipv6(std::span<const std::uint8_t> packet, FrameView& view, std::size_t& ip_bytes) {
  if (packet.size() < kIpv6Bytes + kUdpBytes) return ParseError::kNotRoce;
  const auto& ip = overlay<Ipv6Wire>(packet.data());
  const std::uint32_t first_word = ip.version_class_flow.get();
  if (first_word >> 28 != 6) return ParseError::kBadVersion;
  if (ip.next_header != kProtocolUdp) return ParseError::kNotRoce;
  if (overlay<UdpWire>(packet.data() + kIpv6Bytes).dest_port.get() != kRocePort) return ParseError::kNotRoce;
  ip_bytes = kIpv6Bytes + ip.payload_bytes.get();
  if (ip_bytes < kIpv6Bytes + kMinUdpBytes || ip_bytes > packet.size()) return ParseError::kTruncated;
  view.source_gid = ip.source;
  view.dest_gid = ip.dest;
  view.traffic_class = static_cast<std::uint8_t>(first_word >> kIpv6ClassShift);
  view.hop_limit = ip.hop_limit;
  return ParseError::kNone;
}

// `packet` is exactly the IP packet, whose last bytes are the ICRC.
ParseError parse_transport(std::span<const std::uint8_t> packet, std::size_t ip_header_bytes,
                           IcrcPolicy policy, FrameView& view) {
  const auto& udp = overlay<UdpWire>(packet.data() + ip_header_bytes);
  if (udp.bytes.get() != packet.size() - ip_header_bytes) return ParseError::kTruncated;
  const auto covered = packet.first(packet.size() - kIcrcBytes);
  if (policy == IcrcPolicy::kCheck &&
      overlay<IcrcWire>(covered.data() + covered.size()).get() != icrc(covered)) {
    return ParseError::kBadIcrc;
  }
  const auto transport = covered.subspan(ip_header_bytes + kUdpBytes);
  const ParseError error = decode(transport, view.headers);
  if (error != ParseError::kNone) return error;
  view.payload = transport.subspan(view.headers.info().header_bytes, view.headers.payload_bytes);
  view.udp_source_port = udp.source_port.get();
  return ParseError::kNone;
}

// The ones' complement sum of the words of an IPv4 header, not folded.
std::uint32_t sum_of_words(const Ipv4Wire& ip) {
  const auto& words = overlay<std::array<be16, kIpv4Bytes / 2>>(reinterpret_cast<const std::uint8_t*>(&ip));
  std::uint32_t sum = 0;
  for (const be16 word : words) sum += word.get();
  return sum;
}

std::uint16_t checksum_of_sum(std::uint32_t sum) {
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

Ipv4Wire make_ipv4(const FlowAddress& address) {
  Ipv4Wire ip{};
  ip.version_and_words = kIpv4VersionAndWords;
  ip.type_of_service = address.traffic_class;
  ip.fragment = kIpv4DontFragment;
  ip.time_to_live = address.hop_limit;
  ip.protocol = kProtocolUdp;
  ip.source = ipv4_of(address.source_gid);
  ip.dest = ipv4_of(address.dest_gid);
  return ip;
}

Ipv6Wire make_ipv6(const FlowAddress& address) {
  Ipv6Wire ip{};
  ip.version_class_flow = (6U << 28) |
                          (static_cast<std::uint32_t>(address.traffic_class) << kIpv6ClassShift) |
                          (address.flow_label & kIpv6FlowLabelMask);
  ip.next_header = kProtocolUdp;
  ip.hop_limit = address.hop_limit;
  ip.source = address.source_gid;
  ip.dest = address.dest_gid;
  return ip;
}

std::size_t transport_bytes(const Headers& headers) {
  return headers.info().header_bytes + headers.payload_bytes + pad_bytes(headers.payload_bytes) + kIcrcBytes;
}

// Where the BTH of a frame of ours stands.
std::size_t bth_offset(std::span<const std::uint8_t> frame) {
  URDMA_CHECK(frame.size() >= kEthernetBytes + kIpv4Bytes + kMinUdpBytes);
  const bool is_ipv6 = overlay<EthernetWire>(frame.data()).type.get() == kEtherTypeIpv6;
  return kEthernetBytes + (is_ipv6 ? kIpv6Bytes : kIpv4Bytes) + kUdpBytes;
}

}  // namespace

bool is_ipv4_mapped(const Gid& gid) {
  return std::memcmp(gid.data(), kMappedPrefix.data(), kMappedPrefixBytes) == 0;
}

Gid gid_from_ipv4(std::uint32_t address_host_order) {
  const be32 address(address_host_order);
  return gid_from_bytes(overlay<Ipv4Address>(reinterpret_cast<const std::uint8_t*>(&address)));
}

bool is_multicast_gid(const Gid& gid) {
  constexpr std::uint8_t kIpv4ClassMask = 0xF0;
  constexpr std::uint8_t kIpv4Class = 0xE0;
  return is_ipv4_mapped(gid) ? (gid[kMappedPrefixBytes] & kIpv4ClassMask) == kIpv4Class : gid[0] == 0xFF;
}

ParseError parse_frame(std::span<const std::uint8_t> frame, IcrcPolicy policy, FrameView& view) {
  if (frame.size() < kEthernetBytes) return ParseError::kNotRoce;
  const std::uint16_t type = overlay<EthernetWire>(frame.data()).type.get();
  const bool is_ipv6 = type == kEtherTypeIpv6;
  if (!is_ipv6 && type != kEtherTypeIpv4) return ParseError::kNotRoce;
  const auto packet = frame.subspan(kEthernetBytes);
  std::size_t ip_bytes = 0;
  const ParseError error = is_ipv6 ? parse_ipv6(packet, view, ip_bytes) : parse_ipv4(packet, view, ip_bytes);
  if (error != ParseError::kNone) return error;
  return parse_transport(packet.first(ip_bytes), is_ipv6 ? kIpv6Bytes : kIpv4Bytes, policy, view);
}

std::optional<Qpn> peek_dest_qp(std::span<const std::uint8_t> frame) {
  if (frame.size() < kEthernetBytes + kIpv4Bytes + kMinUdpBytes) return std::nullopt;
  const std::uint16_t type = overlay<EthernetWire>(frame.data()).type.get();
  const bool is_ipv6 = type == kEtherTypeIpv6;
  if (!is_ipv6 && type != kEtherTypeIpv4) return std::nullopt;
  const std::size_t udp_offset = kEthernetBytes + (is_ipv6 ? kIpv6Bytes : kIpv4Bytes);
  if (frame.size() < udp_offset + kMinUdpBytes) return std::nullopt;
  if (overlay<UdpWire>(frame.data() + udp_offset).dest_port.get() != kRocePort) return std::nullopt;
  return Qpn{overlay<BthWire>(frame.data() + udp_offset + kUdpBytes).dest_qp.get()};
}

FlowTemplate make_flow(const FlowAddress& address) {
  FlowTemplate flow;
  flow.is_ipv6 = !(is_ipv4_mapped(address.source_gid) && is_ipv4_mapped(address.dest_gid));
  std::uint8_t* const bytes = flow.bytes.data();
  store(bytes,
        EthernetWire{address.dest_mac, address.source_mac, flow.is_ipv6 ? kEtherTypeIpv6 : kEtherTypeIpv4});
  std::size_t size = kEthernetBytes;
  if (flow.is_ipv6) {
    store(bytes + size, make_ipv6(address));
    size += kIpv6Bytes;
  } else {
    const Ipv4Wire ip = make_ipv4(address);
    flow.ipv4_sum = sum_of_words(ip);
    store(bytes + size, ip);
    size += kIpv4Bytes;
  }
  // The UDP checksum stays zero for both IP versions: the ICRC covers more than it would.
  store(bytes + size, UdpWire{address.udp_source_port, kRocePort, 0, 0});
  flow.size = static_cast<std::uint8_t>(size + kUdpBytes);
  return flow;
}

void set_link_addresses(FlowTemplate& flow, const MacAddress& source, const MacAddress& dest) {
  static_assert(offsetof(EthernetWire, dest) == 0 && offsetof(EthernetWire, source) == sizeof(MacAddress));
  std::copy(dest.begin(), dest.end(), flow.bytes.begin());
  std::copy(source.begin(), source.end(), flow.bytes.begin() + sizeof(MacAddress));
}

std::size_t frame_bytes(const FlowTemplate& flow, const Headers& headers) {
  return flow.size + transport_bytes(headers);
}

std::size_t write_frame_headers(const FlowTemplate& flow, const Headers& headers, std::uint16_t ip_id,
                                std::uint8_t* frame) {
  const std::size_t udp_bytes = kUdpBytes + transport_bytes(headers);
  URDMA_CHECK(udp_bytes + kIpv4Bytes <= 0xFFFF);
  const auto udp_length = static_cast<std::uint16_t>(udp_bytes);
  std::uint8_t* const ip = frame + kEthernetBytes;
  // Two copies of constant size cost less than one of variable size.
  if (flow.is_ipv6) {
    std::memcpy(frame, flow.bytes.data(), kEthernetBytes + kIpv6Bytes + kUdpBytes);
    store(ip + offsetof(Ipv6Wire, payload_bytes), be16(udp_length));
  } else {
    std::memcpy(frame, flow.bytes.data(), kEthernetBytes + kIpv4Bytes + kUdpBytes);
    const auto total = static_cast<std::uint16_t>(kIpv4Bytes + udp_bytes);
    store(ip + offsetof(Ipv4Wire, total_bytes), be16(total));
    store(ip + offsetof(Ipv4Wire, identification), be16(ip_id));
    store(ip + offsetof(Ipv4Wire, checksum), be16(checksum_of_sum(flow.ipv4_sum + total + ip_id)));
  }
  store(frame + flow.size - kUdpBytes + offsetof(UdpWire, bytes), be16(udp_length));
  return flow.size + encode(headers, frame + flow.size);
}

void set_source_port(FlowTemplate& flow, std::uint16_t port) {
  store(flow.bytes.data() + flow.size - kUdpBytes + offsetof(UdpWire, source_port), be16(port));
}

// The IP header may overlap its new place, and the zeros in front of that its old one.
void write_grh(std::uint8_t* frame, std::uint8_t* payload) {
  static_assert(kGrhBytes == kIpv6Bytes);
  const bool is_ipv6 = overlay<EthernetWire>(frame).type.get() == kEtherTypeIpv6;
  const std::size_t bytes = is_ipv6 ? kIpv6Bytes : kIpv4Bytes;
  std::memmove(payload - bytes, frame + kEthernetBytes, bytes);
  std::memset(payload - kGrhBytes, 0, kGrhBytes - bytes);
}

void finish_frame(std::span<std::uint8_t> frame) {
  const std::size_t bth = bth_offset(frame);
  const std::size_t pad = (frame[bth + offsetof(BthWire, flags)] >> kPadShift) & kPadMask;
  std::uint8_t* const icrc_at = frame.data() + frame.size() - kIcrcBytes;
  std::memset(icrc_at - pad, 0, pad);
  const auto covered = frame.subspan(kEthernetBytes, frame.size() - kEthernetBytes - kIcrcBytes);
  store(icrc_at, IcrcWire(icrc(covered)));
}

}  // namespace urdma::wire
