// Tests of include/urdma/base/time.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/base/time.hpp"

#include <gtest/gtest.h>

namespace urdma {
namespace {

TEST(Duration, UnitsAreNanoseconds) {
  EXPECT_EQ(nanoseconds(1).ns, 1);
  EXPECT_EQ(microseconds(2).ns, 2'000);
  EXPECT_EQ(milliseconds(3).ns, 3'000'000);
  EXPECT_EQ(seconds(4).ns, 4'000'000'000);
}

TEST(Duration, Arithmetic) {
  EXPECT_EQ(microseconds(4) * 3, microseconds(12));
  EXPECT_EQ(seconds(1) + milliseconds(500), milliseconds(1'500));
  EXPECT_LT(microseconds(999), milliseconds(1));
}

TEST(Instant, Arithmetic) {
  const Instant start{1'000};
  EXPECT_EQ(start + nanoseconds(24), Instant{1'024});
  EXPECT_EQ((start + seconds(1)) - start, seconds(1));
}

TEST(Instant, Never_IsLast) {
  EXPECT_TRUE(Instant::never().is_never());
  EXPECT_FALSE(Instant{}.is_never());
  EXPECT_LT(Instant{} + seconds(1'000'000'000), Instant::never());
}

TEST(Earlier, TakesTheEarlier) {
  EXPECT_EQ(earlier(Instant{1}, Instant{2}), Instant{1});
  EXPECT_EQ(earlier(Instant::never(), Instant{2}), Instant{2});
}

}  // namespace
}  // namespace urdma
