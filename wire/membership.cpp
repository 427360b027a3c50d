// IGMP and MLD: see membership.hpp. Pure.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/membership.hpp"

#include <algorithm>
#include <array>

#include "urdma/wire/resolution.hpp"
#include "wire/ip_packets.hpp"

namespace urdma::wire {
namespace {

constexpr std::size_t kSmallestFrame = 60;
constexpr std::uint8_t kHopLimit = 1;            // of IPv4's time to live as well: no router forwards it
constexpr std::uint8_t kInternetControl = 0xC0;  // the type of service of IGMP (RFC 3376, 4)
constexpr std::uint8_t kProtocolIgmp = 2;
constexpr std::uint8_t kProtocolHopByHop = 0;
constexpr std::uint8_t kIpv4AlertWords = 6;          // of a header with the router alert in it
constexpr std::uint32_t kLegacyResponseMs = 10'000;  // IGMPv1 says none (RFC 2236, 4)

constexpr std::uint8_t kIgmpQuery = 0x11;
constexpr std::uint8_t kIgmpReportV2 = 0x16;
constexpr std::uint8_t kIgmpLeaveV2 = 0x17;
constexpr std::uint8_t kIgmpReportV3 = 0x22;
constexpr std::uint8_t kMldQuery = 130;
constexpr std::uint8_t kMldReportV1 = 131;
constexpr std::uint8_t kMldDoneV1 = 132;
constexpr std::uint8_t kMldReportV2 = 143;

// Of a group record: every source but none (RFC 3376, 4.2.12; RFC 3810, 5.2.12).
constexpr std::uint8_t kIsExclude = 2;
constexpr std::uint8_t kToInclude = 3;
constexpr std::uint8_t kToExclude = 4;

const Gid kAllHosts = gid_from_ipv4(0xE0000001);
const Gid kAllRouters = gid_from_ipv4(0xE0000002);
const Gid kIgmpRouters = gid_from_ipv4(0xE0000016);
constexpr Gid kAllNodes6 = {0xFF, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
constexpr Gid kAllRouters6 = {0xFF, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
constexpr Gid kMldRouters = {0xFF, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16};

// RFC 2113.
struct Ipv4AlertWire {
  Ipv4Wire ip;
  std::array<std::uint8_t, 4> option;
};
static_assert(sizeof(Ipv4AlertWire) == 24 && alignof(Ipv4AlertWire) == 1);
constexpr std::array<std::uint8_t, 4> kIpv4Alert = {0x94, 4, 0, 0};

// A hop-by-hop header with the router alert of MLD and padding (RFC 2711).
using HopByHopWire = std::array<std::uint8_t, 8>;
constexpr HopByHopWire kMldAlert = {kProtocolIcmpv6, 0, 5, 2, 0, 0, 1, 0};

struct IgmpWire {
  std::uint8_t type;
  std::uint8_t max_response;  // 0.1 s
  be16 checksum;
  Ipv4Address group;
};
static_assert(sizeof(IgmpWire) == 8 && alignof(IgmpWire) == 1);

struct MldWire {
  std::uint8_t type;
  std::uint8_t code;
  be16 checksum;
  be16 max_response;  // ms
  be16 reserved;
  Ipv6Address group;
};
static_assert(sizeof(MldWire) == 24 && alignof(MldWire) == 1);
static_assert(offsetof(MldWire, group) == 8);

// A report of one group: IGMPv3 and MLDv2 differ in the address alone.
template <typename Address>
struct ReportWire {
  std::uint8_t type;
  std::uint8_t reserved;
  be16 checksum;
  be16 flags;
  be16 records;
  std::uint8_t record_type;
  std::uint8_t auxiliary_words;
  be16 sources;
  Address group;
};
static_assert(sizeof(ReportWire<Ipv4Address>) == 16 && alignof(ReportWire<Ipv4Address>) == 1);
static_assert(sizeof(ReportWire<Ipv6Address>) == 28 && alignof(ReportWire<Ipv6Address>) == 1);

constexpr std::size_t kIgmpV3QueryBytes = 12;
constexpr std::size_t kMldV2QueryBytes = 28;

// A code that is a number up to its top bit, and then 1, three bits of exponent and a mantissa (RFC 3376,
// 4.1.1; RFC 3810, 5.1.3).
std::uint32_t decode_response(std::uint32_t code, unsigned mantissa_bits) {
  const std::uint32_t mantissa_end = 1U << mantissa_bits;
  if (code < mantissa_end << 3) return code;
  const std::uint32_t exponent = code >> mantissa_bits & 7;
  return (code % mantissa_end | mantissa_end) << (exponent + 3);
}

std::optional<MembershipQuery> judge(const Gid& group, bool is_legacy, std::uint32_t max_response_ms) {
  const bool is_general = is_unspecified(group);
  if (!is_general && !multicast_mac(group)) return std::nullopt;
  return MembershipQuery{group, is_legacy, max_response_ms};
}

std::optional<MembershipQuery> parse_igmp(std::span<const std::uint8_t> packet) {
  if (packet.size() < sizeof(Ipv4Wire)) return std::nullopt;
  const auto& ip = overlay<Ipv4Wire>(packet.data());
  const std::size_t header_bytes = (ip.version_and_words & 0x0FU) * 4;
  const std::size_t total_bytes = ip.total_bytes.get();
  const bool is_igmp = ip.version_and_words >> 4 == 4 && ip.protocol == kProtocolIgmp &&
                       (ip.fragment.get() & (kIpv4MoreFragments | kIpv4OffsetMask)) == 0;
  if (!is_igmp || ip.time_to_live != kHopLimit) return std::nullopt;
  if (header_bytes < sizeof(Ipv4Wire) || total_bytes > packet.size()) return std::nullopt;
  if (total_bytes < header_bytes + sizeof(IgmpWire)) return std::nullopt;
  if (internet_checksum(packet.first(header_bytes)) != 0) return std::nullopt;
  const auto body = packet.subspan(header_bytes, total_bytes - header_bytes);
  const auto& query = overlay<IgmpWire>(body.data());
  if (query.type != kIgmpQuery || internet_checksum(body) != 0) return std::nullopt;
  const bool is_legacy = body.size() == sizeof(IgmpWire);
  if (!is_legacy && body.size() < kIgmpV3QueryBytes) return std::nullopt;
  const std::uint32_t tenths = is_legacy ? query.max_response : decode_response(query.max_response, 4);
  const bool is_version_1 = is_legacy && tenths == 0;
  return judge(gid_of(query.group), is_legacy, is_version_1 ? kLegacyResponseMs : 100 * tenths);
}

std::optional<MembershipQuery> parse_mld(std::span<const std::uint8_t> packet) {
  constexpr std::size_t kHeaders = sizeof(Ipv6Wire) + sizeof(HopByHopWire);
  if (packet.size() < kHeaders + sizeof(MldWire)) return std::nullopt;
  const auto& ip = overlay<Ipv6Wire>(packet.data());
  const std::size_t payload_bytes = ip.payload_bytes.get();
  const bool is_version_6 = ip.version_class_flow.get() >> 28 == 6;
  const bool is_near = ip.hop_limit == kHopLimit && is_link_local(ip.source);
  if (!is_version_6 || !is_near || ip.next_header != kProtocolHopByHop) return std::nullopt;
  // Senders of MLD put nothing else into the header than the alert.
  const auto& alert = overlay<HopByHopWire>(packet.data() + sizeof(Ipv6Wire));
  if (alert != kMldAlert) return std::nullopt;
  if (payload_bytes < sizeof(HopByHopWire) + sizeof(MldWire)) return std::nullopt;
  if (payload_bytes > packet.size() - sizeof(Ipv6Wire)) return std::nullopt;
  const auto body = packet.subspan(kHeaders, payload_bytes - sizeof(HopByHopWire));
  const auto& query = overlay<MldWire>(body.data());
  if (query.type != kMldQuery || query.code != 0) return std::nullopt;
  if (icmpv6_checksum(ip.source, ip.dest, body) != 0) return std::nullopt;
  const bool is_legacy = body.size() == sizeof(MldWire);
  if (!is_legacy && body.size() < kMldV2QueryBytes) return std::nullopt;
  if (is_ipv4_mapped(query.group)) return std::nullopt;
  const std::uint32_t code = query.max_response.get();
  return judge(query.group, is_legacy, is_legacy ? code : decode_response(code, 12));
}

std::uint8_t record_type(MembershipReport::Kind kind) {
  switch (kind) {
    case MembershipReport::Kind::kMember:
      return kIsExclude;
    case MembershipReport::Kind::kJoined:
      return kToExclude;
    case MembershipReport::Kind::kLeft:
      return kToInclude;
  }
  return 0;
}

// Where a report goes: the group itself hears the old ones, so that its other members keep silent.
Gid destination(const MembershipReport& report) {
  const bool is_ipv4 = is_ipv4_mapped(report.group);
  if (!report.is_legacy) return is_ipv4 ? kIgmpRouters : kMldRouters;
  if (report.kind != MembershipReport::Kind::kLeft) return report.group;
  return is_ipv4 ? kAllRouters : kAllRouters6;
}

template <typename Address>
ReportWire<Address> make_report(const MembershipReport& report, std::uint8_t type, const Address& group) {
  ReportWire<Address> wire{};
  wire.type = type;
  wire.records = 1;
  wire.record_type = record_type(report.kind);
  wire.group = group;
  return wire;
}

// Writes a message with its checksum; returns its end.
template <typename Message, typename Checksum>
std::uint8_t* append_summed(std::uint8_t* to, Message message, Checksum checksum) {
  std::uint8_t* const end = append(to, message);
  message.checksum = checksum(std::span<const std::uint8_t>(to, end));
  append(to, message);
  return end;
}

std::uint8_t* write_igmp(const MembershipReport& report, const Gid& dest, std::uint8_t* to) {
  Ipv4AlertWire header{};
  std::uint8_t* const body = to + sizeof header;
  const Ipv4Address group = ipv4_of(report.group);
  const std::uint8_t old_type = report.kind == MembershipReport::Kind::kLeft ? kIgmpLeaveV2 : kIgmpReportV2;
  const auto checksum = [](std::span<const std::uint8_t> message) { return internet_checksum(message); };
  std::uint8_t* const end = report.is_legacy
                                ? append_summed(body, IgmpWire{old_type, 0, {}, group}, checksum)
                                : append_summed(body, make_report(report, kIgmpReportV3, group), checksum);
  header.ip.version_and_words = 4U << 4 | kIpv4AlertWords;
  header.ip.type_of_service = kInternetControl;
  header.ip.total_bytes = static_cast<std::uint16_t>(end - to);
  header.ip.fragment = kIpv4DontFragment;
  header.ip.time_to_live = kHopLimit;
  header.ip.protocol = kProtocolIgmp;
  header.ip.source = ipv4_of(report.source);
  header.ip.dest = ipv4_of(dest);
  header.option = kIpv4Alert;
  append(to, header);
  header.ip.checksum = internet_checksum({to, sizeof header});
  append(to, header);
  return end;
}

std::uint8_t* write_mld(const MembershipReport& report, const Gid& dest, std::uint8_t* to) {
  Ipv6Wire ip{};
  std::uint8_t* const body = append(to + sizeof ip, kMldAlert);
  const std::uint8_t old_type = report.kind == MembershipReport::Kind::kLeft ? kMldDoneV1 : kMldReportV1;
  const auto checksum = [&](std::span<const std::uint8_t> message) {
    return icmpv6_checksum(report.source, dest, message);
  };
  std::uint8_t* const end =
      report.is_legacy ? append_summed(body, MldWire{old_type, 0, {}, {}, {}, report.group}, checksum)
                       : append_summed(body, make_report(report, kMldReportV2, report.group), checksum);
  ip.version_class_flow = kIpv6Version;
  ip.payload_bytes =
      static_cast<std::uint16_t>(end - body + static_cast<std::ptrdiff_t>(sizeof(HopByHopWire)));
  ip.next_header = kProtocolHopByHop;
  ip.hop_limit = kHopLimit;
  ip.source = report.source;
  ip.dest = dest;
  append(to, ip);
  return end;
}

}  // namespace

bool is_reported_group(const Gid& group) {
  if (!multicast_mac(group)) return false;
  if (is_ipv4_mapped(group)) return group != kAllHosts;
  constexpr std::uint8_t kScope = 0x0F;
  return (group[1] & kScope) > 1 && group != kAllNodes6;
}

std::optional<MembershipQuery> parse_membership_query(std::span<const std::uint8_t> frame) {
  if (frame.size() < sizeof(EthernetWire)) return std::nullopt;
  const auto packet = frame.subspan(sizeof(EthernetWire));
  switch (overlay<EthernetWire>(frame.data()).type.get()) {
    case kEtherTypeIpv4:
      return parse_igmp(packet);
    case kEtherTypeIpv6:
      return parse_mld(packet);
    default:
      return std::nullopt;
  }
}

std::size_t write_membership_report(const MembershipReport& report, const MacAddress& source_mac,
                                    std::span<std::uint8_t, kMaxMembershipBytes> frame) {
  std::fill(frame.begin(), frame.end(), std::uint8_t{0});
  const bool is_ipv4 = is_ipv4_mapped(report.group);
  const Gid dest = destination(report);
  EthernetWire ethernet{*multicast_mac(dest), source_mac, {}};
  ethernet.type = is_ipv4 ? kEtherTypeIpv4 : kEtherTypeIpv6;
  std::uint8_t* const packet = append(frame.data(), ethernet);
  const std::uint8_t* const end =
      is_ipv4 ? write_igmp(report, dest, packet) : write_mld(report, dest, packet);
  return std::max(static_cast<std::size_t>(end - frame.data()), kSmallestFrame);
}

}  // namespace urdma::wire
