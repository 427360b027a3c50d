// The requester's output: packets and completions. Its input is in requester_input.cpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/requester.hpp"

#include "datapath/transport/packets.hpp"
#include "datapath/transport/request_opcodes.hpp"

namespace urdma::transport {

Requester::Requester(const QpConfig& config, QpCounters& counters)
    : counters_(counters),
      queue_(config.send_slots, config.max_send_sge),
      signal_all_(config.signal_all),
      service_(config.type == QpType::kXrcSend ? wire::kServiceXrc : wire::kServiceRc) {}

// ---- Commands ----

void Requester::configure(const QpAttributes& attributes) {
  packet_bytes_ = attributes.packet_bytes;
  dest_qpn_ = attributes.dest_qpn;
  max_rd_atomic_ = attributes.max_rd_atomic;
  retransmission_.configure(attributes.timeout, attributes.retry_count, attributes.rnr_retry);
}

void Requester::start(Psn first_psn) {
  mode_ = Mode::kSending;
  una_ = nxt_ = high_ = first_psn;
}

void Requester::drain() { mode_ = Mode::kDraining; }

void Requester::resume(Instant now) {
  mode_ = Mode::kSending;
  if (una_ != nxt_) retransmission_.on_sent(now);
  fail_unsendable();
}

void Requester::stop() {
  mode_ = Mode::kStopped;
  retransmission_.stop();
}

void Requester::reset() {
  mode_ = Mode::kIdle;
  queue_.clear();
  retransmission_.reset();
  congestion_.reset();
  una_request_ = operation_request_ = queue_.head();
  cursor_ = {queue_.head(), 0};
  packets_in_flight_ = answers_in_flight_ = unfinished_answers_ = 0;
  ignored_answers_ += unanswered_operations_;
  unanswered_operations_ = 0;
  failure_reason_ = FailureReason::kNone;
  has_failed_ = has_unsendable_ = has_heard_ = has_sequence_errors_ = has_rewound_ = false;
}

void Requester::post(const SendRequest& request, std::span<const Sge> elements) {
  queue_.push(request, elements, packet_bytes_ == 0 ? mtu_bytes(1) : packet_bytes_);
  SendWork& work = queue_[queue_.tail() - 1];
  work.status = judge(request);
  if (work.status != WcStatus::kSuccess) work.reason = FailureReason::kLocalOperation;
  if (work.status == WcStatus::kLocLenErr) work.reason = FailureReason::kLocalLength;
  fail_unsendable();
}

WcStatus Requester::judge(const SendRequest& request) const {
  if (request.verdict != WcStatus::kSuccess) return request.verdict;
  // An initiator depth of zero, or what the service has not: IBTA 11.6.2, local QP operation error.
  const bool is_atomic_write = request.opcode == WrOpcode::kAtomicWrite;
  if (is_read_or_atomic(request.opcode) && max_rd_atomic_ == 0) return WcStatus::kLocQpOpErr;
  if (is_atomic_write && service_ != wire::kServiceRc) return WcStatus::kLocQpOpErr;
  return is_atomic_write && request.length != kAtomicBytes ? WcStatus::kLocLenErr : WcStatus::kSuccess;
}

// ---- Sending ----

bool Requester::can_transmit() const {
  if (mode_ != Mode::kSending && mode_ != Mode::kDraining) return false;
  if (retransmission_.is_waiting_for_receiver() || !queue_.holds(cursor_.request)) return false;
  if (has_unsendable_ && cursor_.request - queue_.head() >= unsendable_request_ - queue_.head()) return false;
  const SendWork& work = queue_[cursor_.request];
  if (work.status != WcStatus::kSuccess) return false;
  const bool is_beginning = cursor_.packet == 0 && nxt_ == high_;
  return (!is_beginning || may_begin(work)) && has_credit(work);
}

bool Requester::may_begin(const SendWork& work) const {
  if (mode_ == Mode::kDraining) return false;
  return (work.request.flags & kSendFence) == 0 || unfinished_answers_ == 0;
}

bool Requester::has_credit(const SendWork& work) const {
  if (work.needs_answer()) return answers_in_flight_ < max_rd_atomic_;
  if (work.packets == 0) return true;
  return packets_in_flight_ < congestion_.window_packets();
}

// The last packet of a message, one in 32 within it, and the one that fills the window: without an
// answer to that one nothing more could be sent.
bool Requester::wants_ack(const SendWork& work) const {
  return cursor_.packet + 1 == work.packets || (cursor_.packet + 1) % kAckRequestPackets == 0 ||
         packets_in_flight_ + 1 >= congestion_.window_packets();
}

bool Requester::poll_transmit(Instant now, TxPacket& packet) {
  if (!can_transmit()) return false;
  SendWork& work = queue_[cursor_.request];
  if (work.packets == 0) {
    packet = TxPacket{};
    packet.local = queue_.local_of(cursor_.request);
    return true;
  }
  if (cursor_.packet == 0 && nxt_ == high_) {
    work.first_psn = nxt_;
    if (work.needs_answer()) ++unfinished_answers_;
  }
  packet = TxPacket{};
  packet.side = Side::kRequester;
  packet.headers.dest_qp = dest_qpn_;
  packet.headers.psn = nxt_;
  if (work.needs_answer()) {
    fill_answered_request(work, packet);
  } else {
    fill_packet(work, packet);
  }
  if (service_ != wire::kServiceRc) {
    packet.headers.opcode = wire::with_service(packet.headers.opcode, service_);
    packet.headers.srqn = work.request.remote_qpn;
  }
  count_sent(work, now);
  return true;
}

void Requester::fill_packet(const SendWork& work, TxPacket& packet) const {
  const SendRequest& request = work.request;
  const bool is_last = cursor_.packet + 1 == work.packets;
  const std::uint64_t offset = std::uint64_t{cursor_.packet} * packet_bytes_;
  wire::Headers& headers = packet.headers;
  headers.opcode = opcodes_of(request.opcode)->at(cursor_.packet == 0, is_last);
  headers.ack_request = wants_ack(work);
  headers.solicited = is_last && (request.flags & kSendSolicited) != 0;
  headers.address = request.remote_address;
  headers.rkey = request.rkey;
  headers.dma_length = static_cast<std::uint32_t>(request.length);
  headers.immediate = request.immediate;
  headers.invalidate_rkey = request.rkey;
  headers.payload_bytes = is_last ? static_cast<std::uint32_t>(request.length - offset) : packet_bytes_;

  packet.payload = queue_.payload_of(cursor_.request, offset, headers.payload_bytes);
}

void Requester::fill_answered_request(const SendWork& work, TxPacket& packet) const {
  const SendRequest& request = work.request;
  wire::Headers& headers = packet.headers;
  headers.opcode = opcodes_of(request.opcode)->only;
  headers.ack_request = true;
  headers.rkey = request.rkey;
  headers.address = request.remote_address;
  if (request.opcode == WrOpcode::kAtomicWrite) {
    headers.dma_length = headers.payload_bytes = kAtomicBytes;
    packet.payload = queue_.payload_of(cursor_.request, 0, kAtomicBytes);
    return;
  }
  if (request.opcode != WrOpcode::kRdmaRead) {
    const bool is_swap = request.opcode == WrOpcode::kCompareSwap;
    headers.swap_or_add = is_swap ? request.swap : request.compare_add;
    headers.compare = is_swap ? request.compare_add : 0;
    return;
  }
  const std::uint64_t offset = std::uint64_t{cursor_.packet} * packet_bytes_;
  const std::uint64_t end = std::uint64_t{work.answer_end(cursor_.packet)} * packet_bytes_;
  headers.address += offset;
  headers.dma_length = static_cast<std::uint32_t>(std::min(end, request.length) - offset);
}

void Requester::count_sent(const SendWork& work, Instant now) {
  const std::uint32_t end = work.needs_answer() ? work.answer_end(cursor_.packet) : cursor_.packet + 1;
  ++counters_.packets_sent;
  if (nxt_.is_before(high_)) ++counters_.packets_retransmitted;
  ++(work.needs_answer() ? answers_in_flight_ : packets_in_flight_);
  nxt_ = nxt_.plus(end - cursor_.packet);
  if (nxt_.is_after(high_)) high_ = nxt_;
  cursor_.packet = end;
  if (end == work.packets) cursor_ = {queue_.next(cursor_.request), 0};
  retransmission_.on_sent(now);
}

// ---- Completing ----

bool Requester::is_drained() const {
  return una_ == high_ && cursor_.packet == 0 && unanswered_operations_ == 0;
}

bool Requester::can_complete() const { return outcome_of_oldest() != Outcome::kWait; }

Requester::Outcome Requester::outcome_of_oldest() const {
  if (queue_.is_empty()) return Outcome::kWait;
  const std::uint32_t index = queue_.head();
  const SendWork& work = queue_[index];
  if (work.unanswered_operations > 0) return Outcome::kWait;
  if (has_failed_ && index == failed_request_) return Outcome::kFail;
  // Behind the failed one (which has left the queue, as it is oldest first) nothing succeeds any more.
  const bool is_behind_failure = has_failed_ && !queue_.holds(failed_request_);
  if (work.is_acknowledged() && !is_behind_failure) return Outcome::kSucceed;
  if (mode_ != Mode::kStopped) return Outcome::kWait;
  // The program may use a buffer again once it sees the completion: let what is being written end first.
  return unanswered_operations_ == 0 ? Outcome::kFlush : Outcome::kWait;
}

bool Requester::is_reported(const SendWork& work, Outcome outcome) const {
  return outcome != Outcome::kSucceed || signal_all_ || (work.request.flags & kSendSignaled) != 0;
}

bool Requester::poll_completion(Completion& completion) {
  retire_silent();
  const Outcome outcome = outcome_of_oldest();
  if (outcome == Outcome::kWait) return false;
  fill_completion(queue_[queue_.head()], outcome, completion);
  queue_.pop();
  retire_silent();
  return true;
}

void Requester::retire_silent() {
  while (outcome_of_oldest() == Outcome::kSucceed && !is_reported(queue_[queue_.head()], Outcome::kSucceed)) {
    queue_.pop();
  }
}

void Requester::fill_completion(const SendWork& work, Outcome outcome, Completion& completion) const {
  completion = Completion{};
  completion.wr_id = work.request.wr_id;
  completion.opcode = completion_opcode(work.request.opcode);
  completion.wqe_index = work.request.wqe_index + 1;
  completion.is_solicited = outcome != Outcome::kSucceed;
  switch (outcome) {
    case Outcome::kWait:
      break;
    case Outcome::kSucceed: {
      const bool is_atomic = work.needs_answer() && work.request.opcode != WrOpcode::kRdmaRead;
      completion.byte_len = is_atomic ? kAtomicBytes : static_cast<std::uint32_t>(work.request.length);
      break;
    }
    case Outcome::kFail:
      completion.status = work.status;
      completion.reason = work.reason;
      break;
    case Outcome::kFlush:
      completion.status = WcStatus::kWrFlushErr;
      completion.reason = FailureReason::kFlushed;
      break;
  }
}

}  // namespace urdma::transport
