// What a requester sends, and in which order it completes.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/requester.hpp"

#include "requester_fixture.hpp"

namespace urdma::transport {
namespace {

using wire::Opcode;

TEST_F(RequesterTest, PollTransmit_OpcodesOfEachOperation) {
  struct Case {
    WrOpcode opcode;
    Opcode first, middle, last, only;
  };
  const Case cases[] = {
      {WrOpcode::kSend, Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLast,
       Opcode::kRcSendOnly},
      {WrOpcode::kSendWithImm, Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLastImm,
       Opcode::kRcSendOnlyImm},
      {WrOpcode::kSendWithInv, Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLastInv,
       Opcode::kRcSendOnlyInv},
      {WrOpcode::kRdmaWrite, Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLast,
       Opcode::kRcWriteOnly},
      {WrOpcode::kRdmaWriteWithImm, Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLastImm,
       Opcode::kRcWriteOnlyImm},
  };
  for (const Case& each : cases) {
    post(each.opcode, 1, 3 * kMtu);
    post(each.opcode, 2, kMtu);
    const auto packets = transmit();
    ASSERT_EQ(packets.size(), 4U);
    EXPECT_EQ(packets[0].headers.opcode, each.first);
    EXPECT_EQ(packets[1].headers.opcode, each.middle);
    EXPECT_EQ(packets[2].headers.opcode, each.last);
    EXPECT_EQ(packets[3].headers.opcode, each.only);
    start(attributes_);
  }
}

TEST_F(RequesterTest, PollTransmit_LengthsAroundThePacketSize) {
  struct Case {
    std::uint32_t length;
    std::vector<std::uint32_t> payloads;
  };
  const Case cases[] = {{0, {0}}, {kMtu - 1, {kMtu - 1}}, {kMtu, {kMtu}}, {kMtu + 1, {kMtu, 1}}};
  for (const Case& each : cases) {
    start(attributes_);
    post(WrOpcode::kSend, 1, each.length);
    const auto packets = transmit();
    ASSERT_EQ(packets.size(), each.payloads.size());
    for (std::size_t i = 0; i < packets.size(); ++i) {
      EXPECT_EQ(packets[i].headers.payload_bytes, each.payloads[i]);
      EXPECT_EQ(packets[i].payload.length, each.payloads[i]);
      EXPECT_EQ(packets[i].payload.kind, each.length == 0 ? Payload::Kind::kNone : Payload::Kind::kElements);
      EXPECT_EQ(packets[i].payload.offset, i * kMtu);
      EXPECT_EQ(packets[i].headers.psn, psn(static_cast<std::uint32_t>(i)));
      EXPECT_EQ(packets[i].headers.dest_qp, attributes_.dest_qpn);
    }
  }
}

TEST_F(RequesterTest, PollTransmit_HeaderFields) {
  SendRequest request;
  request.opcode = WrOpcode::kRdmaWriteWithImm;
  request.flags = kSendSolicited | kSendInline;
  request.immediate = 0x12345678;
  request.remote_address = 0xABCD0000;
  request.rkey = MemoryKey{77};
  request.length = kMtu + 5;
  request.wqe_index = 9;
  post(request);
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_EQ(packets[0].headers.address, 0xABCD0000U);
  EXPECT_EQ(packets[0].headers.rkey, MemoryKey{77});
  EXPECT_EQ(packets[0].headers.dma_length, kMtu + 5);
  EXPECT_FALSE(packets[0].headers.solicited);
  EXPECT_TRUE(packets[1].headers.solicited);
  EXPECT_EQ(packets[1].headers.immediate, 0x12345678U);
  EXPECT_EQ(packets[1].payload.kind, Payload::Kind::kInline);
  EXPECT_EQ(packets[1].payload.wqe_index, 9U);
}

TEST_F(RequesterTest, PollTransmit_AtomicHeaders) {
  SendRequest request;
  request.opcode = WrOpcode::kCompareSwap;
  request.compare_add = 5;
  request.swap = 6;
  request.length = 8;
  post(request);
  request.opcode = WrOpcode::kFetchAdd;
  post(request);
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_EQ(packets[0].headers.opcode, Opcode::kRcCompareSwap);
  EXPECT_EQ(packets[0].headers.compare, 5U);
  EXPECT_EQ(packets[0].headers.swap_or_add, 6U);
  EXPECT_EQ(packets[1].headers.opcode, Opcode::kRcFetchAdd);
  EXPECT_EQ(packets[1].headers.swap_or_add, 5U);
  EXPECT_EQ(packets[1].payload.kind, Payload::Kind::kNone);
}

TEST_F(RequesterTest, PollTransmit_AcksAreAskedForAtTheEndAndWithin) {
  post(WrOpcode::kSend, 1, 50 * kMtu);
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 50U);
  for (std::size_t i = 0; i < packets.size(); ++i)
    EXPECT_EQ(packets[i].headers.ack_request, i == 31 || i == 49) << i;
}

TEST_F(RequesterTest, PollTransmit_TheWindowEndsWithAnAckRequest) {
  post(WrOpcode::kSend, 1, 200 * kMtu);
  auto packets = transmit();
  ASSERT_EQ(packets.size(), CongestionControl::kInitialPackets);
  EXPECT_TRUE(packets.back().headers.ack_request);
  ack(9);
  packets = transmit();
  ASSERT_EQ(packets.size(), 10U);
  EXPECT_EQ(packets[0].headers.psn, psn(64));
  EXPECT_TRUE(packets.back().headers.ack_request);
}

TEST_F(RequesterTest, PollTransmit_ReadsBeyondTheLimitWait) {
  for (std::uint64_t id = 0; id < 6; ++id) post(WrOpcode::kRdmaRead, id, 10);
  EXPECT_EQ(flush(), 4U);
  read_response(0, Opcode::kRcReadResponseOnly, 10);
  EXPECT_EQ(flush(), 1U);
}

TEST_F(RequesterTest, PollTransmit_SendBehindAWaitingReadWaitsToo) {
  for (std::uint64_t id = 0; id < 5; ++id) post(WrOpcode::kRdmaRead, id, 10);
  post(WrOpcode::kSend, 9, 10);
  EXPECT_EQ(flush(), 4U);
  read_response(0, Opcode::kRcReadResponseOnly, 10);
  EXPECT_EQ(flush(), 2U);
}

TEST_F(RequesterTest, PollTransmit_LongReadIsAskedForInParts) {
  attributes_.max_rd_atomic = 2;
  start(attributes_);
  post(WrOpcode::kRdmaRead, 1, 1'100 * kMtu + 7);
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_EQ(packets[0].headers.dma_length, 512 * kMtu);
  EXPECT_EQ(packets[1].headers.dma_length, 512 * kMtu);
  EXPECT_EQ(packets[1].headers.psn, psn(512));
  EXPECT_EQ(packets[1].headers.address, 0x10000U + 512 * kMtu);
  for (std::uint32_t i = 0; i < 512; ++i) {
    EXPECT_EQ(flush(), 0U);
    const Opcode opcode = i == 0     ? Opcode::kRcReadResponseFirst
                          : i == 511 ? Opcode::kRcReadResponseLast
                                     : Opcode::kRcReadResponseMiddle;
    EXPECT_EQ(read_response(i, opcode, kMtu).kind, MemoryOp::Kind::kScatter);
    requester.on_memory_done(MemoryResult::kOk);
  }
  const auto rest = transmit();
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest[0].headers.dma_length, 76 * kMtu + 7);
  EXPECT_FALSE(requester.has_failed());
}

TEST_F(RequesterTest, PollTransmit_FenceWaitsForMemoryAndNotOnlyForTheAnswer) {
  post(WrOpcode::kRdmaRead, 1, 10);
  post(WrOpcode::kSend, 2, 10, kSendSignaled | kSendFence);
  EXPECT_EQ(flush(), 1U);
  EXPECT_EQ(read_response(0, Opcode::kRcReadResponseOnly, 10).kind, MemoryOp::Kind::kScatter);
  EXPECT_EQ(flush(), 0U);
  requester.on_memory_done(MemoryResult::kOk);
  EXPECT_EQ(flush(), 1U);
}

TEST_F(RequesterTest, PollTransmit_FenceDoesNotWaitForSends) {
  post(WrOpcode::kSend, 1, 10);
  post(WrOpcode::kSend, 2, 10, kSendSignaled | kSendFence);
  EXPECT_EQ(flush(), 2U);
}

TEST_F(RequesterTest, PollTransmit_FenceWaitsForAtomics) {
  post(WrOpcode::kFetchAdd, 1, 8);
  post(WrOpcode::kRdmaRead, 2, 8, kSendSignaled | kSendFence);
  EXPECT_EQ(flush(), 1U);
  EXPECT_TRUE(atomic_answer(0, 5).has_value);
  EXPECT_EQ(flush(), 0U);
  requester.on_memory_done(MemoryResult::kOk);
  EXPECT_EQ(flush(), 1U);
}

TEST_F(RequesterTest, PollTransmit_PsnWraps) {
  start(attributes_, Psn{0xFFFFFE});
  for (std::uint64_t id = 0; id < 5; ++id) post(WrOpcode::kSend, id, kMtu + 1);
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 10U);
  EXPECT_EQ(packets[1].headers.psn.value(), 0xFFFFFFU);
  EXPECT_EQ(packets[2].headers.psn.value(), 0U);
  ack(3);
  expect_done({0, 1});
  nak(6, wire::NakCode::kPsnSequenceError);
  EXPECT_EQ(flush(), 4U);
  ack(9);
  expect_done({2, 3, 4});
}

