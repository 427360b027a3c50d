// Shared receive queues: several QPs on one queue, its limit, its size, and what happens when it is empty.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <set>
#include <thread>

#include "verbs_test.hpp"

namespace urdma::system_test {
namespace {

constexpr std::size_t kSlot = 4096;  // bytes of a receive
constexpr std::uint32_t kSlots = 64;

class SharedQueue {
 public:
  SharedQueue(ibv_pd* pd, std::uint32_t max_wr, std::uint32_t max_sge = 1) {
    ibv_srq_init_attr attributes{};
    attributes.attr = {max_wr, max_sge, 0};
    srq = ibv_create_srq(pd, &attributes);
    if (srq == nullptr) fail("ibv_create_srq");
    granted = attributes.attr;
  }
  ~SharedQueue() { ibv_destroy_srq(srq); }
  SharedQueue(const SharedQueue&) = delete;
  SharedQueue& operator=(const SharedQueue&) = delete;

  [[nodiscard]] int post(std::uint64_t wr_id, ibv_sge piece) const {
    ibv_recv_wr request{};
    request.wr_id = wr_id;
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq, &request, &bad);
  }
  [[nodiscard]] int modify(int mask, std::uint32_t max_wr, std::uint32_t limit) const {
    ibv_srq_attr attributes{max_wr, 0, limit};
    return ibv_modify_srq(srq, &attributes, mask);
  }
  [[nodiscard]] ibv_srq_attr query() const {
    ibv_srq_attr attributes{};
    expect_zero(ibv_query_srq(srq, &attributes), "ibv_query_srq");
    return attributes;
  }

  ibv_srq* srq = nullptr;
  ibv_srq_attr granted{};
};

QpOptions on(const SharedQueue& queue) {
  QpOptions options;
  options.srq = queue.srq;
  return options;
}

// `a` sends, `b` receives from a shared queue.
struct SharedLink {
  SharedLink(Device& device, const SharedQueue& queue, const QpOptions& sender = {})
      : a(device, sender), b(device, on(queue)) {
    a.connect(b.address());
    b.connect(a.address());
  }
  End a;
  End b;
};

class SrqTest : public testing::Test {
 protected:
  SrqTest() : source(device, kSlots * kSlot), target(device, kSlots * kSlot) {}

  void post(const SharedQueue& queue, std::uint32_t slot, std::size_t bytes = kSlot) {
    expect_zero(queue.post(slot, target.sge(slot * kSlot, bytes)), "ibv_post_srq_recv");
  }
  void send(const End& end, std::uint32_t seed, std::size_t bytes, ibv_wr_opcode opcode = IBV_WR_SEND) {
    const std::size_t offset = seed % kSlots * kSlot;
    fill(source.memory.bytes(offset, bytes), seed);
    ibv_sge piece = source.sge(offset, bytes);
    auto request = send_request(opcode, seed, {&piece, 1});
    request.imm_data = seed;
    end.post_send(request);
  }
  // The bytes of receive `slot` are the pattern of `seed`.
  void check(std::uint64_t slot, std::uint32_t seed, std::size_t bytes) const {
    EXPECT_EQ(first_difference(target.memory.bytes(slot * kSlot, bytes), seed), -1) << "message " << seed;
  }
  // No asynchronous event stands in the queue.
  [[nodiscard]] bool is_quiet() const {
    pollfd waiting{device.context->async_fd, POLLIN, 0};
    return ::poll(&waiting, 1, 100) == 0;
  }

