// Who may have which port.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/rdma_cm/port_table.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>

namespace urdma::control::rdma_cm {
namespace {

PortUser user(std::uint32_t id, const SocketAddress& address, std::uint16_t port, bool reuses = false) {
  PortUser made{id, address, reuses, false};
  made.address.port = port;
  return made;
}

SocketAddress here(std::uint8_t last) { return address_of(wire::gid_from_ipv4(0xC0000200U | last), 0); }

TEST(PortTable, Take_OneThatNobodyAskedFor) {
  PortTable table(100, 102, 1);
  PortUser first = user(1, here(1), 0);
  PortUser second = user(2, here(1), 0);
  PortUser third = user(3, here(1), 0);
  PortUser fourth = user(4, here(1), 0);
  EXPECT_EQ(table.take(PortSpace::kTcp, first), 0);
  EXPECT_EQ(first.address.port, 101);
  EXPECT_EQ(table.take(PortSpace::kTcp, second), 0);
  EXPECT_EQ(table.take(PortSpace::kTcp, third), 0);
  EXPECT_EQ(third.address.port, 100);
  EXPECT_EQ(table.take(PortSpace::kTcp, fourth), EADDRNOTAVAIL) << "all are taken";
  EXPECT_EQ(table.take(PortSpace::kUdp, fourth), 0) << "of another space";
}

TEST(PortTable, GiveBack_OneThatIsGivenAgain) {
  PortTable table(100, 101, 0);
  for (std::uint32_t round = 0; round < 5; ++round) {
    PortUser named = user(1, here(1), 100);
    PortUser same = user(2, here(2), 100);
    PortUser outside = user(3, here(1), 7);
    PortUser given = user(4, here(1), 0);
    PortUser none = user(5, here(1), 0);
    EXPECT_EQ(table.take(PortSpace::kTcp, named), 0);
    EXPECT_EQ(table.take(PortSpace::kTcp, same), 0);
    EXPECT_EQ(table.take(PortSpace::kTcp, outside), 0);
    EXPECT_EQ(table.take(PortSpace::kTcp, given), 0);
    EXPECT_EQ(given.address.port, 101);
    EXPECT_EQ(table.take(PortSpace::kTcp, none), EADDRNOTAVAIL);
    for (const PortUser& each : {named, same, outside, given})
      table.give_back(PortSpace::kTcp, each.address.port, each.id);
  }
}

TEST(PortTable, Take_TheSameAddressAgain) {
  PortTable table(100, 200, 0);
  PortUser first = user(1, here(1), 7);
  PortUser second = user(2, here(1), 7);
  PortUser third = user(3, here(2), 7);
  EXPECT_EQ(table.take(PortSpace::kTcp, first), 0);
  EXPECT_EQ(table.take(PortSpace::kTcp, second), EADDRINUSE);
  EXPECT_EQ(table.take(PortSpace::kTcp, third), 0) << "another address";
  table.give_back(PortSpace::kTcp, 7, 1);
  EXPECT_EQ(table.take(PortSpace::kTcp, second), 0);
  PortUser fourth = user(4, here(2), 7);
  EXPECT_EQ(table.take(PortSpace::kTcp, fourth), EADDRINUSE) << "the others still have theirs";
}

TEST(PortTable, Take_AllAddresses) {
  PortTable table(100, 200, 0);
  PortUser first = user(1, any_address(Family::kIpv4), 7);
  PortUser second = user(2, here(1), 7);
  EXPECT_EQ(table.take(PortSpace::kTcp, first), 0);
  EXPECT_EQ(table.take(PortSpace::kTcp, second), EADDRNOTAVAIL);
  PortUser other_family = user(3, any_address(Family::kIpv6), 7);
  EXPECT_EQ(table.take(PortSpace::kTcp, other_family), EADDRNOTAVAIL);
}

TEST(PortTable, Take_ALoopbackAddressIsAllAddresses) {
  PortTable table(100, 200, 0);
  PortUser first = user(1, address_of(wire::gid_from_ipv4(0x7F000001), 0), 7);
  PortUser second = user(2, here(1), 7);
  EXPECT_EQ(table.take(PortSpace::kTcp, first), 0);
  EXPECT_EQ(table.take(PortSpace::kTcp, second), EADDRNOTAVAIL);
}

TEST(PortTable, Take_EachOfItsFamilyOnly) {
  PortTable table(100, 200, 0);
  PortUser first = user(1, any_address(Family::kIpv4), 7);
  PortUser second = user(2, any_address(Family::kIpv6), 7);
  first.is_family_only = second.is_family_only = true;
  EXPECT_EQ(table.take(PortSpace::kTcp, first), 0);
  EXPECT_EQ(table.take(PortSpace::kTcp, second), 0);
}

TEST(PortTable, CheckListen_ReusedAddressesHaveOneListener) {
  PortTable table(100, 200, 0);
  PortUser first = user(1, here(1), 7, true);
  PortUser second = user(2, here(1), 7, true);
  EXPECT_EQ(table.take(PortSpace::kTcp, first), 0);
  EXPECT_EQ(table.take(PortSpace::kTcp, second), 0);
  EXPECT_EQ(table.check_listen(PortSpace::kTcp, first), EADDRINUSE);
  table.give_back(PortSpace::kTcp, 7, 2);
  EXPECT_EQ(table.check_listen(PortSpace::kTcp, first), 0);
  table.give_back(PortSpace::kTcp, 7, 1);
  EXPECT_EQ(table.size(), 0U);
}

TEST(PortTable, Listeners_AreThoseWhoSaidSo) {
  PortTable table(100, 200, 0);
  PortUser first = user(1, here(1), 7);
  PortUser second = user(2, here(2), 7);
  for (PortUser* each : {&first, &second}) ASSERT_EQ(table.take(PortSpace::kTcp, *each), 0);
  EXPECT_TRUE(table.listeners(PortSpace::kTcp, 7).empty());
  table.note_listener(PortSpace::kTcp, 7, 2);
  ASSERT_EQ(table.listeners(PortSpace::kTcp, 7).size(), 1U);
  EXPECT_EQ(table.listeners(PortSpace::kTcp, 7)[0], 2U);
  EXPECT_TRUE(table.listeners(PortSpace::kUdp, 7).empty());
  table.give_back(PortSpace::kTcp, 7, 2);
  EXPECT_TRUE(table.listeners(PortSpace::kTcp, 7).empty());
}

TEST(PortTable, Change_IsWhatOthersAreJudgedBy) {
  PortTable table(100, 200, 0);
  PortUser first = user(1, here(1), 7);
  PortUser second = user(2, here(1), 7, true);
  ASSERT_EQ(table.take(PortSpace::kTcp, first), 0);
  EXPECT_EQ(table.take(PortSpace::kTcp, second), EADDRINUSE);
  first.reuses_address = true;
  table.change(PortSpace::kTcp, first);
  EXPECT_EQ(table.take(PortSpace::kTcp, second), 0);
}

// Any number of IDs may have one port, on addresses of 127.0.0.0/8 for all that it costs.
TEST(PortTable, Take_CostsTheSameHoweverManyHaveThePort) {
  constexpr std::uint32_t kUsers = 200'000;
  PortTable table(100, 200, 0);
  const auto start = std::chrono::steady_clock::now();
  for (std::uint32_t id = 1; id <= kUsers; ++id) {
    PortUser each = user(id, address_of(wire::gid_from_ipv4(0x7F000000U + id), 0), 7, true);
    ASSERT_EQ(table.take(PortSpace::kTcp, each), 0);
    ASSERT_EQ(table.check_listen(PortSpace::kTcp, each), id == 1 ? 0 : EADDRNOTAVAIL);
  }
  for (std::uint32_t id = 1; id <= kUsers; ++id) table.give_back(PortSpace::kTcp, 7, id);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(table.size(), 0U);
}

}  // namespace
}  // namespace urdma::control::rdma_cm
