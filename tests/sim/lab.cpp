// Two hosts with many QPs: packets, memory and time. See lab.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/lab.hpp"

#include <algorithm>
#include <cstring>

#include "tests/sim/check.hpp"

namespace urdma::sim {

using transport::LocalOp;
using transport::MemoryOp;
using transport::MemoryResult;
using transport::Payload;
using transport::QpAttributes;
using transport::Side;
using transport::TxPacket;

namespace {

constexpr std::uint8_t kMtuCode = 3;
constexpr std::uint32_t kMostSteps = 5'000'000;

wire::FlowTemplate flow_from(std::size_t host) {
  wire::FlowAddress address;
  address.source_gid = wire::gid_from_ipv4(0x0A000001U + static_cast<std::uint32_t>(host));
  address.dest_gid = wire::gid_from_ipv4(0x0A000002U - static_cast<std::uint32_t>(host));
  return wire::make_flow(address);
}

// What a move of a QP of this type needs, besides the state.
std::uint32_t to_rtr(QpType type) {
  const std::uint32_t connect = kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
  const std::uint32_t answer = kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
  if (type == QpType::kUd) return 0;
  return type == QpType::kRc || type == QpType::kXrcRecv ? connect | answer : connect;
}

std::uint32_t to_rts(QpType type) {
  const std::uint32_t repeat = kAttrRetryCnt | kAttrRnrRetry | kAttrMaxQpRdAtomic;
  if (type == QpType::kUc || type == QpType::kUd) return kAttrSqPsn;
  const std::uint32_t timed = kAttrSqPsn | kAttrTimeout;
  return type == QpType::kXrcRecv ? timed : timed | repeat;
}

}  // namespace

Lab::Lab(std::uint64_t seed, const LabConfig& config) : config_(config), random_(seed) {
  for (std::size_t host = 0; host < 2; ++host) {
    links_[host] = std::make_unique<Link>(config.link, pool_, random_);
    flows_[host] = flow_from(host);
  }
  make_ends();
  if (config.has_error_midway) break_at_ = now_ + microseconds(random_.between32(1, 3'000));
}

// Even indices are on the first host. An XRC connection sends from there only.
void Lab::make_ends() {
  for (std::size_t i = 0; i < 2 * std::size_t{config_.pairs}; ++i) {
    transport::QpConfig config;
    config.qpn = Qpn{static_cast<std::uint32_t>(0x100 + i)};
    config.type = config_.type;
    if (config_.type == QpType::kXrcSend && i % 2 == 1) config.type = QpType::kXrcRecv;
    config.has_srq = config_.has_srq;
    config.signal_all = true;
    config.send_slots = 1U << random_.between32(0, 5);
    ends_.push_back(std::make_unique<End>(config, i % 2));
    by_qpn_[config.qpn.value] = i;
    End& end = *ends_.back();
    end.peer = i ^ 1;
    const bool is_xrc_target = config.type == QpType::kXrcRecv;
    if (config_.has_srq || is_xrc_target) end.shared = &shared_[end.host];
    end.cell_key = add_region(8, kAccessRemoteWrite);
    regions_[end.cell_key].is_cell = true;
  }
  for (const auto& end : ends_) connect(*end);
}

void Lab::connect(End& end) {
  const std::size_t index = by_qpn_[end.qpn.value];
  QpType type = config_.type;
  if (type == QpType::kXrcSend && end.host == 1) type = QpType::kXrcRecv;
  QpAttributes attributes;
  attributes.path_mtu_code = kMtuCode;
  attributes.packet_bytes = mtu_bytes(kMtuCode);
  attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 4;
  attributes.min_rnr_timer = 1;
  attributes.timeout = 6;
  attributes.retry_count = attributes.rnr_retry = 7;
  attributes.port = 1;
  attributes.qkey = kQkey;
  attributes.dest_qpn = ends_[end.peer]->qpn;
  // Below the wrap for some; the same numbers at both ends.
  attributes.sq_psn = Psn(static_cast<std::uint32_t>(index % 3 == 0 ? 0xFFFFF0 : 1000 * index));
  attributes.rq_psn = Psn(static_cast<std::uint32_t>(end.peer % 3 == 0 ? 0xFFFFF0 : 1000 * end.peer));
  attributes.access_flags = kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;
  const std::uint32_t secret = type == QpType::kUd ? kAttrQkey : kAttrAccessFlags;
  const std::array<std::pair<QpState, std::uint32_t>, 3> moves = {
      {{QpState::kInit, kAttrPkeyIndex | kAttrPort | secret},
       {QpState::kRtr, to_rtr(type)},
       {QpState::kRts, to_rts(type)}}};
  for (const auto& [state, mask] : moves) {
    attributes.state = state;
    require(end.qp.modify(kAttrState | mask, attributes, now_) == 0, "no move to state {}",
            static_cast<int>(state));
  }
}

void Lab::run() {
  for (std::uint32_t steps = 0;; ++steps) {
    require(steps < kMostSteps, "no end");
    if (step()) continue;
    const Instant next = next_wakeup();
    if (next.is_never()) break;
    require(next > now_, "a wake-up is due that nothing serves");
    now_ = next;
  }
  finish();
}

// Everything that can be done once at this instant. Returns whether anything was.
bool Lab::step() {
  bool moved = deliver();
  if (break_at_ <= now_) break_pair();
  for (const auto& end : ends_) {
    if (end->qp.next_deadline() <= now_) {
      end->qp.on_deadline(now_);
      moved = true;
    }
    moved |= carry_out(*end);
    replenish(*end);
    moved |= post(*end);
    moved |= transmit(*end);
    drain(*end);
  }
  return moved;
}

bool Lab::deliver() {
  bool moved = false;
  for (const auto& link : links_) {
    while (FramePtr frame = link->receive(now_)) {
      moved = true;
      wire::FrameView view;
      const auto error = wire::parse_frame(frame->content(), wire::IcrcPolicy::kCheck, view);
      if (error == wire::ParseError::kNone) {
        const auto found = by_qpn_.find(view.headers.dest_qp.value);
        require(found != by_qpn_.end(), "a packet for QP {}", view.headers.dest_qp.value);
        receive(*ends_[found->second], view);
      }
      pool_.give(std::move(frame));
    }
  }
  return moved;
}

void Lab::receive(End& end, const wire::FrameView& view) {
  drain(end);
  if (!end.qp.can_accept()) return;
  offer(end, view.headers);
  const MemoryOp op = end.qp.on_packet(view.headers, now_);
  if (op.kind == MemoryOp::Kind::kNone) return;
  Operation operation{op, {op.elements.begin(), op.elements.end()}, {}, late()};
  operation.payload.assign(view.payload.begin(), view.payload.end());
  if (view.headers.info().has_deth) {
    operation.payload.insert(operation.payload.begin(), kGrhBytes, std::uint8_t{0xEE});
  }
  if (!end.operations.empty()) operation.due = std::max(operation.due, end.operations.back().due);
  end.operations.push_back(std::move(operation));
}

void Lab::offer(End& end, const wire::Headers& headers) {
  std::deque<Receive>& queue = end.shared != nullptr ? *end.shared : end.own;
  const bool wants = end.shared != nullptr ? end.qp.needs_receive(headers) : end.qp.wants_receive();
  if (config_.type == QpType::kXrcSend && headers.info().has_xrceth) {
    require(headers.srqn.value == kSrqn, "SRQ {} is named", headers.srqn.value);
  }
  if (!wants || queue.empty()) return;
  const Receive receive = queue.front();
  queue.pop_front();
  const transport::Sge element{0, receive.capacity, MemoryKey{receive.key}};
  end.qp.offer_receive({receive.wr_id, 0, end.shared != nullptr ? kSrqn : 0}, {&element, 1});
  end.offered[receive.wr_id] = receive;
}

bool Lab::carry_out(End& end) {
  bool moved = false;
  while (!end.operations.empty() && end.operations.front().due <= now_) {
    Operation operation = std::move(end.operations.front());
    end.operations.pop_front();
    const MemoryResult result = execute(end, operation);
    end.qp.on_memory_done(operation.op.side, result, 0, now_);
    moved = true;
  }
  return moved;
}

MemoryResult Lab::execute(End& end, Operation& operation) {
  const MemoryOp& op = operation.op;
  if (end.has_failed) return MemoryResult::kOk;  // nobody looks any more
  if (op.kind == MemoryOp::Kind::kScatter) {
    require(op.length == operation.payload.size(), "{} bytes to place of {}", op.length,
            operation.payload.size());
    std::uint8_t* at = locate(operation.elements.at(0).lkey, kAccessLocalWrite, op.offset, op.length);
    require(at != nullptr, "a receive is written beyond its end");
    std::copy(operation.payload.begin(), operation.payload.end(), at);
  }
  if (op.kind == MemoryOp::Kind::kWrite) {
    std::uint8_t* at = locate(op.key, op.access, op.address, op.check_bytes);
    require(at != nullptr, "a WRITE to where none goes");
    std::copy_n(operation.payload.begin(), op.length, at);
    if (regions_[op.key.value].is_cell) {
      std::uint64_t value = 0;
      std::memcpy(&value, at, sizeof(value));
      std::deque<std::uint64_t>& expected = ends_[end.peer]->cell_expected;
      require(!expected.empty() && expected.front() == value,
              "an ATOMIC WRITE is not the next, or came twice");
      expected.pop_front();
    }
  }
  if (op.invalidates) {
    std::deque<std::uint32_t>& expected = ends_[end.peer]->invalidations;
    require(!expected.empty() && expected.front() == op.invalidate_key.value,
            "an invalidation is not the next, or came twice");
    expected.pop_front();
  }
  return MemoryResult::kOk;
}

bool Lab::transmit(End& end) {
  Link& link = *links_[end.host];
  if (link.ready_at(now_) > now_) return false;
  if (!end.departures.empty() && end.departures.front().due <= now_) {
    Departure departure = std::move(end.departures.front());
    end.departures.pop_front();
    if (departure.packet.payload.kind == Payload::Kind::kElements) {
      departure.packet.payload.elements = departure.elements;
    }
    send(end, departure.packet);
    return true;
  }
  const bool claimed = end.qp.has_output(now_);
  TxPacket packet;
  if (!end.qp.poll_transmit(now_, packet)) return false;
  require(claimed, "a packet came out, and has_output was false");
  if (packet.local.kind != LocalOp::Kind::kNone) {
    check_local(end, packet.local);
    end.qp.on_local_done(MemoryResult::kOk, now_);
    return true;
  }
  Instant due = packet.payload.length == 0 ? now_ : late();
  if (!end.departures.empty()) due = std::max(due, end.departures.back().due);
  end.departures.push_back({packet, {packet.payload.elements.begin(), packet.payload.elements.end()}, due});
  return true;
}

void Lab::send(End& end, const TxPacket& packet) {
  const wire::FlowTemplate& flow = flows_[end.host];
  FramePtr frame = pool_.take();
  frame->is_encoded = true;
  frame->resize(wire::frame_bytes(flow, packet.headers));
  const std::size_t at = wire::write_frame_headers(flow, packet.headers, 0, frame->bytes.data());
  require(gather(packet.payload, frame->bytes.data() + at) == MemoryResult::kOk, "a payload that is nowhere");
  wire::finish_frame(frame->content());
  links_[end.host]->send(std::move(frame), now_);
  if (packet.reports_departure) end.qp.on_departed(packet, now_);
}

MemoryResult Lab::gather(const Payload& payload, std::uint8_t* out) {
  if (payload.kind == Payload::Kind::kNone) return MemoryResult::kOk;
  const std::uint8_t* at = locate(payload.elements[0].lkey, 0, payload.offset, payload.length);
  if (at == nullptr) return MemoryResult::kProtection;
  std::copy_n(at, payload.length, out);
  return MemoryResult::kOk;
}

Instant Lab::late() { return random_.one_in(3) ? now_ + nanoseconds(random_.between32(1, 20'000)) : now_; }

Instant Lab::next_wakeup() const {
  Instant next = break_at_;
  for (const auto& link : links_) next = earlier(next, link->next_arrival());
  for (const auto& end : ends_) {
    const Instant ready = links_[end->host]->ready_at(now_);
    next = earlier(next, end->qp.next_deadline());
    if (!end->operations.empty()) next = earlier(next, end->operations.front().due);
    if (!end->departures.empty()) next = earlier(next, std::max(ready, end->departures.front().due));
    if (ready > now_ && end->qp.has_output(now_)) next = earlier(next, ready);
  }
  return next;
}

std::uint64_t Lab::packets() const { return links_[0]->stats().sent + links_[1]->stats().sent; }

}  // namespace urdma::sim
