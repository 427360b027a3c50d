// A QP's turn: work requests in, packets out to a port or to a QP of this node, completions out.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <rte_mbuf.h>
#include <sched.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "datapath/engine/loop.hpp"
#include "datapath/io/frame.hpp"
#include "urdma/base/check.hpp"

namespace urdma::engine {

void Engine::Loop::serve(Qp& qp) {
  qp.timer_delays = 0;
  release_departures(qp);
  resume_waiting(qp);
  fetch(qp);
  send_packets(qp);
  complete(qp);
  transport::QueuePair& transport = qp.transport();
  timers.set(qp, transport.next_deadline());
  if (qp.has_unfetched_sends() && transport.can_post_send()) mark_ready(qp);
}

// New requests, and receives where the transport waits for one to flush.
void Engine::Loop::fetch(Qp& qp) {
  bool is_sound = true;
  (void)qp.fetch_sends(kFetchesPerTurn, is_sound);
  // Requests of an SRQ are not flushed: other QPs use them.
  const bool is_flushing = is_sound && qp.transport().state() == QpState::kErr && !qp.has_srq();
  std::uint32_t flushed = 0;
  while (is_flushing && flushed < kFetchesPerTurn && qp.transport().wants_receive() &&
         qp.fetch_receive(is_sound)) {
    complete(qp);
    ++flushed;
  }
  // A client that posts as fast as its receives are flushed must not hold the engine.
  if (flushed == kFetchesPerTurn) mark_ready(qp);
  if (!is_sound) {
    break_session(qp.session(), "a queue's index or entry was out of range");
    qp.transport().fail(transport::FailureReason::kLocalOperation);
  }
}

// Whether everything that one more packet may need is there: what has been polled must be sent.
bool Engine::Loop::has_room_to_send(Qp& qp) {
  if (!may_take(qp.session())) return false;
  if (qp.path().is_local) {
    const Qp* peer = own_qp(qp.transport().attributes().dest_qpn.value);
    return (peer == nullptr || may_take(peer->session())) && peer_accepts(qp);
  }
  if (spare_frame == nullptr) spare_frame = io::new_frame(config.frames);
  const std::uint32_t port = qp.is_datagram() ? qp.config().port : qp.path().port;
  return spare_frame != nullptr && ports[port].backlog.size() < kMostBacklog;
}

// The QP goes on once something has been freed, or after a while.
void Engine::Loop::starve(Qp& qp) {
  if (qp.is_starved) return;
  qp.is_starved = true;
  starved.push_back(&qp);
}

void Engine::Loop::resume_starved() {
  if (starved.empty() || (!has_freed && now < next_look)) return;
  has_freed = false;
  next_look = now + kImpatience;
  for (Qp* qp : starved) {
    qp->is_starved = false;
    mark_ready(*qp);
  }
  starved.clear();
}

bool Engine::Loop::peer_accepts(const Qp& qp) {
  Qp* peer = own_qp(qp.transport().attributes().dest_qpn.value);
  return peer == nullptr ||
         (may_receive(peer->session()) && peer->waiting_head == nullptr && can_take(*peer));
}

// Whether the transport takes a packet now. Receives that are done but not polled yet count against it.
bool Engine::Loop::can_take(Qp& qp) {
  if (qp.transport().can_accept()) return true;
  complete(qp);
  return qp.transport().can_accept();
}

void Engine::Loop::send_packets(Qp& qp) {
  if ((!qp.path().is_set && !qp.is_datagram()) || qp.local_wait != nullptr) return;
  const bool is_local = qp.path().is_local;
  std::uint32_t bytes = 0;
  for (std::uint32_t sent = 0; sent < kPacketsPerTurn && bytes < kBytesPerTurn; ++sent) {
    if (!qp.transport().has_output(now)) return;
    if (!has_room_to_send(qp)) {
      starve(qp);
      return;
    }
    transport::TxPacket packet;
    if (!qp.transport().poll_transmit(now, packet)) return;
    if (packet.local.kind != transport::LocalOp::Kind::kNone) {
      if (!do_local(qp, packet.local)) return;
      continue;
    }
    bytes += packet.payload.length;
    if (qp.is_datagram()) {
      send_datagram(qp, packet);
    } else if (is_local) {
      send_inside(qp, packet);
    } else {
      send_as_frame(qp, packet, qp.path().flow, qp.path());
    }
  }
  mark_ready(qp);
}

void Engine::Loop::send_as_frame(Qp& qp, const transport::TxPacket& packet, const wire::FlowTemplate& flow,
                                 const Route& route) {
  rte_mbuf* frame = std::exchange(spare_frame, nullptr);
  const std::size_t size = wire::frame_bytes(flow, packet.headers);
  URDMA_CHECK(rte_pktmbuf_tailroom(frame) >= size);  // the control path has fitted the path MTU to the port
  auto* bytes = reinterpret_cast<std::uint8_t*>(rte_pktmbuf_append(frame, static_cast<std::uint16_t>(size)));
  const std::size_t header = wire::write_frame_headers(flow, packet.headers, qp.next_ip_id++, bytes);
  auto* payload = reinterpret_cast<std::byte*>(bytes + header);
  Pieces pieces;
  const Gathered gathered = locate(qp, packet.payload, pieces);
  if (gathered == Gathered::kDenied) {
    io::free_frame(frame);
    qp.transport().on_gather_failed(packet, transport::MemoryResult::kProtection, now);
    mark_ready(qp);
    return;
  }
  Pieces target;
  target.add({0, payload, packet.payload.length, nullptr});
  if (gathered == Gathered::kReady && packet.payload.length > 0) {
    copy_pieces(pieces, target);
    counters.bytes_copied_mapped += packet.payload.length;
  }
  if (gathered == Gathered::kReady && qp.departures_head == nullptr) {
    if (packet.reports_departure) qp.transport().on_departed(packet, now);
    return qp.is_datagram() ? launch_datagram(frame, route) : launch(frame, route);
  }
  Transfer& transfer = take_transfer(qp, Transfer::Stage::kDeparted);
  transfer.packet = packet;
  transfer.route = route;
  transfer.frame = frame;
  transfer.payload = payload;
  transfer.payload_bytes = packet.payload.length;
  if (gathered == Gathered::kPending) start_read(transfer, pieces);
  depart(transfer);
}

// To a QP of this node: no frame. Where both ends are mapped the payload is copied once, region to region.
void Engine::Loop::send_inside(Qp& qp, const transport::TxPacket& packet) {
  Pieces pieces;
  const Gathered gathered = locate(qp, packet.payload, pieces);
  if (gathered == Gathered::kDenied) {
    qp.transport().on_gather_failed(packet, transport::MemoryResult::kProtection, now);
    mark_ready(qp);
    return;
  }
  if (gathered == Gathered::kReady && qp.departures_head == nullptr) {
    ++counters.local_packets;
    if (packet.reports_departure) qp.transport().on_departed(packet, now);
    Qp* peer = own_qp(packet.headers.dest_qp.value);
    if (peer == nullptr || !peer->path().is_local) {
      ++counters.dropped_unknown_qp;
      return;
    }
    (void)accept(*peer, packet.headers, pieces, {});
    return;
  }
  Transfer& transfer = take_transfer(qp, Transfer::Stage::kDeparted);
  transfer.packet = packet;
  transfer.payload_bytes = packet.payload.length;
  if (packet.payload.length > 0) {
    attach_buffer(transfer, pool.take_buffer());
    transfer.payload = transfer.buffer;
    if (gathered == Gathered::kPending) {
      start_read(transfer, pieces);
    } else {
      Pieces target;
      target.add({0, transfer.payload, packet.payload.length, nullptr});
      copy_pieces(pieces, target);
    }
  }
  depart(transfer);
}

void Engine::Loop::launch(rte_mbuf* frame, const Route& route) {
  if (route.is_silent) [[unlikely]] {
    ++counters.unsent_no_source;
    io::free_frame(frame);
    return;
  }
  wire::finish_frame({rte_pktmbuf_mtod(frame, std::uint8_t*), rte_pktmbuf_data_len(frame)});
  put_on_port(route.port, frame);
}

void Engine::Loop::put_on_port(std::uint32_t port, rte_mbuf* frame) {
  PortState& state = ports[port];
  if (!state.is_attached || rte_pktmbuf_data_len(frame) > state.frame_bytes) [[unlikely]] {
    ++(state.is_attached ? counters.unsent_too_long : counters.unsent_no_port);
    io::free_frame(frame);
    has_freed = true;
    return;
  }
  ++counters.frames_sent;
  state.backlog.push_back(frame);
  if (state.backlog.size() >= kBurst) (void)flush_ports();
}

bool Engine::Loop::flush_ports() {
  bool any = false;
  for (PortState& port : ports) {
    if (port.backlog.empty()) continue;
    std::unique_lock sending(*port.sending, std::try_to_lock);
    if (!sending) {
      // Another engine sends: this one's turn comes in its next round, or after a nap if that takes long.
      ::sched_yield();
      any |= ++port.refusals < kMostRefusals;
      continue;
    }
    port.refusals = 0;
    const std::uint32_t sent = port.port->send(port.backlog);
    sending.unlock();
    // Nothing else tells who receives on a loopback.
    if (sent > 0 && !port.is_receiving && port.port->is_loopback()) {
      engines_to_wake |= 1U << (&port - ports.data()) % config.count;
    }
    port.backlog.erase(port.backlog.begin(), port.backlog.begin() + sent);
    any |= sent > 0;
    has_freed |= sent > 0;
  }
  return any;
}

// Has ports send what they hold back, before a sleep. True if something is left.
bool Engine::Loop::hold_frames() {
  bool is_left = false;
  for (PortState& port : ports) {
    if (!port.is_attached) continue;
    const std::unique_lock sending(*port.sending, std::try_to_lock);
    is_left |= !sending || port.port->flush() || !port.backlog.empty();
  }
  return is_left;
}

// A QP has failed. Packets whose payload is still to be read must not leave any more: once its request is
// flushed the program may use the memory for something else.
void Engine::Loop::begin_flush(Qp& qp) {
  qp.is_flushing = true;
  drop_departures(qp);
  // What is posted until the client sees the word is found by the fetch of the next turn.
  qp.set_flush_receives(true);
  mark_ready(qp);
}

// Completions and events of a QP, to where programs see them.
void Engine::Loop::complete(Qp& qp) {
  if (qp.transport().state() == QpState::kErr && !qp.is_flushing) begin_flush(qp);
  transport::Completion completion;
  while (qp.transport().poll_completion(completion)) {
    ++counters.completions;
    if (completion.status != WcStatus::kSuccess && completion.status != WcStatus::kWrFlushErr) {
      qp.last_failure = completion.reason;
    }
    push_completion(qp, completion);
  }
  AsyncEvent event{};
  while (qp.transport().poll_event(event)) post_qp_event(qp, event);
}

void Engine::Loop::push_completion(Qp& qp, const transport::Completion& completion) {
  CompletionQueue* cq = queue_of(qp, completion);
  if (cq == nullptr) return;
  const SharedReceiveQueue* srq = completion.srq != 0 ? srqs.find(completion.srq) : nullptr;
  const std::uint32_t cookie = qp.is_xrc_receive() ? abi::kNoCookie : qp.config().cookie;
  const std::uint32_t srq_cookie = srq != nullptr ? srq->config().cookie : abi::kNoCookie;
  if (cq->push(completion, qp.qpn().value, cookie, static_cast<std::uint64_t>(now.ns), srq_cookie)) {
    list_cq(*cq);
  } else {
    overrun(*cq);
  }
}

// A completion queue without room: it is told once, and all of its QPs fail (IBTA 1, 11.6.3.1). QPs of other
// engines are out of reach while those run.
void Engine::Loop::overrun(CompletionQueue& cq) {
  if (cq.is_overrun_told.exchange(true)) return;
  if (common.has_several()) {
    report({Report::Kind::kCqOverrun, 0, cq.session().id(), cq.handle(), nullptr});
  } else {
    fail_users(cq);
  }
}

void Engine::Loop::fail_users(CompletionQueue& cq) {
  Session& session = cq.session();
  session.post_async(cq.user_pointer(), AsyncEvent::kCqErr);
  for (Qp* qp : cq.qps) {
    qp->transport().fail(transport::FailureReason::kCqOverrun);
    qp->last_failure = transport::FailureReason::kCqOverrun;
    common.loop_of(*qp).mark_ready(*qp);  // its own turn tells of it
  }
  for (SharedReceiveQueue* srq : cq.srqs) {
    srq->fail();
    session.post_async(srq->config().user_pointer, AsyncEvent::kSrqErr);
  }
  list_async(session);
}

}  // namespace urdma::engine
