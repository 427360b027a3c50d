// What a requester makes of acknowledgements, answers, NAKs, memory results and timers.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "requester_fixture.hpp"

namespace urdma::transport {
namespace {

using wire::NakCode;
using wire::Opcode;

// ---- Acknowledgements ----

TEST_F(RequesterTest, OnAck_AcknowledgesAllUpToIt) {
  for (std::uint64_t id = 0; id < 4; ++id) post(WrOpcode::kSend, id, 10);
  flush();
  ack(2);
  expect_done({0, 1, 2});
  ack(3);
  expect_done({3});
  EXPECT_TRUE(requester.next_deadline().is_never());
}

TEST_F(RequesterTest, OnAck_MiddleOfAMessageDoesNotCompleteIt) {
  post(WrOpcode::kSend, 1, 3 * kMtu);
  flush();
  ack(1);
  EXPECT_TRUE(completions().empty());
  ack(2);
  expect_done({1});
}

TEST_F(RequesterTest, OnAck_OutsideOfWhatWasSentIsDropped) {
  post(WrOpcode::kSend, 1, 10);
  post(WrOpcode::kSend, 2, 10);
  flush();
  ack(2);
  ack(1'000);
  ack(static_cast<std::uint32_t>(-2));
  EXPECT_EQ(counters.dropped_invalid, 3U);
  EXPECT_TRUE(completions().empty());
  ack(1);
  expect_done({1, 2});
  ack(1);  // once more: harmless
  ack(0);
  EXPECT_TRUE(completions().empty());
}

TEST_F(RequesterTest, OnAck_AfterARewindSkipsWhatItCovers) {
  for (std::uint64_t id = 0; id < 4; ++id) post(WrOpcode::kSend, id, 10);
  flush();
  expire();
  ack(2);  // of the first time
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].headers.psn, psn(3));
  EXPECT_EQ(counters.packets_retransmitted, 1U);
}

TEST_F(RequesterTest, OnAck_OfWhatWasSentBeforeARewindAndNotAgainYet) {
  for (std::uint64_t id = 0; id < 3; ++id) post(WrOpcode::kSend, id, 10);
  flush();
  expire();
  TxPacket packet;
  ASSERT_TRUE(requester.poll_transmit(now, packet));
  ack(2);
  expect_done({0, 1, 2});
}

TEST_F(RequesterTest, OnAck_OfAReadIsAnImpliedNakOnce) {
  post(WrOpcode::kSend, 1, 10);
  post(WrOpcode::kRdmaRead, 2, 10);
  post(WrOpcode::kSend, 3, 10);
  flush();
  ack(2);
  expect_done({1});
  auto packets = transmit();
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_EQ(packets[0].headers.opcode, Opcode::kRcReadRequest);
  ack(2);
  EXPECT_EQ(flush(), 0U);
  EXPECT_EQ(counters.implied_naks, 1U);
  read_response(1, Opcode::kRcReadResponseOnly, 10);
  requester.on_memory_done(MemoryResult::kOk);
  ack(2);
  expect_done({2, 3});
}

TEST_F(RequesterTest, OnAck_ImpliedNakAgainAfterATimeout) {
  post(WrOpcode::kRdmaRead, 1, 10);
  post(WrOpcode::kSend, 2, 10);
  flush();
  ack(1);
  EXPECT_EQ(flush(), 2U);
  expire();
  EXPECT_EQ(flush(), 2U);
  ack(1);
  EXPECT_EQ(flush(), 2U);
  EXPECT_EQ(counters.implied_naks, 2U);
}

// ---- Sequence NAKs ----

TEST_F(RequesterTest, OnNak_SequenceErrorGoesBack) {
  for (std::uint64_t id = 0; id < 5; ++id) post(WrOpcode::kSend, id, 10);
  flush();
  nak(2, NakCode::kPsnSequenceError);
  expect_done({0, 1});
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 3U);
  EXPECT_EQ(packets[0].headers.psn, psn(2));
}

TEST_F(RequesterTest, OnNak_SequenceErrorHalvesTheWindow) {
  post(WrOpcode::kSend, 1, 200 * kMtu);
  EXPECT_EQ(flush(), 64U);
  nak(10, NakCode::kPsnSequenceError);
  EXPECT_EQ(flush(), 32U);
}

TEST_F(RequesterTest, OnNak_SequenceErrorWithProgressDoesNotCount) {
  attributes_.retry_count = 0;
  start(attributes_);
  for (std::uint64_t id = 0; id < 20; ++id) post(WrOpcode::kSend, id, 10);
  for (std::uint32_t i = 1; i < 20; ++i) {
    flush();
    nak(i, NakCode::kPsnSequenceError);
  }
  EXPECT_FALSE(requester.has_failed());
}

