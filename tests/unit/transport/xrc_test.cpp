// Extended reliable connections: a QP that only sends to one that only receives, into the SRQ that each
// packet names.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "unreliable_fixture.hpp"

namespace urdma::transport {
namespace {

class XrcTest : public UnreliableTest {
 protected:
  void SetUp() override {
    QpConfig config = small_config();
    config.type = QpType::kXrcSend;
    a.emplace(config);
    config.type = QpType::kXrcRecv;
    b.emplace(config);
    raise(a->qp, kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn,
          kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrSqPsn | kAttrMaxQpRdAtomic);
    raise(b->qp, kToRtr & ~kAttrState, kAttrTimeout | kAttrSqPsn);
    b->shared = &shared;
  }
  void raise(QueuePair& qp, std::uint32_t to_rtr, std::uint32_t to_rts) const {
    QpAttributes attributes = usual_attributes();
    attributes.state = QpState::kInit;
    ASSERT_EQ(qp.modify(kConnectMask, attributes, now), 0);
    attributes.state = QpState::kRtr;
    ASSERT_EQ(qp.modify(kAttrState | to_rtr, attributes, now), 0);
    attributes.state = QpState::kRts;
    ASSERT_EQ(qp.modify(kAttrState | to_rts, attributes, now), 0);
  }
  static SendRequest to_srq(SendRequest made) {
    made.remote_qpn = Qpn{0x55};
    return made;
  }

