// Tests of include/urdma/base/result.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/base/result.hpp"

#include <gtest/gtest.h>

namespace urdma {
namespace {

Result<int> half_of(int number) {
  if (number % 2 != 0) return fail(EINVAL, "the number is odd");
  return number / 2;
}

TEST(Result, HoldsTheValueOrTheError) {
  ASSERT_TRUE(half_of(8).has_value());
  EXPECT_EQ(*half_of(8), 4);
  const Result<int> failed = half_of(3);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, EINVAL);
  EXPECT_EQ(failed.error().message, "the number is odd");
}

TEST(FailErrno, AppendsTheReason) {
  const Status failed = fail_errno(ENOENT, "cannot open /nowhere");
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, ENOENT);
  EXPECT_EQ(failed.error().message, "cannot open /nowhere: No such file or directory");
}

}  // namespace
}  // namespace urdma
