// The requester of UC and UD: departures, failures, and the way out of SQE.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/unreliable_requester.hpp"

#include "unreliable_fixture.hpp"

namespace urdma::transport {
namespace {

class UnreliableRequesterTest : public UnreliableTest {
 protected:
  void SetUp() override {
    join(QpType::kUc);
    a->hold_departures = true;
  }
  void depart(std::uint32_t packets) {
    for (; packets > 0; --packets) a->qp.on_departed({}, now);
  }
  void back_to_rts() {
    QpAttributes attributes;
    attributes.state = QpState::kRts;
    ASSERT_EQ(a->qp.modify(kAttrState, attributes, now), 0);
  }
};

TEST_F(UnreliableRequesterTest, PollTransmit_EachPacketAsksForItsDeparture) {
  a->post(remote_request(WrOpcode::kRdmaWriteWithImm, 1, 0x1000, kSendSignaled | kSendSolicited),
          {element(0, 2 * kMtu + 1)});
  std::vector<TxPacket> packets;
  for (TxPacket packet; a->qp.poll_transmit(now, packet);) packets.push_back(packet);
  ASSERT_EQ(packets.size(), 3U);
  using enum wire::Opcode;
  const wire::Opcode opcodes[] = {kUcWriteFirst, kUcWriteMiddle, kUcWriteLastImm};
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(packets[i].reports_departure);
    EXPECT_EQ(packets[i].headers.opcode, opcodes[i]);
    EXPECT_EQ(packets[i].headers.psn, kFirstPsn.plus(i));
    EXPECT_FALSE(packets[i].headers.ack_request);
    EXPECT_EQ(packets[i].headers.solicited, i == 2);
    EXPECT_EQ(packets[i].payload.offset, i * kMtu);
  }
  EXPECT_EQ(packets[0].headers.address, 0x1000U);
  EXPECT_EQ(packets[0].headers.dma_length, 2 * kMtu + 1);
}

TEST_F(UnreliableRequesterTest, PollCompletion_UnsignalledOnesAreSilent) {
  a->post(request(WrOpcode::kSend, 1, 0), {element(0, 8)});
  a->post(request(WrOpcode::kSend, 2), {element(0, 8)});
  EXPECT_EQ(a->transmit(now).size(), 2U);
  depart(2);
  const auto done = a->completions();
  ASSERT_EQ(ids(done), std::vector<std::uint64_t>{2});
  EXPECT_EQ(done[0].wqe_index, 2U);
}

TEST_F(UnreliableRequesterTest, Post_BadInItselfWaitsForWhatIsBefore) {
  a->post(request(WrOpcode::kSend, 1), {element(0, 8)});
  SendRequest bad = request(WrOpcode::kSend, 2);
  bad.verdict = WcStatus::kLocProtErr;
  a->post(bad, {element(0, 8)});
  EXPECT_EQ(a->transmit(now).size(), 1U);
  EXPECT_EQ(a->qp.state(), QpState::kRts);
  depart(1);
  EXPECT_EQ(a->qp.state(), QpState::kSqe);
  const auto done = a->completions();
  ASSERT_EQ(ids(done), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(done[1].status, WcStatus::kLocProtErr);
}

TEST_F(UnreliableRequesterTest, OnGatherFailed_FlushWaitsForWhatWasHandedOut) {
  a->post(request(WrOpcode::kSend, 1), {element(0, 2 * kMtu)});
  a->post(request(WrOpcode::kSend, 2), {element(0, 8)});
  EXPECT_EQ(a->transmit(now).size(), 3U);
  a->qp.on_gather_failed({}, MemoryResult::kFault, now);
  EXPECT_EQ(a->qp.state(), QpState::kSqe);
  EXPECT_TRUE(a->completions().empty());
  depart(1);
  EXPECT_TRUE(a->completions().empty());
  depart(1);
  const auto done = a->completions();
  ASSERT_EQ(ids(done), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(done[0].status, WcStatus::kLocProtErr);
  EXPECT_EQ(done[1].status, WcStatus::kWrFlushErr);
}

TEST_F(UnreliableRequesterTest, Resume_AnswersOfBeforeAreNotTakenForThoseOfNewPackets) {
  a->post(request(WrOpcode::kSend, 1), {element(0, 2 * kMtu)});
  EXPECT_EQ(a->transmit(now).size(), 2U);
  a->qp.on_gather_failed({}, MemoryResult::kFault, now);
  back_to_rts();
  a->post(request(WrOpcode::kSend, 2), {element(0, 8)});
  EXPECT_EQ(a->transmit(now).size(), 1U);
  depart(1);  // the second packet of the first request
  EXPECT_EQ(ids(a->completions()), std::vector<std::uint64_t>{1});
  depart(1);
  EXPECT_EQ(ids(a->completions()), std::vector<std::uint64_t>{2});
}

TEST_F(UnreliableRequesterTest, Stop_AfterSqeKeepsTheReason) {
  a->post(request(WrOpcode::kSend, 1), {element(0, 8)});
  EXPECT_EQ(a->transmit(now).size(), 1U);
  a->qp.on_gather_failed({}, MemoryResult::kFault, now);
  a->post(request(WrOpcode::kSend, 2), {element(0, 8)});
  a->qp.fail(FailureReason::kCqOverrun);
  const auto done = a->completions();
  ASSERT_EQ(ids(done), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(done[0].status, WcStatus::kLocProtErr);
  EXPECT_EQ(done[1].status, WcStatus::kWrFlushErr);
  depart(3);  // too many, and too late
  EXPECT_TRUE(a->completions().empty());
}

TEST_F(UnreliableRequesterTest, Reset_ForgetsEverything) {
  a->post(request(WrOpcode::kSend, 1), {element(0, 8)});
  EXPECT_EQ(a->transmit(now).size(), 1U);
  QpAttributes attributes;
  ASSERT_EQ(a->qp.modify(kAttrState, attributes, now), 0);
  EXPECT_TRUE(a->completions().empty());
  raise_unreliable(a->qp, QpType::kUc, QpState::kRts, usual_attributes(), now);
  a->post(request(WrOpcode::kSend, 2), {element(0, 8)});
  EXPECT_EQ(a->transmit(now).size(), 1U);
  EXPECT_TRUE(a->completions().empty());
  depart(1);
  EXPECT_EQ(ids(a->completions()), std::vector<std::uint64_t>{2});
}

}  // namespace
}  // namespace urdma::transport
