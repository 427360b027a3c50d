// Tests of include/urdma/base/check.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/base/check.hpp"

#include <gtest/gtest.h>

namespace urdma {
namespace {

TEST(Check, PassesWhatHolds) {
  int evaluations = 0;
  URDMA_CHECK(++evaluations == 1);
  EXPECT_EQ(evaluations, 1);
}

TEST(CheckDeathTest, EndsTheProcessInReleaseBuildsToo) {
  const int one = 1;
  EXPECT_DEATH(URDMA_CHECK(one == 2), "one == 2 does not hold at .*check_test.cpp");
}

}  // namespace
}  // namespace urdma