TEST_F(RequesterTest, OnNak_SequenceErrorsWithoutProgressGiveUp) {
  attributes_.retry_count = 2;
  start(attributes_);
  post(WrOpcode::kSend, 1, 10);
  post(WrOpcode::kSend, 2, 10);
  // With two packets in flight, two of three NAKs may stem from what was under way.
  for (int i = 0; i < 6; ++i) {
    ASSERT_EQ(flush(), 2U);
    nak(0, NakCode::kPsnSequenceError);
    ASSERT_FALSE(requester.has_failed());
  }
  flush();
  nak(0, NakCode::kPsnSequenceError);
  expect_failed({1, 2}, WcStatus::kRetryExcErr, FailureReason::kSequenceErrors);
}

TEST_F(RequesterTest, OnNak_SequenceErrorBeforeAnythingIsSentAgainIsTheSameOne) {
  attributes_.retry_count = 0;
  start(attributes_);
  post(WrOpcode::kSend, 1, 10);
  post(WrOpcode::kSend, 2, 10);
  flush();
  nak(1, NakCode::kPsnSequenceError);
  for (int i = 0; i < 10; ++i) nak(1, NakCode::kPsnSequenceError);
  EXPECT_FALSE(requester.has_failed());
  EXPECT_EQ(flush(), 1U);
}

// ---- Fatal NAKs ----

TEST_F(RequesterTest, OnNak_EachFatalCode) {
  struct Case {
    NakCode code;
    WcStatus status;
    FailureReason reason;
  };
  const Case cases[] = {
      {NakCode::kInvalidRequest, WcStatus::kRemInvReqErr, FailureReason::kRemoteInvalidRequest},
      {NakCode::kRemoteAccessError, WcStatus::kRemAccessErr, FailureReason::kRemoteAccess},
      {NakCode::kRemoteOperationalError, WcStatus::kRemOpErr, FailureReason::kRemoteOperation},
      {NakCode::kInvalidRdRequest, WcStatus::kRemInvReqErr, FailureReason::kRemoteInvalidRequest},
      {static_cast<NakCode>(17), WcStatus::kRemInvReqErr, FailureReason::kRemoteInvalidRequest},
  };
  for (const Case& each : cases) {
    start(attributes_);
    for (std::uint64_t id = 0; id < 4; ++id) post(WrOpcode::kSend, id, 10);
    flush();
    nak(2, each.code);
    EXPECT_EQ(flush(), 0U);
    const auto done = completions();
    ASSERT_EQ(done.size(), 3U);
    EXPECT_EQ(done[1].status, WcStatus::kSuccess);
    EXPECT_EQ(done[2].wr_id, 2U);
    EXPECT_EQ(done[2].status, each.status);
    EXPECT_EQ(done[2].reason, each.reason);
    requester.stop();
    const auto flushed = completions();
    ASSERT_EQ(flushed.size(), 1U);
    EXPECT_EQ(flushed[0].status, WcStatus::kWrFlushErr);
  }
}

TEST_F(RequesterTest, OnNak_ReservedKindIsDropped) {
  post(WrOpcode::kSend, 1, 10);
  flush();
  answer(0, wire::AethKind::kReserved, 0);
  EXPECT_EQ(counters.dropped_invalid, 1U);
  EXPECT_FALSE(requester.has_failed());
}

TEST_F(RequesterTest, OnNak_BehindAReadWithoutAnswerFailsTheRead) {
  post(WrOpcode::kRdmaRead, 1, 10);
  post(WrOpcode::kSend, 2, 10);
  flush();
  nak(1, NakCode::kRemoteOperationalError);
  expect_failed({1, 2}, WcStatus::kRemOpErr, FailureReason::kRemoteOperation);
}

// ---- RNR ----

TEST_F(RequesterTest, OnRnrNak_WaitsForEachCode) {
  for (std::uint8_t code = 0; code < 32; ++code) {
    start(attributes_);
    for (std::uint64_t id = 0; id < 3; ++id) post(WrOpcode::kSend, id, 10);
    flush();
    rnr(1, code);
    expect_done({0});
    EXPECT_EQ(flush(), 0U);
    EXPECT_EQ(requester.next_deadline(), now + rnr_delay(code));
    expire();
    const auto packets = transmit();
    ASSERT_EQ(packets.size(), 2U);
    EXPECT_EQ(packets[0].headers.psn, psn(1));
  }
}

