// Posting to a QP: states, lists, doorbells, threads.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/queue/queue_pair.hpp"

#include <cerrno>
#include <set>
#include <thread>
#include <vector>

#include "tests/unit/provider/fake_engine.hpp"

namespace urdma::provider::testing {
namespace {

class QueuePairTest : public ::testing::Test {
 protected:
  FakeEngine engine_;
  FakeCq cq_{engine_, 64};
  FakeQp qp_{engine_, cq_, cq_};
};

TEST_F(QueuePairTest, PostSend_DependsOnState) {
  for (const QpState state : {QpState::kReset, QpState::kInit, QpState::kRtr}) {
    qp_.queue->set_state(state);
    EXPECT_EQ(post(*qp_.queue, send_request(1)), EINVAL) << static_cast<int>(state);
  }
  for (const QpState state : {QpState::kRts, QpState::kSqd, QpState::kSqe, QpState::kErr}) {
    qp_.queue->set_state(state);
    EXPECT_EQ(post(*qp_.queue, send_request(1)), 0) << static_cast<int>(state);
  }
}

TEST_F(QueuePairTest, PostReceive_DependsOnState) {
  qp_.queue->set_state(QpState::kReset);
  EXPECT_EQ(post(*qp_.queue, receive_request(1)), EINVAL);
  for (const QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts, QpState::kErr}) {
    qp_.queue->set_state(state);
    EXPECT_EQ(post(*qp_.queue, receive_request(1)), 0) << static_cast<int>(state);
  }
}

TEST_F(QueuePairTest, PostSend_StopsAtTheFirstFailureAndKeepsThoseBefore) {
  ibv_send_wr list[3] = {send_request(1), send_request(2), send_request(3)};
  list[0].next = &list[1];
  list[1].next = &list[2];
  list[1].opcode = IBV_WR_TSO;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(qp_.queue->post_send(list, &bad), EINVAL);
  EXPECT_EQ(bad, &list[1]);
  EXPECT_EQ(qp_.page().send_producer.load(), 1U);
  EXPECT_EQ(engine_.take_doorbells(), 1U << 3) << "the first one is to be carried out";
}

TEST_F(QueuePairTest, PostSend_NamesTheFirstRequestInAWrongState) {
  qp_.queue->set_state(QpState::kInit);
  ibv_send_wr request = send_request(1);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(qp_.queue->post_send(&request, &bad), EINVAL);
  EXPECT_EQ(bad, &request);
}

TEST_F(QueuePairTest, PostSend_WakesTheEngineOnceAListWhileItSleeps) {
  ibv_send_wr list[2] = {send_request(1), send_request(2)};
  list[0].next = &list[1];
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(qp_.queue->post_send(list, &bad), 0);
  EXPECT_EQ(engine_.take_wakes(), 0U);
  engine_.engine_page.engines[0].sleeping = 1;
  ASSERT_EQ(qp_.queue->post_send(list, &bad), 0);
  EXPECT_EQ(engine_.take_wakes(), 1U);
  EXPECT_EQ(engine_.take_doorbells(), 1U << 3);
}

TEST_F(QueuePairTest, PostReceive_RingsOnlyWhenReceivesAreFlushed) {
  ASSERT_EQ(post(*qp_.queue, receive_request(1)), 0);
  EXPECT_EQ(engine_.take_doorbells(), 0U);
  qp_.page().flush_receives = 1;
  ASSERT_EQ(post(*qp_.queue, receive_request(2)), 0);
  EXPECT_EQ(engine_.take_doorbells(), 1U << 3);
}

TEST_F(QueuePairTest, Reset_BeginsAtSlotZeroWithAllSlotsFree) {
  for (std::uint64_t id = 0; id < 3; ++id) ASSERT_EQ(post(*qp_.queue, send_request(id)), 0);
  qp_.queue->reset();
  EXPECT_EQ(qp_.page().send_producer.load(), 0U);
  for (std::uint64_t id = 10; id < 14; ++id) ASSERT_EQ(post(*qp_.queue, send_request(id)), 0);
  EXPECT_EQ(qp_.send_wqe(0).wr_id, 10U);
}

TEST_F(QueuePairTest, IsSound_RefusesGeometryOutsideOfTheMemory) {
  EXPECT_TRUE(QueuePair::is_sound(qp_.reply));
  abi::CreateQpReply reply = qp_.reply;
  reply.memory_bytes -= 1;
  EXPECT_FALSE(QueuePair::is_sound(reply));
  reply = qp_.reply;
  reply.send_slots = 3;
  EXPECT_FALSE(QueuePair::is_sound(reply));
  reply = qp_.reply;
  reply.cap.max_inline_data = reply.send_stride;
  EXPECT_FALSE(QueuePair::is_sound(reply));
  reply = qp_.reply;
  reply.send_offset = UINT64_MAX - 15;
  EXPECT_FALSE(QueuePair::is_sound(reply));
  reply = qp_.reply;
  reply.doorbell = abi::DoorbellBoard::kDoorbells;
  EXPECT_FALSE(QueuePair::is_sound(reply));
}

// Carries out what was posted, signalled: each request completes in order.
void serve(FakeEngine& engine, FakeCq& cq, FakeQp& qp, const std::atomic<bool>& stop) {
  std::uint32_t consumer = 0;
  while (!stop.load()) {
    engine.take_doorbells();
    const std::uint32_t producer = qp.page().send_producer.load(std::memory_order_acquire);
    while (consumer != producer && cq.push(*qp.queue, qp.send_wqe(consumer).wr_id, false, consumer + 1))
      ++consumer;
    std::this_thread::yield();
  }
}

TEST(QueuePairThreadsTest, PostSend_EightThreadsAndTwoPollersLoseAndRepeatNothing) {
  constexpr std::uint64_t kThreads = 8;
  constexpr std::uint64_t kEach = 2000;
  FakeEngine engine;
  FakeCq cq(engine, 16);
  FakeQp qp(engine, cq, cq, {16, 4, 1, 0});
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> polled{0};
  std::thread server([&] { serve(engine, cq, qp, stop); });
  std::vector<std::vector<std::uint64_t>> seen(2);
  std::vector<std::thread> threads;
  for (auto& ids : seen) {
    threads.emplace_back([&] {
      ibv_wc completions[4];
      while (polled.load() < kThreads * kEach) {
        const int count = cq.queue.poll(4, completions);
        for (int i = 0; i < count; ++i) ids.push_back(completions[i].wr_id);
        polled += static_cast<std::uint64_t>(count);
        if (count == 0) std::this_thread::yield();
      }
    });
  }
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kEach;) {
        const int error = post(*qp.queue, send_request(t * kEach + i));
        if (error == 0)
          ++i;
        else
          std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  server.join();
  std::set<std::uint64_t> all(seen[0].begin(), seen[0].end());
  all.insert(seen[1].begin(), seen[1].end());
  EXPECT_EQ(seen[0].size() + seen[1].size(), kThreads * kEach);
  EXPECT_EQ(all.size(), kThreads * kEach);
}

}  // namespace
}  // namespace urdma::provider::testing