  Device device;
  Region source;
  Region target;
};

TEST_F(SrqTest, Limits_AreWhatTheDeviceSays) {
  ASSERT_GT(device.limits.max_srq, 0);
  const auto most = static_cast<std::uint32_t>(device.limits.max_srq_wr);
  const SharedQueue queue(device.pd, most, static_cast<std::uint32_t>(device.limits.max_srq_sge));
  EXPECT_GE(queue.granted.max_wr, most);
  ibv_srq_init_attr attributes{};
  attributes.attr = {most + 1, 1, 0};
  errno = 0;
  EXPECT_EQ(ibv_create_srq(device.pd, &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(SrqTest, Post_AsManyAsGrantedAndNoMore) {
  const SharedQueue queue(device.pd, 8);
  for (std::uint32_t i = 0; i < queue.granted.max_wr; ++i) EXPECT_EQ(queue.post(i, target.sge(0, 8)), 0);
  EXPECT_EQ(queue.post(0, target.sge(0, 8)), ENOMEM);
}

TEST_F(SrqTest, Destroy_IsRefusedWhileUsed) {
  const SharedQueue queue(device.pd, 8);
  {
    const SharedLink link(device, queue);
    EXPECT_EQ(ibv_destroy_srq(queue.srq), EBUSY);
  }
  EXPECT_EQ(queue.post(1, target.sge(0, 8)), 0) << "it is still there";
}

TEST_F(SrqTest, Receive_OnTheQpItselfIsRefused) {
  const SharedQueue queue(device.pd, 8);
  const SharedLink link(device, queue);
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(link.b.qp, &request, &bad), EINVAL);
  EXPECT_EQ(bad, &request);
}

TEST_F(SrqTest, SeveralQps_ShareTheRequests) {
  const SharedQueue queue(device.pd, kSlots);
  std::array<SharedLink, 4> links = {SharedLink(device, queue), SharedLink(device, queue),
                                     SharedLink(device, queue), SharedLink(device, queue)};
  for (std::uint32_t round = 0; round < 50; ++round) {
    for (std::uint32_t i = 0; i < 8; ++i) post(queue, i);
    for (std::uint32_t i = 0; i < 8; ++i)
      send(links[i % 4].a, round * 8 + i, 1000 + 3 * i, IBV_WR_SEND_WITH_IMM);
    std::set<std::uint64_t> used;
    for (std::uint32_t i = 0; i < 8; ++i) {
      const ibv_wc received = wait_for_success(links[i % 4].b.receive_cq);
      EXPECT_EQ(received.qp_num, links[i % 4].b.qp->qp_num);
      EXPECT_EQ(received.opcode, IBV_WC_RECV);
      EXPECT_EQ(received.imm_data, round * 8 + i);
      EXPECT_EQ(received.byte_len, 1000 + 3 * i);
      EXPECT_TRUE(used.insert(received.wr_id).second) << "a request is used once";
      check(received.wr_id, round * 8 + i, 1000 + 3 * i);
      (void)wait_for_success(links[i % 4].a.send_cq);
    }
  }
}

TEST_F(SrqTest, AQpAtRest_KeepsNoRequestFromTheOthers) {
  const SharedQueue queue(device.pd, 8);
  const SharedLink resting(device, queue);
  const SharedLink working(device, queue);
  for (std::uint32_t i = 0; i < 40; ++i) {
    post(queue, 0);
    send(working.a, i, 100);
    (void)wait_for_success(working.b.receive_cq);
    check(0, i, 100);
    (void)wait_for_success(working.a.send_cq);
  }
  post(queue, 1);
  send(resting.a, 99, 100);
  EXPECT_EQ(wait_for_success(resting.b.receive_cq).wr_id, 1U);
  check(1, 99, 100);
}

TEST_F(SrqTest, WritesWithoutImmediate_UseNoRequest) {
  const SharedQueue queue(device.pd, 8);
  const SharedLink link(device, queue);
  post(queue, 3);
  for (std::uint32_t i = 0; i < 20; ++i) {
    ibv_sge piece = source.sge(0, 64);
    auto request =
        rdma_request(IBV_WR_RDMA_WRITE, i, {&piece, 1}, target.address(kSlot), target.registration.rkey());
    link.a.post_send(request);
    (void)wait_for_success(link.a.send_cq);
  }
  ibv_sge piece = source.sge(0, 64);
  auto request = rdma_request(IBV_WR_RDMA_WRITE_WITH_IMM, 1, {&piece, 1}, target.address(kSlot),
                              target.registration.rkey());
  link.a.post_send(request);
  const ibv_wc received = wait_for_success(link.b.receive_cq);
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.wr_id, 3U);
}

TEST_F(SrqTest, AnEmptyQueue_IsWaitedFor) {
  const SharedQueue queue(device.pd, 8);
  const SharedLink link(device, queue);
  send(link.a, 5, 3000);
  EXPECT_TRUE(stays_empty(link.a.send_cq, 50));
  post(queue, 2);
  EXPECT_EQ(wait_for_success(link.b.receive_cq).wr_id, 2U);
  (void)wait_for_success(link.a.send_cq);
  check(2, 5, 3000);
}

TEST_F(SrqTest, AnEmptyQueue_EndsASenderWithoutPatience) {
  const SharedQueue queue(device.pd, 8);
  QpOptions impatient;
  impatient.rnr_retry = 1;
  const SharedLink link(device, queue, impatient);
  send(link.a, 5, 100);
  EXPECT_EQ(wait_for(link.a.send_cq).status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(SrqTest, Limit_IsToldOnce) {
  const SharedQueue queue(device.pd, kSlots);
  const SharedLink link(device, queue);
  for (std::uint32_t i = 0; i < 10; ++i) post(queue, i);
  ASSERT_EQ(queue.modify(IBV_SRQ_LIMIT, 0, 5), 0);
  EXPECT_EQ(queue.query().srq_limit, 5U);
  const auto receive_one = [&](std::uint32_t seed) {
    send(link.a, seed, 100);
    (void)wait_for_success(link.b.receive_cq);
    (void)wait_for_success(link.a.send_cq);
  };
  for (std::uint32_t i = 0; i < 5; ++i) receive_one(i);
  EXPECT_TRUE(is_quiet()) << "five are left, which is not below the limit";
  receive_one(5);
  EXPECT_EQ(wait_for_async_event(device), IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(queue.query().srq_limit, 0U);
  receive_one(6);
  EXPECT_TRUE(is_quiet()) << "it was armed once";
  ASSERT_EQ(queue.modify(IBV_SRQ_LIMIT, 0, 3), 0);
  receive_one(7);
  EXPECT_EQ(wait_for_async_event(device), IBV_EVENT_SRQ_LIMIT_REACHED);
}

TEST_F(SrqTest, Limit_AboveTheQueueIsRefused) {
  const SharedQueue queue(device.pd, 16);
  EXPECT_EQ(queue.modify(IBV_SRQ_LIMIT, 0, 17), EINVAL);
  EXPECT_EQ(queue.query().srq_limit, 0U);
}

TEST_F(SrqTest, Resize_WhileMessagesCome) {
  SharedQueue queue(device.pd, 16);
  const SharedLink link(device, queue);
  constexpr std::uint32_t kMessages = 2000;
  std::thread sender([&] {
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      send(link.a, i, 64);
      (void)wait_for_success(link.a.send_cq);
    }
  });
  std::uint32_t posted = 0;
  for (std::uint32_t received = 0; received < kMessages; ++received) {
    while (posted < received + 8) post(queue, posted++ % kSlots);
    if (received % 50 == 0) {
      EXPECT_EQ(queue.modify(IBV_SRQ_MAX_WR, received % 100 == 0 ? 64 : 16, 0), 0);
    }
    const ibv_wc completion = wait_for_success(link.b.receive_cq);
    ASSERT_EQ(completion.wr_id, received % kSlots) << "requests are used in order, each once";
    check(completion.wr_id, received, 64);
  }
  sender.join();
}

TEST_F(SrqTest, Resize_BelowWhatIsPostedIsRefused) {
  const SharedQueue queue(device.pd, 16);
  for (std::uint32_t i = 0; i < 10; ++i) post(queue, i);
  EXPECT_EQ(queue.modify(IBV_SRQ_MAX_WR, 4, 0), EINVAL);
  EXPECT_EQ(queue.query().max_wr, 16U);
  EXPECT_EQ(queue.modify(IBV_SRQ_MAX_WR, 1U << 30, 0), EINVAL);
}

TEST_F(SrqTest, LastWqeReached_IsToldOnce) {
  const SharedQueue queue(device.pd, 16);
  SharedLink link(device, queue);
  for (std::uint32_t i = 0; i < 4; ++i) post(queue, i);
  send(link.a, 0, 100);
  (void)wait_for_success(link.b.receive_cq);
  (void)wait_for_success(link.a.send_cq);
  link.b.to_error();
  ibv_event_type event = wait_for_async_event(device);
  if (event == IBV_EVENT_COMM_EST) event = wait_for_async_event(device);
  EXPECT_EQ(event, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_TRUE(is_quiet());
  EXPECT_TRUE(stays_empty(link.b.receive_cq, 50)) << "requests of the queue are not flushed";
  const SharedLink other(device, queue);
  send(other.a, 7, 100);
  EXPECT_EQ(wait_for_success(other.b.receive_cq).wr_id, 1U) << "others use them";
}

TEST_F(SrqTest, Keys_AreThoseOfTheQueuesProtectionDomain) {
  ibv_pd* other = ibv_alloc_pd(device.context);
  ASSERT_NE(other, nullptr);
  {
    Memory memory(kSlot);
    const Registration registration(other, memory.data(), kSlot);
    const SharedQueue queue(other, 8);
    const SharedLink link(device, queue);
    expect_zero(queue.post(1, {reinterpret_cast<std::uint64_t>(memory.data()), kSlot, registration.lkey()}),
                "ibv_post_srq_recv");
    send(link.a, 3, 200);
    (void)wait_for_success(link.b.receive_cq);
    EXPECT_EQ(first_difference(memory.bytes(0, 200), 3), -1);
    expect_zero(queue.post(2, target.sge(0, kSlot)), "ibv_post_srq_recv");  // a key of the QP's own domain
    send(link.a, 4, 200);
    EXPECT_EQ(wait_for(link.b.receive_cq).status, IBV_WC_LOC_PROT_ERR);
  }
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

}  // namespace
}  // namespace urdma::system_test
