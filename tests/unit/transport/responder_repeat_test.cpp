// What a responder makes of packets that it has taken before (IBTA 9.7.5.1.2).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "responder_fixture.hpp"

namespace urdma::transport {
namespace {

using Opcode = wire::Opcode;
using Kind = MemoryOp::Kind;

// ---- Duplicates ----

TEST_F(ResponderTest, Repeat_SendAndWriteAreAcknowledgedWithTheLatest) {
  offer(1, 10);
  send(0, Opcode::kRcSendOnly, 10);
  write(1, Opcode::kRcWriteOnly, 1, 1);
  answer();
  answer();
  transmit();
  completions();
  EXPECT_EQ(send(0, Opcode::kRcSendOnly, 10).kind, Kind::kNone);
  expect_ack(1, 2);
  EXPECT_EQ(write(1, Opcode::kRcWriteOnly, 1, 1).kind, Kind::kNone);
  expect_ack(1, 2);
  EXPECT_TRUE(completions().empty());
  EXPECT_EQ(counters.duplicates_received, 2U);
}

// rxe completes an atomic, or a READ of one packet, with a plain ACK of its PSN.
TEST_F(ResponderTest, Repeat_IsAcknowledgedAloneInFrontOfAnAnswer) {
  write(0, Opcode::kRcWriteOnly, 1, 1);
  answer();
  fetch_add(1);
  answer(MemoryResult::kOk, 77);
  transmit();
  write(0, Opcode::kRcWriteOnly, 1, 1);
  expect_ack(0, 2);
  read(2, 1);
  answer();
  transmit();
  write(0, Opcode::kRcWriteOnly, 1, 1);
  expect_ack(0, 3);
}

TEST_F(ResponderTest, Repeat_IsNotAcknowledgedBeforeItsBytesAreInPlace) {
  write(0, Opcode::kRcWriteOnly, 1, 1);
  EXPECT_EQ(write(0, Opcode::kRcWriteOnly, 1, 1).kind, Kind::kNone);
  expect_nothing();
  answer();
  expect_ack(0, 1);
}

TEST_F(ResponderTest, Repeat_ReadIsReadAgain) {
  read(0, 3 * kMtu);
  answer();
  EXPECT_EQ(transmit().size(), 3U);
  const MemoryOp operation = read(0, 3 * kMtu);
  EXPECT_EQ(operation.kind, Kind::kCheck);
  answer();
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 3U);
  EXPECT_EQ(packets[0].headers.psn, psn(0));
  EXPECT_EQ(packets[0].headers.msn, 1U);
}

TEST_F(ResponderTest, Repeat_RestOfARead) {
  read(0, 3 * kMtu);
  answer();
  transmit();
  read(1, 2 * kMtu, 0x10000 + kMtu);
  answer();
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_EQ(packets[0].headers.opcode, Opcode::kRcReadResponseFirst);
  EXPECT_EQ(packets[0].headers.psn, psn(1));
  EXPECT_EQ(packets[0].payload.address, 0x10000U + kMtu);
}

TEST_F(ResponderTest, Repeat_ReadBeyondTheOriginalIsDropped) {
  read(0, 3 * kMtu);
  answer();
  transmit();
  EXPECT_EQ(read(1, 3 * kMtu).kind, Kind::kNone);
  expect_nothing();
}

TEST_F(ResponderTest, Repeat_ReadThatIsStillToBeAnsweredIsDropped) {
  read(0, 3 * kMtu);
  EXPECT_EQ(read(0, 3 * kMtu).kind, Kind::kNone);
  answer();
  EXPECT_EQ(read(0, 3 * kMtu).kind, Kind::kNone);
  EXPECT_EQ(transmit().size(), 3U);
}

TEST_F(ResponderTest, Repeat_ReadDoesNotCountAsOutstanding) {
  for (int i = 0; i < 20; ++i) {
    read(0, kMtu);
    answer();
    EXPECT_EQ(transmit().size(), 1U);
  }
  EXPECT_EQ(responder.failure(), Responder::Failure::kNone);
}

TEST_F(ResponderTest, Repeat_AtomicAnswersTheSavedResult) {
  fetch_add(0);
  answer(MemoryResult::kOk, 41);
  fetch_add(1);
  answer(MemoryResult::kOk, 42);
  transmit();
  EXPECT_EQ(fetch_add(0).kind, Kind::kNone);
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].headers.opcode, Opcode::kRcAtomicAck);
  EXPECT_EQ(packets[0].headers.atomic_original, 41U);
  EXPECT_EQ(packets[0].headers.psn, psn(0));
}

TEST_F(ResponderTest, Repeat_AtomicThatIsBeingCarriedOutIsDropped) {
  EXPECT_EQ(fetch_add(0).kind, Kind::kAtomic);
  EXPECT_EQ(fetch_add(0).kind, Kind::kNone);
  expect_nothing();
  answer(MemoryResult::kOk, 41);
  EXPECT_EQ(fetch_add(0).kind, Kind::kNone);
  EXPECT_EQ(transmit().size(), 1U);
}

TEST_F(ResponderTest, Repeat_ForgottenAtomicIsNeverCarriedOutAgain) {
  for (std::uint32_t i = 0; i < 40; ++i) {
    fetch_add(i);
    answer();
    transmit();
  }
  EXPECT_EQ(fetch_add(0).kind, Kind::kNone);
  expect_nothing();
}

TEST_F(ResponderTest, Repeat_AckStaysBehindAReadThatIsBeingSent) {
  write(0, Opcode::kRcWriteOnly, 1, 1);
  answer();
  transmit();
  read(1, 3 * kMtu);
  answer();
  write(4, Opcode::kRcWriteOnly, 1, 1);
  answer();
  write(0, Opcode::kRcWriteOnly, 1, 1);
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 4U);
  EXPECT_EQ(packets[3].headers.opcode, Opcode::kRcAck);
  EXPECT_EQ(packets[3].headers.psn, psn(4));
}

}  // namespace
}  // namespace urdma::transport
