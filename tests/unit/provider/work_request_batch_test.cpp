// Requests by ibv_wr_*, through a QP, against a fake engine.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/queue/work_request_batch.hpp"

#include <arpa/inet.h>

#include <cerrno>

#include "tests/unit/provider/fake_engine.hpp"

namespace urdma::provider::testing {
namespace {

class WorkRequestBatchTest : public ::testing::Test {
 protected:
  ibv_qp_ex call(std::uint64_t wr_id, unsigned flags = 0) {
    ibv_qp_ex qp{};
    qp.wr_id = wr_id;
    qp.wr_flags = flags;
    return qp;
  }
  std::uint32_t published() { return qp_.page().send_producer.load(); }

  FakeEngine engine_;
  FakeCq cq_{engine_, 16};
  FakeQp qp_{engine_, cq_, cq_};
};

TEST_F(WorkRequestBatchTest, Complete_PublishesAllAtOnce) {
  WorkRequestBatch& batch = qp_.queue->start_batch();
  const ibv_sge elements[2] = {{0x1000, 10, 0xA}, {0x2000, 20, 0xB}};
  batch.write_with_immediate(call(5, IBV_SEND_SIGNALED), 0x55, 0xABCDEF, htonl(0x11223344));
  batch.set_elements(elements);
  batch.atomic(call(6), WrOpcode::kCompareSwap, 0x56, 0x10, 3, 4);
  batch.set_elements({elements, 1});
  EXPECT_EQ(published(), 0U);
  ASSERT_EQ(qp_.queue->complete_batch(), 0);
  EXPECT_EQ(published(), 2U);
  const abi::SendWqe write = qp_.send_wqe(0);
  EXPECT_EQ(write.opcode, static_cast<std::uint8_t>(WrOpcode::kRdmaWriteWithImm));
  EXPECT_EQ(write.flags, kSendSignaled);
  EXPECT_EQ(write.wr_id, 5U);
  EXPECT_EQ(write.rkey, 0x55U);
  EXPECT_EQ(write.remote_address, 0xABCDEFU);
  EXPECT_EQ(write.immediate, 0x11223344U);
  EXPECT_EQ(write.num_sge, 2);
  EXPECT_EQ(std::memcmp(qp_.send_payload(0), elements, sizeof(elements)), 0);
  const abi::SendWqe atomic = qp_.send_wqe(1);
  EXPECT_EQ(atomic.compare_add, 3U);
  EXPECT_EQ(atomic.swap, 4U);
  EXPECT_EQ(atomic.num_sge, 1);
}

TEST_F(WorkRequestBatchTest, SetInline_GathersBuffers) {
  char first[] = "hello ";
  char second[] = "world";
  const ibv_data_buf buffers[2] = {{first, 6}, {second, 5}};
  WorkRequestBatch& batch = qp_.queue->start_batch();
  batch.send(call(1));
  batch.set_inline(buffers);
  ASSERT_EQ(qp_.queue->complete_batch(), 0);
  EXPECT_EQ(qp_.send_wqe(0).flags, kSendInline);
  EXPECT_EQ(qp_.send_wqe(0).inline_bytes, 11U);
  EXPECT_EQ(std::memcmp(qp_.send_payload(0), "hello world", 11), 0);
}

TEST_F(WorkRequestBatchTest, AtomicWrite_TakesItsOperandAlong) {
  const std::uint64_t operand = 0x1122334455667788;
  WorkRequestBatch& batch = qp_.queue->start_batch();
  batch.atomic_write(call(1), 0x55, 0x1000, &operand);
  ASSERT_EQ(qp_.queue->complete_batch(), 0);
  EXPECT_EQ(qp_.send_wqe(0).inline_bytes, sizeof(operand));
  EXPECT_EQ(std::memcmp(qp_.send_payload(0), &operand, sizeof(operand)), 0);
}

TEST_F(WorkRequestBatchTest, Complete_TellsTheFirstErrorAndLeavesNothing) {
  ASSERT_EQ(post(*qp_.queue, send_request(1)), 0);
  const ibv_sge elements[3] = {};
  WorkRequestBatch& batch = qp_.queue->start_batch();
  batch.send(call(2));
  batch.set_elements(elements);  // two are allowed
  for (int i = 0; i < 8; ++i) batch.send(call(3));
  EXPECT_EQ(qp_.queue->complete_batch(), EINVAL);
  EXPECT_EQ(published(), 1U);
  qp_.queue->start_batch();
  for (int i = 0; i < 4; ++i) batch.send(call(4));
  EXPECT_EQ(qp_.queue->complete_batch(), ENOMEM) << "one slot of four was taken";
  EXPECT_EQ(published(), 1U);
  qp_.queue->start_batch();
  for (std::uint64_t i = 0; i < 3; ++i) batch.send(call(5 + i));
  EXPECT_EQ(qp_.queue->complete_batch(), 0);
  EXPECT_EQ(published(), 4U);
  EXPECT_EQ(qp_.send_wqe(1).wr_id, 5U);
}

TEST_F(WorkRequestBatchTest, Start_RefusesAWrongState) {
  qp_.queue->set_state(QpState::kReset);
  qp_.queue->start_batch().send(call(1));
  EXPECT_EQ(qp_.queue->complete_batch(), EINVAL);
  EXPECT_EQ(published(), 0U);
}

TEST_F(WorkRequestBatchTest, Abort_TakesBackRequestsAndWindowKeys) {
  ibv_mr region{};
  MemoryWindow window{};
  window.latest_key = 0x100;
  WorkRequestBatch& batch = qp_.queue->start_batch();
  batch.bind(call(1), &window, 0x101, {&region, 0x1000, 16, 0});
  batch.bind(call(2), &window, 0x102, {&region, 0x1000, 16, 0});
  EXPECT_EQ(window.latest_key, 0x102U);
  qp_.queue->abort_batch();
  EXPECT_EQ(window.latest_key, 0x100U);
  EXPECT_EQ(published(), 0U);
  ASSERT_EQ(post(*qp_.queue, send_request(9)), 0) << "the lock has been given back";
  EXPECT_EQ(qp_.send_wqe(0).wr_id, 9U);
}

TEST_F(WorkRequestBatchTest, Begin_RefusesWhatTheQpDoesNotCarry) {
  FakeQp datagrams(engine_, cq_, cq_, {.type = QpType::kUd}, 4);
  ibv_ah address{};
  address.handle = 7;
  WorkRequestBatch& batch = datagrams.queue->start_batch();
  batch.send(call(1));
  batch.set_destination(&address, 0x123, 0x456);
  EXPECT_EQ(datagrams.queue->complete_batch(), 0);
  EXPECT_EQ(datagrams.send_wqe(0).address_handle, 7U);
  datagrams.queue->start_batch().remote_access(call(2), WrOpcode::kRdmaRead, 1, 2);
  EXPECT_EQ(datagrams.queue->complete_batch(), EINVAL);
}

}  // namespace
}  // namespace urdma::provider::testing
