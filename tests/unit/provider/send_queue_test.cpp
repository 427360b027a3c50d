// The send ring against a fake engine.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/queue/send_queue.hpp"

#include <arpa/inet.h>

#include <cerrno>
#include <vector>

#include "provider/queue/memory_window.hpp"
#include "tests/unit/provider/fake_engine.hpp"

namespace urdma::provider::testing {
namespace {

class SendQueueTest : public ::testing::Test {
 protected:
  FakeEngine engine_;
  FakeCq cq_{engine_, 16};
  FakeQp qp_{engine_, cq_, cq_};
};

TEST_F(SendQueueTest, Post_WritesWqeThenElements) {
  ibv_sge elements[2] = {{0x1000, 10, 0xA}, {0x2000, 20, 0xB}};
  ibv_send_wr request = send_request(77);
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.send_flags = IBV_SEND_FENCE | IBV_SEND_SOLICITED;
  request.imm_data = htonl(0x11223344);
  request.sg_list = elements;
  request.num_sge = 2;
  request.wr.rdma.remote_addr = 0xABCDEF;
  request.wr.rdma.rkey = 0x55;
  ASSERT_EQ(post(*qp_.queue, request), 0);
  EXPECT_EQ(qp_.page().send_producer.load(), 1U);
  const abi::SendWqe wqe = qp_.send_wqe(0);
  EXPECT_EQ(wqe.opcode, static_cast<std::uint8_t>(WrOpcode::kRdmaWriteWithImm));
  EXPECT_EQ(wqe.flags, kSendFence | kSendSolicited);
  EXPECT_EQ(wqe.num_sge, 2);
  EXPECT_EQ(wqe.immediate, 0x11223344U);
  EXPECT_EQ(wqe.wr_id, 77U);
  EXPECT_EQ(wqe.remote_address, 0xABCDEFU);
  EXPECT_EQ(wqe.rkey, 0x55U);
  EXPECT_EQ(std::memcmp(qp_.send_payload(0), elements, sizeof(elements)), 0);
}

TEST_F(SendQueueTest, Post_WritesAtomicOperands) {
  ibv_send_wr request = send_request(1);
  request.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  request.wr.atomic.remote_addr = 0x1230;
  request.wr.atomic.compare_add = 3;
  request.wr.atomic.swap = 4;
  request.wr.atomic.rkey = 5;
  ASSERT_EQ(post(*qp_.queue, request), 0);
  const abi::SendWqe wqe = qp_.send_wqe(0);
  EXPECT_EQ(wqe.remote_address, 0x1230U);
  EXPECT_EQ(wqe.compare_add, 3U);
  EXPECT_EQ(wqe.swap, 4U);
  EXPECT_EQ(wqe.rkey, 5U);
}

TEST_F(SendQueueTest, Post_CopiesInlineDataAndFreesTheBuffer) {
  char first[] = "hello ";
  char second[] = "world";
  ibv_sge elements[2] = {{reinterpret_cast<std::uintptr_t>(first), 6, 0xDEAD},
                         {reinterpret_cast<std::uintptr_t>(second), 5, 0xBEEF}};
  ibv_send_wr request = send_request(1);
  request.send_flags |= IBV_SEND_INLINE;
  request.sg_list = elements;
  request.num_sge = 2;
  ASSERT_EQ(post(*qp_.queue, request), 0);
  std::memset(first, 'x', sizeof(first));
  EXPECT_EQ(qp_.send_wqe(0).inline_bytes, 11U);
  EXPECT_EQ(std::memcmp(qp_.send_payload(0), "hello world", 11), 0);
}

TEST_F(SendQueueTest, Post_RefusesWhatTheCapsDoNotAllow) {
  std::vector<char> data(65);
  ibv_sge elements[3] = {{reinterpret_cast<std::uintptr_t>(data.data()), 65, 0}, {}, {}};
  ibv_send_wr request = send_request(1);
  request.sg_list = elements;
  request.num_sge = 1;
  request.send_flags = IBV_SEND_INLINE;
  EXPECT_EQ(post(*qp_.queue, request), EINVAL) << "65 bytes inline of 64";
  elements[0].length = 64;
  EXPECT_EQ(post(*qp_.queue, request), 0);
  request.opcode = IBV_WR_RDMA_READ;
  EXPECT_EQ(post(*qp_.queue, request), EINVAL) << "a READ has nothing to send inline";
  request = send_request(1);
  request.sg_list = elements;
  request.num_sge = 3;
  EXPECT_EQ(post(*qp_.queue, request), EINVAL) << "3 elements of 2";
  request.num_sge = -1;
  EXPECT_EQ(post(*qp_.queue, request), EINVAL);
}

TEST_F(SendQueueTest, Post_RefusesOpcodesAndFlagsThatTheDeviceLacks) {
  ibv_send_wr request = send_request(1);
  for (const int opcode : {static_cast<int>(IBV_WR_TSO), 99, 0x102}) {
    request.opcode = static_cast<ibv_wr_opcode>(opcode);
    EXPECT_EQ(post(*qp_.queue, request), EINVAL) << opcode;
  }
  request = send_request(1);
  request.send_flags = IBV_SEND_IP_CSUM;
  EXPECT_EQ(post(*qp_.queue, request), EINVAL);
  EXPECT_EQ(qp_.page().send_producer.load(), 0U);
}

TEST_F(SendQueueTest, Post_KnowsWhatADatagramCarries) {
  FakeQp datagrams(engine_, cq_, cq_, {.type = QpType::kUd}, 4);
  ibv_ah address{};
  address.handle = 7;
  ibv_send_wr request = send_request(1);
  EXPECT_EQ(post(*datagrams.queue, request), EINVAL) << "without an address";
  request.wr.ud = {&address, 0x123, 0x11111111};
  ASSERT_EQ(post(*datagrams.queue, request), 0);
  const abi::SendWqe wqe = datagrams.send_wqe(0);
  EXPECT_EQ(wqe.address_handle, 7U);
  EXPECT_EQ(wqe.remote_qpn, 0x123U);
  EXPECT_EQ(wqe.remote_qkey, 0x11111111U);
  request.opcode = IBV_WR_RDMA_WRITE;
  EXPECT_EQ(post(*datagrams.queue, request), EINVAL);
}

TEST_F(SendQueueTest, Post_NamesTheSharedReceiveQueueOfXrc) {
  FakeQp xrc(engine_, cq_, cq_, {.type = QpType::kXrcSend}, 4);
  ibv_send_wr request = send_request(1);
  request.qp_type.xrc.remote_srqn = 0x4711;
  ASSERT_EQ(post(*xrc.queue, request), 0);
  EXPECT_EQ(xrc.send_wqe(0).remote_qpn, 0x4711U);
}

TEST_F(SendQueueTest, Post_InvalidatesByKey) {
  ibv_send_wr request = send_request(1);
  request.opcode = IBV_WR_SEND_WITH_INV;
  request.invalidate_rkey = 0xABCD;
  ASSERT_EQ(post(*qp_.queue, request), 0);
  EXPECT_EQ(qp_.send_wqe(0).immediate, 0xABCDU);
  ibv_sge ignored{0x1000, 10, 0xA};
  request.opcode = IBV_WR_LOCAL_INV;
  request.sg_list = &ignored;
  request.num_sge = 1;
  ASSERT_EQ(post(*qp_.queue, request), 0);
  EXPECT_EQ(qp_.send_wqe(1).immediate, 0xABCDU);
  EXPECT_EQ(qp_.send_wqe(1).num_sge, 0);
}

TEST_F(SendQueueTest, Post_BindsAWindowAndThenUnbindsIt) {
  ibv_mr region{};
  region.lkey = 0xA;
  MemoryWindow window{};
  window.latest_key = 0x100;
  ibv_send_wr request = send_request(1);
  request.opcode = IBV_WR_BIND_MW;
  request.bind_mw = {&window, 0x101, {&region, 0x5000, 0x800, IBV_ACCESS_REMOTE_WRITE}};
  ASSERT_EQ(post(*qp_.queue, request), 0);
  abi::SendWqe wqe = qp_.send_wqe(0);
  EXPECT_EQ(wqe.rkey, 0x100U);
  EXPECT_EQ(wqe.immediate, 0x101U);
  EXPECT_EQ(wqe.remote_address, 0x5000U);
  EXPECT_EQ(wqe.compare_add, 0x800U);
  EXPECT_EQ(wqe.remote_qkey, static_cast<std::uint32_t>(IBV_ACCESS_REMOTE_WRITE));
  ASSERT_EQ(wqe.num_sge, 1);
  abi::Sge element;
  std::memcpy(&element, qp_.send_payload(0), sizeof(element));
  EXPECT_EQ(element.lkey, 0xAU);

  request.bind_mw = {&window, 0x102, {}};
  ASSERT_EQ(post(*qp_.queue, request), 0);
  wqe = qp_.send_wqe(1);
  EXPECT_EQ(wqe.rkey, 0x101U) << "the key of the bind before";
  EXPECT_EQ(wqe.num_sge, 0);
  request.bind_mw.mw = nullptr;
  EXPECT_EQ(post(*qp_.queue, request), EINVAL);
}

TEST_F(SendQueueTest, Post_IsFullUntilACompletionIsPolled) {
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(post(*qp_.queue, send_request(id)), 0);
  EXPECT_EQ(post(*qp_.queue, send_request(4)), ENOMEM);
  ASSERT_TRUE(cq_.push(*qp_.queue, 1, false, 2));
  EXPECT_EQ(post(*qp_.queue, send_request(4)), ENOMEM) << "the completion has not been polled yet";
  ibv_wc completion;
  ASSERT_TRUE(poll_one(cq_, completion));
  // One completion frees the unsignalled request before it as well.
  EXPECT_EQ(post(*qp_.queue, send_request(4)), 0);
  EXPECT_EQ(post(*qp_.queue, send_request(5)), 0);
  EXPECT_EQ(post(*qp_.queue, send_request(6)), ENOMEM);
}

TEST_F(SendQueueTest, Post_WrapsAroundManyTimes) {
  for (std::uint32_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(post(*qp_.queue, send_request(i)), 0);
    ASSERT_EQ(qp_.send_wqe(i).wr_id, i);
    ASSERT_TRUE(cq_.push(*qp_.queue, i, false, i + 1));
    ibv_wc completion;
    ASSERT_TRUE(poll_one(cq_, completion));
    ASSERT_EQ(completion.wr_id, i);
  }
}

TEST_F(SendQueueTest, Release_IgnoresAnIndexThatCannotBe) {
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(post(*qp_.queue, send_request(id)), 0);
  ASSERT_TRUE(cq_.push(*qp_.queue, 0, false, 400));
  ibv_wc completion;
  ASSERT_TRUE(poll_one(cq_, completion));
  EXPECT_EQ(post(*qp_.queue, send_request(4)), ENOMEM);
}

}  // namespace
}  // namespace urdma::provider::testing
