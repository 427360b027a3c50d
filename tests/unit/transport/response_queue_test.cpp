// The responder's output queue.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/response_queue.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace urdma::transport {
namespace {

using wire::Opcode;

std::vector<TxPacket> drain(ResponseQueue& queue) {
  std::vector<TxPacket> packets;
  for (TxPacket packet; queue.poll(packet);) packets.push_back(packet);
  return packets;
}

TEST(ResponseQueueTest, PushAck_MergesWithOneThatIsNotSent) {
  ResponseQueue queue;
  queue.reserve(4);
  queue.push_ack(Psn{5}, 1);
  queue.push_ack(Psn{9}, 3);
  const auto packets = drain(queue);
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].headers.opcode, Opcode::kRcAck);
  EXPECT_EQ(packets[0].headers.psn, Psn{9});
  EXPECT_EQ(packets[0].headers.msn, 3U);
  EXPECT_EQ(packets[0].headers.aeth_value, wire::kNoCredits);
  EXPECT_EQ(packets[0].side, Side::kResponder);
}

TEST(ResponseQueueTest, PushAck_DoesNotOvertakeARead) {
  ResponseQueue queue;
  queue.reserve(4);
  queue.push_ack(Psn{4}, 1);
  queue.push_read(Psn{5}, 0x1000, MemoryKey{9}, 2'500, 1'024, 2, false);
  queue.push_ack(Psn{9}, 3);
  const auto packets = drain(queue);
  ASSERT_EQ(packets.size(), 5U);
  const Opcode opcodes[] = {Opcode::kRcAck, Opcode::kRcReadResponseFirst, Opcode::kRcReadResponseMiddle,
                            Opcode::kRcReadResponseLast, Opcode::kRcAck};
  const std::uint32_t psns[] = {4, 5, 6, 7, 9};
  for (std::size_t i = 0; i < packets.size(); ++i) {
    EXPECT_EQ(packets[i].headers.opcode, opcodes[i]);
    EXPECT_EQ(packets[i].headers.psn, Psn{psns[i]});
  }
  EXPECT_EQ(packets[3].payload.kind, Payload::Kind::kRegion);
  EXPECT_EQ(packets[3].payload.address, 0x1000U + 2'048);
  EXPECT_EQ(packets[3].payload.length, 2'500U - 2'048);
  EXPECT_EQ(packets[3].payload.key, MemoryKey{9});
}

TEST(ResponseQueueTest, PushRead_OnlyOneWithoutBytes) {
  ResponseQueue queue;
  queue.reserve(4);
  queue.push_read(Psn{0xFFFFFF}, 0, MemoryKey{1}, 0, 1'024, 1, false);
  const auto packets = drain(queue);
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].headers.opcode, Opcode::kRcReadResponseOnly);
  EXPECT_EQ(packets[0].payload.kind, Payload::Kind::kNone);
}

TEST(ResponseQueueTest, PushRead_DuplicateMakesTheOneThatIsBeingSentGoBack) {
  ResponseQueue queue;
  queue.reserve(4);
  queue.push_read(Psn{10}, 1'000, MemoryKey{1}, 400, 100, 1, false);
  TxPacket packet;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.poll(packet));
  queue.push_read(Psn{11}, 1'100, MemoryKey{1}, 300, 100, 1, true);
  const auto packets = drain(queue);
  ASSERT_EQ(packets.size(), 3U);
  EXPECT_EQ(packets[0].headers.opcode, Opcode::kRcReadResponseFirst);
  EXPECT_EQ(packets[0].headers.psn, Psn{11});
  EXPECT_EQ(packets[0].payload.address, 1'100U);
  EXPECT_EQ(packets[2].headers.psn, Psn{13});
  EXPECT_EQ(queue.unanswered_requests(), 0U);
}

TEST(ResponseQueueTest, UnansweredRequests_UntilTheLastPacketIsSent) {
  ResponseQueue queue;
  queue.reserve(4);
  queue.push_read(Psn{1}, 0, MemoryKey{1}, 200, 100, 1, false);
  queue.push_atomic(Psn{3}, 42, 2, false);
  queue.push_atomic(Psn{3}, 42, 2, true);
  EXPECT_EQ(queue.unanswered_requests(), 2U);
  TxPacket packet;
  ASSERT_TRUE(queue.poll(packet));
  EXPECT_EQ(queue.unanswered_requests(), 2U);
  ASSERT_TRUE(queue.poll(packet));
  EXPECT_EQ(queue.unanswered_requests(), 1U);
  ASSERT_TRUE(queue.poll(packet));
  EXPECT_EQ(packet.headers.opcode, Opcode::kRcAtomicAck);
  EXPECT_EQ(packet.headers.atomic_original, 42U);
  EXPECT_EQ(queue.unanswered_requests(), 0U);
}

TEST(ResponseQueueTest, WillAnswer_WhatStartsThere) {
  ResponseQueue queue;
  queue.reserve(4);
  queue.push_read(Psn{10}, 0, MemoryKey{1}, 300, 100, 1, false);
  queue.push_atomic(Psn{13}, 1, 2, false);
  TxPacket packet;
  ASSERT_TRUE(queue.poll(packet));
  EXPECT_FALSE(queue.will_answer(Psn{10}));
  EXPECT_TRUE(queue.will_answer(Psn{11}));
  EXPECT_FALSE(queue.will_answer(Psn{12}));
  EXPECT_TRUE(queue.will_answer(Psn{13}));
  EXPECT_FALSE(queue.will_answer(Psn{14}));
}

TEST(ResponseQueueTest, PushNak_TakesThePlaceOfTheAckBeforeIt) {
  ResponseQueue queue;
  queue.reserve(4);
  queue.push_ack(Psn{5}, 1);
  queue.push_nak(Psn{6}, wire::AethKind::kRnrNak, 12, 1);
  const auto packets = drain(queue);
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].headers.aeth_kind, wire::AethKind::kRnrNak);
  EXPECT_EQ(packets[0].headers.aeth_value, 12);
}

TEST(ResponseQueueTest, Push_WhenFullIsLostAndNothingBreaks) {
  ResponseQueue queue;
  queue.reserve(1);
  for (std::uint32_t i = 0; i < 100; ++i) {
    queue.push_nak(Psn{i}, wire::AethKind::kNak, 0, 0);
    queue.push_atomic(Psn{i}, i, 0, false);
    queue.push_read(Psn{i}, 0, MemoryKey{1}, 10, 100, 0, false);
  }
  const auto packets = drain(queue);
  EXPECT_GE(packets.size(), 3U);
  EXPECT_LT(packets.size(), 100U);
  EXPECT_EQ(queue.unanswered_requests(), 0U);
}

TEST(ResponseQueueTest, Reserve_KeepsWhatIsThereInItsOrder) {
  ResponseQueue queue;  // 8 slots
  for (std::uint32_t i = 0; i < 5; ++i) queue.push_atomic(Psn{i}, i, i, false);
  EXPECT_EQ(drain(queue).size(), 5U);
  for (std::uint32_t i = 5; i < 13; ++i) queue.push_atomic(Psn{i}, i, i, false);
  queue.reserve(128);
  for (std::uint32_t i = 13; i < 128; ++i) queue.push_atomic(Psn{i}, i, i, false);
  EXPECT_EQ(queue.unanswered_requests(), 123U);
  const auto packets = drain(queue);
  ASSERT_EQ(packets.size(), 123U);
  for (std::uint32_t i = 0; i < packets.size(); ++i) EXPECT_EQ(packets[i].headers.psn, Psn{5 + i});
}

}  // namespace
}  // namespace urdma::transport
