// The ring of receive requests at hand.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/receive_queue.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace urdma::transport {
namespace {

TEST(ReceiveQueueTest, Use_ElementsOfTheMostRecentlyUsed) {
  ReceiveQueue queue(2);
  queue.push({1, 1}, std::vector<Sge>{{10, 100, MemoryKey{1}}, {20, 50, MemoryKey{1}}});
  queue.push({2, 2}, std::vector<Sge>{{30, 7, MemoryKey{1}}});
  queue.use();
  EXPECT_EQ(queue.capacity_bytes(), 150U);
  EXPECT_EQ(queue.elements().size(), 2U);
  queue.use();
  EXPECT_EQ(queue.capacity_bytes(), 7U);
  EXPECT_FALSE(queue.has_unused());
}

TEST(ReceiveQueueTest, Finish_InOrderOfUseAndPolledInThatOrder) {
  ReceiveQueue queue(1);
  for (std::uint32_t i = 0; i < 40; ++i) {
    queue.push({i, i + 1}, {});
    queue.use();
    EXPECT_FALSE(queue.has_done());
    ReceiveResult result;
    result.byte_len = i * 3;
    queue.finish(result);
    Completion completion;
    queue.pop(completion);
    EXPECT_EQ(completion.wr_id, i);
    EXPECT_EQ(completion.wqe_index, i + 1);
    EXPECT_EQ(completion.byte_len, i * 3);
    EXPECT_TRUE(completion.is_receive);
    EXPECT_FALSE(completion.is_solicited);
  }
}

TEST(ReceiveQueueTest, Finish_AlsoWhatNoMessageUses) {
  ReceiveQueue queue(1);
  queue.push({5, 1}, {});
  ReceiveResult flushed;
  flushed.status = WcStatus::kWrFlushErr;
  queue.finish(flushed);
  EXPECT_FALSE(queue.has_undone());
  EXPECT_FALSE(queue.has_unused());
  Completion completion;
  queue.pop(completion);
  EXPECT_EQ(completion.status, WcStatus::kWrFlushErr);
  EXPECT_TRUE(completion.is_solicited);
}

TEST(ReceiveQueueTest, HasRoom_SixteenWithThoseThatAreNotPolled) {
  ReceiveQueue queue(1);
  for (std::uint32_t i = 0; i < ReceiveQueue::kSlots; ++i) {
    EXPECT_TRUE(queue.has_room());
    queue.push({i, i}, {});
  }
  EXPECT_FALSE(queue.has_room());
  queue.finish({});
  EXPECT_FALSE(queue.has_room());
  Completion completion;
  queue.pop(completion);
  EXPECT_TRUE(queue.has_room());
}

}  // namespace
}  // namespace urdma::transport