TEST_F(RequesterTest, PollTransmit_TwoGibibytesInSmallPackets) {
  attributes_.packet_bytes = 256;
  start(attributes_, Psn{0xFFFF00});
  SendRequest request;
  request.opcode = WrOpcode::kRdmaWrite;
  request.flags = kSendSignaled;
  request.length = kMaxMessageBytes;
  post(request);
  std::uint64_t bytes = 0;
  std::uint32_t packets = 0;
  for (TxPacket packet; bytes < kMaxMessageBytes;) {
    ASSERT_TRUE(requester.poll_transmit(now, packet));
    ASSERT_EQ(packet.payload.offset, bytes);
    bytes += packet.payload.length;
    ++packets;
    if (packet.headers.ack_request) ack(packets - 1);
  }
  EXPECT_EQ(packets, 1U << 23);
  EXPECT_EQ(completions().size(), 1U);
}

TEST_F(RequesterTest, PollCompletion_UnsignalledCompleteSilentlyAndInOrder) {
  post(WrOpcode::kSend, 1, 1, 0);
  post(WrOpcode::kSend, 2, 1);
  post(WrOpcode::kSend, 3, 1, 0);
  flush();
  ack(2);
  const auto all = completions();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].wr_id, 2U);
  EXPECT_EQ(all[0].wqe_index, 2U);  // behind the second slot: both are free
}

