// What a requester makes of answers to READs and atomics, and of memory results.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "requester_fixture.hpp"

namespace urdma::transport {
namespace {

using wire::Opcode;

// ---- Answers ----

TEST_F(RequesterTest, OnAnswer_ScattersAtTheOffset) {
  post(WrOpcode::kRdmaRead, 1, 2 * kMtu + 5);
  flush();
  MemoryOp operation = read_response(0, Opcode::kRcReadResponseFirst, kMtu);
  EXPECT_EQ(operation.kind, MemoryOp::Kind::kScatter);
  EXPECT_EQ(operation.side, Side::kRequester);
  EXPECT_EQ(operation.offset, 0U);
  operation = read_response(1, Opcode::kRcReadResponseMiddle, kMtu);
  EXPECT_EQ(operation.offset, kMtu);
  operation = read_response(2, Opcode::kRcReadResponseLast, 5);
  EXPECT_EQ(operation.offset, 2 * kMtu);
  EXPECT_EQ(operation.length, 5U);
  ASSERT_EQ(operation.elements.size(), 1U);
  EXPECT_EQ(operation.elements[0].address, 0x1000U);
}

TEST_F(RequesterTest, OnAnswer_ReadOfNothingCompletesWithoutMemory) {
  post(WrOpcode::kRdmaRead, 1, 0);
  flush();
  EXPECT_EQ(read_response(0, Opcode::kRcReadResponseOnly, 0).kind, MemoryOp::Kind::kNone);
  expect_done({1});
}

TEST_F(RequesterTest, OnAnswer_AcknowledgesEarlierSends) {
  post(WrOpcode::kSend, 1, 10);
  post(WrOpcode::kRdmaWrite, 2, 10);
  post(WrOpcode::kFetchAdd, 3, 8);
  flush();
  const MemoryOp operation = atomic_answer(2, 99);
  expect_done({1, 2});
  EXPECT_TRUE(operation.has_value);
  EXPECT_EQ(operation.value, 99U);
  EXPECT_EQ(operation.length, 8U);
  requester.on_memory_done(MemoryResult::kOk);
  expect_done({3});
}

TEST_F(RequesterTest, OnAnswer_LostResponseIsAskedForFromThere) {
  post(WrOpcode::kRdmaRead, 1, 4 * kMtu);
  flush();
  read_response(0, Opcode::kRcReadResponseFirst, kMtu);
  EXPECT_EQ(read_response(2, Opcode::kRcReadResponseMiddle, kMtu).kind, MemoryOp::Kind::kNone);
  EXPECT_EQ(read_response(3, Opcode::kRcReadResponseLast, kMtu).kind, MemoryOp::Kind::kNone);
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].headers.psn, psn(1));
  EXPECT_EQ(packets[0].headers.dma_length, 3 * kMtu);
  EXPECT_EQ(packets[0].headers.address, 0x10000U + kMtu);
  // The rest begins with a First; a Middle from the first time would do as well.
  EXPECT_EQ(read_response(1, Opcode::kRcReadResponseFirst, kMtu).kind, MemoryOp::Kind::kScatter);
  EXPECT_EQ(read_response(2, Opcode::kRcReadResponseMiddle, kMtu).kind, MemoryOp::Kind::kScatter);
  EXPECT_EQ(read_response(3, Opcode::kRcReadResponseLast, kMtu).kind, MemoryOp::Kind::kScatter);
  for (int i = 0; i < 4; ++i) requester.on_memory_done(MemoryResult::kOk);
  expect_done({1});
}

TEST_F(RequesterTest, OnAnswer_DuplicateIsDropped) {
  post(WrOpcode::kRdmaRead, 1, 2 * kMtu);
  flush();
  read_response(0, Opcode::kRcReadResponseFirst, kMtu);
  EXPECT_EQ(read_response(0, Opcode::kRcReadResponseFirst, kMtu).kind, MemoryOp::Kind::kNone);
  EXPECT_EQ(counters.duplicates_received, 1U);
  EXPECT_FALSE(requester.has_failed());
}

