// What a responder owes, in order.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/settlement.hpp"

#include <gtest/gtest.h>

namespace urdma::transport {
namespace {

TEST(SettlementTest, Pop_InOrderAcrossTheRing) {
  SettlementQueue queue;
  std::uint32_t popped = 0;
  for (std::uint32_t i = 0; i < 500; ++i) {
    Settlement settlement;
    settlement.psn = Psn{i};
    queue.push(settlement);
    if (queue.has_room()) continue;
    EXPECT_EQ(queue.size(), SettlementQueue::kSlots);
    EXPECT_EQ(queue.pop().psn, Psn{popped++});
  }
  queue.clear();
  EXPECT_TRUE(queue.is_empty());
}

}  // namespace
}  // namespace urdma::transport
