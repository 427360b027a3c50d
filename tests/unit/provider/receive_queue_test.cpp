// The receive ring against a fake engine.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/queue/receive_queue.hpp"

#include <cerrno>

#include "tests/unit/provider/fake_engine.hpp"

namespace urdma::provider::testing {
namespace {

class ReceiveQueueTest : public ::testing::Test {
 protected:
  FakeEngine engine_;
  FakeCq cq_{engine_, 16};
  FakeQp qp_{engine_, cq_, cq_};
};

TEST_F(ReceiveQueueTest, Post_WritesWqeThenElements) {
  ibv_sge elements[2] = {{0x1000, 10, 0xA}, {0x2000, 20, 0xB}};
  ibv_recv_wr request = receive_request(9);
  request.sg_list = elements;
  request.num_sge = 2;
  ASSERT_EQ(post(*qp_.queue, request), 0);
  EXPECT_EQ(qp_.page().receive_producer.load(), 1U);
  abi::ReceiveWqe wqe;
  std::memcpy(&wqe, qp_.receive_slot(0), sizeof(wqe));
  EXPECT_EQ(wqe.wr_id, 9U);
  EXPECT_EQ(wqe.num_sge, 2U);
  EXPECT_EQ(std::memcmp(qp_.receive_slot(0) + sizeof(wqe), elements, sizeof(elements)), 0);
}

TEST_F(ReceiveQueueTest, Post_RefusesTooManyElements) {
  ibv_sge elements[3] = {};
  ibv_recv_wr request = receive_request(9);
  request.sg_list = elements;
  request.num_sge = 3;
  EXPECT_EQ(post(*qp_.queue, request), EINVAL);
}

TEST_F(ReceiveQueueTest, Post_IsFullUntilACompletionIsPolled) {
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(post(*qp_.queue, receive_request(id)), 0);
  EXPECT_EQ(post(*qp_.queue, receive_request(4)), ENOMEM);
  ASSERT_TRUE(cq_.push(*qp_.queue, 0, true, 1));
  ibv_wc completion;
  ASSERT_TRUE(poll_one(cq_, completion));
  EXPECT_EQ(post(*qp_.queue, receive_request(4)), 0);
  EXPECT_EQ(post(*qp_.queue, receive_request(5)), ENOMEM);
}

}  // namespace
}  // namespace urdma::provider::testing