TEST_F(RequesterTest, OnAnswer_UnsoundOnesFailTheRequest) {
  struct Case {
    const char* what;
    Opcode opcode;
    std::uint32_t bytes;
  };
  const Case cases[] = {{"middle at the start", Opcode::kRcReadResponseMiddle, kMtu},
                        {"last at the start", Opcode::kRcReadResponseLast, kMtu},
                        {"only, but there is more", Opcode::kRcReadResponseOnly, kMtu},
                        {"too short", Opcode::kRcReadResponseFirst, kMtu - 1},
                        {"too long", Opcode::kRcReadResponseFirst, kMtu + 1},
                        {"empty", Opcode::kRcReadResponseFirst, 0},
                        {"of an atomic", Opcode::kRcAtomicAck, 0}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    start(attributes_);
    post(WrOpcode::kRdmaRead, 1, 2 * kMtu);
    flush();
    EXPECT_EQ(read_response(0, each.opcode, each.bytes).kind, MemoryOp::Kind::kNone);
    expect_failed({1}, WcStatus::kBadRespErr, FailureReason::kBadResponse);
  }
}

TEST_F(RequesterTest, OnAnswer_LastPacketHasExactlyTheRest) {
  for (const std::uint32_t bytes : {4U, 6U}) {
    start(attributes_);
    post(WrOpcode::kRdmaRead, 1, kMtu + 5);
    flush();
    read_response(0, Opcode::kRcReadResponseFirst, kMtu);
    requester.on_memory_done(MemoryResult::kOk);
    read_response(1, Opcode::kRcReadResponseLast, bytes);
    expect_failed({1}, WcStatus::kBadRespErr, FailureReason::kBadResponse);
  }
}

TEST_F(RequesterTest, OnAnswer_ToASendFailsIt) {
  post(WrOpcode::kSend, 1, 10);
  flush();
  read_response(0, Opcode::kRcReadResponseOnly, 10);
  expect_failed({1}, WcStatus::kBadRespErr, FailureReason::kBadResponse);
}

// ---- Memory ----

TEST_F(RequesterTest, OnMemoryDone_FailureFailsTheReadAndFlushesTheRest) {
  post(WrOpcode::kRdmaRead, 1, 10);
  post(WrOpcode::kSend, 2, 10);
  flush();
  read_response(0, Opcode::kRcReadResponseOnly, 10);
  ack(1);
  requester.on_memory_done(MemoryResult::kProtection);
  expect_failed({1, 2}, WcStatus::kLocProtErr, FailureReason::kLocalProtection);
}

TEST_F(RequesterTest, OnMemoryDone_FailureWaitsForTheOtherAnswers) {
  post(WrOpcode::kRdmaRead, 1, 2 * kMtu);
  flush();
  read_response(0, Opcode::kRcReadResponseFirst, kMtu);
  read_response(1, Opcode::kRcReadResponseLast, kMtu);
  requester.on_memory_done(MemoryResult::kFault);
  EXPECT_TRUE(requester.has_failed());
  EXPECT_TRUE(completions().empty());
  requester.on_memory_done(MemoryResult::kOk);
  expect_failed({1}, WcStatus::kLocProtErr, FailureReason::kLocalProtection);
}

TEST_F(RequesterTest, OnMemoryDone_NothingBehindAFailureIsFlushedBeforeAllIsAnswered) {
  post(WrOpcode::kRdmaRead, 1, 10);
  post(WrOpcode::kSend, 2, 10);
  post(WrOpcode::kRdmaRead, 3, 10);
  flush();
  read_response(0, Opcode::kRcReadResponseOnly, 10);
  read_response(2, Opcode::kRcReadResponseOnly, 10);
  requester.on_memory_done(MemoryResult::kProtection);
  requester.stop();
  const auto failed = completions();
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0].status, WcStatus::kLocProtErr);
  requester.on_memory_done(MemoryResult::kOk);
  const auto flushed = completions();
  ASSERT_EQ(flushed.size(), 2U);
  EXPECT_EQ(flushed[0].status, WcStatus::kWrFlushErr);
  EXPECT_EQ(flushed[1].status, WcStatus::kWrFlushErr);
}

