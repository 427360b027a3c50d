// Tests of include/urdma/wire/frame.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/frame.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "urdma/wire/be.hpp"
#include "urdma/wire/ip.hpp"

namespace urdma::wire {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kIp = kEthernetBytes;

FlowAddress ipv4_address() {
  FlowAddress address;
  address.source_mac = {2, 0, 0, 0, 0, 1};
  address.dest_mac = {2, 0, 0, 0, 0, 2};
  address.source_gid = gid_from_ipv4(0x0A090001);
  address.dest_gid = gid_from_ipv4(0x0A090002);
  address.udp_source_port = 0xC123;
  address.traffic_class = 0x68;
  address.hop_limit = 3;
  return address;
}

FlowAddress ipv6_address() {
  FlowAddress address = ipv4_address();
  address.source_gid = {0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  address.dest_gid = {0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  address.flow_label = 0xABCDE;
  return address;
}

Headers send_only(std::uint32_t payload_bytes) {
  Headers headers;
  headers.opcode = Opcode::kRcSendOnly;
  headers.dest_qp = Qpn{0x11};
  headers.psn = Psn(7);
  headers.payload_bytes = payload_bytes;
  return headers;
}

// A whole frame with payload bytes 0, 1, 2, …
Bytes build(const FlowAddress& address, const Headers& headers, std::uint16_t ip_id = 0x0102) {
  const FlowTemplate flow = make_flow(address);
  Bytes frame(frame_bytes(flow, headers), 0xA5);
  const std::size_t payload = write_frame_headers(flow, headers, ip_id, frame.data());
  for (std::uint32_t i = 0; i < headers.payload_bytes; ++i) frame[payload + i] = static_cast<std::uint8_t>(i);
  finish_frame(frame);
  return frame;
}

ParseError parse_error(const Bytes& frame, IcrcPolicy policy = IcrcPolicy::kCheck) {
  FrameView view;
  return parse_frame(frame, policy, view);
}

void set16(Bytes& frame, std::size_t offset, std::size_t value) {
  frame[offset] = static_cast<std::uint8_t>(value >> 8);
  frame[offset + 1] = static_cast<std::uint8_t>(value);
}

std::size_t get16(const Bytes& frame, std::size_t offset) {
  return static_cast<std::size_t>(frame[offset] << 8 | frame[offset + 1]);
}

TEST(Gid, Ipv4Mapped) {
  const Gid gid = gid_from_ipv4(0x0A090001);
  EXPECT_EQ(gid, (Gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 9, 0, 1}));
  EXPECT_TRUE(is_ipv4_mapped(gid));
  EXPECT_FALSE(is_ipv4_mapped(ipv6_address().source_gid));
  EXPECT_FALSE(is_ipv4_mapped(Gid{}));
}

TEST(ParseFrame, GivesBackWhatWasBuilt) {
  for (const FlowAddress& address : {ipv4_address(), ipv6_address()}) {
    for (std::uint32_t payload_bytes : {0U, 1U, 2U, 3U, 4U, 255U, 1024U, 4096U}) {
      const Bytes frame = build(address, send_only(payload_bytes));
      FrameView view;
      ASSERT_EQ(parse_frame(frame, IcrcPolicy::kCheck, view), ParseError::kNone);
      EXPECT_EQ(view.source_gid, address.source_gid);
      EXPECT_EQ(view.dest_gid, address.dest_gid);
      EXPECT_EQ(view.traffic_class, 0x68);
      EXPECT_EQ(view.hop_limit, 3);
      EXPECT_EQ(view.udp_source_port, 0xC123);
      EXPECT_TRUE(view.headers.mig_req);
      ASSERT_EQ(view.payload.size(), payload_bytes);
      for (std::uint32_t i = 0; i < payload_bytes; ++i) ASSERT_EQ(view.payload[i], i & 0xFF);
    }
  }
}

TEST(PeekDestQp, FindsWhatTheParserFinds) {
  for (const FlowAddress& address : {ipv4_address(), ipv6_address()}) {
    const Bytes frame = build(address, send_only(0));
    ASSERT_TRUE(peek_dest_qp(frame).has_value());
    EXPECT_EQ(peek_dest_qp(frame)->value, 0x11U);
    for (std::size_t bytes = 0; bytes < frame.size(); ++bytes) {
      (void)peek_dest_qp({frame.data(), bytes});  // reads no further: AddressSanitizer looks
    }
    EXPECT_FALSE(peek_dest_qp({frame.data(), frame.size() - 1}).has_value());
  }
}

TEST(PeekDestQp, OtherTrafficHasNone) {
  Bytes frame = build(ipv4_address(), send_only(0));
  frame[kIp + kIpv4Bytes + 3] ^= 1;  // the UDP port
  EXPECT_FALSE(peek_dest_qp(frame).has_value());
  frame = build(ipv4_address(), send_only(0));
  frame[12] = 0x12;  // the Ethernet type
  EXPECT_FALSE(peek_dest_qp(frame).has_value());
}

TEST(WriteFrameHeaders, Ipv4ChecksumIsCorrect) {
  // Large numbers, and every identification: few sums carry when they are folded.
  FlowAddress address = ipv4_address();
  address.source_gid = gid_from_ipv4(0xFAFBFCFD);
  for (unsigned ip_id = 0; ip_id < 0x10000; ++ip_id) {
    const Bytes frame = build(address, send_only(8), static_cast<std::uint16_t>(ip_id));
    std::size_t sum = 0;
    for (std::size_t word = 0; word < kIpv4Bytes; word += 2) sum += get16(frame, kIp + word);
    while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
    ASSERT_EQ(sum, 0xFFFFU) << ip_id;
  }
}

TEST(WriteFrameHeaders, Ipv4Fields) {
  const Bytes frame = build(ipv4_address(), send_only(5), 0xBEEF);
  EXPECT_EQ(get16(frame, 12), 0x0800U);
  EXPECT_EQ(frame[kIp], 0x45);
  EXPECT_EQ(frame[kIp + 1], 0x68);
  EXPECT_EQ(get16(frame, kIp + 2), frame.size() - kEthernetBytes);
  EXPECT_EQ(get16(frame, kIp + 4), 0xBEEFU);
  EXPECT_EQ(get16(frame, kIp + 6), 0x4000U) << "don't fragment";
  EXPECT_EQ(get16(frame, kIp + 20), 0xC123U);
  EXPECT_EQ(get16(frame, kIp + 22), 4791U);
  EXPECT_EQ(get16(frame, kIp + 24), frame.size() - kEthernetBytes - kIpv4Bytes);
  EXPECT_EQ(get16(frame, kIp + 26), 0U) << "UDP checksum";
}

TEST(WriteFrameHeaders, Ipv6Fields) {
  const Bytes frame = build(ipv6_address(), send_only(5));
  EXPECT_EQ(get16(frame, 12), 0x86DDU);
  EXPECT_EQ(get16(frame, kIp), 0x668AU) << "version 6, class 0x68, flow label 0xABCDE";
  EXPECT_EQ(get16(frame, kIp + 2), 0xBCDEU);
  EXPECT_EQ(get16(frame, kIp + 4), frame.size() - kEthernetBytes - kIpv6Bytes);
  EXPECT_EQ(get16(frame, kIp + 44), frame.size() - kEthernetBytes - kIpv6Bytes);
  EXPECT_EQ(get16(frame, kIp + 46), 0U) << "UDP checksum";
}

TEST(WriteFrameHeaders, WritesNoFurtherThanThePayload) {
  for (const FlowAddress& address : {ipv4_address(), ipv6_address()}) {
    const FlowTemplate flow = make_flow(address);
    const Headers headers = send_only(0);
    Bytes frame(frame_bytes(flow, headers), 0xA5);
    const std::size_t payload = write_frame_headers(flow, headers, 0, frame.data());
    EXPECT_EQ(payload, frame.size() - kIcrcBytes);
    EXPECT_EQ(Bytes(frame.begin() + static_cast<std::ptrdiff_t>(payload), frame.end()), Bytes(4, 0xA5));
  }
}

TEST(FinishFrame, ZeroesThePad) {
  const Bytes frame = build(ipv4_address(), send_only(1));
  const std::size_t pad = frame.size() - kIcrcBytes - 3;
  EXPECT_EQ(frame[pad - 1], 0) << "the payload";
  EXPECT_EQ(Bytes(frame.begin() + static_cast<std::ptrdiff_t>(pad), frame.end() - kIcrcBytes), Bytes(3, 0));
}

TEST(FrameBytes, LargestHeadersFitTheirConstants) {
  Headers headers;
  headers.opcode = Opcode::kRcCompareSwap;
  const FlowTemplate flow = make_flow(ipv6_address());
  EXPECT_LE(frame_bytes(flow, headers) - kIcrcBytes, kMaxFrameHeaderBytes);
}

TEST(MakeFlow, MixedAddressesAreIpv6) {
  FlowAddress address = ipv6_address();
  address.source_gid = ipv4_address().source_gid;
  EXPECT_TRUE(make_flow(address).is_ipv6);
}

TEST(ParseFrame, OtherTrafficIsNotRoce) {
  const Bytes ipv4 = build(ipv4_address(), send_only(64));
  const Bytes ipv6 = build(ipv6_address(), send_only(64));
  const auto changed = [](Bytes frame, std::size_t offset, std::uint8_t value) {
    frame[offset] = value;
    return frame;
  };
  EXPECT_EQ(parse_error({}), ParseError::kNotRoce);
  EXPECT_EQ(parse_error(changed(ipv4, 13, 0x06)), ParseError::kNotRoce) << "ARP";
  EXPECT_EQ(parse_error(changed(ipv4, kIp + 9, 6)), ParseError::kNotRoce) << "TCP";
  EXPECT_EQ(parse_error(changed(ipv4, kIp, 0x46)), ParseError::kNotRoce) << "IPv4 options";
  EXPECT_EQ(parse_error(changed(ipv4, kIp + 6, 0x20)), ParseError::kNotRoce) << "first fragment";
  EXPECT_EQ(parse_error(changed(ipv4, kIp + 7, 0x01)), ParseError::kNotRoce) << "later fragment";
  EXPECT_EQ(parse_error(changed(ipv4, kIp + 23, 53)), ParseError::kNotRoce) << "another port";
  EXPECT_EQ(parse_error(changed(ipv6, kIp + 6, 44)), ParseError::kNotRoce) << "an IPv6 extension header";
  EXPECT_EQ(parse_error(changed(ipv6, kIp + 43, 53)), ParseError::kNotRoce) << "another port";
}

TEST(ParseFrame, WrongIpVersionIsRefused) {
  Bytes ipv4 = build(ipv4_address(), send_only(64));
  ipv4[kIp] = 0x65;
  EXPECT_EQ(parse_error(ipv4), ParseError::kBadVersion);
  Bytes ipv6 = build(ipv6_address(), send_only(64));
  ipv6[kIp] = 0x40;
  EXPECT_EQ(parse_error(ipv6), ParseError::kBadVersion);
}

// Lengths that contradict each other or the frame; kTrusted, so that no ICRC hides a missing check.
TEST(ParseFrame, EveryIpLengthButTheTrueOneIsRefused) {
  struct Case {
    FlowAddress address;
    std::size_t length_offset;
    std::size_t true_length;
  };
  const std::size_t udp_bytes = kUdpBytes + 12 + 8 + kIcrcBytes;
  for (const Case& test :
       {Case{ipv4_address(), kIp + 2, kIpv4Bytes + udp_bytes}, Case{ipv4_address(), kIp + 24, udp_bytes},
        Case{ipv6_address(), kIp + 4, udp_bytes}, Case{ipv6_address(), kIp + 44, udp_bytes}}) {
    Bytes frame = build(test.address, send_only(8));
    ASSERT_EQ(get16(frame, test.length_offset), test.true_length);
    for (std::size_t length = 0; length < 0x10000; ++length) {
      set16(frame, test.length_offset, length);
      ASSERT_EQ(parse_error(frame, IcrcPolicy::kTrusted),
                length == test.true_length ? ParseError::kNone : ParseError::kTruncated)
          << length;
    }
  }
}

TEST(ParseFrame, AgreeingLengthsTooShortForATransportHeaderAreRefused) {
  const Bytes ipv4 = build(ipv4_address(), send_only(8));
  const Bytes ipv6 = build(ipv6_address(), send_only(8));
  for (std::size_t udp_bytes = 0; udp_bytes < kUdpBytes + 12 + kIcrcBytes; ++udp_bytes) {
    Bytes frame = ipv4;
    set16(frame, kIp + 2, kIpv4Bytes + udp_bytes);
    set16(frame, kIp + 24, udp_bytes);
    EXPECT_EQ(parse_error(frame, IcrcPolicy::kCheck), ParseError::kTruncated);
    frame = ipv6;
    set16(frame, kIp + 4, udp_bytes);
    set16(frame, kIp + 44, udp_bytes);
    EXPECT_EQ(parse_error(frame, IcrcPolicy::kCheck), ParseError::kTruncated);
  }
}

TEST(ParseFrame, IcrcPolicy_OnlyTheTrustedPortSkipsIt) {
  Bytes frame = build(ipv4_address(), send_only(8));
  frame.back() ^= 1;
  EXPECT_EQ(parse_error(frame, IcrcPolicy::kCheck), ParseError::kBadIcrc);
  EXPECT_EQ(parse_error(frame, IcrcPolicy::kTrusted), ParseError::kNone);
}

// A damaged frame is counted as such, even where the damage looks like another fault.
TEST(ParseFrame, IcrcComesBeforeTheTransportHeaders) {
  Bytes frame = build(ipv4_address(), send_only(8));
  frame[kIp + kIpv4Bytes + kUdpBytes] = 0xFF;
  EXPECT_EQ(parse_error(frame, IcrcPolicy::kCheck), ParseError::kBadIcrc);
  finish_frame(frame);
  EXPECT_EQ(parse_error(frame, IcrcPolicy::kCheck), ParseError::kBadOpcode);
}

TEST(ParseFrame, UdpChecksumIsIgnored) {
  Bytes frame = build(ipv6_address(), send_only(8));
  set16(frame, kIp + 46, 0x1234);
  EXPECT_EQ(parse_error(frame), ParseError::kNone);
}

TEST(IsMulticastGid, KnowsBothFamilies) {
  EXPECT_TRUE(is_multicast_gid(gid_from_ipv4(0xE0000001)));
  EXPECT_TRUE(is_multicast_gid(gid_from_ipv4(0xEFFFFFFF)));
  EXPECT_FALSE(is_multicast_gid(gid_from_ipv4(0xDFFFFFFF)));
  EXPECT_FALSE(is_multicast_gid(gid_from_ipv4(0xF0000000)));
  EXPECT_TRUE(is_multicast_gid({0xFF, 0x02}));
  EXPECT_FALSE(is_multicast_gid({0xFE, 0x80}));
}

TEST(SetSourcePort, ChangesNothingElse) {
  for (const FlowAddress& address : {ipv4_address(), ipv6_address()}) {
    FlowAddress other = address;
    other.udp_source_port = 0xD456;
    FlowTemplate flow = make_flow(address);
    set_source_port(flow, 0xD456);
    EXPECT_EQ(flow.bytes, make_flow(other).bytes);
  }
}

Headers datagram(std::uint32_t payload_bytes, bool has_immediate) {
  Headers headers = send_only(payload_bytes);
  headers.opcode = has_immediate ? Opcode::kUdSendOnlyImm : Opcode::kUdSendOnly;
  return headers;
}

TEST(WriteGrh, Ipv4_StandsBehindZeros) {
  for (const bool has_immediate : {false, true}) {
    const Bytes original = build(ipv4_address(), datagram(64, has_immediate));
    Bytes frame = original;
    FrameView view;
    ASSERT_EQ(parse_frame(frame, IcrcPolicy::kCheck, view), ParseError::kNone);
    const auto payload = static_cast<std::size_t>(view.payload.data() - frame.data());
    write_grh(frame.data(), frame.data() + payload);
    for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(frame[payload - kGrhBytes + i], 0) << i;
    EXPECT_TRUE(std::equal(original.begin() + kIp, original.begin() + kIp + kIpv4Bytes,
                           frame.begin() + static_cast<std::ptrdiff_t>(payload - kIpv4Bytes)));
    EXPECT_TRUE(std::equal(original.begin() + static_cast<std::ptrdiff_t>(payload), original.end(),
                           frame.begin() + static_cast<std::ptrdiff_t>(payload)));
  }
}

TEST(WriteGrh, Ipv6_IsTheHeaderAsItCame) {
  const Bytes original = build(ipv6_address(), datagram(0, false));
  Bytes frame = original;
  FrameView view;
  ASSERT_EQ(parse_frame(frame, IcrcPolicy::kCheck, view), ParseError::kNone);
  const auto payload = static_cast<std::size_t>(view.payload.data() - frame.data());
  write_grh(frame.data(), frame.data() + payload);
  EXPECT_TRUE(std::equal(original.begin() + kIp, original.begin() + kIp + kIpv6Bytes,
                         frame.begin() + static_cast<std::ptrdiff_t>(payload - kIpv6Bytes)));
}

}  // namespace
}  // namespace urdma::wire
