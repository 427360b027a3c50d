// Tests of datapath/cm/table.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/cm/table.hpp"

#include <gtest/gtest.h>

#include <set>

namespace urdma::cm {
namespace {

const wire::Gid kPeer = wire::gid_from_ipv4(1);
const wire::Gid kOther = wire::gid_from_ipv4(2);

TEST(TableTest, Add_GivesIdsThatDifferAndAreNotZero) {
  Random random({1, 1});
  Table table(1000, random);
  std::set<std::uint32_t> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(table.add({}, State::kOver)->id.value);
  EXPECT_EQ(ids.size(), 1000U);
  EXPECT_FALSE(ids.contains(0));
  EXPECT_EQ(table.add({}, State::kOver), nullptr);
  EXPECT_EQ(table.size(), 1000U);
}

TEST(TableTest, Remove_TakesItOutOfEveryList) {
  Random random({1, 1});
  Table table(2, random);
  Connection* connection = table.add({{}, kPeer}, State::kOver);
  const std::uint32_t id = connection->id.value;
  connection->remote_id = 5;
  connection->remote_qpn = Qpn{6};
  connection->local_qpn = Qpn{7};
  table.list(PeerNumber::kRequest, *connection);
  table.list(PeerNumber::kQp, *connection);
  table.hold_qpn(*connection);
  EXPECT_EQ(table.find(id), connection);
  EXPECT_EQ(table.find_peer(PeerNumber::kRequest, kPeer, 5), connection);
  EXPECT_EQ(table.find_peer(PeerNumber::kQp, kPeer, 6), connection);
  EXPECT_EQ(table.find_peer(PeerNumber::kResolve, kPeer, 5), nullptr);
  EXPECT_EQ(table.find_peer(PeerNumber::kRequest, kOther, 5), nullptr);
  EXPECT_TRUE(table.is_in_use(Qpn{7}));
  table.remove(*connection);
  EXPECT_EQ(table.find(id), nullptr);
  EXPECT_EQ(table.find_peer(PeerNumber::kRequest, kPeer, 5), nullptr);
  EXPECT_EQ(table.find_peer(PeerNumber::kQp, kPeer, 6), nullptr);
  EXPECT_FALSE(table.is_in_use(Qpn{7}));
  EXPECT_EQ(table.size(), 0U);
}

TEST(TableTest, HoldQpn_IsInUseAsLongAsOneHoldsIt) {
  Random random({1, 1});
  Table table(2, random);
  Connection* connections[] = {table.add({}, State::kOver), table.add({}, State::kOver)};
  for (Connection* connection : connections) {
    connection->local_qpn = Qpn{9};
    table.hold_qpn(*connection);
  }
  table.free_qpn(*connections[0]);
  table.free_qpn(*connections[0]);
  EXPECT_TRUE(table.is_in_use(Qpn{9}));
  table.remove(*connections[1]);
  EXPECT_FALSE(table.is_in_use(Qpn{9}));
}

TEST(TableTest, IsCrowded_BeyondHalf) {
  Random random({1, 1});
  Table table(4, random);
  for (int i = 0; i < 2; ++i) (void)table.add({}, State::kOver);
  EXPECT_FALSE(table.is_crowded());
  (void)table.add({}, State::kOver);
  EXPECT_TRUE(table.is_crowded());
}

}  // namespace
}  // namespace urdma::cm
