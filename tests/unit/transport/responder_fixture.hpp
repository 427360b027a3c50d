// A responder alone: a test plays the requester by handing in packets, answers memory when it wants to, and
// expects acknowledgements, answers and completions.
//
// Owner: one test. One thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <vector>

#include "datapath/transport/responder.hpp"
#include "fixture.hpp"

namespace urdma::transport {

class ResponderTest : public ::testing::Test {
 protected:
  using Opcode = wire::Opcode;
  using NakCode = wire::NakCode;
  using Kind = MemoryOp::Kind;

  void SetUp() override { start(usual_attributes()); }
  void start(const QpAttributes& attributes, Psn first = kFirstPsn) {
    attributes_ = attributes;
    first_ = first;
    responder.reset();
    responder.configure(attributes);
    responder.start(first);
  }
  // PSNs are written as their distance from the first one.
  [[nodiscard]] Psn psn(std::uint32_t offset) const { return first_.plus(offset); }

  void offer(std::uint64_t wr_id, std::uint32_t bytes) {
    const Sge element{0x1000, bytes, kKey};
    responder.offer_receive({wr_id, static_cast<std::uint32_t>(wr_id) + 1}, {&element, bytes == 0 ? 0U : 1U});
  }
  [[nodiscard]] wire::Headers headers(std::uint32_t offset, Opcode opcode, std::uint32_t bytes) const {
    wire::Headers made;
    made.opcode = opcode;
    made.psn = psn(offset);
    made.payload_bytes = bytes;
    made.ack_request = true;
    made.address = 0x10000;
    made.rkey = kKey;
    made.dma_length = bytes;
    return made;
  }
  MemoryOp send(std::uint32_t offset, Opcode opcode, std::uint32_t bytes) {
    return responder.on_packet(headers(offset, opcode, bytes));
  }
  // A packet of a WRITE whose RETH announces `total` bytes.
  MemoryOp write(std::uint32_t offset, Opcode opcode, std::uint32_t bytes, std::uint32_t total) {
    wire::Headers made = headers(offset, opcode, bytes);
    made.dma_length = total;
    return responder.on_packet(made);
  }
  MemoryOp read(std::uint32_t offset, std::uint32_t bytes, std::uint64_t address = 0x10000) {
    wire::Headers made = headers(offset, Opcode::kRcReadRequest, 0);
    made.dma_length = bytes;
    made.address = address;
    return responder.on_packet(made);
  }
  MemoryOp fetch_add(std::uint32_t offset, std::uint64_t address = 0x10000) {
    wire::Headers made = headers(offset, Opcode::kRcFetchAdd, 0);
    made.address = address;
    made.swap_or_add = 1;
    return responder.on_packet(made);
  }
  void answer(MemoryResult result = MemoryResult::kOk, std::uint64_t original = 0) {
    responder.on_memory_done(result, original);
  }

  std::vector<TxPacket> transmit() {
    std::vector<TxPacket> packets;
    for (TxPacket packet; responder.poll_transmit(packet);) packets.push_back(packet);
    return packets;
  }
  void expect_nothing() { EXPECT_TRUE(transmit().empty()); }
  void expect_ack(std::uint32_t offset, std::uint32_t msn) {
    const auto packets = transmit();
    ASSERT_EQ(packets.size(), 1U);
    EXPECT_EQ(packets[0].headers.opcode, Opcode::kRcAck);
    EXPECT_EQ(packets[0].headers.aeth_kind, wire::AethKind::kAck);
    EXPECT_EQ(packets[0].headers.psn, psn(offset));
    EXPECT_EQ(packets[0].headers.msn, msn);
    EXPECT_EQ(packets[0].headers.dest_qp, attributes_.dest_qpn);
  }
  void expect_nak(std::uint32_t offset, NakCode code) {
    const auto packets = transmit();
    ASSERT_FALSE(packets.empty());
    EXPECT_EQ(packets.back().headers.aeth_kind, wire::AethKind::kNak);
    EXPECT_EQ(packets.back().headers.aeth_value, static_cast<std::uint8_t>(code));
    EXPECT_EQ(packets.back().headers.psn, psn(offset));
  }
  void expect_rnr(std::uint32_t offset) {
    const auto packets = transmit();
    ASSERT_EQ(packets.size(), 1U);
    EXPECT_EQ(packets[0].headers.aeth_kind, wire::AethKind::kRnrNak);
    EXPECT_EQ(packets[0].headers.aeth_value, attributes_.min_rnr_timer);
    EXPECT_EQ(packets[0].headers.psn, psn(offset));
  }
  // A NAK for an invalid request, after which nothing is taken any more.
  void expect_rejected(std::uint32_t offset) {
    EXPECT_EQ(responder.failure(), Responder::Failure::kInvalidRequest);
    expect_nak(offset, NakCode::kInvalidRequest);
  }
  std::vector<Completion> completions() {
    std::vector<Completion> all;
    for (Completion completion; responder.poll_completion(completion);) all.push_back(completion);
    return all;
  }

  QpCounters counters;
  Responder responder{small_config(), counters};
  QpAttributes attributes_;

 private:
  Psn first_;
};

}  // namespace urdma::transport
