// The congestion window.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/congestion.hpp"

#include <gtest/gtest.h>

namespace urdma::transport {
namespace {

TEST(CongestionTest, OnAcknowledged_OnePacketMoreForEachWindow) {
  CongestionControl control;
  EXPECT_EQ(control.window_packets(), 64U);
  control.on_acknowledged(63);
  EXPECT_EQ(control.window_packets(), 64U);
  control.on_acknowledged(1);
  EXPECT_EQ(control.window_packets(), 65U);
  control.on_acknowledged(65 + 66);
  EXPECT_EQ(control.window_packets(), 67U);
}

TEST(CongestionTest, OnAcknowledged_EndsAtTheMaximum) {
  CongestionControl control;
  for (int i = 0; i < 1'000; ++i) control.on_acknowledged(512);
  EXPECT_EQ(control.window_packets(), 512U);
  control.on_loss();
  EXPECT_EQ(control.window_packets(), 256U);
}

TEST(CongestionTest, OnLoss_HalvesDownToTheMinimum) {
  CongestionControl control;
  control.on_loss();
  EXPECT_EQ(control.window_packets(), 32U);
  for (int i = 0; i < 10; ++i) control.on_loss();
  EXPECT_EQ(control.window_packets(), 4U);
}

TEST(CongestionTest, Reset_StartsAnew) {
  CongestionControl control;
  control.on_acknowledged(63);
  control.on_loss();
  control.reset();
  control.on_acknowledged(1);
  EXPECT_EQ(control.window_packets(), 64U);
}

}  // namespace
}  // namespace urdma::transport
