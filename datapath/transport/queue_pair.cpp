// A queue pair: dispatches to its requester and its responder, and keeps the state; see the header.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/queue_pair.hpp"

#include <bit>

#include "datapath/transport/state_machine.hpp"
#include "urdma/base/check.hpp"

namespace urdma::transport {

QueuePair::QueuePair(const QpConfig& config)
    : config_(config), requester_(config, counters_), responder_(config, counters_) {}

// ---- Getters ----

QpCounters QueuePair::counters() const { return counters_; }

Instant QueuePair::next_deadline() const { return requester_.next_deadline(); }

bool QueuePair::has_output(Instant) const {
  return pending_events_ != 0 || requester_.can_complete() || responder_.can_complete() ||
         responder_.can_transmit() || requester_.can_transmit();
}

bool QueuePair::is_sq_draining() const { return state_ == QpState::kSqd && !requester_.is_drained(); }

std::uint32_t QueuePair::unanswered_operations() const {
  return requester_.unanswered_operations() + responder_.unanswered_operations();
}

bool QueuePair::takes_requests() const {
  switch (state_) {
    case QpState::kRtr:
    case QpState::kRts:
    case QpState::kSqd:
    case QpState::kSqe:
      return true;
    case QpState::kReset:
    case QpState::kInit:
    case QpState::kErr:
      return false;
  }
  return false;
}

bool QueuePair::is_of_service(wire::Opcode opcode) const {
  switch (config_.type) {
    case QpType::kRc:
      return wire::service_of(opcode) == wire::kServiceRc;
    case QpType::kUc:
      return wire::service_of(opcode) == wire::kServiceUc;
    case QpType::kUd:
      return wire::service_of(opcode) == wire::kServiceUd;
    case QpType::kXrcSend:
      return wire::service_of(opcode) == wire::kServiceXrc && !wire::opcode_info(opcode).is_request();
    case QpType::kXrcRecv:
      return wire::service_of(opcode) == wire::kServiceXrc && wire::opcode_info(opcode).is_request();
  }
  return false;
}

// Whether a request that fails ends the sending, and not the QP (IBTA 10.3.1, state SQE).
bool QueuePair::is_unreliable() const { return config_.type == QpType::kUc || config_.type == QpType::kUd; }

// ---- Commands ----

int QueuePair::modify(std::uint32_t mask, const QpAttributes& attributes, Instant now) {
  const int error = check_modify(config_, state_, mask, attributes);
  if (error != 0) return error;
  apply(mask, attributes);
  if ((mask & kAttrState) != 0) enter(attributes.state, now);
  attributes_.state = attributes_.current_state = state_;
  return 0;
}

void QueuePair::apply(std::uint32_t mask, const QpAttributes& from) {
  QpAttributes& to = attributes_;
  const auto has = [mask](std::uint32_t attribute) { return (mask & attribute) != 0; };
  if (has(kAttrPathMtu)) {
    to.path_mtu_code = from.path_mtu_code;
    to.packet_bytes = from.packet_bytes != 0 ? from.packet_bytes : mtu_bytes(from.path_mtu_code);
  } else if (config_.type == QpType::kUd && from.packet_bytes != 0) {
    to.packet_bytes = from.packet_bytes;
  }
  if (has(kAttrMaxQpRdAtomic)) to.max_rd_atomic = from.max_rd_atomic;
  if (has(kAttrMaxDestRdAtomic)) to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  if (has(kAttrMinRnrTimer)) to.min_rnr_timer = from.min_rnr_timer;
  if (has(kAttrTimeout)) to.timeout = from.timeout;
  if (has(kAttrRetryCnt)) to.retry_count = from.retry_count;
  if (has(kAttrRnrRetry)) to.rnr_retry = from.rnr_retry;
  if (has(kAttrPort)) to.port = from.port;
  // Each move to SQD says anew whether its end is to be told.
  to.sqd_notify = has(kAttrSqdNotify) && from.sqd_notify;
  if (has(kAttrQkey)) to.qkey = from.qkey;
  if (has(kAttrRqPsn)) to.rq_psn = from.rq_psn;
  if (has(kAttrSqPsn)) to.sq_psn = from.sq_psn;
  if (has(kAttrDestQpn)) to.dest_qpn = from.dest_qpn;
  if (has(kAttrAccessFlags)) to.access_flags = from.access_flags;
  if (has(kAttrPkeyIndex)) to.pkey_index = from.pkey_index;
  requester_.configure(to);
  responder_.configure(to);
}

void QueuePair::enter(QpState next, Instant now) {
  const QpState previous = state_;
  state_ = next;
  if (next == previous && next != QpState::kReset) return;
  switch (next) {
    case QpState::kReset:
      requester_.reset();
      responder_.reset();
      attributes_ = QpAttributes{};
      failure_reason_ = FailureReason::kNone;
      pending_events_ = 0;
      communication_established_ = owes_drained_event_ = owes_last_wqe_event_ = false;
      break;
    case QpState::kInit:
      break;
    case QpState::kSqe:
      owes_drained_event_ = false;
      break;
    case QpState::kRtr:
      responder_.start(attributes_.rq_psn);
      break;
    case QpState::kRts:
      owes_drained_event_ = false;
      if (previous == QpState::kRtr) {
        requester_.start(attributes_.sq_psn);
      } else {
        requester_.resume(now);
      }
      break;
    case QpState::kSqd:
      requester_.drain();
      owes_drained_event_ = attributes_.sqd_notify;
      break;
    case QpState::kErr:
      owes_drained_event_ = false;
      owes_last_wqe_event_ = config_.has_srq || config_.type == QpType::kXrcRecv;
      requester_.stop();
      responder_.stop();
      break;
  }
  follow_up(now);
}

void QueuePair::fail(FailureReason reason) {
  if (state_ == QpState::kReset || state_ == QpState::kErr) return;
  failure_reason_ = reason;
  raise(AsyncEvent::kQpFatal);
  enter(QpState::kErr, Instant{});
  attributes_.state = attributes_.current_state = state_;
}

bool QueuePair::can_post_send() const {
  if (config_.type == QpType::kXrcRecv) return false;
  switch (state_) {
    case QpState::kRts:
    case QpState::kSqd:
    case QpState::kSqe:
    case QpState::kErr:
      return requester_.has_room();
    case QpState::kReset:
    case QpState::kInit:
    case QpState::kRtr:
      return false;
  }
  return false;
}

void QueuePair::post_send(const SendRequest& request, std::span<const Sge> elements) {
  URDMA_CHECK(can_post_send());
  requester_.post(request, elements);
  follow_up(Instant{});
}

bool QueuePair::wants_receive() const { return responder_.wants_receive(); }

bool QueuePair::needs_receive(const wire::Headers& headers) const {
  return takes_requests() && is_of_service(headers.opcode) && headers.info().is_request() &&
         responder_.needs_receive(headers);
}

void QueuePair::offer_receive(const ReceiveRequest& request, std::span<const Sge> elements) {
  responder_.offer_receive(request, elements);
}

// ---- Input ----

bool QueuePair::can_accept() const { return requester_.can_accept() && responder_.can_accept(); }

MemoryOp QueuePair::on_packet(const wire::Headers& headers, Instant now) {
  ++counters_.packets_received;
  if (!takes_requests() || !is_of_service(headers.opcode)) {
    ++counters_.dropped_invalid;
    return {};
  }
  MemoryOp operation;
  if (headers.info().is_request()) {
    if (state_ == QpState::kRtr && !communication_established_ && config_.type != QpType::kUd) {
      communication_established_ = true;
      raise(AsyncEvent::kCommEst);
    }
    operation = responder_.on_packet(headers);
  } else {
    operation = requester_.on_packet(headers, now);
  }
  follow_up(now);
  return operation;
}

void QueuePair::on_memory_done(Side side, MemoryResult result, std::uint64_t original, Instant now) {
  switch (side) {
    case Side::kRequester:
      requester_.on_memory_done(result);
      break;
    case Side::kResponder:
      responder_.on_memory_done(result, original);
      break;
  }
  follow_up(now);
}

void QueuePair::on_local_done(MemoryResult result, Instant now) {
  requester_.on_local_done(result);
  follow_up(now);
}

void QueuePair::on_departed(const TxPacket&, Instant now) {
  requester_.on_departed();
  follow_up(now);
}

void QueuePair::on_gather_failed(const TxPacket& packet, MemoryResult result, Instant now) {
  switch (packet.side) {
    case Side::kRequester:
      requester_.on_gather_failed(packet.headers.psn);
      break;
    case Side::kResponder:
      responder_.on_gather_failed(packet.headers.psn, result);
      break;
  }
  follow_up(now);
}

void QueuePair::on_deadline(Instant now) {
  requester_.on_deadline(now);
  follow_up(now);
}

void QueuePair::follow_up(Instant now) {
  if (owes_drained_event_ && requester_.is_drained()) {
    owes_drained_event_ = false;
    raise(AsyncEvent::kSqDrained);
  }
  tell_last_wqe();
  if (state_ == QpState::kErr || state_ == QpState::kReset) return;
  const ReceiveSide::Failure failure = responder_.failure();
  const bool has_new_failure = requester_.has_failed() && state_ != QpState::kSqe;
  if (!has_new_failure && failure == ReceiveSide::Failure::kNone) return;
  switch (failure) {
    case ReceiveSide::Failure::kNone:
    case ReceiveSide::Failure::kCompletion:
      break;
    case ReceiveSide::Failure::kInvalidRequest:
      raise(AsyncEvent::kQpReqErr);
      break;
    case ReceiveSide::Failure::kAccess:
      raise(AsyncEvent::kQpAccessErr);
      break;
  }
  failure_reason_ = requester_.failure_reason();
  const bool is_only_sending = is_unreliable() && failure == ReceiveSide::Failure::kNone;
  enter(is_only_sending ? QpState::kSqe : QpState::kErr, now);
  attributes_.state = attributes_.current_state = state_;
}

// The program may take the SRQ from under the QP once its last receive has completed (IBTA 11.6.3.2).
void QueuePair::tell_last_wqe() {
  if (!owes_last_wqe_event_ || responder_.has_receives()) return;
  owes_last_wqe_event_ = false;
  raise(AsyncEvent::kQpLastWqeReached);
}

// ---- Output ----

bool QueuePair::poll_transmit(Instant now, TxPacket& packet) {
  const bool is_responder_first = is_responders_turn_;
  if (is_responder_first && responder_.poll_transmit(packet)) {
    is_responders_turn_ = false;
    return true;
  }
  is_responders_turn_ = true;
  if (requester_.poll_transmit(now, packet)) return true;
  return !is_responder_first && responder_.poll_transmit(packet);
}

bool QueuePair::poll_completion(Completion& completion) {
  if (requester_.poll_completion(completion)) {
    completion.source_qp = attributes_.dest_qpn;
    return true;
  }
  if (!responder_.poll_completion(completion)) return false;
  tell_last_wqe();
  if (config_.type != QpType::kUd) completion.source_qp = attributes_.dest_qpn;
  return true;
}

bool QueuePair::poll_event(AsyncEvent& event) {
  if (pending_events_ == 0) return false;
  event = static_cast<AsyncEvent>(std::countr_zero(pending_events_));
  pending_events_ &= pending_events_ - 1;
  return true;
}

void QueuePair::raise(AsyncEvent event) { pending_events_ |= 1U << static_cast<std::uint32_t>(event); }

}  // namespace urdma::transport