TEST_F(RequesterTest, OnRnrNak_CountsDownAndFails) {
  for (std::uint8_t count = 0; count < 7; ++count) {
    attributes_.rnr_retry = count;
    start(attributes_);
    post(WrOpcode::kSend, 1, 10);
    post(WrOpcode::kSend, 2, 10);
    for (std::uint8_t i = 0; i < count; ++i) {
      ASSERT_EQ(flush(), 2U);
      rnr(0);
      ASSERT_FALSE(requester.has_failed());
      expire();
    }
    flush();
    rnr(0);
    expect_failed({1, 2}, WcStatus::kRnrRetryExcErr, FailureReason::kReceiverNotReady);
  }
}

TEST_F(RequesterTest, OnRnrNak_SevenIsForEver) {
  attributes_.rnr_retry = 7;
  start(attributes_);
  post(WrOpcode::kSend, 1, 10);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(flush(), 1U);
    rnr(0);
    expire();
  }
  flush();
  ack(0);
  expect_done({1});
}

TEST_F(RequesterTest, OnRnrNak_ProgressGivesTheCountBack) {
  attributes_.rnr_retry = 1;
  start(attributes_);
  for (std::uint64_t id = 0; id < 10; ++id) post(WrOpcode::kSend, id, 10);
  for (std::uint32_t i = 0; i < 10; ++i) {
    flush();
    rnr(i);
    expire();
  }
  EXPECT_FALSE(requester.has_failed());
}

TEST_F(RequesterTest, OnRnrNak_DuplicateWhileWaitingDoesNotCount) {
  attributes_.rnr_retry = 1;
  start(attributes_);
  post(WrOpcode::kSend, 1, 10);
  flush();
  for (int i = 0; i < 5; ++i) rnr(0);
  EXPECT_FALSE(requester.has_failed());
}

// ---- Time ----

TEST_F(RequesterTest, OnDeadline_SendsAgainFromTheOldest) {
  for (std::uint64_t id = 0; id < 3; ++id) post(WrOpcode::kSend, id, 10);
  flush();
  ack(0);
  expire();
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_EQ(packets[0].headers.psn, psn(1));
  EXPECT_EQ(counters.ack_timeouts, 1U);
}

TEST_F(RequesterTest, OnDeadline_GivesUpAndSaysThatNobodyAnswered) {
  post(WrOpcode::kSend, 1, 10);
  for (std::uint8_t i = 0; i < attributes_.retry_count; ++i) {
    ASSERT_EQ(flush(), 1U);
    expire();
    ASSERT_FALSE(requester.has_failed());
  }
  flush();
  expire();
  expect_failed({1}, WcStatus::kRetryExcErr, FailureReason::kNoAnswer);
}

TEST_F(RequesterTest, OnDeadline_GivesUpAndSaysThatAnswersStopped) {
  post(WrOpcode::kSend, 1, 10);
  post(WrOpcode::kSend, 2, 10);
  flush();
  ack(0);
  for (std::uint8_t i = 0; i <= attributes_.retry_count; ++i) {
    expire();
    flush();
  }
  expect_done({1});
  expect_failed({2}, WcStatus::kRetryExcErr, FailureReason::kAnswersStopped);
}

TEST_F(RequesterTest, OnDeadline_NoTimerWhileNothingIsUnacknowledged) {
  EXPECT_TRUE(requester.next_deadline().is_never());
  post(WrOpcode::kSend, 1, 10);
  flush();
  EXPECT_FALSE(requester.next_deadline().is_never());
  ack(0);
  EXPECT_TRUE(requester.next_deadline().is_never());
}

TEST_F(RequesterTest, OnDeadline_ReadIsAskedForAgain) {
  post(WrOpcode::kRdmaRead, 1, 3 * kMtu);
  flush();
  read_response(0, Opcode::kRcReadResponseFirst, kMtu);
  expire();
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].headers.psn, psn(1));
  EXPECT_EQ(packets[0].headers.dma_length, 2 * kMtu);
}

TEST_F(RequesterTest, OnDeadline_AtomicIsSentAgainAsItWas) {
  post(WrOpcode::kFetchAdd, 1, 8);
  const auto first = transmit();
  expire();
  const auto second = transmit();
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(first[0].headers.psn, second[0].headers.psn);
  EXPECT_EQ(first[0].headers.opcode, second[0].headers.opcode);
}

}  // namespace
}  // namespace urdma::transport
