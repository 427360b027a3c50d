// The responder's checks, one after the other, and what it makes of packets out of order and of duplicates.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/responder.hpp"

#include "responder_fixture.hpp"

namespace urdma::transport {
namespace {

using NakCode = wire::NakCode;
using Opcode = wire::Opcode;
using Kind = MemoryOp::Kind;

// ---- What is taken ----

TEST_F(ResponderTest, OnPacket_SendOfSeveralPackets) {
  offer(7, 3 * kMtu);
  MemoryOp operation = send(0, Opcode::kRcSendFirst, kMtu);
  EXPECT_EQ(operation.kind, Kind::kScatter);
  EXPECT_EQ(operation.side, Side::kResponder);
  EXPECT_EQ(operation.offset, 0U);
  answer();
  operation = send(1, Opcode::kRcSendMiddle, kMtu);
  EXPECT_EQ(operation.offset, kMtu);
  answer();
  transmit();
  operation = send(2, Opcode::kRcSendLast, 5);
  EXPECT_EQ(operation.offset, 2 * kMtu);
  EXPECT_EQ(operation.length, 5U);
  EXPECT_TRUE(completions().empty());
  expect_nothing();
  answer();
  expect_ack(2, 1);
  const auto done = completions();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].wr_id, 7U);
  EXPECT_EQ(done[0].opcode, WcOpcode::kRecv);
  EXPECT_EQ(done[0].byte_len, 2 * kMtu + 5);
  EXPECT_EQ(done[0].wqe_index, 8U);
}

TEST_F(ResponderTest, OnPacket_NoAckUnlessAskedFor) {
  offer(1, 10);
  wire::Headers made = headers(0, Opcode::kRcSendOnly, 10);
  made.ack_request = false;
  EXPECT_EQ(responder.on_packet(made).kind, Kind::kScatter);
  answer();
  expect_nothing();
  EXPECT_EQ(completions().size(), 1U);
}

TEST_F(ResponderTest, OnPacket_SendWithImmediateAndSolicited) {
  offer(1, 10);
  wire::Headers made = headers(0, Opcode::kRcSendOnlyImm, 10);
  made.immediate = 0xCAFE;
  made.solicited = true;
  EXPECT_EQ(responder.on_packet(made).kind, Kind::kScatter);
  answer();
  const auto done = completions();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].flags, kWcWithImm);
  EXPECT_EQ(done[0].immediate, 0xCAFEU);
  EXPECT_TRUE(done[0].is_solicited);
}

TEST_F(ResponderTest, OnPacket_SendWithInvalidate) {
  offer(1, 10);
  wire::Headers made = headers(0, Opcode::kRcSendOnlyInv, 10);
  made.invalidate_rkey = MemoryKey{0x77};
  EXPECT_EQ(responder.on_packet(made).kind, Kind::kScatter);
  answer();
  const auto done = completions();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].flags, kWcWithInv);
  EXPECT_EQ(done[0].immediate, 0x77U);
}

TEST_F(ResponderTest, OnPacket_SendWithoutBytesSettlesAtOnce) {
  offer(1, 0);
  EXPECT_EQ(send(0, Opcode::kRcSendOnly, 0).kind, Kind::kNone);
  expect_ack(0, 1);
  EXPECT_EQ(completions().size(), 1U);
}

TEST_F(ResponderTest, OnPacket_WriteChecksTheWholeLengthAtFirst) {
  MemoryOp operation = write(0, Opcode::kRcWriteFirst, kMtu, 2 * kMtu + 1);
  EXPECT_EQ(operation.kind, Kind::kWrite);
  EXPECT_EQ(operation.access, kAccessRemoteWrite);
  EXPECT_EQ(operation.address, 0x10000U);
  EXPECT_EQ(operation.length, kMtu);
  EXPECT_EQ(operation.check_bytes, 2 * kMtu + 1);
  operation = write(1, Opcode::kRcWriteMiddle, kMtu, 0);
  EXPECT_EQ(operation.address, 0x10000U + kMtu);
  EXPECT_EQ(operation.key, kKey);
  operation = write(2, Opcode::kRcWriteLast, 1, 0);
  EXPECT_EQ(operation.address, 0x10000U + 2 * kMtu);
  for (int i = 0; i < 3; ++i) answer();
  expect_ack(2, 1);
}

