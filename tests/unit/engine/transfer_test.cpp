// The pools of transfers and buffers.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/transfer.hpp"

#include <gtest/gtest.h>

#include <set>

namespace urdma::engine {
namespace {

TEST(TransferPool, Take_EachOnce) {
  TransferPool pool(8, 0);
  std::set<Transfer*> taken;
  while (pool.free_transfers() > 0) taken.insert(&pool.take());
  EXPECT_EQ(taken.size(), 8U);
  EXPECT_DEATH((void)pool.take(), "internal fault");
  for (Transfer* transfer : taken) pool.give_back(*transfer);
  EXPECT_EQ(pool.free_transfers(), 8U);
}

TEST(TransferPool, Take_NothingLeftOfTheLastUse) {
  TransferPool pool(1, 1);
  Transfer& transfer = pool.take();
  transfer.result = transport::MemoryResult::kFault;
  transfer.buffer = transfer.payload = pool.take_buffer();
  transfer.payload_bytes = 9;
  transfer.next = &transfer;
  pool.give_back_buffer(transfer.buffer);
  pool.give_back(transfer);
  const Transfer& again = pool.take();
  EXPECT_EQ(again.result, transport::MemoryResult::kOk);
  EXPECT_EQ(again.buffer, nullptr);
  EXPECT_EQ(again.payload, nullptr);
  EXPECT_EQ(again.frame, nullptr);
  EXPECT_EQ(again.payload_bytes, 0U);
  EXPECT_EQ(again.next, nullptr);
  EXPECT_EQ(again.qp, nullptr);
}

TEST(TransferPool, TakeBuffer_DoNotOverlap) {
  TransferPool pool(0, 3);
  std::set<std::byte*> buffers;
  while (pool.free_buffers() > 0) buffers.insert(pool.take_buffer());
  ASSERT_EQ(buffers.size(), 3U);
  for (auto at = buffers.begin(); std::next(at) != buffers.end(); ++at) {
    EXPECT_GE(*std::next(at) - *at, std::ptrdiff_t{kLocalPacketBytes});
  }
}

TEST(Transfers, AppendAndPop_InOrder) {
  Transfer a;
  Transfer b;
  Transfer* head = nullptr;
  Transfer* tail = nullptr;
  append(head, tail, a);
  append(head, tail, b);
  EXPECT_EQ(&pop(head), &a);
  EXPECT_EQ(&pop(head), &b);
  EXPECT_EQ(head, nullptr);
  append(head, tail, b);
  append(head, tail, a);
  EXPECT_EQ(&pop(head), &b);
  EXPECT_EQ(&pop(head), &a);
}

}  // namespace
}  // namespace urdma::engine