TEST_F(RequesterTest, OnMemoryDone_SecondFailureRevivesNothingBehindTheFirst) {
  post(WrOpcode::kRdmaRead, 1, 4);
  post(WrOpcode::kRdmaWrite, 2, 4);
  post(WrOpcode::kRdmaRead, 3, 4);
  flush();
  read_response(0, Opcode::kRcReadResponseOnly, 4);
  read_response(2, Opcode::kRcReadResponseOnly, 4);
  requester.on_memory_done(MemoryResult::kProtection);
  requester.stop();
  EXPECT_EQ(completions().size(), 1U);
  requester.on_memory_done(MemoryResult::kProtection);
  const auto rest = completions();
  ASSERT_EQ(rest.size(), 2U);
  for (const Completion& completion : rest) EXPECT_EQ(completion.status, WcStatus::kWrFlushErr);
}

TEST_F(RequesterTest, OnMemoryDone_OutOfPhaseWithManyReads) {
  for (std::uint64_t id = 0; id < 4; ++id) post(WrOpcode::kRdmaRead, id, 10);
  flush();
  for (std::uint32_t i = 0; i < 4; ++i) read_response(i, Opcode::kRcReadResponseOnly, 10);
  EXPECT_EQ(requester.unanswered_operations(), 4U);
  requester.on_memory_done(MemoryResult::kOk);
  expect_done({0});
  requester.on_memory_done(MemoryResult::kOk);
  requester.on_memory_done(MemoryResult::kOk);
  expect_done({1, 2});
  requester.on_memory_done(MemoryResult::kOk);
  expect_done({3});
}

TEST_F(RequesterTest, OnMemoryDone_TooManyUnansweredStopIntake) {
  post(WrOpcode::kRdmaRead, 1, 100 * kMtu);
  flush();
  read_response(0, Opcode::kRcReadResponseFirst, kMtu);
  for (std::uint32_t i = 1; i < kMaxUnansweredOperations; ++i) {
    EXPECT_TRUE(requester.can_accept());
    read_response(i, Opcode::kRcReadResponseMiddle, kMtu);
  }
  EXPECT_FALSE(requester.can_accept());
  EXPECT_EQ(read_response(64, Opcode::kRcReadResponseMiddle, kMtu).kind, MemoryOp::Kind::kNone);
  requester.on_memory_done(MemoryResult::kOk);
  EXPECT_EQ(read_response(64, Opcode::kRcReadResponseMiddle, kMtu).kind, MemoryOp::Kind::kScatter);
}

TEST_F(RequesterTest, OnGatherFailed_EarlierOnesEndAndNothingLaterIsSent) {
  post(WrOpcode::kSend, 1, 10);
  post(WrOpcode::kSend, 2, 2 * kMtu);
  post(WrOpcode::kSend, 3, 10);
  EXPECT_EQ(flush(), 4U);
  requester.on_gather_failed(psn(2));
  EXPECT_FALSE(requester.has_failed());
  expire();
  EXPECT_EQ(flush(), 1U);  // only the first is sent again
  ack(0);
  expect_done({1});
  expect_failed({2, 3}, WcStatus::kLocProtErr, FailureReason::kLocalProtection);
}

TEST_F(RequesterTest, OnGatherFailed_OfTheOldestFailsAtOnce) {
  post(WrOpcode::kRdmaWrite, 1, 3 * kMtu);
  flush();
  ack(0);
  requester.on_gather_failed(psn(1));
  expect_failed({1}, WcStatus::kLocProtErr, FailureReason::kLocalProtection);
}

TEST_F(RequesterTest, OnGatherFailed_OfWhatIsAcknowledgedMeanwhileIsNothing) {
  post(WrOpcode::kSend, 1, 10);
  flush();
  expire();
  flush();
  ack(0);
  requester.on_gather_failed(psn(0));
  EXPECT_FALSE(requester.has_failed());
  expect_done({1});
}

}  // namespace
}  // namespace urdma::transport
