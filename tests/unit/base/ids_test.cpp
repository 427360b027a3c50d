// Tests of include/urdma/base/ids.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/base/ids.hpp"

#include <gtest/gtest.h>

namespace urdma {
namespace {

constexpr std::uint32_t kLast = 0xFFFFFF;
constexpr std::int32_t kHalf = 1 << 23;

TEST(Psn, Constructor_Keeps24Bits) {
  EXPECT_EQ(Psn(0x1000000).value(), 0U);
  EXPECT_EQ(Psn(0xFF123456).value(), 0x123456U);
}

TEST(Psn, Next_Wraps) {
  EXPECT_EQ(Psn(5).next(), Psn(6));
  EXPECT_EQ(Psn(kLast).next(), Psn(0));
}

TEST(Psn, Previous_Wraps) {
  EXPECT_EQ(Psn(5).previous(), Psn(4));
  EXPECT_EQ(Psn(0).previous(), Psn(kLast));
}

TEST(Psn, PlusMinus_Wrap) {
  EXPECT_EQ(Psn(kLast).plus(3), Psn(2));
  EXPECT_EQ(Psn(2).minus(3), Psn(kLast));
  EXPECT_EQ(Psn(7).plus(0x1000000), Psn(7));
  for (std::uint32_t start = 0; start <= kLast; start += 65'521) {
    EXPECT_EQ(Psn(start).plus(0xABCDEF).minus(0xABCDEF), Psn(start));
  }
}

TEST(Psn, DistanceFrom_IsSignedAndWraps) {
  EXPECT_EQ(Psn(5).distance_from(Psn(5)), 0);
  EXPECT_EQ(Psn(7).distance_from(Psn(5)), 2);
  EXPECT_EQ(Psn(5).distance_from(Psn(7)), -2);
  EXPECT_EQ(Psn(1).distance_from(Psn(kLast)), 2);
  EXPECT_EQ(Psn(kLast).distance_from(Psn(1)), -2);
}

TEST(Psn, DistanceFrom_HalfTheCircleIsBehind) {
  EXPECT_EQ(Psn(kHalf).distance_from(Psn(0)), -kHalf);
  EXPECT_EQ(Psn(kHalf - 1).distance_from(Psn(0)), kHalf - 1);
  EXPECT_EQ(Psn(kHalf + 1).distance_from(Psn(0)), -(kHalf - 1));
}

TEST(Psn, DistanceFrom_InvertsPlus) {
  for (std::uint32_t start : {0U, 1U, 0x7FFFFFU, 0x800000U, kLast}) {
    for (std::int32_t distance = -kHalf; distance < kHalf; distance += 4093) {
      EXPECT_EQ(Psn(start).plus(static_cast<std::uint32_t>(distance)).distance_from(Psn(start)), distance);
    }
  }
}

TEST(Psn, IsBeforeIsAfter_AcrossTheWrap) {
  EXPECT_TRUE(Psn(kLast).is_before(Psn(0)));
  EXPECT_TRUE(Psn(0).is_after(Psn(kLast)));
  EXPECT_FALSE(Psn(3).is_before(Psn(3)));
  EXPECT_FALSE(Psn(3).is_after(Psn(3)));
}

TEST(Qpn, Compares) {
  EXPECT_LT(Qpn{1}, Qpn{2});
  EXPECT_EQ(Qpn{}, Qpn{0});
}

}  // namespace
}  // namespace urdma
