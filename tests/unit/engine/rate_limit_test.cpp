// Tests of RateLimit, with a virtual clock.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/rate_limit.hpp"

#include <gtest/gtest.h>

namespace urdma::engine {
namespace {

int take_all(RateLimit& limit, Instant now, int tries) {
  int taken = 0;
  for (int i = 0; i < tries; ++i) taken += limit.take(now) ? 1 : 0;
  return taken;
}

TEST(RateLimitTest, Take_BurstThenNothing) {
  RateLimit limit(1000, 100);
  EXPECT_EQ(take_all(limit, Instant{1}, 500), 100);
  EXPECT_FALSE(limit.take(Instant{2}));
}

TEST(RateLimitTest, Take_InTheLongRunTheRate) {
  RateLimit limit(1000, 100);
  Instant now{1'000'000'000};
  int taken = 0;
  for (int i = 0; i < 100'000; ++i) {  // ten tries a millisecond, for ten seconds
    now = now + microseconds(100);
    taken += limit.take(now) ? 1 : 0;
  }
  EXPECT_GE(taken, 10'000);
  EXPECT_LE(taken, 10'100);
}

TEST(RateLimitTest, Take_SavesNoMoreThanTheBurst) {
  RateLimit limit(1000, 100);
  EXPECT_EQ(take_all(limit, Instant{0}, 500), 100);
  EXPECT_EQ(take_all(limit, Instant{0} + seconds(3600), 500), 100);
}

}  // namespace
}  // namespace urdma::engine
