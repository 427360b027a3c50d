// Requests that stay on the node, bind and local invalidate, and the SEND that invalidates at the peer.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "unreliable_fixture.hpp"

namespace urdma::transport {
namespace {

class LocalOperationsTest : public UnreliableTest {
 protected:
  void SetUp() override { connect(usual_attributes(), usual_attributes()); }
  static SendRequest bind(std::uint64_t wr_id) {
    SendRequest made = request(WrOpcode::kBindMw, wr_id);
    made.bind_key = MemoryKey{0x77};
    made.bind_access = kAccessRemoteWrite;
    made.remote_address = 0x5000;
    made.length = std::uint64_t{1} << 40;  // a window may be larger than a message
    return made;
  }
  // What is posted, without adding up the elements.
  void post_bind(Node& node, const SendRequest& made) {
    const Sge region = element(0, 0, MemoryKey{0x99});
    node.qp.post_send(made, {&region, 1});
  }
};

TEST_F(LocalOperationsTest, Bind_IsHandedOutInItsPlaceAndCompletesInOrder) {
  a->post(remote_request(WrOpcode::kRdmaWrite, 1, 0), {element(0, 8)});
  post_bind(*a, bind(2));
  a->post(remote_request(WrOpcode::kRdmaWrite, 3, 0), {element(0, 8)});
  const std::vector<Frame> frames = a->transmit(now);
  EXPECT_EQ(frames.size(), 2U);
  ASSERT_EQ(a->locals.size(), 1U);
  const LocalOp& local = a->locals[0];
  EXPECT_EQ(local.kind, LocalOp::Kind::kBind);
  EXPECT_EQ(local.key, kKey);
  EXPECT_EQ(local.bind_key, MemoryKey{0x77});
  EXPECT_EQ(local.region_key, MemoryKey{0x99});
  EXPECT_EQ(local.access, kAccessRemoteWrite);
  EXPECT_EQ(local.address, 0x5000U);
  EXPECT_EQ(local.length, std::uint64_t{1} << 40);
  EXPECT_TRUE(a->completions().empty());  // behind the WRITE
  deliver(frames, *b);
  run();
  const auto done = a->completions();
  ASSERT_EQ(ids(done), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(done[1].opcode, WcOpcode::kBindMw);
  EXPECT_EQ(done[1].status, WcStatus::kSuccess);
}

TEST_F(LocalOperationsTest, Bind_IsNotCarriedOutAgainWhenPacketsAreSentAgain) {
  a->post(remote_request(WrOpcode::kRdmaWrite, 1, 0), {element(0, 8)});
  post_bind(*a, bind(2));
  post_bind(*a, bind(3));
  a->post(remote_request(WrOpcode::kRdmaWrite, 4, 0), {element(0, 8)});
  EXPECT_EQ(a->transmit(now).size(), 2U);
  expire(*a);
  EXPECT_EQ(a->qp.counters().ack_timeouts, 1U);
  run();
  EXPECT_EQ(a->locals.size(), 2U);
  EXPECT_EQ(ids(a->completions()), (std::vector<std::uint64_t>{1, 2, 3, 4}));
  EXPECT_FALSE(a->qp.has_output(now));
}

TEST_F(LocalOperationsTest, Invalidate_FencedWaitsForReads) {
  a->post(remote_request(WrOpcode::kRdmaRead, 1, 0), {element(0, 8)});
  a->post(request(WrOpcode::kLocalInv, 2, kSendSignaled | kSendFence), {});
  const std::vector<Frame> frames = a->transmit(now);
  EXPECT_TRUE(a->locals.empty());
  deliver(frames, *b);
  run();
  ASSERT_EQ(a->locals.size(), 1U);
  EXPECT_EQ(a->locals[0].kind, LocalOp::Kind::kInvalidate);
  EXPECT_EQ(a->locals[0].key, kKey);
  const auto done = a->completions();
  ASSERT_EQ(ids(done), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(done[1].opcode, WcOpcode::kLocalInv);
}

TEST_F(LocalOperationsTest, Failure_ComesBehindWhatWasBefore) {
  a->local_result = MemoryResult::kProtection;
  a->post(remote_request(WrOpcode::kRdmaWrite, 1, 0), {element(0, 8)});
  post_bind(*a, bind(2));
  a->post(remote_request(WrOpcode::kRdmaWrite, 3, 0), {element(0, 8)});
  const std::vector<Frame> frames = a->transmit(now);
  EXPECT_EQ(frames.size(), 1U);
  EXPECT_EQ(a->qp.state(), QpState::kRts);
  deliver(frames, *b);
  run();
  EXPECT_EQ(a->qp.state(), QpState::kErr);
  const auto done = a->completions();
  ASSERT_EQ(ids(done), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kMwBindErr);
  EXPECT_EQ(done[2].status, WcStatus::kWrFlushErr);
}

TEST_F(LocalOperationsTest, Failure_OfAPayloadBehindALocalRequestFindsItsRequest) {
  post_bind(*a, bind(1));
  a->post(remote_request(WrOpcode::kRdmaWrite, 2, 0), {element(0, 8, kBadKey)});
  run();
  const auto done = a->completions();
  ASSERT_EQ(ids(done), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kLocProtErr);
}

TEST_F(LocalOperationsTest, Uc_BindsToo) {
  join(QpType::kUc);
  a->hold_departures = true;
  a->post(request(WrOpcode::kSend, 1), {element(0, 8)});
  post_bind(*a, bind(2));
  a->post(request(WrOpcode::kSend, 3), {element(0, 8)});
  EXPECT_EQ(a->transmit(now).size(), 2U);
  EXPECT_EQ(a->locals.size(), 1U);
  EXPECT_TRUE(a->completions().empty());
  a->qp.on_departed({}, now);
  EXPECT_EQ(ids(a->completions()), (std::vector<std::uint64_t>{1, 2}));
  a->qp.on_departed({}, now);
  EXPECT_EQ(ids(a->completions()), std::vector<std::uint64_t>{3});
}

TEST_F(LocalOperationsTest, Ud_DoesNotBind) {
  join(QpType::kUd);
  post_bind(*a, bind(1));
  EXPECT_TRUE(a->transmit(now).empty());
  const auto done = a->completions();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status, WcStatus::kLocQpOpErr);
}

TEST_F(LocalOperationsTest, SendWithInvalidate_InvalidatesOnceTheBytesAreThere) {
  for (const std::uint32_t bytes : {0U, 8U, 3 * kMtu}) {
    connect(usual_attributes(), usual_attributes());
    b->post_receive(9, {element(0, 100'000)});
    a->post(request(WrOpcode::kSendWithInv, 1), {element(0, bytes)});
    run();
    EXPECT_EQ(b->invalidated, std::vector<MemoryKey>{kKey});
    const auto received = b->completions();
    ASSERT_EQ(ids(received), std::vector<std::uint64_t>{9});
    EXPECT_EQ(received[0].flags, kWcWithInv);
    EXPECT_EQ(received[0].immediate, kKey.value);
    EXPECT_EQ(ids(a->completions()), std::vector<std::uint64_t>{1});
  }
}

TEST_F(LocalOperationsTest, SendWithInvalidate_OfAKeyThatIsNotThere) {
  b->post_receive(9, {element(0, 100)});
  SendRequest send = request(WrOpcode::kSendWithInv, 1);
  send.rkey = kBadKey;
  a->post(send, {element(0, 8)});
  run();
  const auto received = b->completions();
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0].status, WcStatus::kRemInvReqErr);
  EXPECT_EQ(b->qp.state(), QpState::kErr);
  const auto done = a->completions();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status, WcStatus::kRemAccessErr);
}

// ---- ATOMIC WRITE ----

TEST_F(LocalOperationsTest, AtomicWrite_IsAnsweredAndCarriedOutOnce) {
  fill(*a, 0, 8);
  a->post(remote_request(WrOpcode::kAtomicWrite, 1, 64), {element(0, 8)});
  std::vector<Frame> frames = a->transmit(now);
  ASSERT_EQ(frames.size(), 1U);
  EXPECT_EQ(frames[0].headers.opcode, wire::Opcode::kRcAtomicWrite);
  EXPECT_EQ(frames[0].headers.dma_length, 8U);
  deliver(frames, *b);
  EXPECT_TRUE(same(*a, 0, *b, 64, 8));
  const std::vector<Frame> lost = b->transmit(now);
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].headers.opcode, wire::Opcode::kRcReadResponseOnly);
  EXPECT_TRUE(lost[0].payload.empty());
  b->memory[64] = 0xAA;  // a repetition must not be written again
  expire(*a);
  run();
  EXPECT_EQ(b->memory[64], 0xAA);
  const auto done = a->completions();
  ASSERT_EQ(ids(done), std::vector<std::uint64_t>{1});
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[0].opcode, WcOpcode::kAtomicWrite);
  EXPECT_EQ(done[0].byte_len, 8U);
}

