// One end of a connection: packets, memory and completions. See endpoint.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/endpoint.hpp"

#include <algorithm>
#include <cstring>

#include "tests/sim/check.hpp"

namespace urdma::sim {

using transport::MemoryOp;
using transport::MemoryResult;
using transport::Payload;
using transport::QpAttributes;
using transport::Side;
using transport::TxPacket;

namespace {

constexpr std::uint32_t kCellsPerEndpoint = 4;
constexpr std::uint64_t kCellSpacing = 16;
constexpr std::uint32_t kMostTimerRounds = 64;  // on_deadline calls at one instant before it is a livelock

void trace_packet(Instant now, const std::string& name, const char* verb, const wire::Headers& headers) {
  trace("{:>12} {} {} opcode {:#04x} psn {:#08x} bytes {}{} aeth {}/{} msn {}", now.ns, name, verb,
        static_cast<int>(headers.opcode), headers.psn.value(), headers.payload_bytes,
        headers.ack_request ? " ackreq" : "", static_cast<int>(headers.aeth_kind), headers.aeth_value,
        headers.msn);
}

}  // namespace

Endpoint::Endpoint(std::string name, const EndpointConfig& config, Memory& memory, FramePool& pool,
                   Random& random)
    : config_(config),
      memory_(memory),
      pool_(pool),
      random_(random),
      qp_(config.qp),
      arena_(memory, random, config.ring_bytes),
      ledger_(std::move(name), arena_) {}

void Endpoint::set_peer(Endpoint& peer, const wire::FlowTemplate& flow) {
  peer_ = &peer;
  flow_ = flow;
  ledger_.set_peer(peer.ledger_);
  Region& region =
      peer.memory_.add(kAccessRemoteAtomic | kAccessRemoteRead, kCellsPerEndpoint * kCellSpacing);
  for (std::uint32_t i = 0; i < kCellsPerEndpoint; ++i) {
    AtomicCell cell;
    cell.region = &region;
    cell.offset = i * kCellSpacing + (8 - region.address % 8) % 8;  // its address is a multiple of 8
    cell.values.push_back(cell.current());
    cells_.push_back(std::move(cell));
  }
}

void Endpoint::modify(std::uint32_t mask, const QpAttributes& attributes, Instant now) {
  const int error = qp_.modify(mask, attributes, now);
  require(error == 0, "{}: modify to state {} with mask {:#x} yields errno {}", ledger_.name(),
          static_cast<int>(attributes.state), mask, error);
  drain(now);
}

void Endpoint::connect(Instant now) {
  QpAttributes attributes = config_.attributes;
  attributes.state = QpState::kInit;
  modify(kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags, attributes, now);
  attributes.state = QpState::kRtr;
  modify(kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic |
             kAttrMinRnrTimer,
         attributes, now);
  attributes.state = QpState::kRts;
  modify(kAttrState | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrSqPsn | kAttrMaxQpRdAtomic,
         attributes, now);
}

void Endpoint::move_to(QpState state, Instant now) {
  QpAttributes attributes;
  attributes.state = state;
  modify(kAttrState, attributes, now);
  if (state != QpState::kReset) return;
  ledger_.forget();
  next_wqe_index_ = 0;
  next_receive_index_ = 0;
  // What has not been carried out never is, but the transport still gets its answers.
  for (PendingOp& pending : operations_) pending.op.kind = MemoryOp::Kind::kNothing;
  for (auto& departures : departures_) departures.clear();
}

Instant Endpoint::late(const Lateness& lateness, Instant now) {
  if (!random_.chance(lateness.ppm)) return now;
  return now + nanoseconds(
                   static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(lateness.longest.ns))));
}

void Endpoint::offer_receives() {
  while (ledger_.receives_not_offered() > 0 && qp_.wants_receive()) {
    const PostedReceive* receive = ledger_.next_offer();
    qp_.offer_receive(receive->request, receive->elements);
    if (qp_.state() != QpState::kErr) break;  // one at hand is enough
  }
}