TEST_F(ResponderTest, OnPacket_WriteWithImmediateReportsThePayload) {
  offer(1, 0);  // a receive request without elements
  write(0, Opcode::kRcWriteFirst, kMtu, kMtu + 9);
  wire::Headers made = headers(1, Opcode::kRcWriteLastImm, 9);
  made.immediate = 5;
  EXPECT_EQ(responder.on_packet(made).kind, Kind::kWrite);
  answer();
  answer();
  const auto done = completions();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].opcode, WcOpcode::kRecvRdmaWithImm);
  EXPECT_EQ(done[0].byte_len, kMtu + 9);
  EXPECT_EQ(done[0].flags, kWcWithImm);
  EXPECT_EQ(done[0].immediate, 5U);
}

TEST_F(ResponderTest, OnPacket_NothingToMoveMeansThatKeyIsNotLookedAt) {
  wire::Headers made = headers(0, Opcode::kRcWriteOnly, 0);
  made.rkey = kBadKey;
  EXPECT_EQ(responder.on_packet(made).kind, Kind::kNone);
  expect_ack(0, 1);
  made = headers(1, Opcode::kRcReadRequest, 0);
  made.rkey = kBadKey;
  EXPECT_EQ(responder.on_packet(made).kind, Kind::kNone);
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].headers.opcode, Opcode::kRcReadResponseOnly);
}

TEST_F(ResponderTest, OnPacket_ReadIsCheckedThenStreamed) {
  const MemoryOp operation = read(0, 2 * kMtu + 1);
  EXPECT_EQ(operation.kind, Kind::kCheck);
  EXPECT_EQ(operation.access, kAccessRemoteRead);
  EXPECT_EQ(operation.check_bytes, 2 * kMtu + 1);
  expect_nothing();
  answer();
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 3U);
  EXPECT_EQ(packets[2].headers.psn, psn(2));
  EXPECT_EQ(packets[2].headers.msn, 1U);
  EXPECT_EQ(fetch_add(3).kind, Kind::kAtomic);  // the READ took three PSNs
}

TEST_F(ResponderTest, OnPacket_AtomicAnswersTheOriginal) {
  wire::Headers made = headers(0, Opcode::kRcCompareSwap, 0);
  made.swap_or_add = 8;
  made.compare = 9;
  const MemoryOp operation = responder.on_packet(made);
  EXPECT_EQ(operation.kind, Kind::kAtomic);
  EXPECT_TRUE(operation.is_compare_swap);
  EXPECT_EQ(operation.swap_or_add, 8U);
  EXPECT_EQ(operation.compare, 9U);
  EXPECT_EQ(operation.check_bytes, 8U);
  answer(MemoryResult::kOk, 1234);
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].headers.opcode, Opcode::kRcAtomicAck);
  EXPECT_EQ(packets[0].headers.atomic_original, 1234U);
}

TEST_F(ResponderTest, OnPacket_PsnAndMsnWrap) {
  start(attributes_, Psn{0xFFFFFE});
  for (std::uint32_t i = 0; i < 5; ++i) {
    write(i, Opcode::kRcWriteOnly, 1, 1);
    answer();
    expect_ack(i, i + 1);
  }
}

// ---- State ----

TEST_F(ResponderTest, CheckState_NothingIsTakenBeforeStartAndAfterStop) {
  responder.reset();
  write(0, Opcode::kRcWriteOnly, 1, 1);
  responder.start(kFirstPsn);
  responder.stop();
  EXPECT_EQ(write(0, Opcode::kRcWriteOnly, 1, 1).kind, Kind::kNone);
  EXPECT_EQ(counters.dropped_invalid, 2U);
  expect_nothing();
}

// ---- PSN ----

