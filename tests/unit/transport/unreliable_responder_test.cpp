// The responders of UC and UD: what they drop, what they keep, and what ends the QP.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "unreliable_fixture.hpp"

namespace urdma::transport {
namespace {

class UnreliableResponderTest : public UnreliableTest {
 protected:
  // A WRITE with immediate of `bytes` to the peer's address 0.
  void write(std::uint64_t wr_id, std::uint32_t bytes, MemoryKey rkey = kKey) {
    SendRequest made = request(WrOpcode::kRdmaWriteWithImm, wr_id);
    made.rkey = rkey;
    a->post(made, {element(0, bytes)});
  }
};

TEST_F(UnreliableResponderTest, Write_ThatMayNotBeWrittenKeepsItsReceive) {
  b->post_receive(9, {});
  write(1, 3 * kMtu, kBadKey);
  run();
  EXPECT_TRUE(b->completions().empty());
  EXPECT_EQ(b->qp.state(), QpState::kRts);
  EXPECT_GT(b->qp.counters().dropped_invalid, 0U);
  write(2, 3 * kMtu);
  run();
  EXPECT_EQ(ids(b->completions()), std::vector<std::uint64_t>{9});
}

TEST_F(UnreliableResponderTest, Write_NothingIsTakenWhileItsReceiveMayComeBack) {
  b->post_receive(8, {element(0, 100)});
  b->post_receive(9, {element(0, 100)});
  write(1, 8, kBadKey);
  a->post(request(WrOpcode::kSend, 2), {element(0, 8)});
  const std::vector<Frame> frames = a->transmit(now);
  b->hold_memory = true;
  b->receive(frames[0], now);
  EXPECT_FALSE(b->qp.can_accept());
  b->answer_all(now);
  EXPECT_TRUE(b->qp.can_accept());
  b->hold_memory = false;
  b->receive(frames[1], now);
  const auto received = b->completions();
  ASSERT_EQ(ids(received), std::vector<std::uint64_t>{8});
  EXPECT_EQ(received[0].opcode, WcOpcode::kRecv);
  EXPECT_EQ(received[0].status, WcStatus::kSuccess);
}

TEST_F(UnreliableResponderTest, Write_WithoutRemoteAccessOfTheQpIsDropped) {
  QpAttributes attributes = usual_attributes();
  attributes.state = QpState::kRts;
  attributes.access_flags = kAccessRemoteRead;
  ASSERT_EQ(b->qp.modify(kAttrState | kAttrAccessFlags, attributes, now), 0);
  b->post_receive(9, {});
  write(1, 8);
  run();
  EXPECT_TRUE(b->completions().empty());
  EXPECT_EQ(b->qp.state(), QpState::kRts);
}

TEST_F(UnreliableResponderTest, Send_LongerThanItsReceiveIsDroppedAndTheReceiveKept) {
  b->post_receive(9, {element(500'000, kMtu + 10)});
  a->post(request(WrOpcode::kSend, 1), {element(0, 2 * kMtu)});
  a->post(request(WrOpcode::kSend, 2), {element(0, kMtu + 10)});
  run();
  const auto received = b->completions();
  ASSERT_EQ(ids(received), std::vector<std::uint64_t>{9});
  EXPECT_EQ(received[0].byte_len, kMtu + 10);
}

TEST_F(UnreliableResponderTest, Send_WithoutAReceiveIsDroppedWhole) {
  a->post(request(WrOpcode::kSend, 1), {element(0, 2 * kMtu)});
  const std::vector<Frame> frames = a->transmit(now);
  b->receive(frames[0], now);
  b->post_receive(9, {element(0, 10 * kMtu)});
  b->receive(frames[1], now);
  EXPECT_TRUE(b->completions().empty());
  EXPECT_EQ(b->qp.counters().dropped_no_receive, 1U);
  EXPECT_TRUE(b->transmit(now).empty());  // nothing is answered
}

TEST_F(UnreliableResponderTest, Sequence_OfOpcodes) {
  b->post_receive(9, {element(0, 10 * kMtu)});
  a->post(request(WrOpcode::kSend, 1), {element(0, 3 * kMtu)});
  const std::vector<Frame> frames = a->transmit(now);
  wire::Headers other = frames[1].headers;
  other.opcode = wire::Opcode::kUcWriteMiddle;  // of another kind in the midst of a SEND
  b->receive(frames[0], now);
  b->receive({other, frames[1].payload}, now);
  b->receive(frames[2], now);
  EXPECT_TRUE(b->completions().empty());
  wire::Headers early = frames[2].headers;
  early.psn = kFirstPsn.plus(3);  // the last one of no message
  b->receive({early, frames[2].payload}, now);
  EXPECT_TRUE(b->completions().empty());
  a->post(request(WrOpcode::kSend, 2), {element(0, 8)});
  run();
  EXPECT_EQ(ids(b->completions()), std::vector<std::uint64_t>{9});
}

TEST_F(UnreliableResponderTest, Send_MiddleThatIsNotFullIsDropped) {
  b->post_receive(9, {element(0, 10 * kMtu)});
  a->post(request(WrOpcode::kSend, 1), {element(0, 3 * kMtu)});
  std::vector<Frame> frames = a->transmit(now);
  frames[1].payload.resize(kMtu - 1);
  frames[1].headers.payload_bytes = kMtu - 1;
  deliver(frames, *b);
  EXPECT_TRUE(b->completions().empty());
}

TEST_F(UnreliableResponderTest, Receive_ThatCannotBeWrittenEndsTheQp) {
  for (const QpType type : {QpType::kUc, QpType::kUd}) {
    join(type);
    b->post_receive(8, {element(0, 100, kBadKey)});
    b->post_receive(9, {element(0, 100)});
    a->post(datagram(1), {element(0, 8)});
    run();
    const auto received = b->completions();
    ASSERT_EQ(ids(received), (std::vector<std::uint64_t>{8, 9}));
    EXPECT_EQ(received[0].status, WcStatus::kLocProtErr);
    EXPECT_EQ(received[1].status, WcStatus::kWrFlushErr);
    EXPECT_EQ(b->qp.state(), QpState::kErr);
  }
}

TEST_F(UnreliableResponderTest, Packet_InRtrTellsThatCommunicationIsEstablished) {
  QpConfig config = small_config();
  config.type = QpType::kUc;
  b.emplace(config);
  raise_unreliable(b->qp, QpType::kUc, QpState::kRtr, usual_attributes(), now);
  b->post_receive(9, {element(0, 100)});
  a->post(request(WrOpcode::kSend, 1), {element(0, 8)});
  deliver(a->transmit(now), *b);
  EXPECT_EQ(b->events(), std::vector<AsyncEvent>{AsyncEvent::kCommEst});
}

TEST_F(UnreliableResponderTest, Packet_OfAnotherServiceIsDropped) {
  for (const QpType type : {QpType::kUc, QpType::kUd}) {
    join(type);
    b->post_receive(9, {element(0, 100)});
    wire::Headers headers;
    headers.opcode = wire::Opcode::kRcSendOnly;
    headers.psn = kFirstPsn;
    EXPECT_FALSE(b->qp.needs_receive(headers));
    EXPECT_EQ(b->qp.on_packet(headers, now).kind, MemoryOp::Kind::kNone);
    EXPECT_EQ(b->qp.counters().dropped_invalid, 1U);
  }
}

}  // namespace
}  // namespace urdma::transport