void Endpoint::receive(FramePtr frame, const wire::Headers& headers, std::span<const std::uint8_t> payload,
                       Instant now) {
  ++packets_received_;
  trace_packet(now, ledger_.name(), "gets", headers);
  offer_receives();
  const MemoryOp op = qp_.on_packet(headers, now);
  if (op.kind == MemoryOp::Kind::kNone)
    pool_.give(std::move(frame));
  else
    submit(op, std::move(frame), payload.first(std::min<std::size_t>(payload.size(), headers.payload_bytes)),
           now);
  drain(now);
}

void Endpoint::submit(const MemoryOp& op, FramePtr frame, std::span<const std::uint8_t> payload,
                      Instant now) {
  ++unanswered_;
  PendingOp pending{op, std::move(frame), payload, late(config_.operations, now)};
  if (operations_.empty() && pending.due == now) {
    execute(pending, now);
    pool_.give(std::move(pending.frame));
    return answer_due(op.side, now);
  }
  if (!operations_.empty()) pending.due = std::max(pending.due, operations_.back().due);
  operations_.push_back(std::move(pending));
}

void Endpoint::execute(const PendingOp& pending, Instant now) {
  Answer answer;
  answer.result = memory_.execute(pending.op, pending.payload, answer.original);
  auto& answers = answers_[static_cast<std::size_t>(pending.op.side)];
  answer.due = late(config_.operations, now);
  if (!answers.empty()) answer.due = std::max(answer.due, answers.back().due);
  answers.push_back(answer);
}

void Endpoint::answer_due(Side side, Instant now) {
  auto& answers = answers_[static_cast<std::size_t>(side)];
  while (!answers.empty() && answers.front().due <= now) {
    const Answer answer = answers.front();
    answers.pop_front();
    require(qp_.unanswered_operations() == unanswered_,
            "{}: the transport counts {} unanswered operations, not {}", ledger_.name(),
            qp_.unanswered_operations(), unanswered_);
    --unanswered_;
    qp_.on_memory_done(side, answer.result, answer.original, now);
    drain(now);
  }
}

bool Endpoint::service(Instant now) {
  const bool is_due = next_wakeup() <= now;
  for (std::uint32_t round = 0; qp_.next_deadline() <= now; ++round) {
    require(round < kMostTimerRounds, "{}: next_deadline stays in the past", ledger_.name());
    qp_.on_deadline(now);
  }
  while (!operations_.empty() && operations_.front().due <= now) {
    PendingOp pending = std::move(operations_.front());
    operations_.pop_front();
    execute(pending, now);
    pool_.give(std::move(pending.frame));
  }
  answer_due(Side::kRequester, now);
  answer_due(Side::kResponder, now);
  drain(now);
  while (qp_.state() == QpState::kErr && ledger_.receives_not_offered() > 0 && qp_.wants_receive()) {
    offer_receives();
    drain(now);
  }
  return is_due;
}

void Endpoint::drain(Instant now) {
  const bool claimed = qp_.has_output(now);
  transport::Completion completion;
  while (qp_.poll_completion(completion)) {
    require(claimed, "{}: a completion came out, and has_output was false", ledger_.name());
    require(completion.is_receive || completion.wqe_index - ledger_.slots_freed() <= config_.qp.send_slots,
            "{}: a completion frees slots up to {}", ledger_.name(), completion.wqe_index);
    ledger_.on_completion(completion, qp_.state(), now);
  }
  AsyncEvent event{};
  while (qp_.poll_event(event)) {
    require(claimed, "{}: an event came out, and has_output was false", ledger_.name());
    trace("{:>12} {} event {}", now.ns, ledger_.name(), static_cast<int>(event));
    events_.push_back(event);
  }
}

bool Endpoint::has_seen(AsyncEvent event) const { return count(event) > 0; }

std::uint32_t Endpoint::count(AsyncEvent event) const {
  return static_cast<std::uint32_t>(std::count(events_.begin(), events_.end(), event));
}

// A packet whose payload was late, if its time has come. In ERR the requests are flushed, so that the bytes
// of what the requester had still to send are no longer the request's.
bool Endpoint::depart(Link& link, Instant now) {
  if (qp_.state() == QpState::kErr) departures_[static_cast<std::size_t>(Side::kRequester)].clear();
  for (auto& departures : departures_) {
    if (departures.empty() || departures.front().due > now) continue;
    Departure departure = std::move(departures.front());
    departures.pop_front();
    if (departure.packet.payload.kind == Payload::Kind::kElements)
      departure.packet.payload.elements = departure.elements;
    emit(departure.packet, link, now);
    return true;
  }
  return false;
}

