// QPs by cookie.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/queue/qp_table.hpp"

#include <gtest/gtest.h>

namespace urdma::provider {
namespace {

QueuePair* fake_qp(std::uintptr_t number) { return reinterpret_cast<QueuePair*>(number * 64); }

TEST(QpTableTest, Find_YieldsWhatWasBound) {
  QpTable table;
  EXPECT_EQ(table.find(0), nullptr);
  const auto first = table.reserve();
  const auto second = table.reserve();
  ASSERT_TRUE(first && second);
  EXPECT_NE(*first, *second);
  EXPECT_EQ(table.find(*first), nullptr);
  table.bind(*first, fake_qp(1));
  table.bind(*second, fake_qp(2));
  EXPECT_EQ(table.find(*first), fake_qp(1));
  EXPECT_EQ(table.find(*second), fake_qp(2));
}

TEST(QpTableTest, Release_MakesTheOldCookieInvalidForTheNextOwner) {
  QpTable table;
  const std::uint32_t old = table.reserve().value();
  table.bind(old, fake_qp(1));
  table.release(old);
  EXPECT_EQ(table.find(old), nullptr);
  const std::uint32_t next = table.reserve().value();
  EXPECT_NE(next, old);
  table.bind(next, fake_qp(2));
  EXPECT_EQ(table.find(old), nullptr);
  EXPECT_EQ(table.find(next), fake_qp(2));
}

TEST(QpTableTest, Reserve_EndsAtItsCapacity) {
  QpTable table;
  for (std::uint32_t i = 0; i < 65536; ++i) ASSERT_TRUE(table.reserve().has_value());
  EXPECT_FALSE(table.reserve().has_value());
  table.release(77);
  EXPECT_TRUE(table.reserve().has_value());
}

}  // namespace
}  // namespace urdma::provider
