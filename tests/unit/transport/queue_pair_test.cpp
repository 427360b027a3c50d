// The queue pair as a whole: each operation over a link without faults.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/queue_pair.hpp"

#include <cerrno>

#include "queue_pair_fixture.hpp"

namespace urdma::transport {
namespace {

TEST_F(QueuePairTest, Send_EachSizeAroundThePacketSize) {
  std::uint64_t id = 1;
  for (const std::uint32_t bytes : {0U, 1U, kMtu - 1, kMtu, kMtu + 1, 2 * kMtu, 100 * kMtu + 3}) {
    SCOPED_TRACE(bytes);
    fill(*a, 0, bytes, static_cast<std::uint8_t>(id));
    b->post_receive(id + 100, {element(500'000, 200'000)});
    a->post(request(WrOpcode::kSend, id), {element(0, bytes)});
    run();
    expect_one_each(id, id + 100, bytes);
    EXPECT_TRUE(same(*a, 0, *b, 500'000, bytes));
    ++id;
  }
}

TEST_F(QueuePairTest, Write_EachSizeAroundThePacketSize) {
  std::uint64_t id = 1;
  for (const std::uint32_t bytes : {0U, 1U, kMtu - 1, kMtu, kMtu + 1, 2 * kMtu, 100 * kMtu + 3}) {
    SCOPED_TRACE(bytes);
    fill(*a, 0, bytes, static_cast<std::uint8_t>(id));
    b->post_receive(id + 100, {});
    SendRequest write = remote_request(WrOpcode::kRdmaWriteWithImm, id, 300'000);
    write.immediate = 0xABCD;
    a->post(write, {element(0, bytes)});
    run();
    expect_one_each(id, id + 100, bytes);
    EXPECT_TRUE(same(*a, 0, *b, 300'000, bytes));
    ++id;
  }
}

TEST_F(QueuePairTest, Read_EachSizeAroundThePacketSize) {
  std::uint64_t id = 1;
  for (const std::uint32_t bytes : {0U, 1U, kMtu - 1, kMtu, kMtu + 1, 2 * kMtu, 700 * kMtu + 3}) {
    SCOPED_TRACE(bytes);
    fill(*b, 0, bytes, static_cast<std::uint8_t>(id));
    a->post(remote_request(WrOpcode::kRdmaRead, id, 0), {element(200'000, bytes)});
    run();
    const auto done = a->completions();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, WcStatus::kSuccess);
    EXPECT_EQ(done[0].byte_len, bytes);
    EXPECT_TRUE(same(*b, 0, *a, 200'000, bytes));
    ++id;
  }
}

TEST_F(QueuePairTest, Atomics_ReturnTheOldValue) {
  b->memory[64] = 5;
  SendRequest add = remote_request(WrOpcode::kFetchAdd, 1, 64);
  add.compare_add = 3;
  a->post(add, {element(0, 8)});
  SendRequest swap = remote_request(WrOpcode::kCompareSwap, 2, 64);
  swap.compare_add = 8;
  swap.swap = 77;
  a->post(swap, {element(8, 8)});
  run();
  const auto done = a->completions();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].byte_len, 8U);
  EXPECT_EQ(a->memory[0], 5);
  EXPECT_EQ(a->memory[8], 8);
  EXPECT_EQ(b->memory[64], 77);
}

TEST_F(QueuePairTest, Send_ManyElementsOnBothEnds) {
  fill(*a, 0, 5'000);
  b->post_receive(
      9, {element(600'000, 1), element(600'001, 2'000), element(602'001, 0), element(602'001, 4'000)});
  a->post(request(WrOpcode::kSend, 1),
          {element(0, 7), element(7, 0), element(7, 3'000), element(3'007, 1'993)});
  run();
  expect_one_each(1, 9, 5'000);
  EXPECT_TRUE(same(*a, 0, *b, 600'000, 5'000));
}

TEST_F(QueuePairTest, Send_LargePacketsInsideANode) {
  QpAttributes attributes = usual_attributes();
  attributes.packet_bytes = 65'536;
  connect(attributes, attributes);
  for (const std::uint32_t bytes : {65'535U, 65'536U, 65'537U, 200'000U}) {
    fill(*a, 0, bytes);
    b->post_receive(9, {element(400'000, 200'000)});
    a->post(request(WrOpcode::kSend, 1), {element(0, bytes)});
    const auto frames = a->transmit(now);
    EXPECT_EQ(frames.size(), (bytes + 65'535) / 65'536);
    deliver(frames, *b);
    run();
    expect_one_each(1, 9, bytes);
    EXPECT_TRUE(same(*a, 0, *b, 400'000, bytes));
  }
}

TEST_F(QueuePairTest, BothDirectionsAtOnce) {
  for (std::uint64_t id = 0; id < 50; ++id) {
    a->post_receive(id, {element(500'000, 2 * kMtu)});
    b->post_receive(id, {element(500'000, 2 * kMtu)});
    a->post(request(WrOpcode::kSend, id), {element(0, 2 * kMtu)});
    b->post(request(WrOpcode::kSend, id), {element(0, 2 * kMtu)});
  }
  std::size_t done_by_a = 0;
  std::size_t done_by_b = 0;
  // A responder holds no more than 16 receives that are not polled, and drops what comes then.
  for (int i = 0; i < 100 && done_by_a + done_by_b < 200; ++i) {
    run();
    done_by_a += a->completions().size();
    done_by_b += b->completions().size();
    for (Node* node : {&*a, &*b}) {
      if (!node->qp.next_deadline().is_never()) expire(*node);
    }
  }
  EXPECT_EQ(done_by_a, 100U);
  EXPECT_EQ(done_by_b, 100U);
}

// ---- States ----

TEST_F(QueuePairTest, Modify_IllegalMovesChangeNothing) {
  QpAttributes attributes = usual_attributes();
  attributes.state = QpState::kInit;
  EXPECT_EQ(a->qp.modify(kConnectMask, attributes, now), EINVAL);
  attributes.min_rnr_timer = 32;
  EXPECT_EQ(a->qp.modify(kAttrMinRnrTimer, attributes, now), EINVAL);
  EXPECT_EQ(a->qp.state(), QpState::kRts);
  EXPECT_EQ(a->qp.attributes().min_rnr_timer, 12);
}

TEST_F(QueuePairTest, Modify_AttributesAreKept) {
  QpAttributes attributes = usual_attributes();
  attributes.min_rnr_timer = 5;
  attributes.access_flags = kAccessRemoteRead;
  EXPECT_EQ(a->qp.modify(kAttrMinRnrTimer | kAttrAccessFlags, attributes, now), 0);
  EXPECT_EQ(a->qp.attributes().min_rnr_timer, 5);
  EXPECT_EQ(a->qp.attributes().access_flags, kAccessRemoteRead);
  EXPECT_EQ(a->qp.attributes().state, QpState::kRts);
  EXPECT_EQ(a->qp.attributes().packet_bytes, kMtu);
  EXPECT_EQ(a->qp.attributes().sq_psn, kFirstPsn);
}

TEST_F(QueuePairTest, Modify_PacketsAreAsLongAsThePathMtuUnlessSaidOtherwise) {
  QpAttributes attributes = usual_attributes();
  attributes.packet_bytes = 0;
  attributes.path_mtu_code = 5;
  connect(attributes, attributes);
  EXPECT_EQ(a->qp.attributes().packet_bytes, 4'096U);
}

TEST_F(QueuePairTest, CanPostSend_DependsOnTheState) {
  Node fresh(small_config());
  EXPECT_FALSE(fresh.qp.can_post_send());
  raise_to(fresh.qp, QpState::kRtr, usual_attributes(), now);
  EXPECT_FALSE(fresh.qp.can_post_send());
  EXPECT_TRUE(a->qp.can_post_send());
  QpAttributes attributes;
  attributes.state = QpState::kSqd;
  ASSERT_EQ(a->qp.modify(kAttrState, attributes, now), 0);
  EXPECT_TRUE(a->qp.can_post_send());
  attributes.state = QpState::kErr;
  ASSERT_EQ(a->qp.modify(kAttrState, attributes, now), 0);
  EXPECT_TRUE(a->qp.can_post_send());
  attributes.state = QpState::kReset;
  ASSERT_EQ(a->qp.modify(kAttrState, attributes, now), 0);
  EXPECT_FALSE(a->qp.can_post_send());
}

TEST_F(QueuePairTest, Modify_ErrFlushesBothQueuesInOrder) {
  for (std::uint64_t id = 0; id < 3; ++id) {
    a->post(request(WrOpcode::kSend, id, 0), {element(0, 10)});
    a->post_receive(100 + id, {element(0, 10)});
  }
  QpAttributes attributes;
  attributes.state = QpState::kErr;
  ASSERT_EQ(a->qp.modify(kAttrState, attributes, now), 0);
  a->post(request(WrOpcode::kSend, 3, 0), {element(0, 10)});  // the marker that ends a drain
  const auto done = a->completions();
  ASSERT_EQ(done.size(), 7U);
  std::vector<std::uint64_t> sent;
  std::vector<std::uint64_t> received;
  for (const Completion& completion : done) {
    EXPECT_EQ(completion.status, WcStatus::kWrFlushErr);
    (completion.is_receive ? received : sent).push_back(completion.wr_id);
  }
  EXPECT_EQ(sent, (std::vector<std::uint64_t>{0, 1, 2, 3}));
  EXPECT_EQ(received, (std::vector<std::uint64_t>{100, 101, 102}));
  EXPECT_TRUE(a->events().empty());
}

TEST_F(QueuePairTest, Modify_ResetForgetsAndTheQpCanBeConnectedAgain) {
  a->post(request(WrOpcode::kSend, 1), {element(0, 10)});
  a->transmit(now);
  QpAttributes attributes;
  attributes.state = QpState::kReset;
  for (Node* node : {&*a, &*b}) {
    ASSERT_EQ(node->qp.modify(kAttrState, attributes, now), 0);
    EXPECT_TRUE(node->completions().empty());
    EXPECT_TRUE(node->qp.next_deadline().is_never());
    EXPECT_FALSE(node->qp.has_output(now));
    raise_to(node->qp, QpState::kRts, usual_attributes(), now);
  }
  b->post_receive(2, {element(0, 10)});
  a->post(request(WrOpcode::kSend, 3), {element(0, 10)});
  run();
  expect_one_each(3, 2, 10);
}

TEST_F(QueuePairTest, Modify_ResetForgetsEventsToo) {
  a->qp.fail(FailureReason::kCqOverrun);
  QpAttributes attributes;
  attributes.state = QpState::kReset;
  ASSERT_EQ(a->qp.modify(kAttrState, attributes, now), 0);
  EXPECT_TRUE(a->events().empty());
  EXPECT_EQ(a->qp.failure_reason(), FailureReason::kNone);
}

TEST_F(QueuePairTest, Sqd_NotifiesOnceWhenDrained) {
  b->post_receive(2, {element(0, 10)});
  a->post(request(WrOpcode::kSend, 1), {element(0, 10)});
  const auto frames = a->transmit(now);
  QpAttributes attributes;
  attributes.state = QpState::kSqd;
  attributes.sqd_notify = true;
  ASSERT_EQ(a->qp.modify(kAttrState | kAttrSqdNotify, attributes, now), 0);
  a->post(request(WrOpcode::kSend, 5), {element(0, 10)});
  EXPECT_TRUE(a->qp.is_sq_draining());
  EXPECT_TRUE(a->events().empty());
  deliver(frames, *b);
  run();
  EXPECT_FALSE(a->qp.is_sq_draining());
  EXPECT_EQ(a->events(), std::vector<AsyncEvent>{AsyncEvent::kSqDrained});
  a->qp.on_deadline(now);
  EXPECT_TRUE(a->events().empty());
  expect_one_each(1, 2, 10);
  b->post_receive(6, {element(0, 10)});
  attributes.state = QpState::kRts;
  ASSERT_EQ(a->qp.modify(kAttrState, attributes, now), 0);
  run();
  expect_one_each(5, 6, 10);
  EXPECT_TRUE(a->events().empty());
}

TEST_F(QueuePairTest, Sqd_WithoutNotifyIsSilent) {
  QpAttributes attributes;
  attributes.state = QpState::kSqd;
  ASSERT_EQ(a->qp.modify(kAttrState, attributes, now), 0);
  EXPECT_TRUE(a->events().empty());
}

TEST_F(QueuePairTest, Sqd_IdleQueueIsDrainedAtOnce) {
  QpAttributes attributes;
  attributes.state = QpState::kSqd;
  attributes.sqd_notify = true;
  ASSERT_EQ(a->qp.modify(kAttrState | kAttrSqdNotify, attributes, now), 0);
  EXPECT_EQ(a->events(), std::vector<AsyncEvent>{AsyncEvent::kSqDrained});
}

// ---- Events and failures ----

TEST_F(QueuePairTest, CommunicationEstablished_OnceInRtr) {
  b.emplace(small_config());
  raise_to(b->qp, QpState::kRtr, usual_attributes(), now);
  for (std::uint64_t id = 0; id < 2; ++id) {
    b->post_receive(id, {element(0, 10)});
    a->post(request(WrOpcode::kSend, id), {element(0, 10)});
    run();
    EXPECT_EQ(b->events(), std::vector<AsyncEvent>(id == 0 ? 1 : 0, AsyncEvent::kCommEst));
  }
  EXPECT_EQ(a->completions().size(), 2U);
}

TEST_F(QueuePairTest, OnPacket_NothingIsTakenInInitAndReset) {
  Node fresh(small_config());
  wire::Headers headers;
  headers.opcode = wire::Opcode::kRcWriteOnly;
  EXPECT_EQ(fresh.qp.on_packet(headers, now).kind, MemoryOp::Kind::kNone);
  raise_to(fresh.qp, QpState::kInit, usual_attributes(), now);
  EXPECT_EQ(fresh.qp.on_packet(headers, now).kind, MemoryOp::Kind::kNone);
  EXPECT_EQ(fresh.qp.counters().dropped_invalid, 2U);
  EXPECT_FALSE(fresh.qp.wants_receive());
}

TEST_F(QueuePairTest, OnPacket_OtherServicesAreDropped) {
  wire::Headers headers;
  headers.psn = kFirstPsn;
  for (const wire::Opcode opcode :
       {wire::Opcode::kUcSendOnly, wire::Opcode::kUdSendOnly, wire::Opcode::kCnp}) {
    headers.opcode = opcode;
    EXPECT_EQ(a->qp.on_packet(headers, now).kind, MemoryOp::Kind::kNone);
  }
  EXPECT_EQ(a->qp.counters().dropped_invalid, 3U);
  EXPECT_EQ(a->qp.state(), QpState::kRts);
}

TEST_F(QueuePairTest, RemoteAccessError_OnBothEnds) {
  for (const WrOpcode opcode : {WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead, WrOpcode::kFetchAdd}) {
    connect(usual_attributes(), usual_attributes());
    SendRequest bad = remote_request(opcode, 1, 0);
    bad.rkey = kBadKey;
    a->post(bad, {element(0, 8)});
    a->post(request(WrOpcode::kSend, 2), {element(0, 8)});
    b->post_receive(3, {element(0, 8)});
    run();
    EXPECT_EQ(a->qp.state(), QpState::kErr);
    EXPECT_EQ(b->qp.state(), QpState::kErr);
    EXPECT_EQ(a->qp.attributes().state, QpState::kErr);
    EXPECT_EQ(b->events(), std::vector<AsyncEvent>{AsyncEvent::kQpAccessErr});
    EXPECT_TRUE(a->events().empty());
    const auto done = a->completions();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[0].status, WcStatus::kRemAccessErr);
    EXPECT_EQ(done[1].status, WcStatus::kWrFlushErr);
    const auto flushed = b->completions();
    ASSERT_EQ(flushed.size(), 1U);
    EXPECT_EQ(flushed[0].status, WcStatus::kWrFlushErr);
  }
}

TEST_F(QueuePairTest, RemoteOutOfBounds_IsAnAccessError) {
  const std::uint64_t end = b->memory.size();
  a->post(remote_request(WrOpcode::kRdmaWrite, 1, end - 8), {element(0, 8)});
  run();
  EXPECT_EQ(a->completions().at(0).status, WcStatus::kSuccess);
  a->post(remote_request(WrOpcode::kRdmaWrite, 2, end - 2 * kMtu), {element(0, 2 * kMtu + 1)});
  fill(*a, 0, 2 * kMtu);
  run();
  EXPECT_EQ(a->completions().at(0).status, WcStatus::kRemAccessErr);
  EXPECT_EQ(b->memory[end - 2 * kMtu], 0);  // not even the part that would have fitted
}

TEST_F(QueuePairTest, InvalidRequest_RaisesAnEvent) {
  QpAttributes attributes = usual_attributes();
  attributes.access_flags = 0;
  ASSERT_EQ(b->qp.modify(kAttrAccessFlags, attributes, now), 0);
  a->post(remote_request(WrOpcode::kRdmaWrite, 1, 0), {element(0, 8)});
  run();
  EXPECT_EQ(b->events(), std::vector<AsyncEvent>{AsyncEvent::kQpReqErr});
  EXPECT_EQ(a->completions().at(0).status, WcStatus::kRemInvReqErr);
}

TEST_F(QueuePairTest, ReceiveTooShort_OnBothEnds) {
  b->post_receive(1, {element(0, 9)});
  a->post(request(WrOpcode::kSend, 2), {element(0, 10)});
  run();
  EXPECT_EQ(a->completions().at(0).status, WcStatus::kRemInvReqErr);
  EXPECT_EQ(b->completions().at(0).status, WcStatus::kLocLenErr);
  EXPECT_TRUE(b->events().empty());
}

TEST_F(QueuePairTest, ReceiveWithBadKey_OnBothEnds) {
  b->post_receive(1, {element(0, 10, kBadKey)});
  a->post(request(WrOpcode::kSend, 2), {element(0, 10)});
  run();
  EXPECT_EQ(a->completions().at(0).status, WcStatus::kRemOpErr);
  EXPECT_EQ(b->completions().at(0).status, WcStatus::kLocProtErr);
}

TEST_F(QueuePairTest, LocalKeyIsBad_SendAndRead) {
  a->post(request(WrOpcode::kSend, 2), {element(0, 10, kBadKey)});
  run();
  EXPECT_EQ(a->completions().at(0).status, WcStatus::kLocProtErr);
  EXPECT_EQ(b->qp.counters().packets_received, 0U);
  connect(usual_attributes(), usual_attributes());
  a->post(remote_request(WrOpcode::kRdmaRead, 3, 0), {element(0, 10, kBadKey)});
  run();
  EXPECT_EQ(a->completions().at(0).status, WcStatus::kLocProtErr);
  EXPECT_EQ(b->qp.state(), QpState::kRts);
}

TEST_F(QueuePairTest, Fail_FlushesAndRaisesAFatalEvent) {
  a->post(request(WrOpcode::kSend, 1), {element(0, 10)});
  a->qp.fail(FailureReason::kCqOverrun);
  a->qp.fail(FailureReason::kCqOverrun);
  EXPECT_EQ(a->qp.state(), QpState::kErr);
  EXPECT_EQ(a->events(), std::vector<AsyncEvent>{AsyncEvent::kQpFatal});
  EXPECT_EQ(a->qp.failure_reason(), FailureReason::kCqOverrun);
  EXPECT_EQ(a->completions().at(0).status, WcStatus::kWrFlushErr);
}

}  // namespace
}  // namespace urdma::transport
