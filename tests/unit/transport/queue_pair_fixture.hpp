// Two connected queue pairs, and what tests of a queue pair as a whole expect of both.
//
// Owner: one test. One thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include "fixture.hpp"

namespace urdma::transport {

class QueuePairTest : public ConnectedTest {
 protected:
  // Exactly one completion of each node, both successful.
  void expect_one_each(std::uint64_t sent, std::uint64_t received, std::uint32_t byte_len) {
    const auto of_a = a->completions();
    const auto of_b = b->completions();
    ASSERT_EQ(of_a.size(), 1U);
    ASSERT_EQ(of_b.size(), 1U);
    EXPECT_EQ(of_a[0].wr_id, sent);
    EXPECT_EQ(of_a[0].status, WcStatus::kSuccess);
    EXPECT_EQ(of_b[0].wr_id, received);
    EXPECT_EQ(of_b[0].status, WcStatus::kSuccess);
    EXPECT_EQ(of_b[0].byte_len, byte_len);
    EXPECT_TRUE(of_b[0].is_receive);
  }
};

}  // namespace urdma::transport