TEST_F(RequesterTest, PollCompletion_SilentOnesFreeTheirSlotsWithoutPolling) {
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t id = 0; id < 64; ++id) {
      ASSERT_TRUE(requester.has_room());
      post(WrOpcode::kSend, id, 1, 0);
    }
    EXPECT_FALSE(requester.has_room());
    flush();
    ack(static_cast<std::uint32_t>(round) * 64 + 63);
  }
}

TEST_F(RequesterTest, PollCompletion_SignalAllReportsAll) {
  QpConfig config = small_config();
  config.signal_all = true;
  QpCounters counted;
  Requester all_signalled(config, counted);
  all_signalled.configure(attributes_);
  all_signalled.start(kFirstPsn);
  SendRequest request;
  all_signalled.post(request, {});
  TxPacket packet;
  ASSERT_TRUE(all_signalled.poll_transmit(now, packet));
  wire::Headers headers;
  headers.psn = kFirstPsn;
  EXPECT_EQ(all_signalled.on_packet(headers, now).kind, MemoryOp::Kind::kNone);
  Completion completion;
  EXPECT_TRUE(all_signalled.poll_completion(completion));
}

TEST_F(RequesterTest, PollCompletion_ReadWaitsForMemoryAndHoldsUpLaterSends) {
  post(WrOpcode::kRdmaRead, 1, 10);
  post(WrOpcode::kSend, 2, 10);
  flush();
  read_response(0, Opcode::kRcReadResponseOnly, 10);
  ack(1);
  EXPECT_TRUE(completions().empty());
  requester.on_memory_done(MemoryResult::kOk);
  expect_done({1, 2});
}

TEST_F(RequesterTest, Post_BadVerdictFailsOnceItIsFirst) {
  post(WrOpcode::kSend, 1, 10);
  SendRequest bad;
  bad.wr_id = 2;
  bad.verdict = WcStatus::kLocQpOpErr;
  post(bad);
  post(WrOpcode::kSend, 3, 10);
  EXPECT_EQ(flush(), 1U);
  EXPECT_FALSE(requester.has_failed());
  ack(0);
  expect_done({1});
  expect_failed({2, 3}, WcStatus::kLocQpOpErr, FailureReason::kLocalOperation);
}

