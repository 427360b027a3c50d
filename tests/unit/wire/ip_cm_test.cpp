// Tests of include/urdma/wire/ip_cm.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/ip_cm.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace urdma::wire {
namespace {

using Header = std::array<std::uint8_t, kIpCmHeaderBytes>;

// As it stands in rxe-cm.pcap 1.
constexpr Header kGolden = {0x00, 0x40, 0xb9, 0xbd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    0,    0x0a, 0x09,
                            0x00, 0x02, 0,    0,    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a, 0x09, 0x00, 0x01};

Header written(const IpCmHeader& header) {
  Header bytes;
  bytes.fill(0xA5);
  write_ip_cm(header, bytes);
  return bytes;
}

IpCmHeader ipv6_header() {
  IpCmHeader header{true, 0x1234, {}, {}};
  for (std::uint8_t i = 0; i < 16; ++i) {
    header.source[i] = static_cast<std::uint8_t>(0x20 + i);
    header.dest[i] = static_cast<std::uint8_t>(0x40 + i);
  }
  return header;
}

TEST(ParseIpCm, GoldenHeader) {
  const auto header = parse_ip_cm(kGolden);
  ASSERT_TRUE(header);
  EXPECT_FALSE(header->is_ipv6);
  EXPECT_EQ(header->source_port, 0xb9bd);
  EXPECT_EQ(header->source, gid_from_ipv4(0x0A090002));
  EXPECT_EQ(header->dest, gid_from_ipv4(0x0A090001));
}

TEST(WriteIpCm, GoldenHeaderIsWrittenToTheByte) {
  EXPECT_EQ(written({false, 0xb9bd, gid_from_ipv4(0x0A090002), gid_from_ipv4(0x0A090001)}), kGolden);
}

TEST(WriteIpCm, Ipv6ByHand) {
  const Header bytes = written(ipv6_header());
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(bytes[1], 0x60);
  EXPECT_EQ(bytes[2], 0x12);
  EXPECT_EQ(bytes[3], 0x34);
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(bytes[4 + i], 0x20 + i);
    EXPECT_EQ(bytes[20 + i], 0x40 + i);
  }
}

TEST(ParseIpCm, GivesBackIpv6) {
  const IpCmHeader sent = ipv6_header();
  const auto received = parse_ip_cm(written(sent));
  ASSERT_TRUE(received);
  EXPECT_TRUE(received->is_ipv6);
  EXPECT_EQ(received->source_port, sent.source_port);
  EXPECT_EQ(received->source, sent.source);
  EXPECT_EQ(received->dest, sent.dest);
}

TEST(ParseIpCm, OtherVersionsAndFamiliesAreRefused) {
  for (unsigned value = 0; value < 256; ++value) {
    Header version = kGolden;
    version[0] = static_cast<std::uint8_t>(value);
    EXPECT_EQ(parse_ip_cm(version).has_value(), value == 0) << value;
    Header family = kGolden;
    family[1] = static_cast<std::uint8_t>(value);
    EXPECT_EQ(parse_ip_cm(family).has_value(), value >> 4 == 4 || value >> 4 == 6) << value;
  }
}

TEST(ParseIpCm, TooFewBytesAreRefused) {
  for (std::size_t size = 0; size < kGolden.size(); ++size) {
    const std::vector<std::uint8_t> prefix(kGolden.begin(),
                                           kGolden.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(parse_ip_cm(prefix)) << size;
  }
}

TEST(IpServiceId, PortSpaceAndPort) {
  EXPECT_EQ(ip_service_id(kPortSpaceTcp, 0x1c06), 0x0000000001061c06U);
  EXPECT_EQ(ip_service_id(kPortSpaceUdp, 0x1c06), 0x0000000001111c06U);
}

}  // namespace
}  // namespace urdma::wire