bool Endpoint::transmit(Link& link, Instant now) {
  if (depart(link, now)) return true;
  const bool claimed = qp_.has_output(now);
  TxPacket packet;
  if (!qp_.poll_transmit(now, packet)) return false;
  require(claimed, "{}: a packet came out, and has_output was false", ledger_.name());
  auto& departures = departures_[static_cast<std::size_t>(packet.side)];
  Instant due = packet.payload.length == 0 ? now : late(config_.gathers, now);
  if (departures.empty() && due == now) {
    emit(packet, link, now);
    return true;
  }
  if (!departures.empty()) due = std::max(due, departures.back().due);
  departures.push_back({packet, {packet.payload.elements.begin(), packet.payload.elements.end()}, due});
  return true;
}

MemoryResult Endpoint::gather(const Payload& payload, std::uint8_t* out) const {
  switch (payload.kind) {
    case Payload::Kind::kNone:
      require(payload.length == 0, "a packet without payload has {} bytes", payload.length);
      return MemoryResult::kOk;
    case Payload::Kind::kInline: {
      const PostedSend* send = ledger_.find(payload.wqe_index);
      if (send == nullptr) return MemoryResult::kOk;  // completed meanwhile: the peer has it already
      require(payload.offset + payload.length <= send->inline_bytes.size(), "{}: beyond the inline data",
              ledger_.name());
      std::copy_n(send->inline_bytes.begin() + static_cast<std::ptrdiff_t>(payload.offset), payload.length,
                  out);
      return MemoryResult::kOk;
    }
    case Payload::Kind::kElements:
    case Payload::Kind::kRegion:
      return memory_.gather(payload, out);
  }
  return MemoryResult::kOk;
}

void Endpoint::emit(const TxPacket& packet, Link& link, Instant now) {
  const wire::Headers& headers = packet.headers;
  require(headers.payload_bytes == packet.payload.length, "{}: headers say {} bytes, the payload has {}",
          ledger_.name(), headers.payload_bytes, packet.payload.length);
  require(headers.payload_bytes <= config_.attributes.packet_bytes, "{}: a packet of {} bytes",
          ledger_.name(), headers.payload_bytes);
  require(headers.dest_qp == peer_->config_.qp.qpn, "{}: a packet for QP {}", ledger_.name(),
          headers.dest_qp.value);
  FramePtr frame = pool_.take();
  frame->is_encoded = config_.is_encoded;
  std::size_t at = 0;
  if (config_.is_encoded) {
    frame->resize(wire::frame_bytes(flow_, headers));
    at = wire::write_frame_headers(flow_, headers, next_ip_id_++, frame->bytes.data());
  } else {
    frame->resize(headers.payload_bytes);
    frame->headers = headers;
  }
  const MemoryResult result = gather(packet.payload, frame->bytes.data() + at);
  if (result != MemoryResult::kOk) {
    pool_.give(std::move(frame));
    qp_.on_gather_failed(packet, result, now);
    return drain(now);
  }
  if (config_.is_encoded) wire::finish_frame(frame->content());
  ++packets_sent_;
  trace_packet(now, ledger_.name(), "sends", headers);
  link.send(std::move(frame), now);
}

Instant Endpoint::next_wakeup() const {
  Instant next = qp_.next_deadline();
  if (!operations_.empty()) next = earlier(next, operations_.front().due);
  for (const auto& answers : answers_)
    if (!answers.empty()) next = earlier(next, answers.front().due);
  return next;
}

Instant Endpoint::next_departure() const {
  Instant next = Instant::never();
  for (const auto& departures : departures_)
    if (!departures.empty()) next = earlier(next, departures.front().due);
  return next;
}

void Endpoint::require_quiet(Instant now) const {
  const std::string& name = ledger_.name();
  require(qp_.next_deadline().is_never(), "{}: a timer still runs", name);
  require(!qp_.has_output(now), "{}: there still is output", name);
  require(unanswered_ == 0 && qp_.unanswered_operations() == 0, "{}: memory operations are unanswered", name);
  require(departures_[0].empty() && departures_[1].empty(), "{}: packets have not left", name);
}

}  // namespace urdma::sim