TEST_F(ResponderTest, CheckPsn_OneNakForAGap) {
  write(0, Opcode::kRcWriteOnly, 1, 1);
  answer();
  transmit();
  write(2, Opcode::kRcWriteOnly, 1, 1);
  expect_nak(1, NakCode::kPsnSequenceError);
  write(3, Opcode::kRcWriteOnly, 1, 1);
  write(4, Opcode::kRcWriteOnly, 1, 1);
  expect_nothing();
  EXPECT_EQ(counters.sequence_naks_sent, 1U);
}

TEST_F(ResponderTest, CheckPsn_NakAgainWhenTheRequesterHasGoneBack) {
  for (std::uint32_t i = 1; i < 5; ++i) write(i, Opcode::kRcWriteOnly, 1, 1);
  EXPECT_EQ(counters.sequence_naks_sent, 1U);
  for (std::uint32_t i = 1; i < 5; ++i) write(i, Opcode::kRcWriteOnly, 1, 1);
  EXPECT_EQ(counters.sequence_naks_sent, 2U);
  EXPECT_EQ(counters.out_of_sequence_received, 8U);
}

TEST_F(ResponderTest, CheckPsn_NakForEachGap) {
  write(1, Opcode::kRcWriteOnly, 1, 1);
  expect_nak(0, NakCode::kPsnSequenceError);
  write(0, Opcode::kRcWriteOnly, 1, 1);
  answer();
  transmit();
  write(2, Opcode::kRcWriteOnly, 1, 1);
  expect_nak(1, NakCode::kPsnSequenceError);
}

// ---- Sequence ----

TEST_F(ResponderTest, CheckSequence_EachOpcodeOutOfPlace) {
  struct Case {
    Opcode before;
    Opcode then;
  };
  const Case cases[] = {
      {Opcode::kRcSendFirst, Opcode::kRcSendFirst},    {Opcode::kRcSendFirst, Opcode::kRcSendOnly},
      {Opcode::kRcSendFirst, Opcode::kRcWriteMiddle},  {Opcode::kRcSendFirst, Opcode::kRcWriteLast},
      {Opcode::kRcSendFirst, Opcode::kRcReadRequest},  {Opcode::kRcSendFirst, Opcode::kRcFetchAdd},
      {Opcode::kRcWriteFirst, Opcode::kRcSendMiddle},  {Opcode::kRcWriteFirst, Opcode::kRcWriteOnly},
      {Opcode::kRcWriteFirst, Opcode::kRcReadRequest}, {Opcode::kRcSendOnly, Opcode::kRcSendMiddle},
      {Opcode::kRcSendOnly, Opcode::kRcSendLast},      {Opcode::kRcSendOnly, Opcode::kRcSendLastImm},
      {Opcode::kRcWriteOnly, Opcode::kRcWriteLast},    {Opcode::kRcWriteOnly, Opcode::kRcWriteMiddle},
      {Opcode::kRcWriteOnly, Opcode::kRcWriteLastImm},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(testing::Message() << int(each.before) << " then " << int(each.then));
    start(attributes_);
    offer(1, 10 * kMtu);
    const bool is_last = wire::opcode_info(each.before).is_last;
    write(0, each.before, kMtu, is_last ? kMtu : 3 * kMtu);
    answer();
    write(1, each.then, kMtu, kMtu);
    expect_rejected(1);
  }
}

TEST_F(ResponderTest, CheckSequence_NothingIsTakenBehindARejectedPacket) {
  write(0, Opcode::kRcWriteOnly, 1, 1);
  EXPECT_EQ(write(1, Opcode::kRcWriteLast, 1, 1).kind, Kind::kNothing);
  EXPECT_EQ(write(2, Opcode::kRcWriteOnly, 1, 1).kind, Kind::kNone);
  EXPECT_EQ(responder.failure(), Responder::Failure::kNone);
  answer();
  EXPECT_EQ(responder.failure(), Responder::Failure::kNone);
  answer();
  expect_rejected(1);
}

// ---- Operation ----

