// Tests of datapath/control/device and addressing, as far as they need no port.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/device.hpp"

#include <gtest/gtest.h>

#include "datapath/control/addressing.hpp"

namespace urdma::control {
namespace {

TEST(LinkRateTest, LinkRate_IsLegalForEverySpeed) {
  for (const std::uint32_t megabits :
       {1U, 10U, 1'000U, 2'500U, 10'000U, 25'000U, 40'000U, 56'000U, 100'000U, 400'000U}) {
    const LinkRate rate = link_rate(megabits);
    EXPECT_TRUE(rate.width == 1 || rate.width == 2 || rate.width == 4 || rate.width == 8) << megabits;
    EXPECT_EQ(rate.speed & (rate.speed - 1), 0) << megabits;
    EXPECT_NE(rate.speed, 0) << megabits;
  }
  EXPECT_STREQ(link_rate(10'000).text, "10 Gb/sec (1X QDR)");
  EXPECT_STREQ(link_rate(56'000).text, "50 Gb/sec (1X HDR)");
}

InterfaceState interface_of_mtu(std::uint32_t mtu) {
  InterfaceState interface;
  interface.is_up = true;
  interface.mtu = mtu;
  return interface;
}

TEST(PortTest, JudgePort_IsDownWhereTheSmallestPacketDoesNotFit) {
  const InterfaceState interface = interface_of_mtu(68);
  const PortCondition condition = judge_port(true, &interface, 1500);
  EXPECT_FALSE(condition.is_active);
  EXPECT_EQ(condition.active_mtu_code, 1) << "programs take no other for a legal one";
}

TEST(PortTest, JudgePort_FollowsTheInterface) {
  InterfaceState interface = interface_of_mtu(1500);
  EXPECT_TRUE(judge_port(true, &interface, 9000).is_active);
  EXPECT_EQ(judge_port(true, &interface, 9000).active_mtu_code, 3);
  interface.mtu = 9000;
  EXPECT_EQ(judge_port(true, &interface, 1500).active_mtu_code, 3) << "the buffers are what they were";
  interface.is_up = false;
  EXPECT_FALSE(judge_port(true, &interface, 1500).is_active);
  EXPECT_FALSE(judge_port(true, nullptr, 1500).is_active);
  EXPECT_TRUE(judge_port(false, nullptr, 9000).is_active);
}

TEST(GuidTest, GuidFromMac_IsTheModifiedEui64) {
  EXPECT_EQ(guid_from_mac({0x02, 0x11, 0x22, 0x33, 0x44, 0x55}), 0x001122FFFE334455U);
}

TEST(GuidTest, GuidFromText_IsStableUniqueAndLocal) {
  EXPECT_EQ(guid_from_text("a/0"), guid_from_text("a/0"));
  EXPECT_NE(guid_from_text("a/0"), guid_from_text("a/1"));
  EXPECT_NE(guid_from_text(""), 0U);
  EXPECT_EQ(guid_from_text("b") >> 56 & 3, 0U);
}

TEST(FlowPortTest, FlowPort_IsStableAndInRange) {
  std::uint32_t different = 0;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const std::uint16_t port = flow_port(Qpn{i}, Qpn{7});
    EXPECT_GE(port, wire::kFirstSourcePort);
    EXPECT_EQ(port, flow_port(Qpn{i}, Qpn{7}));
    if (port != flow_port(Qpn{i + 1}, Qpn{7})) ++different;
  }
  EXPECT_GT(different, 900U);
}

}  // namespace
}  // namespace urdma::control
