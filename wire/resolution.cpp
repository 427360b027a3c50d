// ARP and neighbour discovery: see resolution.hpp. Pure.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/resolution.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "urdma/wire/ip.hpp"
#include "wire/ip_packets.hpp"

namespace urdma::wire {
namespace {

constexpr std::size_t kSmallestFrame = 60;
constexpr std::uint16_t kArpEthernet = 1;
constexpr std::uint16_t kArpRequest = 1;
constexpr std::uint16_t kArpReply = 2;
constexpr std::uint8_t kHopLimit = 255;  // nothing that a router has forwarded (RFC 4861, 7.1)
constexpr std::uint8_t kSolicitation = 135;
constexpr std::uint8_t kAdvertisement = 136;
constexpr std::uint32_t kSolicitedFlag = 0x40000000;
constexpr std::uint32_t kOverrideFlag = 0x20000000;
constexpr std::uint8_t kSourceLinkOption = 1;
constexpr std::uint8_t kTargetLinkOption = 2;
constexpr std::size_t kOptionUnit = 8;
constexpr MacAddress kEverybody = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
constexpr Gid kAllNodes = {0xFF, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

struct ArpWire {
  be16 hardware;
  be16 protocol;
  std::uint8_t hardware_bytes;
  std::uint8_t protocol_bytes;
  be16 operation;
  MacAddress sender_mac;
  Ipv4Address sender;
  MacAddress target_mac;
  Ipv4Address target;
};
static_assert(sizeof(ArpWire) == 28 && alignof(ArpWire) == 1);
static_assert(offsetof(ArpWire, target) == 24);

// A solicitation or an advertisement, in front of its options.
struct NeighbourWire {
  std::uint8_t type;
  std::uint8_t code;
  be16 checksum;
  be32 flags;
  Ipv6Address target;
};
static_assert(sizeof(NeighbourWire) == 24 && alignof(NeighbourWire) == 1);
static_assert(offsetof(NeighbourWire, target) == 8);

struct LinkOptionWire {
  std::uint8_t type;
  std::uint8_t units;  // of 8 bytes
  MacAddress mac;
};
static_assert(sizeof(LinkOptionWire) == 8 && alignof(LinkOptionWire) == 1);

bool is_group(const MacAddress& mac) { return (mac[0] & 1U) != 0; }
bool is_station(const MacAddress& mac) { return !is_group(mac) && mac != MacAddress{}; }
bool is_multicast(const Gid& gid) { return multicast_mac(gid).has_value(); }

// ff02::1:ffXX:XXXX.
Gid solicited_node(const Gid& subject) {
  Gid group = {0xFF, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xFF};
  std::copy(subject.end() - 3, subject.end(), group.end() - 3);
  return group;
}

std::optional<Resolution> parse_arp(std::span<const std::uint8_t> packet) {
  if (packet.size() < sizeof(ArpWire)) return std::nullopt;
  const auto& arp = overlay<ArpWire>(packet.data());
  const std::uint16_t operation = arp.operation.get();
  const bool is_known = arp.hardware.get() == kArpEthernet && arp.protocol.get() == kEtherTypeIpv4 &&
                        arp.hardware_bytes == sizeof(MacAddress) &&
                        arp.protocol_bytes == sizeof(Ipv4Address) &&
                        (operation == kArpRequest || operation == kArpReply);
  if (!is_known || !is_station(arp.sender_mac)) return std::nullopt;
  const Gid sender = gid_of(arp.sender);
  const Gid target = gid_of(arp.target);
  if (is_multicast(sender) || is_multicast(target)) return std::nullopt;

  Resolution message;
  message.mac = arp.sender_mac;
  const bool is_announcement = sender == target;
  if (operation == kArpRequest && !is_announcement) {
    message.kind = Resolution::Kind::kQuestion;
    message.subject = target;
    message.peer = sender;
  } else {
    message.kind = Resolution::Kind::kAnswer;
    message.is_solicited = !is_announcement;
    message.subject = sender;
    message.peer = is_announcement ? unspecified_like(sender) : target;
  }
  if (is_unspecified(message.subject)) return std::nullopt;
  return message;
}

// The link address in an option of this type; zeros where there is none; nothing where options are malformed.
std::optional<MacAddress> find_link_option(std::span<const std::uint8_t> options, std::uint8_t type) {
  MacAddress found{};
  while (!options.empty()) {
    if (options.size() < kOptionUnit) return std::nullopt;
    const auto& option = overlay<LinkOptionWire>(options.data());
    const std::size_t bytes = option.units * kOptionUnit;
    if (bytes == 0 || bytes > options.size()) return std::nullopt;
    if (option.type == type && bytes == sizeof(LinkOptionWire)) found = option.mac;
    options = options.subspan(bytes);
  }
  if (is_group(found)) return std::nullopt;
  return found;
}

std::optional<Resolution> parse_solicitation(const Ipv6Wire& ip, const NeighbourWire& header,
                                             const MacAddress& mac) {
  Resolution message;
  message.kind = Resolution::Kind::kQuestion;
  message.subject = header.target;
  message.peer = ip.source;
  message.mac = mac;
  // A probe for duplicates comes from nobody, and goes to the group.
  const bool is_probe = is_unspecified(ip.source);
  if (is_probe && (mac != MacAddress{} || ip.dest != solicited_node(header.target))) return std::nullopt;
  if (is_multicast(ip.source)) return std::nullopt;
  return message;
}

std::optional<Resolution> parse_advertisement(const Ipv6Wire& ip, const NeighbourWire& header,
                                              const MacAddress& mac) {
  Resolution message;
  message.kind = Resolution::Kind::kAnswer;
  message.subject = header.target;
  message.mac = mac;
  message.is_solicited = (header.flags.get() & kSolicitedFlag) != 0;
  message.is_override = (header.flags.get() & kOverrideFlag) != 0;
  const bool is_for_all = is_multicast(ip.dest);
  message.peer = is_for_all ? Gid{} : ip.dest;
  if (is_for_all && message.is_solicited) return std::nullopt;
  // An answer to a direct question may leave the link address out; an announcement without it says nothing.
  if (!is_station(mac) && !message.is_solicited) return std::nullopt;
  return message;
}

std::optional<Resolution> parse_neighbour(std::span<const std::uint8_t> packet) {
  if (packet.size() < sizeof(Ipv6Wire) + sizeof(NeighbourWire)) return std::nullopt;
  const auto& ip = overlay<Ipv6Wire>(packet.data());
  const std::size_t bytes = ip.payload_bytes.get();
  const bool is_version_6 = ip.version_class_flow.get() >> 28 == 6;
  if (!is_version_6 || ip.next_header != kProtocolIcmpv6 || ip.hop_limit != kHopLimit) return std::nullopt;
  if (bytes < sizeof(NeighbourWire) || bytes > packet.size() - sizeof(Ipv6Wire)) return std::nullopt;
  const auto body = packet.subspan(sizeof(Ipv6Wire), bytes);
  const auto& header = overlay<NeighbourWire>(body.data());
  const bool is_question = header.type == kSolicitation;
  if ((!is_question && header.type != kAdvertisement) || header.code != 0) return std::nullopt;
  // An IPv4 address is ARP's to resolve; nobody has the unspecified one.
  const Gid& target = header.target;
  if (is_multicast(target) || is_unspecified(target) || is_ipv4_mapped(target)) return std::nullopt;
  if (icmpv6_checksum(ip.source, ip.dest, body) != 0) return std::nullopt;
  const auto mac = find_link_option(body.subspan(sizeof(NeighbourWire)),
                                    is_question ? kSourceLinkOption : kTargetLinkOption);
  if (!mac) return std::nullopt;
  return is_question ? parse_solicitation(ip, header, *mac) : parse_advertisement(ip, header, *mac);
}

ArpWire make_arp(const Resolution& message, const MacAddress& dest_mac) {
  const bool is_question = message.kind == Resolution::Kind::kQuestion;
  const bool is_announcement = !is_question && is_unspecified(message.peer);
  ArpWire arp{};
  arp.hardware = kArpEthernet;
  arp.protocol = kEtherTypeIpv4;
  arp.hardware_bytes = sizeof(MacAddress);
  arp.protocol_bytes = sizeof(Ipv4Address);
  arp.operation = is_question || is_announcement ? kArpRequest : kArpReply;
  arp.sender_mac = message.mac;
  arp.sender = ipv4_of(is_question ? message.peer : message.subject);
  // What is asked for is left open; an answer names whom it is for.
  if (!is_question && !is_announcement) arp.target_mac = dest_mac;
  arp.target = ipv4_of(is_question || is_announcement ? message.subject : message.peer);
  return arp;
}

Ipv6Wire make_ipv6(const Resolution& message, const MacAddress& dest_mac) {
  const bool is_question = message.kind == Resolution::Kind::kQuestion;
  Ipv6Wire ip{};
  ip.version_class_flow = kIpv6Version;
  ip.payload_bytes = sizeof(NeighbourWire) + sizeof(LinkOptionWire);
  ip.next_header = kProtocolIcmpv6;
  ip.hop_limit = kHopLimit;
  ip.source = is_question ? message.peer : message.subject;
  if (is_question) {
    ip.dest = is_group(dest_mac) ? solicited_node(message.subject) : message.subject;
  } else {
    ip.dest = is_unspecified(message.peer) ? kAllNodes : message.peer;
  }
  return ip;
}

void write_neighbour(const Resolution& message, const MacAddress& dest_mac, std::uint8_t* to) {
  const bool is_question = message.kind == Resolution::Kind::kQuestion;
  const Ipv6Wire ip = make_ipv6(message, dest_mac);
  std::uint8_t* body = append(to, ip);
  NeighbourWire header{};
  header.type = is_question ? kSolicitation : kAdvertisement;
  if (!is_question) {
    header.flags = (message.is_solicited ? kSolicitedFlag : 0U) | (message.is_override ? kOverrideFlag : 0U);
  }
  header.target = message.subject;
  const LinkOptionWire option{is_question ? kSourceLinkOption : kTargetLinkOption, 1, message.mac};
  append(append(body, header), option);
  header.checksum = icmpv6_checksum(ip.source, ip.dest, {body, sizeof header + sizeof option});
  append(body, header);
}

}  // namespace

bool is_unspecified(const Gid& gid) { return gid == unspecified_like(gid); }

bool is_link_local(const Gid& gid) { return gid[0] == 0xFE && (gid[1] & 0xC0U) == 0x80; }

Gid unspecified_like(const Gid& gid) { return is_ipv4_mapped(gid) ? gid_from_ipv4(0) : Gid{}; }

std::optional<MacAddress> multicast_mac(const Gid& gid) {
  constexpr std::uint8_t kIpv4ClassMask = 0xF0;
  constexpr std::uint8_t kIpv4Class = 0xE0;
  constexpr std::uint8_t kIpv4Low = 0x7F;
  if (is_ipv4_mapped(gid)) {
    if ((gid[12] & kIpv4ClassMask) != kIpv4Class) return std::nullopt;
    return MacAddress{0x01, 0x00, 0x5E, static_cast<std::uint8_t>(gid[13] & kIpv4Low), gid[14], gid[15]};
  }
  if (gid[0] != 0xFF) return std::nullopt;
  return MacAddress{0x33, 0x33, gid[12], gid[13], gid[14], gid[15]};
}

MacAddress question_mac(const Gid& subject) {
  return is_ipv4_mapped(subject) ? kEverybody : *multicast_mac(solicited_node(subject));
}

std::optional<Resolution> parse_resolution(std::span<const std::uint8_t> frame) {
  if (frame.size() < sizeof(EthernetWire)) return std::nullopt;
  const auto& ethernet = overlay<EthernetWire>(frame.data());
  const auto packet = frame.subspan(sizeof(EthernetWire));
  switch (ethernet.type.get()) {
    case kEtherTypeArp:
      return parse_arp(packet);
    case kEtherTypeIpv6:
      return parse_neighbour(packet);
    default:
      return std::nullopt;
  }
}

std::size_t write_resolution(const Resolution& message, const MacAddress& source_mac,
                             const MacAddress& dest_mac, std::span<std::uint8_t, kMaxResolutionBytes> frame) {
  std::fill(frame.begin(), frame.end(), std::uint8_t{0});
  const bool is_arp = is_ipv4_mapped(message.subject);
  EthernetWire ethernet{dest_mac, source_mac, {}};
  ethernet.type = is_arp ? kEtherTypeArp : kEtherTypeIpv6;
  std::uint8_t* body = append(frame.data(), ethernet);
  if (is_arp) {
    append(body, make_arp(message, dest_mac));
    return kSmallestFrame;  // padded here: not every device does it
  }
  write_neighbour(message, dest_mac, body);
  return sizeof(EthernetWire) + sizeof(Ipv6Wire) + sizeof(NeighbourWire) + sizeof(LinkOptionWire);
}

}  // namespace urdma::wire
