// The requester's input: acknowledgements, answers, NAKs, memory results, timers.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <utility>

#include "datapath/transport/requester.hpp"

namespace urdma::transport {

// ---- What arrives ----

MemoryOp Requester::on_packet(const wire::Headers& headers, Instant now) {
  const bool is_awaited = !headers.psn.is_before(una_.previous()) && headers.psn.is_before(high_);
  const bool is_running = mode_ == Mode::kSending || mode_ == Mode::kDraining;
  const bool is_ack = headers.info().op_class == wire::OpClass::kAck;
  if (!is_running || has_failed_ || !is_awaited || (!is_ack && !can_accept())) {
    ++counters_.dropped_invalid;
    return {};
  }
  has_heard_ = true;
  MemoryOp operation;
  if (!is_ack) {
    operation = on_answer(headers, now);
  } else if (headers.aeth_kind == wire::AethKind::kAck) {
    on_ack(headers, now);
  } else {
    on_nak(headers, now);
  }
  fail_unsendable();
  retire_silent();
  return operation;
}

void Requester::on_ack(const wire::Headers& headers, Instant now) {
  if (!acknowledge_through(headers.psn, now)) rewind_for_missing_answer();
}

void Requester::on_nak(const wire::Headers& headers, Instant now) {
  if (headers.psn.is_before(una_)) {
    ++counters_.dropped_invalid;
    return;
  }
  if (headers.aeth_kind == wire::AethKind::kRnrNak) return on_rnr_nak(headers, now);
  if (headers.aeth_kind == wire::AethKind::kReserved) {
    ++counters_.dropped_invalid;
    return;
  }
  const auto code = static_cast<wire::NakCode>(headers.aeth_value);
  if (code == wire::NakCode::kPsnSequenceError) return on_sequence_nak(headers.psn, now);

  ++counters_.error_naks_received;
  // Whether this comes upon a READ without its answer makes no difference: the peer answers nothing more,
  // so that the oldest request fails, with the reason that the peer gave.
  static_cast<void>(acknowledge_through(headers.psn.previous(), now));
  switch (code) {
    case wire::NakCode::kRemoteAccessError:
      return fail_oldest_unacknowledged(WcStatus::kRemAccessErr, FailureReason::kRemoteAccess);
    case wire::NakCode::kRemoteOperationalError:
      return fail_oldest_unacknowledged(WcStatus::kRemOpErr, FailureReason::kRemoteOperation);
    case wire::NakCode::kPsnSequenceError:
    case wire::NakCode::kInvalidRequest:
    case wire::NakCode::kInvalidRdRequest:
      break;
  }
  fail_oldest_unacknowledged(WcStatus::kRemInvReqErr, FailureReason::kRemoteInvalidRequest);
}

void Requester::on_sequence_nak(Psn psn, Instant now) {
  ++counters_.sequence_naks_received;
  const Psn before = una_;
  static_cast<void>(acknowledge_through(psn.previous(), now));
  const bool made_progress = una_ != before;
  // Everything is to be sent again already.
  if (!made_progress && (nxt_ == una_ || retransmission_.is_waiting_for_receiver())) return;
  const auto in_flight = static_cast<std::uint32_t>(nxt_.distance_from(una_));
  if (!retransmission_.on_sequence_nak(made_progress, in_flight)) {
    fail_oldest_unacknowledged(WcStatus::kRetryExcErr, FailureReason::kSequenceErrors);
    return;
  }
  has_sequence_errors_ = true;
  congestion_.on_loss();
  rewind();
}

void Requester::on_rnr_nak(const wire::Headers& headers, Instant now) {
  ++counters_.rnr_naks_received;
  const Psn before = una_;
  static_cast<void>(acknowledge_through(headers.psn.previous(), now));
  // A second one for the same packet: nothing was sent since the first.
  if (una_ == before && (retransmission_.is_waiting_for_receiver() || nxt_ == una_)) return;
  if (!retransmission_.on_rnr_nak(headers.aeth_value & 0x1FU, now)) {
    fail_oldest_unacknowledged(WcStatus::kRnrRetryExcErr, FailureReason::kReceiverNotReady);
    return;
  }
  has_sequence_errors_ = false;
  rewind();
}

// ---- Answers to READs and atomics ----

MemoryOp Requester::on_answer(const wire::Headers& headers, Instant now) {
  if (headers.psn.is_before(una_)) {
    ++counters_.duplicates_received;
    return {};
  }
  const bool is_next = acknowledge_through(headers.psn.previous(), now) && una_ == headers.psn;
  if (!is_next) {
    ++counters_.out_of_sequence_received;
    rewind_for_missing_answer();
    return {};
  }
  SendWork& work = queue_[una_request_];
  const bool is_read = work.request.opcode == WrOpcode::kRdmaRead;
  const bool is_write = work.request.opcode == WrOpcode::kAtomicWrite;
  const bool has_response = is_read || is_write;
  const wire::OpClass expected = has_response ? wire::OpClass::kReadResponse : wire::OpClass::kAtomicAck;
  if (!work.needs_answer() || headers.info().op_class != expected) {
    fail_oldest_unacknowledged(WcStatus::kBadRespErr, FailureReason::kBadResponse);
    return {};
  }
  if (is_write) return take_write_answer(work, headers, now);
  return is_read ? take_read_response(work, headers, now) : take_atomic_answer(work, headers, now);
}

// Opcode and length. A First in the middle of a READ is sound, because a part of it may have been asked
// for again; so is a Middle there, which comes from the first time.
bool Requester::is_sound_read_response(const SendWork& work, const wire::Headers& headers) const {
  const std::uint32_t packet = work.acknowledged_packets;
  const bool is_last = packet + 1 == work.answer_end(packet);
  const bool must_be_first = packet % kReadRequestPackets == 0;
  if (headers.info().is_last != is_last || (must_be_first && !headers.info().is_first)) return false;
  const std::uint64_t left = work.request.length - std::uint64_t{packet} * packet_bytes_;
  return headers.payload_bytes == std::min<std::uint64_t>(left, packet_bytes_);
}

MemoryOp Requester::take_read_response(SendWork& work, const wire::Headers& headers, Instant now) {
  if (!is_sound_read_response(work, headers)) {
    fail_oldest_unacknowledged(WcStatus::kBadRespErr, FailureReason::kBadResponse);
    return {};
  }
  MemoryOp operation;
  if (headers.payload_bytes > 0) {
    operation.kind = MemoryOp::Kind::kScatter;
    operation.side = Side::kRequester;
    operation.length = headers.payload_bytes;
    operation.elements = queue_.elements(una_request_);
    operation.offset = std::uint64_t{work.acknowledged_packets} * packet_bytes_;
    operation.ends_message = work.acknowledged_packets + 1 == work.packets;
    ++work.unanswered_operations;
    ++unanswered_operations_;
  }
  advance(work, 1);
  note_progress(now);
  return operation;
}

MemoryOp Requester::take_atomic_answer(SendWork& work, const wire::Headers& headers, Instant now) {
  MemoryOp operation;
  operation.kind = MemoryOp::Kind::kScatter;
  operation.side = Side::kRequester;
  operation.length = 8;
  operation.elements = queue_.elements(una_request_);
  operation.has_value = true;
  operation.value = headers.atomic_original;
  ++work.unanswered_operations;
  ++unanswered_operations_;
  advance(work, 1);
  note_progress(now);
  return operation;
}

// An ATOMIC WRITE is answered like a READ of nothing.
MemoryOp Requester::take_write_answer(SendWork& work, const wire::Headers& headers, Instant now) {
  if (!headers.info().is_only() || headers.payload_bytes != 0) {
    fail_oldest_unacknowledged(WcStatus::kBadRespErr, FailureReason::kBadResponse);
    return {};
  }
  advance(work, 1);
  note_progress(now);
  return {};
}

// ---- Progress ----

bool Requester::acknowledge_through(Psn last, Instant now) {
  bool is_complete = true;
  bool made_progress = false;
  while (!una_.is_after(last) && una_.is_before(high_)) {
    SendWork& work = queue_[una_request_];
    if (work.needs_answer()) {
      is_complete = false;
      break;
    }
    const auto covered = static_cast<std::uint32_t>(last.distance_from(una_)) + 1;
    advance(work, std::min(covered, work.packets - work.acknowledged_packets));
    made_progress = true;
  }
  if (made_progress) note_progress(now);
  return is_complete;
}

void Requester::advance(SendWork& work, std::uint32_t packets) {
  const std::int32_t sent = std::max(0, nxt_.distance_from(una_));
  work.acknowledged_packets += packets;
  if (!work.needs_answer()) {
    packets_in_flight_ -= std::min(packets, static_cast<std::uint32_t>(sent));
    congestion_.on_acknowledged(packets);
  } else {
    // A request for an answer is outstanding until the last packet that it asks for.
    const bool ends_answer = work.answer_end(work.acknowledged_packets - 1) == work.acknowledged_packets;
    if (ends_answer && sent > 0) --answers_in_flight_;
    if (work.is_acknowledged() && work.unanswered_operations == 0) --unfinished_answers_;
  }
  una_ = una_.plus(packets);
  const Position una_position = work.is_acknowledged() ? Position{queue_.next(una_request_), 0}
                                                       : Position{una_request_, work.acknowledged_packets};
  una_request_ = una_position.request;
  // An acknowledgement of what was sent before the last rewind: it need not be sent again.
  if (nxt_.is_before(una_)) {
    nxt_ = una_;
    cursor_ = una_position;
  }
}

void Requester::note_progress(Instant now) {
  has_rewound_ = false;
  has_sequence_errors_ = false;
  retransmission_.on_progress(una_ != nxt_, now);
}

// Go-back-N: everything from the oldest unacknowledged packet on is sent again.
void Requester::rewind() {
  nxt_ = una_;
  cursor_ = {una_request_, queue_.holds(una_request_) ? queue_[una_request_].acknowledged_packets : 0};
  packets_in_flight_ = 0;
  answers_in_flight_ = 0;
}

// An implied NAK (IBTA 9.7.5.1.1): something later was acknowledged, the answer was lost. What is under way
// implies it many times over, hence once until there is progress, or until the timer runs out.
void Requester::rewind_for_missing_answer() {
  if (has_rewound_ || nxt_ == una_) return;
  has_rewound_ = true;
  ++counters_.implied_naks;
  congestion_.on_loss();
  rewind();
}

// ---- Memory ----

void Requester::on_memory_done(MemoryResult result) {
  if (ignored_answers_ > 0) {
    --ignored_answers_;
    return;
  }
  if (unanswered_operations_ == 0) return;
  if (!queue_.holds(operation_request_)) operation_request_ = queue_.head();
  while (queue_[operation_request_].unanswered_operations == 0) ++operation_request_;
  SendWork& work = queue_[operation_request_];
  --work.unanswered_operations;
  --unanswered_operations_;
  // IBTA 11.6.2: an element that does not bear what it is used for is a local protection error; so is memory
  // that has gone away, for which the specification knows no other status.
  if (result != MemoryResult::kOk) {
    fail_request(operation_request_, WcStatus::kLocProtErr, FailureReason::kLocalProtection);
  }
  if (work.is_acknowledged() && work.unanswered_operations == 0) --unfinished_answers_;
  retire_silent();
}

// ---- What stays on this node ----

// Answers the local request at the cursor. Nothing behind it has begun.
void Requester::on_local_done(MemoryResult result) {
  const std::uint32_t index = cursor_.request;
  if (mode_ == Mode::kStopped || !queue_.holds(index) || !queue_[index].awaits_execution) return;
  // IBTA 11.6.2: a memory management operation error, for which verbs have the bind's.
  if (result != MemoryResult::kOk) {
    mark_unsendable(index, WcStatus::kMwBindErr);
  } else {
    queue_[index].awaits_execution = false;
    cursor_.request = queue_.next(index);
    if (una_request_ == index) una_request_ = cursor_.request;
    retire_silent();
  }
  fail_unsendable();
}

void Requester::on_gather_failed(Psn psn) {
  if (mode_ == Mode::kStopped || psn.is_before(una_) || !psn.is_before(high_)) return;
  // Which request is it? Those with unacknowledged packets that were sent are few, and follow one another.
  for (std::uint32_t index = una_request_; queue_.holds(index); ++index) {
    const SendWork& work = queue_[index];
    if (work.packets == 0) continue;
    const auto offset = static_cast<std::uint32_t>(psn.distance_from(una_));
    const auto start = static_cast<std::uint32_t>(work.first_psn.distance_from(una_));
    if (index != una_request_ && offset >= start + work.packets) continue;
    if (index == una_request_ && offset >= work.packets - work.acknowledged_packets) continue;
    mark_unsendable(index, WcStatus::kLocProtErr);
    break;
  }
  fail_unsendable();
}

// It fails once everything before it is acknowledged.
void Requester::mark_unsendable(std::uint32_t index, WcStatus status) {
  queue_[index].status = status;
  queue_[index].reason = FailureReason::kLocalProtection;
  if (!has_unsendable_ || index - una_request_ < unsendable_request_ - una_request_) {
    unsendable_request_ = index;
  }
  has_unsendable_ = true;
}

// ---- Time ----

void Requester::on_deadline(Instant now) {
  switch (retransmission_.on_deadline(now)) {
    case Retransmission::Expiry::kNone:
    case Retransmission::Expiry::kResume:
      return;
    case Retransmission::Expiry::kSendAgain:
      ++counters_.ack_timeouts;
      has_rewound_ = false;
      has_sequence_errors_ = false;
      congestion_.on_loss();
      rewind();
      return;
    case Retransmission::Expiry::kGiveUp:
      break;
  }
  ++counters_.ack_timeouts;
  if (has_sequence_errors_) {
    fail_oldest_unacknowledged(WcStatus::kRetryExcErr, FailureReason::kSequenceErrors);
  } else {
    fail_oldest_unacknowledged(WcStatus::kRetryExcErr,
                               has_heard_ ? FailureReason::kAnswersStopped : FailureReason::kNoAnswer);
  }
}

// ---- Failure ----

void Requester::fail_request(std::uint32_t index, WcStatus status, FailureReason reason) {
  // Only an earlier one takes the place of the one that has failed, and none once that has been told.
  const bool is_first = !has_failed_ || (queue_.holds(failed_request_) &&
                                         index - queue_.head() < failed_request_ - queue_.head());
  if (!is_first) return;
  queue_[index].status = status;
  queue_[index].reason = reason;
  failed_request_ = index;
  failure_reason_ = reason;
  has_failed_ = true;
}

void Requester::fail_oldest_unacknowledged(WcStatus status, FailureReason reason) {
  if (queue_.holds(una_request_)) fail_request(una_request_, status, reason);
}

void Requester::fail_unsendable() {
  if (mode_ != Mode::kSending && mode_ != Mode::kDraining) return;
  if (!queue_.holds(una_request_)) return;
  const SendWork& work = queue_[una_request_];
  if (work.status == WcStatus::kSuccess) return;
  const bool has_begun = una_ != high_ || cursor_.packet != 0;
  if (mode_ == Mode::kDraining && !has_begun) return;
  fail_request(una_request_, work.status, work.reason);
}

}  // namespace urdma::transport