TEST_F(RequesterTest, Post_BadVerdictWaitsForMemoryOfEarlierOnes) {
  post(WrOpcode::kRdmaRead, 1, 10);
  SendRequest bad;
  bad.wr_id = 2;
  bad.verdict = WcStatus::kLocLenErr;
  post(bad);
  flush();
  read_response(0, Opcode::kRcReadResponseOnly, 10);
  requester.stop();
  EXPECT_TRUE(completions().empty());
  requester.on_memory_done(MemoryResult::kOk);
  const auto all = completions();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].status, WcStatus::kSuccess);
  EXPECT_EQ(all[1].status, WcStatus::kLocLenErr);
}

TEST_F(RequesterTest, Post_ReadWithoutInitiatorDepthFails) {
  attributes_.max_rd_atomic = 0;
  start(attributes_);
  post(WrOpcode::kRdmaRead, 1, 10);
  EXPECT_EQ(flush(), 0U);
  expect_failed({1}, WcStatus::kLocQpOpErr, FailureReason::kLocalOperation);
}

TEST_F(RequesterTest, Stop_FlushesInOrderAlsoWhatIsPostedLater) {
  for (std::uint64_t id = 0; id < 3; ++id) post(WrOpcode::kSend, id, 10, 0);
  flush();
  requester.stop();
  post(WrOpcode::kSend, 3, 10, 0);
  const auto all = completions();
  ASSERT_EQ(all.size(), 4U);
  for (std::uint64_t id = 0; id < 4; ++id) {
    EXPECT_EQ(all[id].wr_id, id);
    EXPECT_EQ(all[id].status, WcStatus::kWrFlushErr);
  }
  EXPECT_EQ(flush(), 0U);
  EXPECT_TRUE(requester.next_deadline().is_never());
}

TEST_F(RequesterTest, Stop_FlushWaitsForUnansweredMemory) {
  post(WrOpcode::kRdmaRead, 1, 2 * kMtu);
  post(WrOpcode::kSend, 2, 10);
  flush();
  read_response(0, Opcode::kRcReadResponseFirst, kMtu);
  requester.stop();
  EXPECT_TRUE(completions().empty());
  EXPECT_FALSE(requester.can_complete());
  requester.on_memory_done(MemoryResult::kOk);
  EXPECT_TRUE(requester.can_complete());
  EXPECT_EQ(completions().size(), 2U);
}

TEST_F(RequesterTest, Drain_BegunMessagesEndAndNoOtherBegins) {
  post(WrOpcode::kSend, 1, 100 * kMtu);
  post(WrOpcode::kSend, 2, 10);
  EXPECT_EQ(flush(), 64U);
  requester.drain();
  EXPECT_FALSE(requester.is_drained());
  ack(63);
  EXPECT_EQ(flush(), 36U);
  EXPECT_FALSE(requester.is_drained());
  ack(99);
  EXPECT_TRUE(requester.is_drained());
  EXPECT_EQ(flush(), 0U);
  expect_done({1});
  requester.resume(now);
  EXPECT_EQ(flush(), 1U);
}

TEST_F(RequesterTest, Drain_BadRequestFailsAfterResume) {
  requester.drain();
  SendRequest bad;
  bad.wr_id = 1;
  bad.verdict = WcStatus::kLocLenErr;
  post(bad);
  EXPECT_FALSE(requester.has_failed());
  requester.resume(now);
  expect_failed({1}, WcStatus::kLocLenErr, FailureReason::kLocalLength);
}

TEST_F(RequesterTest, Drain_RetransmitsWhatWasLost) {
  post(WrOpcode::kSend, 1, 10);
  flush();
  requester.drain();
  expire();
  EXPECT_EQ(flush(), 1U);
}

TEST_F(RequesterTest, Reset_ForgetsRequestsAndLateAnswers) {
  post(WrOpcode::kRdmaRead, 1, 10);
  flush();
  read_response(0, Opcode::kRcReadResponseOnly, 10);
  start(attributes_);
  EXPECT_TRUE(completions().empty());
  EXPECT_EQ(requester.unanswered_operations(), 1U);
  post(WrOpcode::kRdmaRead, 2, 10);
  flush();
  read_response(0, Opcode::kRcReadResponseOnly, 10);
  requester.on_memory_done(MemoryResult::kProtection);  // of the forgotten one
  EXPECT_TRUE(completions().empty());
  requester.on_memory_done(MemoryResult::kOk);
  expect_done({2});
  EXPECT_EQ(requester.unanswered_operations(), 0U);
}

}  // namespace
}  // namespace urdma::transport