TEST_F(LocalOperationsTest, AtomicWrite_CountsAmongTheAtomics) {
  QpAttributes one = usual_attributes();
  one.max_rd_atomic = 1;
  connect(one, usual_attributes());
  a->post(remote_request(WrOpcode::kAtomicWrite, 1, 64), {element(0, 8)});
  a->post(remote_request(WrOpcode::kRdmaRead, 2, 64), {element(8, 8)});
  EXPECT_EQ(a->transmit(now).size(), 1U);
  one.max_rd_atomic = 0;
  connect(one, usual_attributes());
  a->post(remote_request(WrOpcode::kAtomicWrite, 1, 64), {element(0, 8)});
  EXPECT_TRUE(a->transmit(now).empty());
  EXPECT_EQ(a->completions().at(0).status, WcStatus::kLocQpOpErr);
}

TEST_F(LocalOperationsTest, AtomicWrite_Misaligned) {
  a->post(remote_request(WrOpcode::kAtomicWrite, 1, 65), {element(0, 8)});
  run();
  EXPECT_EQ(a->completions().at(0).status, WcStatus::kRemInvReqErr);
}

TEST_F(LocalOperationsTest, AtomicWrite_OfAnotherLength) {
  a->post(remote_request(WrOpcode::kAtomicWrite, 1, 64), {element(0, 4)});
  EXPECT_TRUE(a->transmit(now).empty());
  EXPECT_EQ(a->completions().at(0).status, WcStatus::kLocLenErr);
}

}  // namespace
}  // namespace urdma::transport