  std::deque<Node::Receive> shared;
};

TEST_F(XrcTest, Send_NamesTheSrq) {
  fill(*a, 0, 3 * kMtu);
  shared = {{9, {element(50'000, 10'000)}}};
  a->post(to_srq(request(WrOpcode::kSend, 1)), {element(0, 3 * kMtu)});
  const std::vector<Frame> frames = a->transmit(now);
  ASSERT_EQ(frames.size(), 3U);
  for (const Frame& frame : frames) {
    EXPECT_EQ(wire::service_of(frame.headers.opcode), wire::kServiceXrc);
    EXPECT_EQ(frame.headers.srqn, Qpn{0x55});
  }
  EXPECT_TRUE(b->qp.needs_receive(frames[0].headers));
  EXPECT_FALSE(b->qp.needs_receive(frames[1].headers));  // it is not its turn
  deliver(frames, *b);
  run();
  EXPECT_EQ(ids(a->completions()), std::vector<std::uint64_t>{1});
  EXPECT_EQ(ids(b->completions()), std::vector<std::uint64_t>{9});
  EXPECT_TRUE(same(*a, 0, *b, 50'000, 3 * kMtu));
}

TEST_F(XrcTest, Operations_ReadsAtomicsWrites) {
  fill(*b, 0, 3'000);
  shared = {{9, {}}};
  a->post(to_srq(remote_request(WrOpcode::kRdmaRead, 1, 0)), {element(10'000, 3'000)});
  SendRequest swap = to_srq(remote_request(WrOpcode::kCompareSwap, 2, 8'000));
  swap.swap = 7;
  a->post(swap, {element(20'000, 8)});
  a->post(to_srq(remote_request(WrOpcode::kRdmaWriteWithImm, 3, 30'000)), {element(0, 100)});
  run();
  EXPECT_EQ(ids(a->completions()), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_TRUE(same(*b, 0, *a, 10'000, 3'000));
  EXPECT_EQ(b->memory[8'000], 7);
  EXPECT_EQ(ids(b->completions()), std::vector<std::uint64_t>{9});
}

TEST_F(XrcTest, Send_WithoutAReceiveIsTriedAgain) {
  a->post(to_srq(request(WrOpcode::kSend, 1)), {element(0, 8)});
  run();
  EXPECT_EQ(b->qp.counters().rnr_naks_sent, 1U);
  shared = {{9, {element(0, 8)}}};
  expire(*a);
  run();
  EXPECT_EQ(ids(a->completions()), std::vector<std::uint64_t>{1});
  EXPECT_EQ(ids(b->completions()), std::vector<std::uint64_t>{9});
}

TEST_F(XrcTest, EachSideTakesItsKindOfPackets) {
  EXPECT_FALSE(b->qp.can_post_send());
  EXPECT_FALSE(a->qp.wants_receive());
  EXPECT_FALSE(b->qp.wants_receive());
  wire::Headers headers;
  headers.psn = kFirstPsn;
  headers.opcode = wire::with_service(wire::Opcode::kRcSendOnly, wire::kServiceXrc);
  EXPECT_EQ(a->qp.on_packet(headers, now).kind, MemoryOp::Kind::kNone);
  headers.opcode = wire::Opcode::kRcSendOnly;
  EXPECT_EQ(b->qp.on_packet(headers, now).kind, MemoryOp::Kind::kNone);
  EXPECT_EQ(a->qp.counters().dropped_invalid, 1U);
  EXPECT_EQ(b->qp.counters().dropped_invalid, 1U);
}

TEST_F(XrcTest, Error_TellsTheLastWqeAndFlushesNothing) {
  shared = {{9, {element(0, 8)}}};
  b->qp.fail(FailureReason::kCqOverrun);
  EXPECT_TRUE(b->completions().empty());
  EXPECT_EQ(b->events(), (std::vector<AsyncEvent>{AsyncEvent::kQpFatal, AsyncEvent::kQpLastWqeReached}));
  EXPECT_EQ(shared.size(), 1U);
}

TEST_F(XrcTest, AtomicWrite_IsNoneOfIt) {
  a->post(to_srq(remote_request(WrOpcode::kAtomicWrite, 1, 0)), {element(0, 8)});
  EXPECT_TRUE(a->transmit(now).empty());
  EXPECT_EQ(a->completions().at(0).status, WcStatus::kLocQpOpErr);
}

// ---- The SRQ of a reliable connection ----

TEST_F(UnreliableTest, RcSrq_TakesAReceiveForAPacketInItsTurn) {
  QpConfig config = small_config();
  config.has_srq = true;
  connect(usual_attributes(), usual_attributes(), config);
  std::deque<Node::Receive> shared = {{9, {element(0, 100)}}, {10, {element(0, 100)}}};
  b->shared = &shared;
  a->post(request(WrOpcode::kSend, 1), {element(0, 8)});
  std::vector<Frame> frames = a->transmit(now);
  deliver(frames, *b);
  deliver(frames, *b);  // a duplicate takes none
  EXPECT_EQ(shared.size(), 1U);
  run();
  const auto received = b->completions();
  ASSERT_EQ(ids(received), std::vector<std::uint64_t>{9});
  EXPECT_EQ(received[0].srq, 9U);
  EXPECT_EQ(received[0].source_qp, Qpn{0x22});
  wire::Headers early = frames[0].headers;
  early.psn = kFirstPsn.plus(2);
  EXPECT_FALSE(b->qp.needs_receive(early));
  early.psn = kFirstPsn.plus(1);
  EXPECT_TRUE(b->qp.needs_receive(early));

  // In ERR nothing is flushed, and that is told; RESET does not tell it.
  b->qp.fail(FailureReason::kCqOverrun);
  EXPECT_FALSE(b->qp.wants_receive());
  EXPECT_TRUE(b->completions().empty());
  EXPECT_EQ(b->events(), (std::vector<AsyncEvent>{AsyncEvent::kQpFatal, AsyncEvent::kQpLastWqeReached}));
  b->qp.fail(FailureReason::kCqOverrun);
  EXPECT_TRUE(b->events().empty());
  QpAttributes attributes;
  ASSERT_EQ(a->qp.modify(kAttrState, attributes, now), 0);
  EXPECT_TRUE(a->events().empty());
}

}  // namespace
}  // namespace urdma::transport