TEST_F(ResponderTest, CheckOperation_EachThatTheQpDoesNotAllow) {
  struct Case {
    Opcode opcode;
    std::uint32_t flag;
  };
  const Case cases[] = {{Opcode::kRcWriteOnly, kAccessRemoteWrite},
                        {Opcode::kRcReadRequest, kAccessRemoteRead},
                        {Opcode::kRcFetchAdd, kAccessRemoteAtomic},
                        {Opcode::kRcCompareSwap, kAccessRemoteAtomic}};
  const QpAttributes usual = usual_attributes();
  for (const Case& each : cases) {
    QpAttributes attributes = usual;
    attributes.access_flags &= ~each.flag;
    start(attributes);
    write(0, each.opcode, 0, 8);
    expect_rejected(0);
    attributes.access_flags = each.flag;
    start(attributes);
    EXPECT_EQ(write(0, each.opcode, 0, 0).kind == Kind::kAtomic, each.flag == kAccessRemoteAtomic);
    EXPECT_EQ(responder.failure(), Responder::Failure::kNone);
  }
}

// ---- Length ----

TEST_F(ResponderTest, CheckLength_PayloadsThatDoNotFitTheOpcode) {
  struct Case {
    Opcode opcode;
    std::uint32_t bytes;
    std::uint32_t total;
  };
  const Case cases[] = {
      {Opcode::kRcSendFirst, kMtu - 1, 0},
      {Opcode::kRcSendFirst, kMtu + 1, 0},
      {Opcode::kRcSendOnly, kMtu + 1, 0},
      {Opcode::kRcWriteFirst, kMtu - 1, 3 * kMtu},
      {Opcode::kRcWriteFirst, kMtu, kMtu},
      {Opcode::kRcWriteOnly, kMtu + 1, kMtu + 1},
      {Opcode::kRcWriteOnly, 10, 11},
      {Opcode::kRcWriteOnly, 10, 9},
      {Opcode::kRcWriteFirst, kMtu, 0x80000001},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(testing::Message() << int(each.opcode) << " with " << each.bytes << " of " << each.total);
    start(attributes_);
    offer(1, 10 * kMtu);
    write(0, each.opcode, each.bytes, each.total);
    expect_rejected(0);
  }
}

TEST_F(ResponderTest, CheckLength_EndsThatDoNotFit) {
  struct Case {
    Opcode first;
    Opcode then;
    std::uint32_t bytes;
  };
  const Case cases[] = {
      {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, kMtu - 1},
      {Opcode::kRcSendFirst, Opcode::kRcSendLast, 0},
      {Opcode::kRcSendFirst, Opcode::kRcSendLast, kMtu + 1},
      {Opcode::kRcWriteFirst, Opcode::kRcWriteLast, 9},
      {Opcode::kRcWriteFirst, Opcode::kRcWriteLast, 11},
      {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, kMtu},
      {Opcode::kRcWriteFirst, Opcode::kRcWriteLastImm, 0},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(testing::Message() << int(each.then) << " with " << each.bytes);
    start(attributes_);
    offer(1, 10 * kMtu);
    write(0, each.first, kMtu, kMtu + 10);
    answer();
    write(1, each.then, each.bytes, 0);
    expect_rejected(1);
  }
}

TEST_F(ResponderTest, CheckLength_Boundaries) {
  offer(1, 10 * kMtu);
  EXPECT_EQ(send(0, Opcode::kRcSendFirst, kMtu).kind, Kind::kScatter);
  EXPECT_EQ(send(1, Opcode::kRcSendLast, kMtu).kind, Kind::kScatter);
  EXPECT_EQ(write(2, Opcode::kRcWriteOnly, kMtu, kMtu).kind, Kind::kWrite);
  EXPECT_EQ(write(3, Opcode::kRcWriteOnly, kMtu - 1, kMtu - 1).kind, Kind::kWrite);
  EXPECT_EQ(write(4, Opcode::kRcWriteFirst, kMtu, kMtu + 1).kind, Kind::kWrite);
  EXPECT_EQ(write(5, Opcode::kRcWriteLast, 1, 0).kind, Kind::kWrite);
  EXPECT_EQ(responder.failure(), Responder::Failure::kNone);
}

TEST_F(ResponderTest, CheckLength_AtomicsHaveToBeAligned) {
  for (std::uint64_t offset = 1; offset < 8; ++offset) {
    start(attributes_);
    EXPECT_EQ(fetch_add(0, 0x10000 + offset).kind, Kind::kNone);
    expect_rejected(0);
  }
}

