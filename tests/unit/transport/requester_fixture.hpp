// A requester alone: a test sends, plays the peer by acknowledging, and expects.
//
// Owner: one test. One thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <vector>

#include "datapath/transport/requester.hpp"
#include "fixture.hpp"

namespace urdma::transport {

class RequesterTest : public ::testing::Test {
 protected:
  using Opcode = wire::Opcode;

  void SetUp() override { start(usual_attributes()); }
  void start(const QpAttributes& attributes, Psn first = kFirstPsn) {
    attributes_ = attributes;
    first_ = first;
    requester.reset();
    requester.configure(attributes);
    requester.start(first);
  }
  // PSNs are written as their distance from the first one.
  [[nodiscard]] Psn psn(std::uint32_t offset) const { return first_.plus(offset); }

  void post(WrOpcode opcode, std::uint64_t wr_id, std::uint32_t length, std::uint8_t flags = kSendSignaled) {
    SendRequest request;
    request.opcode = opcode;
    request.wr_id = wr_id;
    request.flags = flags;
    request.length = length;
    request.remote_address = 0x10000;
    request.rkey = kKey;
    request.wqe_index = wqe_index_++;
    post(request);
  }
  void post(const SendRequest& request) {
    const Sge element{0x1000, static_cast<std::uint32_t>(request.length), kKey};
    requester.post(request, {&element, 1});
  }
  std::vector<TxPacket> transmit() {
    std::vector<TxPacket> packets;
    for (TxPacket packet; requester.poll_transmit(now, packet);) packets.push_back(packet);
    return packets;
  }
  // How many packets there were to send.
  std::size_t flush() { return transmit().size(); }

  void ack(std::uint32_t offset) { answer(offset, wire::AethKind::kAck, wire::kNoCredits); }
  void nak(std::uint32_t offset, wire::NakCode code) {
    answer(offset, wire::AethKind::kNak, static_cast<std::uint8_t>(code));
  }
  void rnr(std::uint32_t offset, std::uint8_t code = 12) { answer(offset, wire::AethKind::kRnrNak, code); }
  void answer(std::uint32_t offset, wire::AethKind kind, std::uint8_t value) {
    wire::Headers headers;
    headers.opcode = Opcode::kRcAck;
    headers.psn = psn(offset);
    headers.aeth_kind = kind;
    headers.aeth_value = value;
    EXPECT_EQ(requester.on_packet(headers, now).kind, MemoryOp::Kind::kNone);
  }
  MemoryOp read_response(std::uint32_t offset, Opcode opcode, std::uint32_t bytes) {
    wire::Headers headers;
    headers.opcode = opcode;
    headers.psn = psn(offset);
    headers.payload_bytes = bytes;
    return requester.on_packet(headers, now);
  }
  MemoryOp atomic_answer(std::uint32_t offset, std::uint64_t original) {
    wire::Headers headers;
    headers.opcode = Opcode::kRcAtomicAck;
    headers.psn = psn(offset);
    headers.atomic_original = original;
    return requester.on_packet(headers, now);
  }
  void expire() {
    ASSERT_FALSE(requester.next_deadline().is_never());
    now = requester.next_deadline();
    requester.on_deadline(now);
  }
  std::vector<Completion> completions() {
    std::vector<Completion> all;
    for (Completion completion; requester.poll_completion(completion);) all.push_back(completion);
    return all;
  }
  // These complete now, in this order, successfully; and no other, but one with which the requester fails.
  void expect_done(const std::vector<std::uint64_t>& wr_ids) {
    for (const std::uint64_t wr_id : wr_ids) {
      Completion completion;
      ASSERT_TRUE(requester.poll_completion(completion));
      EXPECT_EQ(completion.wr_id, wr_id);
      EXPECT_EQ(completion.status, WcStatus::kSuccess);
    }
    EXPECT_TRUE(requester.has_failed() || completions().empty());
  }
  // The requester has failed: the QP goes to ERR, the first of `wr_ids` has this status, the rest is flushed.
  void expect_failed(const std::vector<std::uint64_t>& wr_ids, WcStatus status, FailureReason reason) {
    EXPECT_TRUE(requester.has_failed());
    requester.stop();
    const auto all = completions();
    ASSERT_EQ(all.size(), wr_ids.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].wr_id, wr_ids[i]);
      EXPECT_EQ(all[i].status, i == 0 ? status : WcStatus::kWrFlushErr);
      EXPECT_EQ(all[i].reason, i == 0 ? reason : FailureReason::kFlushed);
      EXPECT_TRUE(all[i].is_solicited);
    }
  }

  QpCounters counters;
  Requester requester{small_config(), counters};
  Instant now{1'000'000};
  QpAttributes attributes_;

 private:
  Psn first_;
  std::uint32_t wqe_index_ = 0;
};

}  // namespace urdma::transport
