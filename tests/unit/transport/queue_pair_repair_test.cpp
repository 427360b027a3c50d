// Two queue pairs over a link that loses packets, with receives and memory answers that come late.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "queue_pair_fixture.hpp"

namespace urdma::transport {
namespace {

// ---- Repair ----

TEST_F(QueuePairTest, LateReceive_WithRnrRetrySevenSucceeds) {
  QpAttributes attributes = usual_attributes();
  attributes.rnr_retry = 7;
  connect(attributes, attributes);
  a->post(request(WrOpcode::kSend, 1), {element(0, 10)});
  for (int i = 0; i < 20; ++i) {
    run();
    expire(*a);
  }
  b->post_receive(2, {element(0, 10)});
  run();
  expect_one_each(1, 2, 10);
  EXPECT_EQ(a->qp.counters().rnr_naks_received, 20U);
}

TEST_F(QueuePairTest, LateReceive_WithRnrRetryZeroFails) {
  QpAttributes attributes = usual_attributes();
  attributes.rnr_retry = 0;
  connect(attributes, attributes);
  a->post(request(WrOpcode::kSend, 1), {element(0, 10)});
  run();
  EXPECT_EQ(a->completions().at(0).status, WcStatus::kRnrRetryExcErr);
  EXPECT_EQ(a->qp.failure_reason(), FailureReason::kReceiverNotReady);
  EXPECT_EQ(b->qp.state(), QpState::kRts);
}

TEST_F(QueuePairTest, LostPacket_EachOfALongMessageAcrossTheWrap) {
  QpAttributes attributes = usual_attributes();
  attributes.rq_psn = attributes.sq_psn = Psn{0xFFFFFB};
  for (std::uint32_t lost = 0; lost < 10; ++lost) {
    SCOPED_TRACE(lost);
    connect(attributes, attributes);
    fill(*a, 0, 10 * kMtu);
    b->post_receive(2, {element(0, 10 * kMtu)});
    a->post(request(WrOpcode::kSend, 1), {element(0, 10 * kMtu)});
    deliver(a->transmit(now), *b,
            [&](const Frame& frame) { return frame.headers.psn != Psn{0xFFFFFB + lost}; });
    run();
    if (lost == 9) expire(*a);  // nothing came behind it that would tell
    run();
    expect_one_each(1, 2, 10 * kMtu);
    EXPECT_TRUE(same(*a, 0, *b, 0, 10 * kMtu));
  }
}

TEST_F(QueuePairTest, LostReadResponse_EachOfALongOne) {
  for (std::uint32_t lost = 0; lost < 10; ++lost) {
    SCOPED_TRACE(lost);
    connect(usual_attributes(), usual_attributes());
    fill(*b, 0, 10 * kMtu);
    a->post(remote_request(WrOpcode::kRdmaRead, 1, 0), {element(0, 10 * kMtu)});
    deliver(a->transmit(now), *b);
    deliver(b->transmit(now), *a,
            [&](const Frame& frame) { return frame.headers.psn != kFirstPsn.plus(lost); });
    run();
    if (lost == 9) expire(*a);
    run();
    EXPECT_EQ(a->completions().size(), 1U);
    EXPECT_TRUE(same(*a, 0, *b, 0, 10 * kMtu));
  }
}

TEST_F(QueuePairTest, LostAck_IsGivenAgainAndNothingIsDoneTwice) {
  b->memory[0] = 10;
  b->post_receive(2, {element(512, 10)});
  a->post(request(WrOpcode::kSend, 1, 0), {element(0, 10)});
  SendRequest add = remote_request(WrOpcode::kFetchAdd, 3, 0);
  add.compare_add = 1;
  a->post(add, {element(64, 8)});
  deliver(a->transmit(now), *b);
  b->transmit(now);  // lost
  expire(*a);
  run();
  const auto done = a->completions();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(a->memory[64], 10);
  EXPECT_EQ(b->memory[0], 11);
  EXPECT_EQ(b->completions().size(), 1U);
}

TEST_F(QueuePairTest, MemoryAnswersLate_OnBothEnds) {
  a->hold_memory = b->hold_memory = true;
  fill(*a, 0, 4 * kMtu);
  fill(*b, 100'000, 4 * kMtu, 9);
  b->post_receive(9, {element(0, 4 * kMtu)});
  a->post(request(WrOpcode::kSend, 1), {element(0, 4 * kMtu)});
  a->post(remote_request(WrOpcode::kRdmaRead, 2, 100'000), {element(200'000, 4 * kMtu)});
  for (int i = 0; i < 40; ++i) {
    run();
    if (b->held() > 0) b->answer_one(now);
    run();
    if (i % 2 == 1 && a->held() > 0) a->answer_one(now);
  }
  EXPECT_EQ(a->qp.unanswered_operations() + b->qp.unanswered_operations(), 0U);
  EXPECT_EQ(a->completions().size(), 2U);
  EXPECT_EQ(b->completions().size(), 1U);
  EXPECT_TRUE(same(*a, 0, *b, 0, 4 * kMtu));
  EXPECT_TRUE(same(*a, 200'000, *b, 100'000, 4 * kMtu));
}

TEST_F(QueuePairTest, PollTransmit_ALongReadResponseDoesNotStarveTheRequester) {
  b->post(remote_request(WrOpcode::kRdmaRead, 1, 0), {element(0, 50 * kMtu)});
  deliver(b->transmit(now), *a);
  a->post(remote_request(WrOpcode::kRdmaWrite, 2, 0), {element(0, 10)});
  TxPacket packet;
  bool is_sent = false;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(a->qp.poll_transmit(now, packet));
    is_sent = is_sent || packet.side == Side::kRequester;
  }
  EXPECT_TRUE(is_sent);
}

}  // namespace
}  // namespace urdma::transport
