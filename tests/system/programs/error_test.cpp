// What must go wrong, and with which status: access, bounds, receives that are not there, queues in ERR.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "verbs_test.hpp"

namespace urdma::system_test {
namespace {

constexpr std::size_t kSize = 65536;

class ErrorTest : public testing::Test {
 protected:
  ErrorTest() : source(device, kSize), target(device, kSize) {}

  // One RDMA request on a fresh link; returns its status. The link then is in ERR, unless it succeeds.
  ibv_wc_status status_of(ibv_wr_opcode opcode, ibv_sge piece, std::uint64_t remote, std::uint32_t rkey,
                          const QpOptions& options = {}) {
    Link link(device, options);
    auto request = rdma_request(opcode, 1, {&piece, 1}, remote, rkey);
    link.a.post_send(request);
    const ibv_wc completion = wait_for(link.a.send_cq);
    if (completion.status != IBV_WC_SUCCESS) {
      EXPECT_EQ(link.a.state(), IBV_QPS_ERR);
    }
    return completion.status;
  }

  Device device;
  Region source;
  Region target;
};

TEST_F(ErrorTest, RemoteAccess_UnknownKey) {
  const std::uint32_t wrong = target.registration.rkey() ^ 0x5A5A5A5A;
  EXPECT_EQ(status_of(IBV_WR_RDMA_WRITE, source.sge(0, 100), target.address(), wrong), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(status_of(IBV_WR_RDMA_READ, source.sge(0, 100), target.address(), wrong), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(ErrorTest, RemoteAccess_OutOfBounds) {
  const std::uint32_t rkey = target.registration.rkey();
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    EXPECT_EQ(status_of(opcode, source.sge(0, 2), target.address(kSize - 1), rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(status_of(opcode, source.sge(0, 1), target.address() - 1, rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(status_of(opcode, source.sge(0, 100), ~std::uint64_t{0} - 10, rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(status_of(opcode, source.sge(0, 1), target.address(kSize - 1), rkey), IBV_WC_SUCCESS);
  }
}

TEST_F(ErrorTest, RemoteAccess_FlagsOfTheRegion) {
  Region readable(device, kSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  Region writable(device, kSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  const auto status = [&](ibv_wr_opcode opcode, const Region& region) {
    return status_of(opcode, source.sge(0, 8), region.address(), region.registration.rkey());
  };
  EXPECT_EQ(status(IBV_WR_RDMA_WRITE, readable), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(status(IBV_WR_RDMA_READ, writable), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(status(IBV_WR_RDMA_READ, readable), IBV_WC_SUCCESS);
  EXPECT_EQ(status(IBV_WR_RDMA_WRITE, writable), IBV_WC_SUCCESS);
}

TEST_F(ErrorTest, RemoteAccess_KeysBelongToAProtectionDomain) {
  ibv_pd* other = ibv_alloc_pd(device.context);
  ASSERT_NE(other, nullptr);
  {
    Memory memory(kSize);
    Registration elsewhere(other, memory.data(), kSize);
    EXPECT_EQ(status_of(IBV_WR_RDMA_WRITE, source.sge(0, 8), reinterpret_cast<std::uint64_t>(memory.data()),
                        elsewhere.rkey()),
              IBV_WC_REM_ACCESS_ERR);
  }
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(ErrorTest, RemoteAccess_AfterDeregistration) {
  const std::uint32_t rkey = target.registration.rkey();
  target.registration.deregister();
  EXPECT_EQ(status_of(IBV_WR_RDMA_WRITE, source.sge(0, 8), target.address(), rkey), IBV_WC_REM_ACCESS_ERR);
}

// The peer's patience is the shortest that programs ask for: it must hear what is wrong before its retries
// end.
TEST_F(ErrorTest, RemoteOperation_MemoryThatIsGone) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    Link link(device, {.retry_count = 1, .timeout = 14});  // first, or its queues might take the place
    Region gone(device, kSize);
    ibv_sge piece = source.sge(0, 100);
    auto request = rdma_request(opcode, 1, {&piece, 1}, gone.address(), gone.registration.rkey());
    gone.memory.release();
    link.a.post_send(request);
    EXPECT_EQ(wait_for(link.a.send_cq).status, IBV_WC_REM_OP_ERR);
  }
}

TEST_F(ErrorTest, LocalProtection_UnknownKeyOrBounds) {
  ibv_sge wrong_key = source.sge(0, 8);
  wrong_key.lkey ^= 0x5A5A5A5A;
  const std::uint32_t rkey = target.registration.rkey();
  EXPECT_EQ(status_of(IBV_WR_RDMA_WRITE, wrong_key, target.address(), rkey), IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(status_of(IBV_WR_RDMA_WRITE, source.sge(kSize - 4, 8), target.address(), rkey),
            IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(status_of(IBV_WR_RDMA_READ, wrong_key, target.address(), rkey), IBV_WC_LOC_PROT_ERR);
}

TEST_F(ErrorTest, LocalProtection_ReadIntoARegionWithoutLocalWrite) {
  Region read_only(device, kSize, IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(status_of(IBV_WR_RDMA_READ, read_only.sge(0, 8), target.address(), target.registration.rkey()),
            IBV_WC_LOC_PROT_ERR);
}

TEST_F(ErrorTest, Receive_TooSmall) {
  Link link(device);
  link.b.post_receive(1, target.sge(0, 99));
  ibv_sge piece = source.sge(0, 100);
  auto request = send_request(IBV_WR_SEND, 1, {&piece, 1});
  link.a.post_send(request);
  EXPECT_EQ(wait_for(link.a.send_cq).status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(wait_for(link.b.receive_cq).status, IBV_WC_LOC_LEN_ERR);
}

TEST_F(ErrorTest, Atomic_MisalignedIsRefused) {
  Link link(device);
  ibv_sge piece = source.sge(0, 8);
  auto request = send_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, {&piece, 1});
  request.wr.atomic.remote_addr = target.address(4);
  request.wr.atomic.rkey = target.registration.rkey();
  link.a.post_send(request);
  EXPECT_EQ(wait_for(link.a.send_cq).status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(ErrorTest, Rnr_LateReceiveWithRetry7Succeeds) {
  Link link(device, {.rnr_retry = 7});
  ibv_sge piece = source.sge(0, 100);
  fill(source.memory.bytes(0, 100), 5);
  auto request = send_request(IBV_WR_SEND, 1, {&piece, 1});
  link.a.post_send(request);
  EXPECT_TRUE(stays_empty(link.a.send_cq, 100));
  link.b.post_receive(1, target.sge(0, 100));
  wait_for_success(link.a.send_cq);
  wait_for_success(link.b.receive_cq);
  EXPECT_EQ(first_difference(target.memory.bytes(0, 100), 5), -1);
}

TEST_F(ErrorTest, Rnr_WithoutRetryIsAnError) {
  Link link(device, {.rnr_retry = 0});
  ibv_sge piece = source.sge(0, 100);
  auto request = send_request(IBV_WR_SEND, 1, {&piece, 1});
  link.a.post_send(request);
  EXPECT_EQ(wait_for(link.a.send_cq).status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(ErrorTest, Rnr_FewRetriesTakeTheTimersTime) {
  // Code 20 is 10.24 ms: 3 retries end after 30 ms, and not at once.
  Link link(device, {.rnr_retry = 3, .min_rnr_timer = 20});
  ibv_sge piece = source.sge(0, 100);
  auto request = send_request(IBV_WR_SEND, 1, {&piece, 1});
  const auto started = std::chrono::steady_clock::now();
  link.a.post_send(request);
  EXPECT_EQ(wait_for(link.a.send_cq).status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_GT(std::chrono::steady_clock::now() - started, std::chrono::milliseconds(25));
}

TEST_F(ErrorTest, NoPeer_RetriesEnd) {
  End lonely(device, {.retry_count = 2, .timeout = 12});
  // A number that no queue pair has; nobody answers.
  lonely.connect({lonely.qp->qp_num ^ 0x555555, 1, device.gid});
  ibv_sge piece = source.sge(0, 8);
  auto request = send_request(IBV_WR_SEND, 1, {&piece, 1});
  lonely.post_send(request);
  EXPECT_EQ(wait_for(lonely.send_cq).status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(ErrorTest, Flush_InOrderWhatWasPostedBeforeAndAfter) {
  Link link(device);
  for (std::uint64_t i = 0; i < 3; ++i) link.a.post_receive(100 + i, target.sge(0, 10));
  link.a.to_error();
  ibv_sge piece = source.sge(0, 10);
  for (std::uint64_t i = 0; i < 5; ++i) {
    // Unsignalled requests complete, too, when they are flushed.
    auto request = send_request(IBV_WR_SEND, i, {&piece, 1}, i % 2 == 0 ? kSignaled : kUnsignaled);
    link.a.post_send(request);
    link.a.post_receive(103 + i, target.sge(0, 10));
  }
  for (std::uint64_t i = 0; i < 5; ++i) {
    const ibv_wc completion = wait_for(link.a.send_cq);
    EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(completion.wr_id, i);
  }
  for (std::uint64_t i = 0; i < 8; ++i) {
    const ibv_wc completion = wait_for(link.a.receive_cq);
    EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(completion.wr_id, 100 + i);
  }
}

TEST_F(ErrorTest, Flush_BehindAFailure) {
  Link link(device);
  ibv_sge piece = source.sge(0, 8);
  auto bad =
      rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, target.address(), target.registration.rkey() + 1);
  auto good = rdma_request(IBV_WR_RDMA_WRITE, 2, {&piece, 1}, target.address(), target.registration.rkey());
  bad.next = &good;
  link.a.post_send(bad);
  const ibv_wc first = wait_for(link.a.send_cq);
  const ibv_wc second = wait_for(link.a.send_cq);
  EXPECT_EQ(first.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(first.wr_id, 1U);
  EXPECT_EQ(second.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(second.wr_id, 2U);
}

TEST_F(ErrorTest, Overrun_IsACqError) {
  QpOptions options{.send_depth = 1024, .cq_depth = 16};
  Link link(device, options);
  ibv_sge piece = source.sge(0, 8);
  const int posts = link.a.send_cq->cqe + 8;
  ASSERT_LT(posts, options.send_depth);
  for (int i = 0; i < posts; ++i) {
    auto request = rdma_request(IBV_WR_RDMA_WRITE, static_cast<std::uint64_t>(i), {&piece, 1},
                                target.address(), target.registration.rkey());
    link.a.post_send(request);
  }
  EXPECT_EQ(wait_for_async_event(device), IBV_EVENT_CQ_ERR);
}

TEST_F(ErrorTest, Post_FullQueueIsEnomem) {
  Link link(device, {.send_depth = 8});
  std::array<ibv_send_wr, 4096> requests{};
  ibv_sge piece = source.sge(0, 8);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i] = send_request(IBV_WR_SEND, i, {&piece, 1});
    requests[i].next = i + 1 < requests.size() ? &requests[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(link.a.qp, requests.data(), &bad), ENOMEM);
  ASSERT_NE(bad, nullptr);
  EXPECT_GE(bad->wr_id, 8U);
}

TEST_F(ErrorTest, Post_InTheWrongState) {
  End end(device, {});
  ibv_sge piece = source.sge(0, 8);
  ibv_recv_wr receive{.wr_id = 1, .next = nullptr, .sg_list = &piece, .num_sge = 1};
  ibv_recv_wr* bad_receive = nullptr;
  EXPECT_EQ(ibv_post_recv(end.qp, &receive, &bad_receive), EINVAL);
  EXPECT_EQ(bad_receive, &receive);
  auto send = send_request(IBV_WR_SEND, 1, {&piece, 1});
  ibv_send_wr* bad_send = nullptr;
  end.to_init();
  EXPECT_EQ(ibv_post_send(end.qp, &send, &bad_send), EINVAL);
  EXPECT_EQ(bad_send, &send);
}

TEST_F(ErrorTest, Post_TooManyPiecesOrTooMuchInline) {
  Link link(device, {.sges = 1, .inline_bytes = 16});
  ibv_qp_attr attributes{};
  ibv_qp_init_attr granted{};
  ASSERT_EQ(ibv_query_qp(link.a.qp, &attributes, IBV_QP_CAP, &granted), 0);
  ASSERT_GE(granted.cap.max_inline_data, 16U);
  std::array<ibv_sge, 40> pieces{};
  pieces.fill(source.sge(0, 8));
  auto many = send_request(IBV_WR_SEND, 1, std::span(pieces).first(granted.cap.max_send_sge + 1));
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(link.a.qp, &many, &bad), EINVAL);
  ibv_sge much = source.sge(0, granted.cap.max_inline_data + 1);
  auto inlined = send_request(IBV_WR_SEND, 1, {&much, 1}, IBV_SEND_INLINE);
  EXPECT_EQ(ibv_post_send(link.a.qp, &inlined, &bad), EINVAL);
}

TEST_F(ErrorTest, CreateQp_InlineThatCannotBeHad) {
  ibv_cq* cq = ibv_create_cq(device.context, 16, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {
      .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 1U << 24};
  errno = 0;
  EXPECT_EQ(ibv_create_qp(device.pd, &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(ErrorTest, Modify_RtrNeedsAGlobalAddress) {
  End end(device, {});
  end.to_init();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = 5;
  attributes.ah_attr.port_num = 1;
  EXPECT_EQ(ibv_modify_qp(end.qp, &attributes,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            EINVAL);
}

TEST_F(ErrorTest, Modify_SkippingAStateIsRefused) {
  End end(device, {});
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  EXPECT_EQ(ibv_modify_qp(end.qp, &attributes, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(end.state(), IBV_QPS_RESET);
}

TEST_F(ErrorTest, Destroy_CqUnderAQueuePairIsBusy) {
  Link link(device);
  EXPECT_EQ(ibv_destroy_cq(link.a.send_cq), EBUSY);
}

TEST_F(ErrorTest, QueryQp_SaysWhatWasSet) {
  const QpOptions options{
      .retry_count = 5, .rnr_retry = 4, .min_rnr_timer = 9, .timeout = 16, .rd_atomic = 3};
  Link link(device, options);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  ASSERT_EQ(ibv_query_qp(link.a.qp, &attributes, (1 << 21) - 1, &initial), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attributes.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(attributes.retry_cnt, 5);
  EXPECT_EQ(attributes.rnr_retry, 4);
  EXPECT_EQ(attributes.min_rnr_timer, 9);
  EXPECT_EQ(attributes.timeout, 16);
  EXPECT_EQ(attributes.max_rd_atomic, 3);
  EXPECT_EQ(attributes.dest_qp_num, link.b.qp->qp_num);
  EXPECT_EQ(attributes.rq_psn, link.b.address().psn);
  EXPECT_EQ(initial.send_cq, link.a.send_cq);
}

}  // namespace
}  // namespace urdma::system_test
