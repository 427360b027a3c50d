// Tests of datapath/control/keys.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/keys.hpp"

#include <gtest/gtest.h>

#include <set>

namespace urdma::control {
namespace {

TEST(KeySetDrawTest, Draw_IsNeverZeroAndNeverTwice) {
  KeySet keys;
  std::set<std::uint32_t> seen;
  for (int i = 0; i < 10'000; ++i) {
    const MemoryKey key = keys.draw();
    EXPECT_NE(key.value, 0U);
    EXPECT_TRUE(seen.insert(key.value).second);
  }
  EXPECT_EQ(keys.size(), 10'000U);
}

TEST(KeySetDrawTest, Draw_UsesAllBits) {
  KeySet keys;
  std::uint32_t ones = 0;
  std::uint32_t zeros = 0;
  for (int i = 0; i < 200; ++i) {
    const std::uint32_t value = keys.draw().value;
    ones |= value;
    zeros |= ~value;
  }
  EXPECT_EQ(ones, UINT32_MAX);
  EXPECT_EQ(zeros, UINT32_MAX);
}

TEST(KeySetReleaseTest, Release_MakesRoom) {
  KeySet keys;
  const MemoryKey key = keys.draw();
  keys.release(key);
  EXPECT_EQ(keys.size(), 0U);
}

TEST(TokensTest, TokensEqual_ComparesEveryByte) {
  const abi::Token token = random_token();
  EXPECT_TRUE(tokens_equal(token, token));
  for (std::size_t i = 0; i < sizeof(token.bytes); ++i) {
    abi::Token other = token;
    other.bytes[i] ^= 1;
    EXPECT_FALSE(tokens_equal(token, other)) << i;
  }
}

}  // namespace
}  // namespace urdma::control
