// Tests of datapath/control/gid_table.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/gid_table.hpp"

#include <gtest/gtest.h>

namespace urdma::control {
namespace {

PortGid gid(std::uint32_t address, const std::string& interface = "eth0", int index = 2) {
  return {wire::gid_from_ipv4(address), index, interface, {}};
}

InterfaceState interface(const std::string& name, bool is_up, std::vector<std::uint32_t> addresses) {
  InterfaceState state;
  state.index = static_cast<int>(name.size());
  state.name = name;
  state.is_up = is_up;
  for (const std::uint32_t address : addresses)
    state.addresses.push_back({wire::gid_from_ipv4(address), 120});
  return state;
}

TEST(GidTableTest, Update_KeepsTheIndexOfWhatStays) {
  GidTable table(4);
  EXPECT_TRUE(table.update(std::vector{gid(1), gid(2), gid(3)}));
  EXPECT_TRUE(table.update(std::vector{gid(3), gid(1)}));
  EXPECT_EQ(table.at(0)->gid, gid(1).gid);
  EXPECT_EQ(table.at(1), nullptr);
  EXPECT_EQ(table.at(2)->gid, gid(3).gid);
}

TEST(GidTableTest, Update_FillsTheLowestFreeEntry) {
  GidTable table(4);
  EXPECT_TRUE(table.update(std::vector{gid(1), gid(2), gid(3)}));
  EXPECT_TRUE(table.update(std::vector{gid(2), gid(3)}));
  EXPECT_TRUE(table.update(std::vector{gid(2), gid(3), gid(9)}));
  EXPECT_EQ(table.at(0)->gid, gid(9).gid);
}

TEST(GidTableTest, Update_TellsWhetherAnythingChanged) {
  GidTable table(4);
  EXPECT_FALSE(table.update({}));
  EXPECT_TRUE(table.update(std::vector{gid(1)}));
  EXPECT_FALSE(table.update(std::vector{gid(1)}));
  EXPECT_TRUE(table.update(std::vector{gid(1, "eth1")})) << "the interface is part of an entry";
  EXPECT_EQ(table.at(0)->interface, "eth1");
}

TEST(GidTableTest, Update_KeepsTheIndexWhenTheLinkChanges) {
  GidTable table(4);
  EXPECT_TRUE(table.update(std::vector{gid(1), gid(2), gid(3)}));
  EXPECT_TRUE(table.update(std::vector{gid(2), gid(3)}));
  PortGid moved = gid(3, "eth0", 7);  // the interface was made anew, and has another MAC
  moved.mac = {2, 0, 0, 0, 0, 1};
  EXPECT_TRUE(table.update(std::vector{moved}));
  EXPECT_EQ(*table.at(2), moved);
  EXPECT_EQ(table.at(0), nullptr);
}

TEST(GidTableTest, Update_TakesEachAddressOnceAndNoMoreThanFit) {
  GidTable table(2);
  EXPECT_TRUE(table.update(std::vector{gid(1), gid(1), gid(2), gid(3)}));
  EXPECT_EQ(table.gids().size(), 2U);
  EXPECT_EQ(table.find(gid(3).gid), nullptr);
}

TEST(GidTableTest, At_IsNullBeyondTheEnd) {
  const GidTable table(2);
  EXPECT_EQ(table.at(0), nullptr);
  EXPECT_EQ(table.at(2), nullptr);
  EXPECT_EQ(table.at(UINT32_MAX), nullptr);
}

TEST(HostGidsTest, HostGids_AreThoseOfInterfacesThatAreUp) {
  const std::vector interfaces{interface("lo", true, {0x7F000001}), interface("eth0", true, {1, 2}),
                               interface("wifi0", false, {3})};
  const auto gids = host_gids(interfaces);
  ASSERT_EQ(gids.size(), 2U);
  EXPECT_EQ(gids[0].interface, "eth0");
}

TEST(HostGidsTest, HostGids_FallBackToTheLoopbackAddress) {
  const std::vector interfaces{interface("lo", true, {0x7F000001}), interface("eth0", false, {1})};
  const auto gids = host_gids(interfaces);
  ASSERT_EQ(gids.size(), 1U);
  EXPECT_EQ(gid_text(gids[0].gid), "127.0.0.1");
  EXPECT_EQ(gids[0].interface, "lo");
  EXPECT_EQ(gids[0].ifindex, 2);
}

TEST(GidTextTest, GidText_HasBothFamilies) {
  EXPECT_EQ(gid_text(wire::gid_from_ipv4(0xC0000201)), "192.0.2.1");
  wire::Gid link_local{0xFE, 0x80};
  link_local[15] = 1;
  EXPECT_EQ(gid_text(link_local), "fe80::1");
}

}  // namespace
}  // namespace urdma::control
