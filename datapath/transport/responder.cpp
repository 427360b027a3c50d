// The responder's checks, and what comes of them. What is owed is settled in responder_settlement.cpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/responder.hpp"

#include "datapath/transport/packets.hpp"
#include "urdma/base/check.hpp"

namespace urdma::transport {

namespace {

using wire::OpClass;

Settlement placed(const wire::Headers& headers) {
  const wire::OpcodeInfo& info = headers.info();
  Settlement settlement;
  settlement.kind = Settlement::Kind::kPlaced;
  settlement.psn = settlement.last_psn = headers.psn;
  settlement.wants_ack = headers.ack_request;
  settlement.ends_message = info.is_last;
  ReceiveResult& result = settlement.result;
  result.is_solicited = headers.solicited;
  if (info.has_immediate) {
    result.flags |= kWcWithImm;
    result.immediate = headers.immediate;
  }
  if (info.has_ieth) {
    result.flags |= kWcWithInv;
    result.immediate = headers.invalidate_rkey.value;
  }
  return settlement;
}

}  // namespace

bool Responder::needs_receive(const wire::Headers& headers) const {
  if (receives_.has_unused() || !receives_.has_room() || !uses_receive(headers)) return false;
  return judge(headers) == Step::kNotReady;
}

MemoryOp Responder::on_packet(const wire::Headers& headers) {
  const Step step = judge(headers);
  switch (step) {
    case Step::kAccept:
      return accept(headers);
    case Step::kGap:
      return note_gap(headers);
    case Step::kDuplicate:
      return repeat(headers);
    case Step::kNotReady:
      return report_not_ready(headers);
    case Step::kInvalidRequest:
    case Step::kTooLong:
      return reject(headers, step);
    case Step::kState:
    case Step::kPsn:
    case Step::kSequence:
    case Step::kOperation:
    case Step::kLength:
    case Step::kOutstanding:
    case Step::kReceive:
    case Step::kDrop:
      break;
  }
  ++counters_.dropped_invalid;
  return {};
}

// What comes of a packet: the checks in their order, until one has the last word.
Responder::Step Responder::judge(const wire::Headers& headers) const {
  Step step = Step::kState;
  while (true) {
    switch (step) {
      case Step::kState:
        step = check_state(headers);
        break;
      case Step::kPsn:
        step = check_psn(headers);
        break;
      case Step::kSequence:
        step = check_sequence(headers);
        break;
      case Step::kOperation:
        step = check_operation(headers);
        break;
      case Step::kLength:
        step = check_length(headers);
        break;
      case Step::kOutstanding:
        step = check_outstanding(headers);
        break;
      case Step::kReceive:
        step = check_receive(headers);
        break;
      case Step::kAccept:
      case Step::kGap:
      case Step::kDuplicate:
      case Step::kNotReady:
      case Step::kInvalidRequest:
      case Step::kTooLong:
      case Step::kDrop:
        return step;
    }
  }
}

// ---- Checks ----

Responder::Step Responder::check_state(const wire::Headers&) const {
  return mode_ == Mode::kRunning && !is_rejecting_ && can_accept() ? Step::kPsn : Step::kDrop;
}

Responder::Step Responder::check_psn(const wire::Headers& headers) const {
  const std::int32_t ahead = headers.psn.distance_from(expected_);
  if (ahead == 0) return Step::kSequence;
  return ahead > 0 ? Step::kGap : Step::kDuplicate;
}

// Whether the opcode may follow what came before (IBTA 9.7.4.1.2).
Responder::Step Responder::check_sequence(const wire::Headers& headers) const {
  const wire::OpcodeInfo& info = headers.info();
  const bool is_within = message_.op_class != OpClass::kInvalid;
  const bool continues = !info.is_first;
  switch (info.op_class) {
    case OpClass::kSend:
    case OpClass::kWrite: {
      const bool fits = continues ? message_.op_class == info.op_class : !is_within;
      return fits ? Step::kOperation : Step::kInvalidRequest;
    }
    case OpClass::kReadRequest:
    case OpClass::kAtomic:
    case OpClass::kAtomicWrite:
      return is_within ? Step::kInvalidRequest : Step::kOperation;
    case OpClass::kInvalid:
    case OpClass::kReadResponse:
    case OpClass::kAck:
    case OpClass::kAtomicAck:
    case OpClass::kCnp:
      break;
  }
  return Step::kDrop;
}

// Whether the QP allows the operation (IBTA 9.7.4.1.5: a NAK for an invalid request).
Responder::Step Responder::check_operation(const wire::Headers& headers) const {
  std::uint32_t needed = 0;
  switch (headers.info().op_class) {
    case OpClass::kWrite:
    case OpClass::kAtomicWrite:
      needed = kAccessRemoteWrite;
      break;
    case OpClass::kReadRequest:
      needed = kAccessRemoteRead;
      break;
    case OpClass::kAtomic:
      needed = kAccessRemoteAtomic;
      break;
    case OpClass::kSend:
    case OpClass::kInvalid:
    case OpClass::kReadResponse:
    case OpClass::kAck:
    case OpClass::kAtomicAck:
    case OpClass::kCnp:
      break;
  }
  return (access_flags_ & needed) == needed ? Step::kLength : Step::kInvalidRequest;
}

// Whether the payload is as long as the opcode and the RETH say (IBTA 9.7.4.1.6), and an atomic's address is
// aligned (IBTA 9.4.5).
Responder::Step Responder::check_length(const wire::Headers& headers) const {
  const wire::OpcodeInfo& info = headers.info();
  if (info.op_class == OpClass::kReadRequest) {
    return headers.dma_length <= kMaxMessageBytes ? Step::kOutstanding : Step::kInvalidRequest;
  }
  if (info.op_class == OpClass::kAtomic) {
    return headers.address % kAtomicBytes == 0 ? Step::kOutstanding : Step::kInvalidRequest;
  }
  if (info.op_class == OpClass::kAtomicWrite) {
    const bool is_sound = headers.dma_length == kAtomicBytes && headers.payload_bytes == kAtomicBytes &&
                          headers.address % kAtomicBytes == 0;
    return is_sound ? Step::kOutstanding : Step::kInvalidRequest;
  }
  const std::uint32_t payload = headers.payload_bytes;
  const bool is_filled = info.is_last ? payload <= packet_bytes_ : payload == packet_bytes_;
  const bool is_empty_end = info.is_last && !info.is_first && payload == 0;
  if (!is_filled || is_empty_end) return Step::kInvalidRequest;
  if (info.op_class == OpClass::kWrite && !is_write_length_sound(headers)) return Step::kInvalidRequest;
  const std::uint64_t before = info.is_first ? 0 : message_.bytes;
  return before + payload <= kMaxMessageBytes ? Step::kReceive : Step::kInvalidRequest;
}

bool Responder::is_write_length_sound(const wire::Headers& headers) const {
  const wire::OpcodeInfo& info = headers.info();
  const std::uint64_t left = info.is_first ? headers.dma_length : message_.left_bytes;
  if (left > kMaxMessageBytes) return false;
  return info.is_last ? headers.payload_bytes == left : headers.payload_bytes < left;
}

// Whether the requester keeps to the number of READs and atomics that it may have outstanding.
Responder::Step Responder::check_outstanding(const wire::Headers&) const {
  const std::uint32_t outstanding = unsettled_answers_ + responses_.unanswered_requests();
  return outstanding < max_dest_rd_atomic_ ? Step::kAccept : Step::kInvalidRequest;
}

Responder::Step Responder::check_receive(const wire::Headers& headers) const {
  if (uses_receive(headers) && !receives_.has_unused()) return Step::kNotReady;
  return Step::kAccept;
}

// ---- What comes of them ----

MemoryOp Responder::accept(const wire::Headers& headers) {
  has_sent_gap_nak_ = false;
  is_not_ready_ = false;
  switch (headers.info().op_class) {
    case OpClass::kSend:
      return accept_send(headers);
    case OpClass::kWrite:
      return accept_write(headers);
    case OpClass::kReadRequest:
      return accept_read(headers);
    case OpClass::kAtomic:
      return accept_atomic(headers);
    case OpClass::kAtomicWrite:
      return accept_atomic_write(headers);
    case OpClass::kInvalid:
    case OpClass::kReadResponse:
    case OpClass::kAck:
    case OpClass::kAtomicAck:
    case OpClass::kCnp:
      break;
  }
  return {};
}

MemoryOp Responder::accept_send(const wire::Headers& headers) {
  const wire::OpcodeInfo& info = headers.info();
  if (info.is_first) {
    receives_.use();
    message_ = Message{};
    message_.op_class = OpClass::kSend;
  }
  const std::uint64_t offset = message_.bytes;
  message_.bytes += headers.payload_bytes;
  if (message_.bytes > receives_.capacity_bytes()) return reject(headers, Step::kTooLong);

  MemoryOp operation;
  if (headers.payload_bytes > 0) {
    operation.kind = MemoryOp::Kind::kScatter;
    operation.length = headers.payload_bytes;
    operation.elements = receives_.elements();
    operation.offset = offset;
    operation.ends_message = info.is_last;
  }
  if (info.has_ieth) {
    if (operation.kind == MemoryOp::Kind::kNone) operation.kind = MemoryOp::Kind::kNothing;
    operation.invalidates = true;
    operation.invalidate_key = headers.invalidate_rkey;
  }
  Settlement settlement = placed(headers);
  settlement.invalidates = info.has_ieth;
  settlement.is_local = true;
  settlement.ends_receive = info.is_last;
  settlement.result.byte_len = static_cast<std::uint32_t>(message_.bytes);
  expected_ = expected_.next();
  if (info.is_last) message_ = Message{};
  return owe(settlement, operation);
}

MemoryOp Responder::accept_write(const wire::Headers& headers) {
  const wire::OpcodeInfo& info = headers.info();
  if (info.is_first) {
    message_ = Message{};
    message_.op_class = OpClass::kWrite;
    message_.left_bytes = headers.dma_length;
    message_.address = headers.address;
    message_.rkey = headers.rkey;
  }
  MemoryOp operation;
  if (headers.payload_bytes > 0) {
    operation.kind = MemoryOp::Kind::kWrite;
    operation.access = kAccessRemoteWrite;
    operation.length = headers.payload_bytes;
    operation.key = message_.rkey;
    operation.address = message_.address;
    operation.check_bytes = message_.left_bytes;
    operation.ends_message = info.is_last;
  }
  message_.bytes += headers.payload_bytes;
  message_.address += headers.payload_bytes;
  message_.left_bytes -= headers.payload_bytes;

  Settlement settlement = placed(headers);
  if (info.has_immediate) {
    receives_.use();
    settlement.ends_receive = true;
    settlement.result.opcode = WcOpcode::kRecvRdmaWithImm;
    settlement.result.byte_len = static_cast<std::uint32_t>(message_.bytes);
  }
  expected_ = expected_.next();
  if (info.is_last) message_ = Message{};
  return owe(settlement, operation);
}

MemoryOp Responder::accept_read(const wire::Headers& headers) {
  const std::uint32_t packets = packets_of(headers.dma_length, packet_bytes_);
  Settlement settlement;
  settlement.kind = Settlement::Kind::kRead;
  settlement.psn = headers.psn;
  settlement.last_psn = headers.psn.plus(packets - 1);
  settlement.address = headers.address;
  settlement.rkey = headers.rkey;
  settlement.length = headers.dma_length;
  MemoryOp operation;
  if (headers.dma_length > 0) {
    operation.kind = MemoryOp::Kind::kCheck;
    operation.access = kAccessRemoteRead;
    operation.key = headers.rkey;
    operation.address = headers.address;
    operation.check_bytes = headers.dma_length;
  }
  answered_.add({.first_psn = headers.psn, .packets = packets});
  expected_ = expected_.plus(packets);
  ++unsettled_answers_;
  return owe(settlement, operation);
}

MemoryOp Responder::accept_atomic(const wire::Headers& headers) {
  Settlement settlement;
  settlement.kind = Settlement::Kind::kAtomic;
  settlement.psn = settlement.last_psn = headers.psn;
  MemoryOp operation;
  operation.kind = MemoryOp::Kind::kAtomic;
  operation.is_compare_swap =
      wire::with_service(headers.opcode, wire::kServiceRc) == wire::Opcode::kRcCompareSwap;
  operation.access = kAccessRemoteAtomic;
  operation.key = headers.rkey;
  operation.address = headers.address;
  operation.check_bytes = kAtomicBytes;
  operation.swap_or_add = headers.swap_or_add;
  operation.compare = headers.compare;
  answered_.add({.first_psn = headers.psn, .packets = 1, .is_atomic = true});
  expected_ = expected_.next();
  ++unsettled_answers_;
  return owe(settlement, operation);
}

MemoryOp Responder::accept_atomic_write(const wire::Headers& headers) {
  Settlement settlement;
  settlement.kind = Settlement::Kind::kAtomicWrite;
  settlement.psn = settlement.last_psn = headers.psn;
  MemoryOp operation;
  operation.kind = MemoryOp::Kind::kWrite;
  operation.access = kAccessRemoteWrite;
  operation.length = kAtomicBytes;
  operation.key = headers.rkey;
  operation.address = headers.address;
  operation.check_bytes = kAtomicBytes;
  answered_.add({.first_psn = headers.psn, .packets = 1, .is_atomic = true});
  expected_ = expected_.next();
  ++unsettled_answers_;
  return owe(settlement, operation);
}

// One NAK for a gap, as every packet behind it tells the same. A packet that is not beyond those seen tells
// that the requester has gone back, and that the missing one was lost once more.
MemoryOp Responder::note_gap(const wire::Headers& headers) {
  ++counters_.out_of_sequence_received;
  if (is_not_ready_) return {};
  const bool is_further = has_sent_gap_nak_ && headers.psn.is_after(highest_beyond_);
  highest_beyond_ = headers.psn;  // of what the requester has sent since it last went back
  if (is_further) return {};
  has_sent_gap_nak_ = true;
  ++counters_.sequence_naks_sent;
  Settlement settlement;
  settlement.kind = Settlement::Kind::kNotify;
  settlement.psn = expected_;
  settlement.aeth_value = static_cast<std::uint8_t>(wire::NakCode::kPsnSequenceError);
  return owe(settlement, {});
}

MemoryOp Responder::report_not_ready(const wire::Headers& headers) {
  is_not_ready_ = true;
  has_sent_gap_nak_ = false;
  ++counters_.rnr_naks_sent;
  Settlement settlement;
  settlement.kind = Settlement::Kind::kNotify;
  settlement.psn = headers.psn;
  settlement.aeth_kind = wire::AethKind::kRnrNak;
  settlement.aeth_value = min_rnr_timer_;
  return owe(settlement, {});
}

// ---- Duplicates (IBTA 9.7.5.1.2) ----

MemoryOp Responder::repeat(const wire::Headers& headers) {
  ++counters_.duplicates_received;
  switch (headers.info().op_class) {
    case OpClass::kSend:
    case OpClass::kWrite:
      // Before the first message is settled there is nothing to acknowledge yet.
      if (!headers.psn.is_after(settled_)) responses_.push_ack(newest_to_acknowledge(headers.psn), msn_);
      break;
    case OpClass::kReadRequest:
      return repeat_read(headers);
    case OpClass::kAtomic:
    case OpClass::kAtomicWrite: {
      const AnsweredRequest* request = answered_.find(headers.psn);
      if (request == nullptr || !request->has_original || responses_.will_answer(headers.psn)) break;
      if (headers.info().op_class == OpClass::kAtomic) {
        responses_.push_atomic(headers.psn, request->original, msn_, true);
      } else {
        responses_.push_read(headers.psn, 0, {}, 0, packet_bytes_, msn_, true);
      }
      break;
    }
    case OpClass::kInvalid:
    case OpClass::kReadResponse:
    case OpClass::kAck:
    case OpClass::kAtomicAck:
    case OpClass::kCnp:
      break;
  }
  return {};
}

// A plain ACK with the PSN of a READ or an atomic tells a requester that the answer is lost. rxe, though,
// takes it for the answer, and completes the request without its data: then only what is repeated is
// acknowledged.
Psn Responder::newest_to_acknowledge(Psn repeated) {
  return answered_.find(settled_) != nullptr ? repeated : settled_;
}

// It may ask for the rest of a READ, from any packet of its response on.
MemoryOp Responder::repeat_read(const wire::Headers& headers) {
  const AnsweredRequest* request = answered_.find(headers.psn);
  if (request == nullptr || request->is_atomic || headers.dma_length > kMaxMessageBytes) return {};
  const std::uint32_t packets = packets_of(headers.dma_length, packet_bytes_);
  const Psn last = headers.psn.plus(packets - 1);
  // What is still to be sent, or to be settled, is on its way already.
  const bool is_settled = !headers.psn.is_after(settled_);
  if (!request->covers(last) || !is_settled || responses_.will_answer(headers.psn)) return {};
  Settlement settlement;
  settlement.kind = Settlement::Kind::kRepeatedRead;
  settlement.psn = headers.psn;
  settlement.last_psn = last;
  settlement.address = headers.address;
  settlement.rkey = headers.rkey;
  settlement.length = headers.dma_length;
  MemoryOp operation;
  if (headers.dma_length > 0) {
    operation.kind = MemoryOp::Kind::kCheck;
    operation.access = kAccessRemoteRead;
    operation.key = headers.rkey;
    operation.address = headers.address;
    operation.check_bytes = headers.dma_length;
  }
  return owe(settlement, operation);
}

// ---- The end of the connection ----

MemoryOp Responder::reject(const wire::Headers& headers, Step why) {
  is_rejecting_ = true;
  Settlement settlement;
  settlement.kind = Settlement::Kind::kReject;
  settlement.psn = headers.psn;
  settlement.aeth_value = static_cast<std::uint8_t>(wire::NakCode::kInvalidRequest);
  // A message that had a receive request in use takes it along (IBTA 9.9.3.2).
  settlement.ends_receive = message_.op_class == OpClass::kSend;
  if (why == Step::kTooLong) {
    settlement.result.status = WcStatus::kLocLenErr;
    settlement.result.reason = FailureReason::kLocalLength;
  } else {
    settlement.result.status = WcStatus::kRemInvReqErr;
    settlement.result.reason = FailureReason::kRemoteInvalidRequest;
  }
  return owe(settlement, {});
}

}  // namespace urdma::transport
