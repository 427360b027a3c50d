// Frames in: parsed once, judged, and handed to their QP.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <rte_mbuf.h>

#include <algorithm>
#include <array>

#include "datapath/engine/loop.hpp"
#include "datapath/io/frame.hpp"

namespace urdma::engine {

namespace {

// The payload as a source to copy from. The view is of a frame that is ours to write as well.
Pieces payload_of(const wire::FrameView& view) {
  Pieces pieces;
  if (view.payload.empty()) return pieces;
  auto* bytes = const_cast<std::uint8_t*>(view.payload.data());
  pieces.add(
      {0, reinterpret_cast<std::byte*>(bytes), static_cast<std::uint32_t>(view.payload.size()), nullptr});
  return pieces;
}

}  // namespace

bool Engine::Loop::receive() {
  bool any = false;
  for (PortState& port : ports) {
    if (!port.is_attached || !port.is_receiving) continue;
    const auto port_index = static_cast<std::uint32_t>(&port - ports.data());
    const auto policy = port.port->is_loopback() ? wire::IcrcPolicy::kTrusted : wire::IcrcPolicy::kCheck;
    std::array<rte_mbuf*, kBurst> frames;
    const std::uint32_t count = port.port->receive(frames);
    for (std::uint32_t i = 0; i < count; ++i) {
      if (i + 1 < count) rte_prefetch0(rte_pktmbuf_mtod(frames[i + 1], void*));
      ++counters.frames_received;
      if (!hand_to_owner(port_index, frames[i], policy)) take_frame(port, frames[i], policy, Origin::kPort);
    }
    any |= count > 0;
    has_freed |= count > 0;
  }
  return any;
}

void Engine::Loop::take_frame(PortState& port, rte_mbuf* frame, wire::IcrcPolicy policy, Origin origin) {
  auto* bytes = rte_pktmbuf_mtod(frame, std::uint8_t*);
  wire::FrameView view;
  const wire::ParseError error = wire::parse_frame({bytes, rte_pktmbuf_data_len(frame)}, policy, view);
  if (error != wire::ParseError::kNone) {
    const bool may_be_for_control = port.finds_neighbours && error == wire::ParseError::kNotRoce;
    if (!may_be_for_control || !hear(port, {bytes, rte_pktmbuf_data_len(frame)})) {
      ++counters.dropped_by_parse[static_cast<std::size_t>(error)];
    }
    io::free_frame(frame);
    return;
  }
  if (view.headers.pkey != wire::kDefaultPkey) {
    ++counters.dropped_by_parse[static_cast<std::size_t>(wire::ParseError::kBadPkey)];
    io::free_frame(frame);
    return;
  }
  if (view.headers.info().has_deth) return take_datagram(port, view, frame, origin);
  const bool is_ours = std::find(port.gids.begin(), port.gids.end(), view.dest_gid) != port.gids.end();
  if (!is_ours) ++counters.dropped_wrong_address;
  hand_over(is_ours ? judge_frame(view) : nullptr, view, frame);
}

void Engine::Loop::hand_over(Qp* qp, const wire::FrameView& view, rte_mbuf* frame) {
  const bool is_kept = qp != nullptr && accept(*qp, view.headers, payload_of(view), {frame, nullptr});
  if (!is_kept) io::free_frame(frame);
}

bool Engine::Loop::accept(Qp& qp, const wire::Headers& headers, const Pieces& source, Carrier carrier) {
  if (qp.waiting_head != nullptr || !can_take(qp)) return keep_waiting(qp, headers, source, carrier);
  if (lacks_receive(qp, headers)) {
    starve(qp);
    return keep_waiting(qp, headers, source, carrier);
  }
  return deliver(qp, headers, source, carrier);
}

// Nobody repeats an unreliable packet, and a program that is about to post receives may only be waiting for
// its core: what comes meanwhile is not lost at once.
bool Engine::Loop::lacks_receive(Qp& qp, const wire::Headers& headers) {
  if (!qp.is_unreliable() || !qp.transport().needs_receive(headers)) return false;
  offer_receive(qp, headers);
  return qp.transport().needs_receive(headers);
}

// The transport has as many memory operations under way as it may: a copier is at work. Losing what comes
// meanwhile would make the peer send it all again. Or there is no receive.
bool Engine::Loop::keep_waiting(Qp& qp, const wire::Headers& headers, const Pieces& source, Carrier carrier) {
  const bool has_room = qp.is_unreliable()
                            ? may_take(qp.session()) && waiting_unreliable < kMostWaitingUnreliable
                            : may_receive(qp.session());
  if (qp.waiting_count == kMostWaiting || !has_room) {
    ++counters.dropped_busy;
    return false;
  }
  Transfer& transfer = take_transfer(qp, Transfer::Stage::kWaiting);
  transfer.packet.headers = headers;
  transfer.expires = now + kReceivePatience;
  carry(transfer, source, carrier);
  ++qp.waiting_count;
  if (qp.is_unreliable()) ++waiting_unreliable;
  append(qp.waiting_head, qp.waiting_tail, transfer);
  starve(qp);  // looked at again when anything is freed, also where none of its own copies is under way
  return true;
}

void Engine::Loop::resume_waiting(Qp& qp) {
  while (qp.waiting_head != nullptr && can_take(qp) && pool.free_transfers() > 0) {
    const bool is_hopeless = lacks_receive(qp, qp.waiting_head->packet.headers);
    if (is_hopeless && now < qp.waiting_head->expires) break;
    Transfer& transfer = pop(qp.waiting_head);
    --qp.waiting_count;
    if (qp.is_unreliable()) --waiting_unreliable;
    Pieces source;
    if (transfer.payload_bytes > 0) source.add({0, transfer.payload, transfer.payload_bytes, nullptr});
    if (is_hopeless) {
      ++counters.dropped_no_receive;
    } else if (deliver(qp, transfer.packet.headers, source, {transfer.frame, transfer.buffer})) {
      transfer.frame = nullptr;
      (void)detach_buffer(transfer);
    }
    free_transfer(transfer);
  }
  if (qp.waiting_head != nullptr) starve(qp);
}

// The QP that a frame is for; null, and counted, if there is none that takes it.
Qp* Engine::Loop::judge_frame(const wire::FrameView& view) {
  Qp* qp = own_qp(view.headers.dest_qp.value);
  if (qp == nullptr) {
    ++counters.dropped_unknown_qp;
    return nullptr;
  }
  // A connected QP takes packets of its own peer only (IBTA 1, 9.6.1.5).
  const Path& path = qp->path();
  if (!path.is_set || path.is_local || path.dest_gid != view.source_gid || path.source_gid != view.dest_gid) {
    ++counters.dropped_wrong_address;
    return nullptr;
  }
  return judge_receiver(qp);
}

Qp* Engine::Loop::judge_receiver(Qp* qp) {
  if (qp == nullptr || may_receive(qp->session())) return qp;
  ++counters.dropped_busy;
  return nullptr;
}

}  // namespace urdma::engine