// ---- Outstanding READs and atomics ----

TEST_F(ResponderTest, CheckOutstanding_OneTooMany) {
  for (std::uint32_t i = 0; i < attributes_.max_dest_rd_atomic; ++i)
    EXPECT_EQ(read(i, 10).kind, Kind::kCheck);
  EXPECT_EQ(read(4, 10).kind, Kind::kNothing);
  for (int i = 0; i < 5; ++i) answer();
  expect_rejected(4);
}

TEST_F(ResponderTest, CheckOutstanding_AnswersGiveRoom) {
  for (std::uint32_t i = 0; i < 40; ++i) {
    EXPECT_NE((i % 2 == 0 ? read(i, 10) : fetch_add(i)).kind, Kind::kNone);
    answer();
    if (i % 4 == 3) {
      EXPECT_EQ(transmit().size(), 4U);
    }
  }
  EXPECT_EQ(responder.failure(), Responder::Failure::kNone);
}

TEST_F(ResponderTest, CheckOutstanding_NoneAllowed) {
  attributes_.max_dest_rd_atomic = 0;
  start(attributes_);
  read(0, 10);
  expect_rejected(0);
}

// ---- Receive requests ----

TEST_F(ResponderTest, CheckReceive_RnrWithEachTimerCode) {
  for (std::uint8_t code = 0; code < 32; ++code) {
    attributes_.min_rnr_timer = code;
    start(attributes_);
    send(0, Opcode::kRcSendOnly, 10);
    expect_rnr(0);
  }
  EXPECT_EQ(counters.rnr_naks_sent, 32U);
}

TEST_F(ResponderTest, CheckReceive_LaterPacketsAreDroppedSilently) {
  send(0, Opcode::kRcSendOnly, 10);
  expect_rnr(0);
  send(1, Opcode::kRcSendOnly, 10);
  write(2, Opcode::kRcWriteOnly, 1, 1);
  expect_nothing();
  EXPECT_EQ(counters.sequence_naks_sent, 0U);
  offer(1, 10);
  EXPECT_EQ(send(0, Opcode::kRcSendOnly, 10).kind, Kind::kScatter);
  answer();
  expect_ack(0, 1);
}

TEST_F(ResponderTest, CheckReceive_GapsAreToldAgainAfterwards) {
  send(0, Opcode::kRcSendOnly, 10);
  expect_rnr(0);
  offer(1, 10);
  send(0, Opcode::kRcSendOnly, 10);
  answer();
  transmit();
  write(2, Opcode::kRcWriteOnly, 1, 1);
  expect_nak(1, NakCode::kPsnSequenceError);
}

TEST_F(ResponderTest, CheckReceive_AgainWhenThereIsStillNone) {
  for (int i = 0; i < 3; ++i) {
    send(0, Opcode::kRcSendFirst, kMtu);
    expect_rnr(0);
  }
}

TEST_F(ResponderTest, CheckReceive_WriteWithImmediateOnlyAtItsEnd) {
  EXPECT_EQ(write(0, Opcode::kRcWriteFirst, kMtu, kMtu + 1).kind, Kind::kWrite);
  answer();
  transmit();
  write(1, Opcode::kRcWriteLastImm, 1, 0);
  expect_rnr(1);
  offer(1, 0);
  EXPECT_EQ(write(1, Opcode::kRcWriteLastImm, 1, 0).kind, Kind::kWrite);
  answer();
  expect_ack(1, 1);
}

TEST_F(ResponderTest, CheckReceive_PlainWriteNeedsNone) {
  EXPECT_EQ(write(0, Opcode::kRcWriteOnly, 1, 1).kind, Kind::kWrite);
}

TEST_F(ResponderTest, WantsReceive_OneAtATimeWhileRunning) {
  EXPECT_TRUE(responder.wants_receive());
  offer(1, 10);
  EXPECT_FALSE(responder.wants_receive());
  send(0, Opcode::kRcSendOnly, 10);
  EXPECT_TRUE(responder.wants_receive());
  responder.reset();
  EXPECT_FALSE(responder.wants_receive());
}

}  // namespace
}  // namespace urdma::transport
