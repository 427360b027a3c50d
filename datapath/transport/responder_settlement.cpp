// The responder's settlement of what it owes, once memory has answered, and its output.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/responder.hpp"
#include "urdma/base/check.hpp"

namespace urdma::transport {

Responder::Responder(const QpConfig& config, QpCounters& counters)
    : ReceiveSide(config),
      counters_(counters),
      service_(config.type == QpType::kXrcRecv ? wire::kServiceXrc : wire::kServiceRc) {}

// ---- Commands ----

void Responder::configure(const QpAttributes& attributes) {
  packet_bytes_ = attributes.packet_bytes;
  access_flags_ = attributes.access_flags;
  min_rnr_timer_ = attributes.min_rnr_timer;
  max_dest_rd_atomic_ = attributes.max_dest_rd_atomic;
  responses_.reserve(max_dest_rd_atomic_);
  answered_.reserve(max_dest_rd_atomic_);
  dest_qpn_ = attributes.dest_qpn;
}

void Responder::start(Psn first_psn) {
  mode_ = Mode::kRunning;
  expected_ = first_psn;
  settled_ = first_psn.previous();
  msn_ = 0;
}

void Responder::stop() {
  stop_receiving();
  unsettled_answers_ = 0;
  if (failure_ == Failure::kNone) responses_.clear();
}

void Responder::reset() {
  reset_receiving();
  responses_.clear();
  answered_.clear();
  message_ = Message{};
  unsettled_answers_ = 0;
  is_rejecting_ = has_sent_gap_nak_ = is_not_ready_ = false;
}

// ---- Settlement ----

MemoryOp Responder::owe(const Settlement& settlement, const MemoryOp& operation) {
  if (operation.kind == MemoryOp::Kind::kNone && settlements_.is_empty()) {
    settle(settlement, 0);
    return {};
  }
  return enter(settlement, operation);
}

void Responder::on_memory_done(MemoryResult result, std::uint64_t original) {
  Settlement settlement;
  if (!take_settlement(settlement)) return;
  if (!settle_failure(settlement, result)) settle(settlement, original);
}

// False if there is none.
bool Responder::settle_failure(const Settlement& settlement, MemoryResult result) {
  if (result == MemoryResult::kOk) return false;
  if (settlement.invalidates && result == MemoryResult::kProtection) {
    fail_invalidation(settlement);
  } else if (settlement.is_local) {
    fail_receive();
    fail(Failure::kCompletion, settlement.psn, wire::NakCode::kRemoteOperationalError);
  } else if (result == MemoryResult::kProtection) {
    fail(Failure::kAccess, settlement.psn, wire::NakCode::kRemoteAccessError);
  } else {
    fail(Failure::kAccess, settlement.psn, wire::NakCode::kRemoteOperationalError);
  }
  return true;
}

// The key that a SEND is to invalidate is none of this side's (IBTA 9.9.6.1): the receive ends as with rxe.
void Responder::fail_invalidation(const Settlement& settlement) {
  ReceiveResult invalid;
  invalid.status = WcStatus::kRemInvReqErr;
  invalid.reason = FailureReason::kRemoteInvalidRequest;
  receives_.finish(invalid);
  fail(Failure::kCompletion, settlement.psn, wire::NakCode::kRemoteAccessError);
}

void Responder::settle(const Settlement& settlement, std::uint64_t original) {
  switch (settlement.kind) {
    case Settlement::Kind::kPlaced:
      settled_ = settlement.last_psn;
      if (settlement.ends_message) msn_ = (msn_ + 1) & Psn::kMask;
      if (settlement.ends_receive) receives_.finish(settlement.result);
      if (settlement.wants_ack) responses_.push_ack(settled_, msn_);
      return;
    case Settlement::Kind::kRead:
      --unsettled_answers_;
      settled_ = settlement.last_psn;
      msn_ = (msn_ + 1) & Psn::kMask;
      responses_.push_read(settlement.psn, settlement.address, settlement.rkey, settlement.length,
                           packet_bytes_, msn_, false);
      return;
    case Settlement::Kind::kRepeatedRead:
      responses_.push_read(settlement.psn, settlement.address, settlement.rkey, settlement.length,
                           packet_bytes_, msn_, true);
      return;
    case Settlement::Kind::kAtomic: {
      --unsettled_answers_;
      settled_ = settlement.psn;
      msn_ = (msn_ + 1) & Psn::kMask;
      AnsweredRequest* request = answered_.find(settlement.psn);
      URDMA_CHECK(request != nullptr);
      request->has_original = true;
      request->original = original;
      responses_.push_atomic(settlement.psn, original, msn_, false);
      return;
    }
    case Settlement::Kind::kAtomicWrite: {
      --unsettled_answers_;
      settled_ = settlement.psn;
      msn_ = (msn_ + 1) & Psn::kMask;
      AnsweredRequest* request = answered_.find(settlement.psn);
      URDMA_CHECK(request != nullptr);
      request->has_original = true;
      responses_.push_read(settlement.psn, 0, {}, 0, packet_bytes_, msn_, false);
      return;
    }
    case Settlement::Kind::kNotify:
      responses_.push_nak(settlement.psn, settlement.aeth_kind, settlement.aeth_value, msn_);
      return;
    case Settlement::Kind::kReject:
      if (settlement.ends_receive) receives_.finish(settlement.result);
      fail(settlement.result.status == WcStatus::kLocLenErr ? Failure::kCompletion : Failure::kInvalidRequest,
           settlement.psn, static_cast<wire::NakCode>(settlement.aeth_value));
      return;
  }
}

void Responder::fail(Failure failure, Psn psn, wire::NakCode code) {
  failure_ = failure;
  ++counters_.error_naks_sent;
  responses_.push_nak(psn, wire::AethKind::kNak, static_cast<std::uint8_t>(code), msn_);
}

void Responder::on_gather_failed(Psn psn, MemoryResult result) {
  if (mode_ != Mode::kRunning || failure_ != Failure::kNone) return;
  // What comes behind this response must not be sent in its place.
  responses_.clear();
  fail(Failure::kAccess, psn,
       result == MemoryResult::kProtection ? wire::NakCode::kRemoteAccessError
                                           : wire::NakCode::kRemoteOperationalError);
}

// ---- Output ----

bool Responder::poll_transmit(TxPacket& packet) {
  if (!responses_.poll(packet)) return false;
  packet.headers.dest_qp = dest_qpn_;
  if (service_ != wire::kServiceRc)
    packet.headers.opcode = wire::with_service(packet.headers.opcode, service_);
  ++counters_.packets_sent;
  return true;
}

}  // namespace urdma::transport
