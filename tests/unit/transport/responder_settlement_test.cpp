// What a responder owes and when: memory answers that come late, failures, errors and flushes.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "responder_fixture.hpp"

namespace urdma::transport {
namespace {

using NakCode = wire::NakCode;
using Opcode = wire::Opcode;
using Kind = MemoryOp::Kind;

TEST_F(ResponderTest, OnMemoryDone_AcksAndCompletionsFollowTheBytes) {
  for (std::uint32_t i = 0; i < 4; ++i) {
    offer(i, 10);
    EXPECT_EQ(send(i, Opcode::kRcSendOnly, 10).kind, Kind::kScatter);
  }
  EXPECT_EQ(responder.unanswered_operations(), 4U);
  expect_nothing();
  EXPECT_TRUE(completions().empty());
  answer();
  answer();
  expect_ack(1, 2);
  EXPECT_EQ(completions().size(), 2U);
  answer();
  expect_ack(2, 3);
  answer();
  expect_ack(3, 4);
  EXPECT_EQ(completions().size(), 2U);
}

TEST_F(ResponderTest, OnMemoryDone_WhatMovesNothingKeepsItsPlace) {
  offer(0, 10);
  EXPECT_EQ(send(0, Opcode::kRcSendOnly, 10).kind, Kind::kScatter);
  offer(1, 10);
  EXPECT_EQ(send(1, Opcode::kRcSendOnly, 0).kind, Kind::kNothing);
  EXPECT_TRUE(completions().empty());
  answer();
  EXPECT_EQ(completions().size(), 1U);
  answer();
  EXPECT_EQ(completions().size(), 1U);
  expect_ack(1, 2);
}

TEST_F(ResponderTest, OnMemoryDone_GapNakComesBehindWhatIsNotInPlace) {
  write(0, Opcode::kRcWriteOnly, 1, 1);
  EXPECT_EQ(write(2, Opcode::kRcWriteOnly, 1, 1).kind, Kind::kNothing);
  expect_nothing();
  answer();
  answer();
  expect_nak(1, NakCode::kPsnSequenceError);
}

TEST_F(ResponderTest, OnMemoryDone_RnrNakComesBehindWhatIsNotInPlace) {
  write(0, Opcode::kRcWriteOnly, 1, 1);
  EXPECT_EQ(send(1, Opcode::kRcSendOnly, 1).kind, Kind::kNothing);
  expect_nothing();
  answer();
  answer();
  expect_rnr(1);
}

TEST_F(ResponderTest, OnMemoryDone_ReadIsAnsweredAfterTheWriteBeforeIt) {
  write(0, Opcode::kRcWriteOnly, 8, 8);
  read(1, 8);
  answer();
  expect_ack(0, 1);
  answer();
  EXPECT_EQ(transmit().size(), 1U);
}

TEST_F(ResponderTest, CanAccept_FalseWhenTheFifoIsFull) {
  for (std::uint32_t i = 0; i < SettlementQueue::kSlots; ++i) {
    EXPECT_TRUE(responder.can_accept());
    write(i, Opcode::kRcWriteOnly, 1, 1);
  }
  EXPECT_FALSE(responder.can_accept());
  EXPECT_EQ(write(64, Opcode::kRcWriteOnly, 1, 1).kind, Kind::kNone);
  answer();
  EXPECT_EQ(write(64, Opcode::kRcWriteOnly, 1, 1).kind, Kind::kWrite);
}

TEST_F(ResponderTest, CanAccept_FalseWhenNoReceiveFits) {
  for (std::uint32_t i = 0; i < ReceiveQueue::kSlots; ++i) {
    offer(i, 10);
    EXPECT_TRUE(responder.can_accept());
    send(i, Opcode::kRcSendOnly, 10);
  }
  EXPECT_FALSE(responder.can_accept());
  EXPECT_FALSE(responder.wants_receive());
  answer();
  EXPECT_EQ(completions().size(), 1U);
  EXPECT_TRUE(responder.can_accept());
}

// ---- Failures ----

TEST_F(ResponderTest, SettleFailure_RemoteKeyOfEachOperation) {
  for (int operation = 0; operation < 3; ++operation) {
    start(attributes_);
    if (operation == 0) write(0, Opcode::kRcWriteOnly, 8, 8);
    if (operation == 1) read(0, 8);
    if (operation == 2) fetch_add(0);
    answer(MemoryResult::kProtection);
    EXPECT_EQ(responder.failure(), Responder::Failure::kAccess);
    expect_nak(0, NakCode::kRemoteAccessError);
  }
}

TEST_F(ResponderTest, SettleFailure_MemoryThatIsGone) {
  write(0, Opcode::kRcWriteOnly, 8, 8);
  answer(MemoryResult::kFault);
  expect_nak(0, NakCode::kRemoteOperationalError);
}

TEST_F(ResponderTest, SettleFailure_OwnReceiveElements) {
  offer(3, 10);
  send(0, Opcode::kRcSendOnly, 10);
  answer(MemoryResult::kProtection);
  EXPECT_EQ(responder.failure(), Responder::Failure::kCompletion);
  expect_nak(0, NakCode::kRemoteOperationalError);
  const auto done = completions();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].wr_id, 3U);
  EXPECT_EQ(done[0].status, WcStatus::kLocProtErr);
  EXPECT_TRUE(done[0].is_solicited);
}

