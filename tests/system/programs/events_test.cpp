// Asynchronous events of queue pairs and completion queues: each comes when it must, for the object that it
// is about, and once. Those of shared receive queues are in srq_test and xrc_test, those of ports in the
// cases of `network`, the device's in `daemon-death`.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "events.hpp"
#include "verbs_test.hpp"

namespace urdma::system_test {
namespace {

constexpr std::size_t kSize = 4096;

using Events = std::vector<Event>;

class EventsTest : public testing::Test {
 protected:
  EventsTest() : source(device, kSize), target(device, kSize) {}

  void send(const End& end, std::size_t bytes = 8) {
    ibv_sge piece = source.sge(0, bytes);
    auto request = send_request(IBV_WR_SEND, 1, {&piece, 1});
    end.post_send(request);
  }
  // A request to the target; its status.
  ibv_wc_status access(const End& end, ibv_wr_opcode opcode, std::uint32_t rkey) {
    ibv_sge piece = source.sge(0, 8);
    auto request = rdma_request(opcode, 2, {&piece, 1}, target.address(), rkey);
    end.post_send(request);
    return wait_for(end.send_cq).status;
  }
  // All that has come, once nothing comes any more.
  [[nodiscard]] Events events() const { return events_until_quiet(device.context); }

  Device device;
  Region source;
  Region target;
};

TEST_F(EventsTest, CommEst_WithTheFirstRequestInRtr) {
  End a(device, {});
  End b(device, {});
  a.connect(b.address());
  b.to_init();
  for (int i = 0; i < 2; ++i) b.post_receive(1, target.sge(0, kSize));
  b.to_rtr(a.address());
  send(a);
  wait_for_success(b.receive_cq);
  EXPECT_EQ(events(), (Events{{IBV_EVENT_COMM_EST, b.qp}}));
  send(a);
  wait_for_success(b.receive_cq);
  b.to_rts();
  EXPECT_EQ(events(), Events{}) << "it is told once";
}

TEST_F(EventsTest, CommEst_NotInRts) {
  const Link link(device);
  link.b.post_receive(1, target.sge(0, kSize));
  send(link.a);
  wait_for_success(link.b.receive_cq);
  EXPECT_EQ(events(), Events{});
}

// Ten requests are under way when the queue is to be drained: the event comes behind the last of them.
TEST_F(EventsTest, SqDrained_OnceAllIsDone) {
  const Link link(device);
  for (int i = 0; i < 10; ++i) send(link.a);  // which wait for receives
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.en_sqd_async_notify = 1;
  ASSERT_EQ(ibv_modify_qp(link.a.qp, &attributes, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  EXPECT_EQ(events(), Events{});
  for (int i = 0; i < 10; ++i) link.b.post_receive(1, target.sge(0, kSize));
  EXPECT_EQ(events(), (Events{{IBV_EVENT_SQ_DRAINED, link.a.qp}}));
  for (int i = 0; i < 10; ++i) wait_for_success(link.a.send_cq);
}

TEST_F(EventsTest, SqDrained_NotUnlessAskedFor) {
  const Link link(device);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  ASSERT_EQ(ibv_modify_qp(link.a.qp, &attributes, IBV_QP_STATE), 0);
  EXPECT_EQ(events(), Events{});
}

TEST_F(EventsTest, QpAccessErr_AtTheResponder) {
  const std::uint32_t wrong = target.registration.rkey() ^ 0x5A5A5A5A;
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    const Link link(device);
    EXPECT_EQ(access(link.a, opcode, wrong), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(events(), (Events{{IBV_EVENT_QP_ACCESS_ERR, link.b.qp}}));
    EXPECT_EQ(link.b.state(), IBV_QPS_ERR);
  }
}

// The requester has a completion that tells, and no event.
TEST_F(EventsTest, QpReqErr_AtTheResponder) {
  const Link link(device, {.access = IBV_ACCESS_LOCAL_WRITE});
  EXPECT_EQ(access(link.a, IBV_WR_RDMA_WRITE, target.registration.rkey()), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(events(), (Events{{IBV_EVENT_QP_REQ_ERR, link.b.qp}}));
  EXPECT_EQ(link.b.state(), IBV_QPS_ERR);
}

// A receive that is too short has a completion, which tells more.
TEST_F(EventsTest, QpReqErr_NotWhereACompletionTells) {
  const Link link(device);
  link.b.post_receive(1, target.sge(0, 8));
  send(link.a, 9);
  EXPECT_EQ(wait_for(link.a.send_cq).status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(wait_for(link.b.receive_cq).status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(events(), Events{});
}

// One event for the queue, and one for its queue pair.
TEST_F(EventsTest, CqErrAndQpFatal_ByAnOverrun) {
  const Link link(device, {.cq_depth = 4});
  const int depth = link.a.send_cq->cqe;
  ibv_sge piece = source.sge(0, 8);
  for (int i = 0; i <= depth; ++i) {
    auto request =
        rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, target.address(), target.registration.rkey());
    link.a.post_send(request);
  }
  EXPECT_EQ(events(), (Events{{IBV_EVENT_CQ_ERR, link.a.send_cq}, {IBV_EVENT_QP_FATAL, link.a.qp}}));
  EXPECT_EQ(link.a.state(), IBV_QPS_ERR);
}

// Events that nobody has read go with their object, and a destruction waits for those that are not
// acknowledged.
TEST_F(EventsTest, Destroyed_QueuePairLeavesNone) {
  const std::uint32_t wrong = target.registration.rkey() ^ 0x5A5A5A5A;
  {
    const Link link(device);
    EXPECT_EQ(access(link.a, IBV_WR_RDMA_WRITE, wrong), IBV_WC_REM_ACCESS_ERR);
  }
  EXPECT_EQ(events(), Events{});
}

}  // namespace
}  // namespace urdma::system_test
