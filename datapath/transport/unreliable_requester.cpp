// Send requests without acknowledgements; see the header.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/unreliable_requester.hpp"

#include <utility>

#include "datapath/transport/request_opcodes.hpp"

namespace urdma::transport {

namespace {

// A request's Q_Key with this bit stands for the QP's own (IBTA 10.2.5).
constexpr std::uint32_t kControlledQkey = 0x8000'0000;

}  // namespace

UnreliableRequester::UnreliableRequester(const QpConfig& config, QpCounters& counters)
    : counters_(counters),
      queue_(config.send_slots, config.max_send_sge),
      type_(config.type),
      signal_all_(config.signal_all),
      own_qpn_(config.qpn) {}

// ---- Commands ----

void UnreliableRequester::configure(const QpAttributes& attributes) {
  packet_bytes_ = attributes.packet_bytes != 0 ? attributes.packet_bytes : mtu_bytes(1);
  own_qkey_ = attributes.qkey;
  dest_qpn_ = attributes.dest_qpn;
}

void UnreliableRequester::start(Psn first_psn) {
  mode_ = Mode::kSending;
  nxt_ = first_psn;
}

// From SQD, or from SQE: what has been flushed is behind, and sending begins with what comes now.
void UnreliableRequester::resume(Instant) {
  if (mode_ == Mode::kFailed) cursor_ = departing_ = {queue_.tail(), 0};
  mode_ = Mode::kSending;
  fail_unsendable();
}

void UnreliableRequester::stop() {
  if (is_running()) flush_from(departing_.request);
  pending_departures_ = ignored_departures_ = 0;
  mode_ = Mode::kStopped;
}

void UnreliableRequester::reset() {
  mode_ = Mode::kIdle;
  queue_.clear();
  cursor_ = departing_ = {queue_.head(), 0};
  pending_departures_ = ignored_departures_ = 0;
  failure_reason_ = FailureReason::kNone;
}

void UnreliableRequester::post(const SendRequest& request, std::span<const Sge> elements) {
  queue_.push(request, elements, type_ == QpType::kUd ? kMaxMessageBytes : packet_bytes_);
  if (mode_ == Mode::kFailed || mode_ == Mode::kStopped) return flush_from(queue_.tail() - 1);
  SendWork& work = queue_[queue_.tail() - 1];
  work.status = judge(request);
  fail_unsendable();
}

// READs, atomics and remote invalidations are none of these services, datagrams have but SENDs (IBTA table
// 85).
WcStatus UnreliableRequester::judge(const SendRequest& request) const {
  if (request.verdict != WcStatus::kSuccess) return request.verdict;
  if (!carries(type_, request.opcode)) return WcStatus::kLocQpOpErr;
  return type_ == QpType::kUd && request.length > packet_bytes_ ? WcStatus::kLocLenErr : WcStatus::kSuccess;
}

// ---- Sending ----

bool UnreliableRequester::can_transmit() const {
  if (!is_running() || !queue_.holds(cursor_.request)) return false;
  if (mode_ == Mode::kDraining && cursor_.packet == 0) return false;
  return queue_[cursor_.request].status == WcStatus::kSuccess;
}

bool UnreliableRequester::poll_transmit(Instant, TxPacket& packet) {
  if (!can_transmit()) return false;
  const SendWork& work = queue_[cursor_.request];
  const SendRequest& request = work.request;
  if (work.packets == 0) {
    packet = TxPacket{};
    packet.local = queue_.local_of(cursor_.request);
    return true;
  }
  const bool is_first = cursor_.packet == 0;
  const bool is_last = cursor_.packet + 1 == work.packets;
  const std::uint64_t offset = std::uint64_t{cursor_.packet} * packet_bytes_;
  packet = TxPacket{};
  packet.reports_departure = true;
  wire::Headers& headers = packet.headers;
  headers.opcode = wire::with_service(opcodes_of(request.opcode)->at(is_first, is_last), wire::kServiceUc);
  headers.dest_qp = dest_qpn_;
  headers.psn = nxt_;
  headers.solicited = is_last && (request.flags & kSendSolicited) != 0;
  headers.address = request.remote_address;
  headers.rkey = request.rkey;
  headers.dma_length = static_cast<std::uint32_t>(request.length);
  headers.immediate = request.immediate;
  headers.payload_bytes = is_last ? static_cast<std::uint32_t>(request.length - offset) : packet_bytes_;
  if (type_ == QpType::kUd) fill_datagram(work, packet);
  packet.payload = queue_.payload_of(cursor_.request, offset, headers.payload_bytes);
  ++counters_.packets_sent;
  ++pending_departures_;
  nxt_ = nxt_.next();
  cursor_ =
      is_last ? Position{queue_.next(cursor_.request), 0} : Position{cursor_.request, cursor_.packet + 1};
  return true;
}

void UnreliableRequester::fill_datagram(const SendWork& work, TxPacket& packet) const {
  const SendRequest& request = work.request;
  wire::Headers& headers = packet.headers;
  headers.opcode = wire::with_service(headers.opcode, wire::kServiceUd);
  headers.dest_qp = request.remote_qpn;
  headers.source_qp = own_qpn_;
  headers.qkey = (request.remote_qkey & kControlledQkey) != 0 ? own_qkey_ : request.remote_qkey;
  packet.address_handle = request.address_handle;
}

// ---- Departures ----

// False for one that was handed out before the requests were flushed.
bool UnreliableRequester::take_departure() {
  if (ignored_departures_ > 0) {
    --ignored_departures_;
    return false;
  }
  if (pending_departures_ == 0) return false;
  --pending_departures_;
  return true;
}

void UnreliableRequester::on_departed() {
  if (!take_departure()) return;
  SendWork& work = queue_[departing_.request];
  ++work.acknowledged_packets;
  const bool is_last = ++departing_.packet == work.packets;
  if (is_last) departing_ = {queue_.next(departing_.request), 0};
  retire_silent();
  fail_unsendable();
}

void UnreliableRequester::on_gather_failed(Psn) {
  if (take_departure()) fail(departing_.request, WcStatus::kLocProtErr, FailureReason::kLocalProtection);
}

// Answers the local request at the cursor; what was handed out before it may not have departed yet.
void UnreliableRequester::on_local_done(MemoryResult result) {
  const std::uint32_t index = cursor_.request;
  if (!is_running() || !queue_.holds(index) || !queue_[index].awaits_execution) return;
  if (result != MemoryResult::kOk) {
    queue_[index].status = WcStatus::kMwBindErr;
  } else {
    queue_[index].awaits_execution = false;
    cursor_.request = queue_.next(index);
    if (departing_.request == index) departing_ = cursor_;
    retire_silent();
  }
  fail_unsendable();
}

MemoryOp UnreliableRequester::on_packet(const wire::Headers&, Instant) {
  ++counters_.dropped_invalid;
  return {};
}

// ---- Failing ----

void UnreliableRequester::fail_unsendable() {
  if (!is_running() || pending_departures_ != 0 || cursor_.packet != 0) return;
  if (!queue_.holds(cursor_.request) || mode_ == Mode::kDraining) return;
  const SendWork& work = queue_[cursor_.request];
  if (work.status == WcStatus::kSuccess) return;
  const bool is_too_long = work.status == WcStatus::kLocLenErr;
  fail(cursor_.request, work.status,
       is_too_long ? FailureReason::kLocalLength : FailureReason::kLocalOperation);
}

void UnreliableRequester::fail(std::uint32_t index, WcStatus status, FailureReason reason) {
  flush_from(index);
  queue_[index].status = status;
  queue_[index].reason = reason;
  failure_reason_ = reason;
  mode_ = Mode::kFailed;
  ignored_departures_ = std::exchange(pending_departures_, 0);
}

void UnreliableRequester::flush_from(std::uint32_t index) {
  for (; queue_.holds(index); ++index) {
    queue_[index].status = WcStatus::kWrFlushErr;
    queue_[index].reason = FailureReason::kFlushed;
  }
}

// ---- Completing ----

UnreliableRequester::Outcome UnreliableRequester::outcome_of_oldest() const {
  if (queue_.is_empty()) return Outcome::kWait;
  const SendWork& work = queue_[queue_.head()];
  if (work.status == WcStatus::kSuccess) return work.is_acknowledged() ? Outcome::kSucceed : Outcome::kWait;
  // One that cannot be sent waits for its turn, and no buffer is the program's again that is being read.
  const bool awaits_turn = is_running() && departing_.request == queue_.head();
  return awaits_turn || ignored_departures_ > 0 ? Outcome::kWait : Outcome::kFail;
}

bool UnreliableRequester::is_reported(const SendWork& work) const {
  return work.status != WcStatus::kSuccess || signal_all_ || (work.request.flags & kSendSignaled) != 0;
}

bool UnreliableRequester::poll_completion(Completion& completion) {
  retire_silent();
  const Outcome outcome = outcome_of_oldest();
  if (outcome == Outcome::kWait) return false;
  const SendWork& work = queue_[queue_.head()];
  completion = Completion{};
  completion.wr_id = work.request.wr_id;
  completion.opcode = completion_opcode(work.request.opcode);
  completion.wqe_index = work.request.wqe_index + 1;
  completion.status = work.status;
  completion.reason = work.reason;
  completion.is_solicited = outcome == Outcome::kFail;
  if (outcome == Outcome::kSucceed) completion.byte_len = static_cast<std::uint32_t>(work.request.length);
  queue_.pop();
  retire_silent();
  return true;
}

void UnreliableRequester::retire_silent() {
  while (outcome_of_oldest() == Outcome::kSucceed && !is_reported(queue_[queue_.head()])) queue_.pop();
}

}  // namespace urdma::transport