TEST_F(ResponderTest, SettleFailure_ReceiveIsTooShort) {
  for (const bool is_in_the_middle : {false, true}) {
    start(attributes_);
    offer(3, is_in_the_middle ? kMtu + 9 : 9);
    if (is_in_the_middle) {
      send(0, Opcode::kRcSendFirst, kMtu);
      answer();
      send(1, Opcode::kRcSendLast, 10);
    } else {
      send(0, Opcode::kRcSendOnly, 10);
    }
    EXPECT_EQ(responder.failure(), Responder::Failure::kCompletion);
    expect_nak(is_in_the_middle ? 1 : 0, NakCode::kInvalidRequest);
    const auto done = completions();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, WcStatus::kLocLenErr);
  }
}

TEST_F(ResponderTest, SettleFailure_ReceiveThatJustFits) {
  offer(3, 10);
  EXPECT_EQ(send(0, Opcode::kRcSendOnly, 10).kind, Kind::kScatter);
}

TEST_F(ResponderTest, SettleFailure_RejectionTakesTheReceiveInUseAlong) {
  offer(3, 10 * kMtu);
  send(0, Opcode::kRcSendFirst, kMtu);
  answer();
  send(1, Opcode::kRcSendOnly, 10);
  expect_rejected(1);
  const auto done = completions();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status, WcStatus::kRemInvReqErr);
}

TEST_F(ResponderTest, SettleFailure_LaterAnswersAreIgnoredAndHoldTheFlush) {
  write(0, Opcode::kRcWriteOnly, 8, 8);
  offer(1, 10);
  send(1, Opcode::kRcSendOnly, 10);
  write(2, Opcode::kRcWriteOnly, 8, 8);
  answer(MemoryResult::kProtection);
  responder.stop();  // as the QP does
  EXPECT_EQ(responder.unanswered_operations(), 2U);
  EXPECT_TRUE(completions().empty());
  EXPECT_FALSE(responder.can_complete());
  answer();
  EXPECT_TRUE(completions().empty());
  answer();
  EXPECT_EQ(responder.unanswered_operations(), 0U);
  EXPECT_TRUE(responder.can_complete());
  const auto done = completions();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status, WcStatus::kWrFlushErr);
  expect_nak(0, NakCode::kRemoteAccessError);
}

TEST_F(ResponderTest, SettleFailure_WhatCameBeforeIsStillAnswered) {
  read(0, 2 * kMtu);
  write(2, Opcode::kRcWriteOnly, 8, 8);
  answer();
  answer(MemoryResult::kProtection);
  responder.stop();
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 3U);
  EXPECT_EQ(packets[1].headers.opcode, Opcode::kRcReadResponseLast);
  EXPECT_EQ(packets[2].headers.aeth_kind, wire::AethKind::kNak);
}

TEST_F(ResponderTest, OnGatherFailed_EndsTheConnection) {
  read(0, 3 * kMtu);
  answer();
  write(3, Opcode::kRcWriteOnly, 1, 1);
  answer();
  TxPacket packet;
  ASSERT_TRUE(responder.poll_transmit(packet));
  responder.on_gather_failed(psn(0), MemoryResult::kProtection);
  EXPECT_EQ(responder.failure(), Responder::Failure::kAccess);
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].headers.aeth_value, static_cast<std::uint8_t>(NakCode::kRemoteAccessError));
}

// ---- Stop and reset ----

TEST_F(ResponderTest, Stop_FlushesWhatIsAtHandAndWhatIsOffered) {
  offer(1, 10);
  responder.stop();
  EXPECT_TRUE(responder.wants_receive());
  offer(2, 10);
  offer(3, 10);
  const auto done = completions();
  ASSERT_EQ(done.size(), 3U);
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(done[i].wr_id, i + 1);
    EXPECT_EQ(done[i].status, WcStatus::kWrFlushErr);
    EXPECT_EQ(done[i].reason, FailureReason::kFlushed);
  }
}

TEST_F(ResponderTest, Stop_SendsNothingMore) {
  read(0, 3 * kMtu);
  answer();
  responder.stop();
  expect_nothing();
}

TEST_F(ResponderTest, Reset_LateAnswersOfForgottenOperationsAreIgnored) {
  write(0, Opcode::kRcWriteOnly, 8, 8);
  start(attributes_);
  write(0, Opcode::kRcWriteOnly, 8, 8);
  answer(MemoryResult::kProtection);  // of the forgotten one
  EXPECT_EQ(responder.failure(), Responder::Failure::kNone);
  expect_nothing();
  answer();
  expect_ack(0, 1);
}

}  // namespace
}  // namespace urdma::transport
