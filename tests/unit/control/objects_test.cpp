// Tests of datapath/control/objects.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/objects.hpp"

#include <gtest/gtest.h>

namespace urdma::control {
namespace {

TEST(HandleTableTest, Insert_GivesTheHandleThatNextHandleNamed) {
  HandleTable<int> table;
  const std::uint32_t named = table.next_handle();
  EXPECT_NE(named, 0U);
  EXPECT_EQ(table.insert(std::make_unique<int>(5)), named);
  EXPECT_EQ(*table.find(named), 5);
}

TEST(HandleTableTest, Take_MakesTheHandleInvalid) {
  HandleTable<int> table;
  const std::uint32_t handle = table.insert(std::make_unique<int>(5));
  EXPECT_EQ(*table.take(handle), 5);
  EXPECT_EQ(table.find(handle), nullptr);
  EXPECT_EQ(table.take(handle), nullptr);
  EXPECT_NE(table.insert(std::make_unique<int>(6)), handle) << "a dead handle must not name a new object";
}

TEST(NumberPoolTest, Take_GivesEachNumberOnceUpToTheCapacity) {
  NumberPool pool(3);
  EXPECT_EQ(pool.take(), 0U);
  EXPECT_EQ(pool.take(), 1U);
  EXPECT_EQ(pool.take(), 2U);
  EXPECT_EQ(pool.take(), std::nullopt);
}

TEST(NumberPoolTest, GiveBack_MakesTheLowestNumberTheNext) {
  NumberPool pool(4);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(pool.take().has_value());
  pool.give_back(2);
  pool.give_back(1);
  EXPECT_EQ(pool.take(), 1U);
  EXPECT_EQ(pool.take(), 2U);
  EXPECT_EQ(pool.take(), std::nullopt);
}

TEST(MembershipsTest, Leave_TheLastQueuePairTakesTheGroupAlong) {
  Memberships memberships;
  const wire::Gid one{0xFF, 1};
  const wire::Gid two{0xFF, 2};
  memberships.join(one);
  memberships.join(one);
  memberships.join(two);
  EXPECT_EQ(memberships.members(), 3U);
  EXPECT_EQ(memberships.groups().size(), 2U);
  memberships.leave(one);
  EXPECT_TRUE(memberships.groups().contains(one));
  memberships.leave(one);
  EXPECT_FALSE(memberships.groups().contains(one));
  EXPECT_EQ(memberships.members(), 1U);
}

}  // namespace
}  // namespace urdma::control
