// Tests of parse_port_spec.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/io/port_spec.hpp"

#include <gtest/gtest.h>

namespace urdma::io {
namespace {

using Kind = PortSpec::Kind;

PortSpec parsed(const std::string& text) {
  auto spec = parse_port_spec(text);
  EXPECT_TRUE(spec) << text << ": " << spec.error().message;
  return spec ? *spec : PortSpec{};
}

void expect_refused(const std::string& text, int code, const std::string& words) {
  const auto spec = parse_port_spec(text);
  ASSERT_FALSE(spec) << text;
  EXPECT_EQ(spec.error().code, code) << text;
  EXPECT_NE(spec.error().message.find(words), std::string::npos) << text << ": " << spec.error().message;
}

TEST(ParsePortSpec, Loopback) {
  const PortSpec spec = parsed("loopback");
  EXPECT_EQ(spec.kind, Kind::kLoopback);
  EXPECT_EQ(spec.text, "loopback");
  EXPECT_TRUE(spec.addresses.empty());
}

TEST(ParsePortSpec, Addresses) {
  const PortSpec spec = parsed("loopback,ip=192.0.2.7/24,ip=2001:db8::5/64");
  ASSERT_EQ(spec.addresses.size(), 2U);
  const wire::Gid v4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, 7};
  EXPECT_EQ(spec.addresses[0].gid, v4);
  EXPECT_EQ(spec.addresses[0].prefix_bits, 96 + 24);
  const wire::Gid v6 = {0x20, 0x01, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5};
  EXPECT_EQ(spec.addresses[1].gid, v6);
  EXPECT_EQ(spec.addresses[1].prefix_bits, 64);
}

TEST(ParsePortSpec, AfPacket) {
  const PortSpec spec = parsed("af_packet:eth0,ip=10.0.0.1/8");
  EXPECT_EQ(spec.kind, Kind::kAfPacket);
  EXPECT_EQ(spec.interface, "eth0");
  EXPECT_EQ(spec.addresses.size(), 1U);
}

TEST(ParsePortSpec, VdevKeepsItsArguments) {
  const PortSpec spec = parsed("vdev:net_memif0,role=client,ip=10.0.0.1/8,socket=/tmp/a:b");
  EXPECT_EQ(spec.kind, Kind::kVdev);
  EXPECT_EQ(spec.device, "net_memif0,role=client,socket=/tmp/a:b");
  EXPECT_EQ(spec.addresses.size(), 1U);
}

TEST(ParsePortSpec, Gateways) {
  const PortSpec spec = parsed("vdev:net_memif0,ip=10.1.0.1/16,gw=10.1.255.254,ip=fd00::1/64,gw=fd00::fe");
  EXPECT_EQ(spec.device, "net_memif0");
  ASSERT_EQ(spec.gateways.size(), 2U);
  EXPECT_EQ(spec.gateways[0], wire::gid_from_ipv4(0x0A01FFFE));
  EXPECT_EQ(spec.gateways[1][0], 0xFD);
}

TEST(ParsePortSpec, GatewaysThatCannotBeAreRefused) {
  expect_refused("vdev:net_memif0,ip=10.1.0.1/16,gw=10.2.0.1", EINVAL, "on none of the networks");
  expect_refused("vdev:net_memif0,ip=10.1.0.1/16,gw=fd00::1", EINVAL, "on none of the networks");
  expect_refused("vdev:net_memif0,ip=10.1.0.1/16,gw=10.1.0", EINVAL, "'gw=10.1.0' is no gateway");
  expect_refused("vdev:net_memif0,ip=10.1.0.1/16,gw=239.0.0.1", EINVAL, "is no gateway");
  expect_refused("af_packet:eth0,gw=10.1.0.1", EINVAL, "the kernel's routes count");
  expect_refused("loopback,gw=10.1.0.1", EINVAL, "the kernel's routes count");
}

TEST(ParsePortSpec, SameAddressTwiceIsRefused) {
  expect_refused("vdev:net_memif0,ip=10.1.0.1/16,ip=10.1.0.1/24", EINVAL, "'ip=10.1.0.1/24' twice");
}

TEST(IsInNetwork, ByPrefixAndFamily) {
  const PortSpec spec = parsed("loopback,ip=192.0.2.65/26");
  const PortAddress network = spec.addresses.at(0);
  EXPECT_TRUE(is_in_network(wire::gid_from_ipv4(0xC000027F), network));
  EXPECT_FALSE(is_in_network(wire::gid_from_ipv4(0xC0000280), network));
  EXPECT_FALSE(is_in_network(wire::gid_from_ipv4(0xC000023F), network));
  // A prefix of no bits covers all of its own family.
  EXPECT_FALSE(is_in_network(wire::gid_from_ipv4(1), {wire::Gid{0xFD}, 0}));
  EXPECT_TRUE(is_in_network(wire::Gid{0x20}, {wire::Gid{0xFD}, 0}));
}

TEST(ParsePortSpec, UnreadableIsRefused) {
  for (const char* text : {"", "loop", "loopback:", "loopback:x", "af_packet", "vdev", "eth0", ":", ","}) {
    expect_refused(text, EINVAL, "af_packet:INTERFACE");
  }
  expect_refused("loopback,", EINVAL, "loopback");
  expect_refused("loopback,mtu=9000", EINVAL, "mtu=9000");
  expect_refused("af_packet:", EINVAL, "af_packet:INTERFACE");
  expect_refused("af_packet:eth0,mtu=1", EINVAL, "af_packet:INTERFACE");
  expect_refused("af_packet:a-name-that-is-too-long", EINVAL, "af_packet:INTERFACE");
  expect_refused("vdev:,ip=10.0.0.1/8", EINVAL, "vdev:NAME");
  expect_refused("vdev:net_memif0,role=client", EINVAL, "ip=ADDRESS/LEN");
}

TEST(ParsePortSpec, BadAddressesAreRefused) {
  for (const char* address :
       {"10.0.0.1", "10.0.0/8", "10.0.0.1/33", "10.0.0.1/", "10.0.0.1/8x", "/8", "x/8", "10.0.0.1/-1",
        "2001:db8::1/129", "0.0.0.0/8", "224.0.0.1/8", "255.255.255.255/32", "::/0", "ff02::1/64", ""}) {
    expect_refused(std::string("loopback,ip=") + address, EINVAL, "ip=ADDRESS/LEN is meant");
  }
}

TEST(ParsePortSpec, KindsOfOtherVersions) {
  for (const char* text : {"af_xdp:eth0", "tap:urdma0", "pci:0000:01:00.0"}) {
    expect_refused(text, ENOTSUP, "not in this version");
  }
}

}  // namespace
}  // namespace urdma::io
