// Queue pairs without acknowledgements as a whole: UC and UD, their states, and receives from an SRQ.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>

#include "unreliable_fixture.hpp"

namespace urdma::transport {
namespace {

TEST_F(UnreliableTest, Uc_SendOfEachSizeAroundThePacketSize) {
  std::uint64_t id = 1;
  for (const std::uint32_t bytes : {0U, 1U, kMtu - 1, kMtu, kMtu + 1, 2 * kMtu, 100 * kMtu + 3}) {
    SCOPED_TRACE(bytes);
    fill(*a, 0, bytes, static_cast<std::uint8_t>(id));
    b->post_receive(id + 100, {element(500'000, 200'000)});
    SendRequest send = request(WrOpcode::kSendWithImm, id);
    send.immediate = 77;
    a->post(send, {element(0, bytes)});
    run();
    const auto sent = a->completions();
    const auto received = b->completions();
    ASSERT_EQ(ids(sent), std::vector<std::uint64_t>{id});
    ASSERT_EQ(ids(received), std::vector<std::uint64_t>{id + 100});
    EXPECT_EQ(received[0].byte_len, bytes);
    EXPECT_EQ(received[0].immediate, 77U);
    EXPECT_EQ(received[0].flags, kWcWithImm);
    EXPECT_EQ(received[0].source_qp, Qpn{0x22});
    EXPECT_TRUE(same(*a, 0, *b, 500'000, bytes));
    ++id;
  }
  EXPECT_TRUE(a->qp.next_deadline().is_never());
}

TEST_F(UnreliableTest, Uc_WriteWithImmediateTakesAReceive) {
  fill(*a, 0, 3'000);
  b->post_receive(9, {});
  a->post(remote_request(WrOpcode::kRdmaWrite, 1, 100), {element(0, 3'000)});
  a->post(remote_request(WrOpcode::kRdmaWriteWithImm, 2, 10'000), {element(0, 3'000)});
  run();
  EXPECT_EQ(ids(a->completions()), (std::vector<std::uint64_t>{1, 2}));
  const auto received = b->completions();
  ASSERT_EQ(ids(received), std::vector<std::uint64_t>{9});
  EXPECT_EQ(received[0].opcode, WcOpcode::kRecvRdmaWithImm);
  EXPECT_EQ(received[0].byte_len, 3'000U);
  EXPECT_TRUE(same(*a, 0, *b, 100, 3'000));
  EXPECT_TRUE(same(*a, 0, *b, 10'000, 3'000));
}

TEST_F(UnreliableTest, Uc_MessageWithAGapIsDroppedAndItsReceiveIsKept) {
  b->post_receive(9, {element(500'000, 200'000)});
  fill(*a, 0, 4 * kMtu, 3);
  for (const std::uint64_t id : {1U, 2U}) {
    a->post(request(WrOpcode::kSend, id), {element((id - 1) * 2 * kMtu, 2 * kMtu)});
  }
  std::vector<Frame> frames = a->transmit(now);
  ASSERT_EQ(frames.size(), 4U);
  frames.erase(frames.begin() + 1);
  deliver(frames, *b);
  EXPECT_EQ(ids(b->completions()), std::vector<std::uint64_t>{9});
  EXPECT_TRUE(same(*a, 2 * kMtu, *b, 500'000, 2 * kMtu));
  EXPECT_EQ(a->completions().size(), 2U);  // to the sender all is well
}

TEST_F(UnreliableTest, Uc_RequestCompletesWhenItsPayloadHasLeft) {
  a->hold_departures = true;
  a->post(request(WrOpcode::kSend, 1), {element(0, kMtu + 1)});
  EXPECT_EQ(a->transmit(now).size(), 2U);
  EXPECT_TRUE(a->completions().empty());
  a->qp.on_departed({}, now);
  EXPECT_TRUE(a->completions().empty());
  a->qp.on_departed({}, now);
  EXPECT_EQ(ids(a->completions()), std::vector<std::uint64_t>{1});
}

TEST_F(UnreliableTest, Uc_FailureEndsTheSendingAndNotTheQp) {
  a->post(request(WrOpcode::kSend, 1), {element(0, 8)});
  a->post(request(WrOpcode::kSend, 2), {element(0, 8, kBadKey)});
  a->post(request(WrOpcode::kSend, 3), {element(0, 8)});
  EXPECT_EQ(a->transmit(now).size(), 1U);
  EXPECT_EQ(a->qp.state(), QpState::kSqe);
  a->post(request(WrOpcode::kSend, 4), {element(0, 8)});
  const auto done = a->completions();
  ASSERT_EQ(ids(done), (std::vector<std::uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kLocProtErr);
  EXPECT_EQ(done[2].status, WcStatus::kWrFlushErr);
  EXPECT_EQ(done[3].status, WcStatus::kWrFlushErr);

  // It still receives, and sends again after a move to RTS.
  a->post_receive(9, {element(0, 100)});
  b->post(request(WrOpcode::kSend, 5), {element(0, 8)});
  run();
  EXPECT_EQ(ids(a->completions()), std::vector<std::uint64_t>{9});
  QpAttributes attributes;
  attributes.state = QpState::kRts;
  ASSERT_EQ(a->qp.modify(kAttrState, attributes, now), 0);
  a->post(request(WrOpcode::kSend, 6), {element(0, 8)});
  EXPECT_EQ(a->transmit(now).size(), 1U);
  EXPECT_EQ(ids(a->completions()), std::vector<std::uint64_t>{6});
}

TEST_F(UnreliableTest, Uc_HasNoReadsAndAtomics) {
  for (const WrOpcode opcode : {WrOpcode::kRdmaRead, WrOpcode::kFetchAdd, WrOpcode::kCompareSwap,
                                WrOpcode::kAtomicWrite, WrOpcode::kSendWithInv}) {
    join(QpType::kUc);
    a->post(request(opcode, 1), {element(0, 8)});
    EXPECT_TRUE(a->transmit(now).empty());
    const auto done = a->completions();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, WcStatus::kLocQpOpErr);
    EXPECT_EQ(a->qp.state(), QpState::kSqe);
  }
}

TEST_F(UnreliableTest, Uc_ErrorFlushesBothSides) {
  a->post_receive(9, {element(0, 8)});
  a->hold_departures = true;
  a->post(request(WrOpcode::kSend, 1), {element(0, 8)});
  a->post(request(WrOpcode::kSend, 2), {element(0, 8)});
  EXPECT_EQ(a->transmit(now).size(), 2U);
  a->qp.fail(FailureReason::kCqOverrun);
  const auto done = a->completions();
  EXPECT_EQ(ids(done), (std::vector<std::uint64_t>{1, 2, 9}));
  for (const Completion& completion : done) EXPECT_EQ(completion.status, WcStatus::kWrFlushErr);
  EXPECT_EQ(a->events(), std::vector<AsyncEvent>{AsyncEvent::kQpFatal});
  EXPECT_FALSE(a->qp.has_output(now));
}

TEST_F(UnreliableTest, Uc_SqdFinishesWhatHasBegun) {
  a->post(request(WrOpcode::kSend, 1), {element(0, 2 * kMtu)});
  a->post(request(WrOpcode::kSend, 2), {element(0, 8)});
  a->hold_departures = true;
  TxPacket first;
  ASSERT_TRUE(a->qp.poll_transmit(now, first));
  QpAttributes attributes;
  attributes.state = QpState::kSqd;
  attributes.sqd_notify = true;
  ASSERT_EQ(a->qp.modify(kAttrState | kAttrSqdNotify, attributes, now), 0);
  EXPECT_TRUE(a->qp.is_sq_draining());
  EXPECT_EQ(a->transmit(now).size(), 1U);
  EXPECT_TRUE(a->events().empty());
  a->qp.on_departed(first, now);
  a->qp.on_departed(first, now);
  EXPECT_EQ(a->events(), std::vector<AsyncEvent>{AsyncEvent::kSqDrained});
  attributes.state = QpState::kRts;
  ASSERT_EQ(a->qp.modify(kAttrState, attributes, now), 0);
  EXPECT_EQ(a->transmit(now).size(), 1U);
}

TEST_F(UnreliableTest, Ud_Send) {
  join(QpType::kUd);
  fill(*a, 0, kMtu);
  b->post_receive(9, {element(10'000, kMtu + 40)});
  SendRequest send = datagram(1, 0x8000'0000);  // its own Q_Key, which is the same here
  send.opcode = WrOpcode::kSendWithImm;
  send.immediate = 3;
  send.flags |= kSendSolicited;
  a->post(send, {element(0, kMtu)});
  TxPacket packet;
  ASSERT_TRUE(a->qp.poll_transmit(now, packet));
  EXPECT_EQ(packet.address_handle, 5U);
  EXPECT_EQ(packet.headers.opcode, wire::Opcode::kUdSendOnlyImm);
  EXPECT_EQ(packet.headers.dest_qp, Qpn{0x22});
  EXPECT_EQ(packet.headers.source_qp, Qpn{0x11});
  EXPECT_EQ(packet.headers.qkey, kQkey);
  a->qp.on_departed(packet, now);
  const std::vector<std::uint8_t> bytes(&a->memory[0], &a->memory[kMtu]);
  b->receive({packet.headers, bytes}, now);
  EXPECT_EQ(ids(a->completions()), std::vector<std::uint64_t>{1});
  const auto received = b->completions();
  ASSERT_EQ(ids(received), std::vector<std::uint64_t>{9});
  EXPECT_EQ(received[0].byte_len, kMtu + 40);
  EXPECT_EQ(received[0].flags, kWcGrh | kWcWithImm);
  EXPECT_EQ(received[0].source_qp, Qpn{0x11});
  EXPECT_EQ(received[0].immediate, 3U);
  EXPECT_TRUE(received[0].is_solicited);
  EXPECT_EQ(b->memory[10'000], 0xEE);
  EXPECT_TRUE(same(*a, 0, *b, 10'040, kMtu));
}

TEST_F(UnreliableTest, Ud_MessageLongerThanAPacketFails) {
  join(QpType::kUd);
  a->post(datagram(1), {element(0, kMtu + 1)});
  EXPECT_TRUE(a->transmit(now).empty());
  const auto done = a->completions();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status, WcStatus::kLocLenErr);
  EXPECT_EQ(a->qp.state(), QpState::kSqe);
}

TEST_F(UnreliableTest, Ud_WrongQkeyOrNoReceiveIsDroppedAndCounted) {
  join(QpType::kUd);
  a->post(datagram(1), {element(0, 8)});
  run();
  EXPECT_EQ(b->qp.counters().dropped_no_receive, 1U);
  b->post_receive(9, {element(0, 100)});
  a->post(datagram(2, 1), {element(0, 8)});
  run();
  EXPECT_EQ(b->qp.counters().dropped_qkey, 1U);
  EXPECT_TRUE(b->completions().empty());
  EXPECT_EQ(b->qp.state(), QpState::kRts);
}

TEST_F(UnreliableTest, Ud_ReceiveThatIsTooShortEndsAndTheQpGoesOn) {
  join(QpType::kUd);
  b->post_receive(8, {element(0, 47)});
  b->post_receive(9, {element(0, 48)});
  a->post(datagram(1), {element(0, 8)});
  a->post(datagram(2), {element(0, 8)});
  run();
  const auto received = b->completions();
  ASSERT_EQ(ids(received), (std::vector<std::uint64_t>{8, 9}));
  EXPECT_EQ(received[0].status, WcStatus::kLocLenErr);
  EXPECT_EQ(received[1].status, WcStatus::kSuccess);
  EXPECT_EQ(b->qp.state(), QpState::kRts);
}

// ---- Shared receive queues ----

TEST_F(UnreliableTest, Srq_AReceiveIsTakenForThePacketThatNeedsIt) {
  for (const QpType type : {QpType::kUc, QpType::kUd}) {
    join(type, true);
    std::deque<Node::Receive> shared = {{9, {element(0, 100)}}, {10, {element(0, 100)}}};
    b->shared = &shared;
    EXPECT_FALSE(b->qp.wants_receive());
    a->post(datagram(1), {element(0, 8)});
    run();
    EXPECT_EQ(shared.size(), 1U);
    const auto received = b->completions();
    ASSERT_EQ(ids(received), std::vector<std::uint64_t>{9});
    EXPECT_EQ(received[0].srq, 9U);
    // One that is dropped takes none.
    if (type == QpType::kUd) a->post(datagram(2, 1), {element(0, 8)});
    run();
    EXPECT_EQ(shared.size(), 1U);
    b->qp.fail(FailureReason::kCqOverrun);
    EXPECT_TRUE(b->completions().empty());
    EXPECT_EQ(b->events(), (std::vector<AsyncEvent>{AsyncEvent::kQpFatal, AsyncEvent::kQpLastWqeReached}));
  }
}

TEST_F(UnreliableTest, Srq_AReceiveInUseIsFlushedBeforeTheLastWqeEvent) {
  join(QpType::kUc, true);
  std::deque<Node::Receive> shared = {{9, {element(0, 100'000)}}};
  b->shared = &shared;
  a->post(request(WrOpcode::kSend, 1), {element(0, 2 * kMtu)});
  std::vector<Frame> frames = a->transmit(now);
  b->receive(frames[0], now);
  b->qp.fail(FailureReason::kCqOverrun);
  EXPECT_EQ(b->events(), std::vector<AsyncEvent>{AsyncEvent::kQpFatal});
  const auto received = b->completions();
  ASSERT_EQ(ids(received), std::vector<std::uint64_t>{9});
  EXPECT_EQ(received[0].status, WcStatus::kWrFlushErr);
  EXPECT_EQ(b->events(), std::vector<AsyncEvent>{AsyncEvent::kQpLastWqeReached});
}

}  // namespace
}  // namespace urdma::transport
