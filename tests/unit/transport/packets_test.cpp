// How messages lie in packets.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/packets.hpp"

#include <gtest/gtest.h>

#include "datapath/transport/types.hpp"

namespace urdma::transport {
namespace {

TEST(PacketsTest, PacketsOf_Boundaries) {
  EXPECT_EQ(packets_of(0, 1024), 1U);
  EXPECT_EQ(packets_of(1, 1024), 1U);
  EXPECT_EQ(packets_of(1024, 1024), 1U);
  EXPECT_EQ(packets_of(1025, 1024), 2U);
  EXPECT_EQ(packets_of(kMaxMessageBytes, 256), 1U << 23);
  EXPECT_EQ(packets_of(kMaxMessageBytes, 65536), 1U << 15);
}

}  // namespace
}  // namespace urdma::transport
