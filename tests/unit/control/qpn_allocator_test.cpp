// Tests of datapath/control/qpn_allocator.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/qpn_allocator.hpp"

#include <gtest/gtest.h>

namespace urdma::control {
namespace {

TEST(QpnAllocatorTest, Allocate_StartsAtTheSeed) {
  QpnAllocator allocator(1000, 10);
  EXPECT_EQ(allocator.allocate()->value, 1000 + QpnAllocator::kFirst);
  EXPECT_EQ(allocator.allocate()->value, 1001 + QpnAllocator::kFirst);
}

TEST(QpnAllocatorTest, Allocate_StaysInRangeForEverySeed) {
  for (const std::uint32_t seed : {0U, 1U, kQpnMask, kQpnMask - 1, kQpnMask - 3, UINT32_MAX}) {
    QpnAllocator allocator(seed, 10);
    for (int i = 0; i < 10; ++i) {
      const Qpn qpn = *allocator.allocate();
      EXPECT_GE(qpn.value, QpnAllocator::kFirst);
      EXPECT_LE(qpn.value, QpnAllocator::kLast);
    }
  }
}

TEST(QpnAllocatorTest, Allocate_DoesNotReuseAtOnce) {
  QpnAllocator allocator(5, 4);
  const Qpn first = *allocator.allocate();
  allocator.release(first);
  for (int i = 0; i < 1000; ++i) {
    const Qpn next = *allocator.allocate();
    EXPECT_NE(next.value, first.value);
    allocator.release(next);
  }
}

TEST(QpnAllocatorTest, Allocate_SkipsWhatIsInUseAfterAWrap) {
  QpnAllocator allocator(QpnAllocator::kLast - QpnAllocator::kFirst, 3);
  EXPECT_EQ(allocator.allocate()->value, QpnAllocator::kLast);
  EXPECT_EQ(allocator.allocate()->value, QpnAllocator::kFirst);
}

TEST(QpnAllocatorTest, Allocate_AvoidsWhatConnectionsStillHold) {
  QpnAllocator allocator(100, 10);
  allocator.avoid([](Qpn qpn) { return qpn.value < QpnAllocator::kFirst + 105; });
  EXPECT_EQ(allocator.allocate()->value, QpnAllocator::kFirst + 105);
  EXPECT_EQ(allocator.in_use(), 1U);
}

TEST(QpnAllocatorTest, Allocate_EndsAtTheCapacity) {
  QpnAllocator allocator(1, 2);
  const Qpn first = *allocator.allocate();
  EXPECT_TRUE(allocator.allocate().has_value());
  EXPECT_FALSE(allocator.allocate().has_value());
  allocator.release(first);
  EXPECT_TRUE(allocator.allocate().has_value());
  EXPECT_EQ(allocator.in_use(), 2U);
}

}  // namespace
}  // namespace urdma::control
