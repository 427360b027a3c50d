// Tests of include/urdma/base/verbs.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/base/verbs.hpp"

#include <gtest/gtest.h>

namespace urdma {
namespace {

TEST(Carries, EachServiceHasItsOwn) {
  EXPECT_TRUE(carries(QpType::kRc, WrOpcode::kAtomicWrite));
  EXPECT_FALSE(carries(QpType::kXrcSend, WrOpcode::kAtomicWrite)) << "its opcode is one of RC alone";
  EXPECT_TRUE(carries(QpType::kXrcSend, WrOpcode::kFetchAdd));
  EXPECT_FALSE(carries(QpType::kXrcRecv, WrOpcode::kSend));
  EXPECT_FALSE(carries(QpType::kUc, WrOpcode::kRdmaRead));
  EXPECT_TRUE(carries(QpType::kUc, WrOpcode::kBindMw));
  EXPECT_FALSE(carries(QpType::kUd, WrOpcode::kRdmaWrite));
}

TEST(MtuBytes, FiveCodes) {
  EXPECT_EQ(mtu_bytes(1), 256U);
  EXPECT_EQ(mtu_bytes(3), 1024U);
  EXPECT_EQ(mtu_bytes(5), 4096U);
}

TEST(IsMtuCode, OneToFive) {
  EXPECT_FALSE(is_mtu_code(0));
  EXPECT_TRUE(is_mtu_code(1));
  EXPECT_TRUE(is_mtu_code(5));
  EXPECT_FALSE(is_mtu_code(6));
}

}  // namespace
}  // namespace urdma
