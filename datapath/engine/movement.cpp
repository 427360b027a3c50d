// Payloads to and from programs: at once where the memory is mapped here, by a copier otherwise. Packets
// of a QP leave in order (departures), operations on memory are carried out in order (arrivals).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <rte_mbuf.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "datapath/engine/loop.hpp"
#include "datapath/io/frame.hpp"
#include "urdma/base/check.hpp"

namespace urdma::engine {

using transport::MemoryOp;
using transport::MemoryResult;
using transport::Payload;

namespace {

// Traffic by copier that earns a region its conversion: what the copies have cost by then is
// about what the conversion costs (docs/design).
constexpr std::uint32_t kEarningOperations = 16;
constexpr std::uint64_t kEarningBytes = 256 * 1024;

// Counts traffic by copier, of any engine, and tells whether it is enough.
bool earns_conversion(memory::Region& region, std::uint32_t bytes) {
  constexpr auto kOrder = std::memory_order_relaxed;
  const auto operations = std::atomic_ref<std::uint32_t>(region.copied_operations).fetch_add(1, kOrder) + 1;
  const auto all_bytes = std::atomic_ref<std::uint64_t>(region.copied_bytes).fetch_add(bytes, kOrder) + bytes;
  return operations >= kEarningOperations || all_bytes >= kEarningBytes;
}

std::uint64_t do_atomic(std::byte* at, const MemoryOp& op) {
  std::atomic_ref<std::uint64_t> value(*reinterpret_cast<std::uint64_t*>(at));
  if (!op.is_compare_swap) return value.fetch_add(op.swap_or_add, std::memory_order_acq_rel);
  std::uint64_t expected = op.compare;
  value.compare_exchange_strong(expected, op.swap_or_add, std::memory_order_acq_rel);
  return expected;
}

// An atomic by the copier reads and writes in two steps: no other may come between, also where the page has
// become mapped in the meantime.
bool has_copier_atomics(const Pieces& target) { return target.space()->copier().outstanding_atomics() > 0; }

// The pieces of a program that an operation writes; false if access is denied. The check covers more
// than is written where the first packet of a message announces the rest.
bool resolve_target(const AccessContext& context, const MemoryOp& op, Pieces& out) {
  switch (op.kind) {
    case MemoryOp::Kind::kNone:
    case MemoryOp::Kind::kNothing:
      return true;
    case MemoryOp::Kind::kCheck:
    case MemoryOp::Kind::kWrite: {
      if (op.check_bytes == 0 && op.length == 0) return true;
      memory::Place place;
      const std::uint64_t bytes = std::max<std::uint64_t>(op.check_bytes, op.length);
      if (!memory::permit(context.regions, op.key, context.who, op.access, op.address, bytes, place)) {
        return false;
      }
      if (op.kind == MemoryOp::Kind::kCheck || op.length == 0) return true;
      return resolve_range(context, op.key, op.access, op.address, op.length, out);
    }
    case MemoryOp::Kind::kScatter:
      return resolve_elements(context, op.elements, kAccessLocalWrite, op.offset, op.length, out);
    case MemoryOp::Kind::kAtomic:
      // Of a region whose iova and address differ in their lowest bits, what is aligned for the peer is not
      // so here: such an access is not atomic, or locks the bus of the whole machine.
      return resolve_range(context, op.key, op.access, op.address, sizeof(std::uint64_t), out) &&
             out.items[0].address % sizeof(std::uint64_t) == 0;
  }
  return false;
}

}  // namespace

Transfer& Engine::Loop::take_transfer(Qp& qp, Transfer::Stage stage) {
  Transfer& transfer = pool.take();
  transfer.qp = &qp;
  transfer.stage = stage;
  ++qp.transfers;
  ++qp.session().held(index).transfers;
  return transfer;
}

void Engine::Loop::attach_buffer(Transfer& transfer, std::byte* buffer) {
  transfer.buffer = buffer;
  ++transfer.qp->session().held(index).buffers;
}

std::byte* Engine::Loop::detach_buffer(Transfer& transfer) {
  if (transfer.buffer != nullptr) --transfer.qp->session().held(index).buffers;
  return std::exchange(transfer.buffer, nullptr);
}

bool Engine::Loop::may_receive(const Session& session) const {
  return session.held(index).transfers < pool.free_transfers();
}

bool Engine::Loop::may_take(const Session& session) const {
  const Session::Held& held = session.held(index);
  return held.transfers * kShare < pool.free_transfers() && held.buffers * kShare < pool.free_buffers();
}

Engine::Loop::Gathered Engine::Loop::locate(Qp& qp, const Payload& payload, Pieces& out) {
  const AccessContext context = access_context(qp, source_domain_of(qp, payload));
  bool allowed = true;
  switch (payload.kind) {
    case Payload::Kind::kNone:
      break;
    case Payload::Kind::kInline: {
      auto* data = const_cast<std::byte*>(qp.inline_data(payload.wqe_index)) + payload.offset;
      if (payload.length > 0) out.add({0, data, payload.length, nullptr});
      break;
    }
    case Payload::Kind::kElements:
      allowed = resolve_elements(context, payload.elements, 0, payload.offset, payload.length, out);
      break;
    case Payload::Kind::kRegion:
      if (payload.length == 0) break;
      allowed = resolve_range(context, payload.key, kAccessRemoteRead, payload.address, payload.length, out);
      break;
  }
  if (!allowed) return Gathered::kDenied;
  return out.is_mapped ? Gathered::kReady : Gathered::kPending;
}

void Engine::Loop::note_copied(const Pieces& pieces) {
  for (const Piece& piece : pieces.view()) {
    counters.bytes_copied_by_copier += piece.length;
    memory::Region* region = piece.region;
    if (region == nullptr || piece.local != nullptr) continue;
    if (!earns_conversion(*region, piece.length) || region->is_on_demand() || !config.convert) continue;
    if (std::atomic_ref<bool>(region->conversion_requested).exchange(true, std::memory_order_relaxed))
      continue;
    report({Report::Kind::kWantsConversion, 0, region->session, region->handle, nullptr});
  }
}

void Engine::Loop::start_read(Transfer& transfer, const Pieces& pieces) {
  std::byte* local = transfer.payload;
  std::uint32_t count = 0;
  for (const Piece& piece : pieces.view()) {
    if (piece.is_null()) {
      std::memset(local, 0, piece.length);
    } else {
      transfer.segments[count++] = {piece.address, local, piece.length};
    }
    local += piece.length;
  }
  transfer.stage = Transfer::Stage::kDeparting;
  transfer.job.kind = memory::CopyJob::Kind::kRead;
  transfer.job.segments = {transfer.segments.data(), count};
  transfer.job.owner = &transfer;
  transfer.job.failed = false;
  note_copied(pieces);
  pieces.space()->copier().submit(transfer.job, index);
}

void Engine::Loop::depart(Transfer& transfer) {
  Qp& qp = *transfer.qp;
  append(qp.departures_head, qp.departures_tail, transfer);
  release_departures(qp);
}

void Engine::Loop::release_departures(Qp& qp) {
  while (qp.departures_head != nullptr && qp.departures_head->stage == Transfer::Stage::kDeparted) {
    if (qp.path().is_local && (pool.free_transfers() == 0 || !peer_accepts(qp))) {
      starve(qp);
      return;
    }
    Transfer& transfer = pop(qp.departures_head);
    dispatch(transfer);
    free_transfer(transfer);
  }
}

// Sends a packet whose payload has been read.
void Engine::Loop::dispatch(Transfer& transfer) {
  Qp& qp = *transfer.qp;
  if (transfer.result != MemoryResult::kOk) {
    qp.transport().on_gather_failed(transfer.packet, transfer.result, now);
    mark_ready(qp);
    return;
  }
  if (transfer.packet.reports_departure) {
    qp.transport().on_departed(transfer.packet, now);
    mark_ready(qp);
  }
  if (transfer.frame != nullptr) {
    rte_mbuf* frame = std::exchange(transfer.frame, nullptr);
    return qp.is_datagram() ? launch_datagram(frame, transfer.route) : launch(frame, qp.path());
  }
  ++counters.local_packets;
  Qp* peer = own_qp(transfer.packet.headers.dest_qp.value);
  if (peer == nullptr || !peer->path().is_local) {
    ++counters.dropped_unknown_qp;
    return;
  }
  Pieces source;
  if (transfer.payload_bytes > 0) source.add({0, transfer.payload, transfer.payload_bytes, nullptr});
  const Carrier carrier{nullptr, transfer.buffer};
  if (accept(*peer, transfer.packet.headers, source, carrier)) (void)detach_buffer(transfer);
}

bool Engine::Loop::deliver(Qp& qp, const wire::Headers& headers, const Pieces& source, Carrier carrier) {
  transport::QueuePair& transport = qp.transport();
  offer_receive(qp, headers);
  mark_ready(qp);
  const MemoryOp op = transport.on_packet(headers, now);
  if (op.kind == MemoryOp::Kind::kNone) return false;
  MemoryResult result = MemoryResult::kOk;
  std::uint64_t original = 0;
  if (qp.arrivals_head == nullptr && place_now(qp, op, headers.srqn, source, result, original)) {
    transport.on_memory_done(op.side, conclude(qp, op, result), original, now);
    return false;
  }
  hold(qp, op, headers.srqn, source, carrier);
  return true;
}

bool Engine::Loop::place_now(Qp& qp, const MemoryOp& op, Qpn srqn, const Pieces& source, MemoryResult& result,
                             std::uint64_t& original) {
  Pieces target;
  if (!resolve_target(access_context(qp, domain_of(qp, op, srqn)), op, target)) {
    result = MemoryResult::kProtection;
    return true;
  }
  if (target.count == 0) return true;
  if (!target.is_mapped) return false;
  if (op.kind == MemoryOp::Kind::kAtomic) {
    if (has_copier_atomics(target)) return false;
    original = do_atomic(target.items[0].local, op);
    return true;
  }
  if (op.has_value) {
    std::uint64_t value = op.value;
    Pieces immediate;
    immediate.add({0, reinterpret_cast<std::byte*>(&value), op.length, nullptr});
    copy_pieces(immediate, target);
    return true;
  }
  copy_pieces(source, target);
  counters.bytes_copied_mapped += op.length;
  return true;
}

void Engine::Loop::carry(Transfer& transfer, const Pieces& source, Carrier carrier) {
  transfer.frame = carrier.frame;
  if (carrier.buffer != nullptr) attach_buffer(transfer, carrier.buffer);
  for (const Piece& piece : source.view()) transfer.payload_bytes += piece.length;
  if (carrier.frame != nullptr || carrier.buffer != nullptr) {
    transfer.payload = source.count > 0 ? source.items[0].local : nullptr;
  } else if (transfer.payload_bytes > 0) {
    attach_buffer(transfer, pool.take_buffer());
    transfer.payload = transfer.buffer;
    Pieces target;
    target.add({0, transfer.payload, transfer.payload_bytes, nullptr});
    copy_pieces(source, target);
  }
}

// Keeps an operation until it can be carried out, and its payload.
void Engine::Loop::hold(Qp& qp, const MemoryOp& op, Qpn srqn, const Pieces& source, Carrier carrier) {
  Transfer& transfer = take_transfer(qp, Transfer::Stage::kHeld);
  transfer.op = op;
  transfer.srqn = srqn;
  carry(transfer, source, carrier);
  append(qp.arrivals_head, qp.arrivals_tail, transfer);
  advance_arrivals(qp);
}

// Answers what has been placed, in order; carries out or hands to the copier what follows. Several may be
// with the copier at once, since it keeps their order; one that needs none waits for those before it.
void Engine::Loop::advance_arrivals(Qp& qp) {
  while (qp.arrivals_head != nullptr) {
    Transfer& first = *qp.arrivals_head;
    if (first.stage == Transfer::Stage::kHeld) {
      Pieces source;
      if (first.payload_bytes > 0) source.add({0, first.payload, first.payload_bytes, nullptr});
      if (place_now(qp, first.op, first.srqn, source, first.result, first.original)) {
        first.stage = Transfer::Stage::kPlaced;
      } else {
        start_placing(first);
      }
    }
    if (first.stage != Transfer::Stage::kPlaced) break;
    Transfer& placed = pop(qp.arrivals_head);
    const MemoryResult result = conclude(qp, placed.op, placed.result);
    qp.transport().on_memory_done(placed.op.side, result, placed.original, now);
    mark_ready(qp);
    free_transfer(placed);
  }
  for (Transfer* next = qp.arrivals_head; next != nullptr; next = next->next) {
    if (next->stage == Transfer::Stage::kHeld && !start_placing(*next)) break;
    if (next->op.invalidates) break;  // what follows may be for the window that closes then
  }
}

// False: it has to wait until it is the first.
bool Engine::Loop::start_placing(Transfer& transfer) {
  Qp& qp = *transfer.qp;
  const MemoryOp& op = transfer.op;
  Pieces target;
  if (!resolve_target(access_context(qp, domain_of(qp, op, transfer.srqn)), op, target)) return false;
  const bool is_atomic = op.kind == MemoryOp::Kind::kAtomic;
  const bool has_place = target.space() != nullptr;  // not so with null regions alone
  if (!has_place || (is_atomic && target.is_mapped && !has_copier_atomics(target))) return false;
  memory::CopyJob& job = transfer.job;
  job.kind = memory::CopyJob::Kind::kWrite;
  job.ends_message = op.ends_message;
  if (is_atomic) {
    job.kind = op.is_compare_swap ? memory::CopyJob::Kind::kCompareSwap : memory::CopyJob::Kind::kFetchAdd;
    job.address = target.items[0].address;
    job.operand = op.swap_or_add;
    job.compare = op.compare;
  }
  std::byte* local = op.has_value ? reinterpret_cast<std::byte*>(&transfer.op.value) : transfer.payload;
  std::uint32_t count = 0;
  for (const Piece& piece : target.view()) {
    if (!piece.is_null()) transfer.segments[count++] = {piece.address, local, piece.length};
    local += piece.length;
  }
  job.segments = {transfer.segments.data(), count};
  job.owner = &transfer;
  job.failed = false;
  transfer.stage = Transfer::Stage::kPlacing;
  note_copied(target);
  target.space()->copier().submit(job, index);
  return true;
}

bool Engine::Loop::take_copies() {
  bool any = false;
  for (memory::AddressSpace* space : spaces) any |= take_copies_of(*space);
  has_freed |= any;
  return any;
}

bool Engine::Loop::take_copies_of(memory::AddressSpace& space) {
  bool any = false;
  while (memory::CopyJob* job = space.copier().take_done(index)) {
    finish_copy(*job);
    any = true;
  }
  return any;
}

void Engine::Loop::finish_copy(memory::CopyJob& job) {
  if (job.kind == memory::CopyJob::Kind::kCall) {
    EventChannel::finish(job);  // its queue is still listed, and asks
    return;
  }
  Transfer& transfer = *static_cast<Transfer*>(job.owner);
  if (transfer.stage == Transfer::Stage::kFence) {
    report({Report::Kind::kQuiesced, transfer.cookie, 0, 0, nullptr});
    std::erase_if(fences, [&](const auto& fence) { return fence.get() == &transfer; });
    return;
  }
  if (transfer.stage == Transfer::Stage::kOrphan) {
    free_transfer(transfer);
    return;
  }
  if (transfer.stage == Transfer::Stage::kLocal) {
    finish_local(transfer);
    return;
  }
  Qp& qp = *transfer.qp;
  if (job.failed) transfer.result = MemoryResult::kFault;
  if (transfer.stage == Transfer::Stage::kDeparting) {
    transfer.stage = Transfer::Stage::kDeparted;
    release_departures(qp);
    return;
  }
  URDMA_CHECK(transfer.stage == Transfer::Stage::kPlacing);
  transfer.original = job.original;
  transfer.stage = Transfer::Stage::kPlaced;
  advance_arrivals(qp);
  resume_waiting(qp);
}

// What a copier has in hand ends as an orphan.
void Engine::Loop::forget(Transfer& transfer) {
  const bool in_hand =
      transfer.stage == Transfer::Stage::kDeparting || transfer.stage == Transfer::Stage::kPlacing;
  if (in_hand) {
    transfer.stage = Transfer::Stage::kOrphan;
  } else {
    free_transfer(transfer);
  }
}

// Forgets what is on its way for a QP that goes, or starts anew. The transport is given its answers: it
// counts them, and has forgotten what they are for.
void Engine::Loop::purge(Qp& qp) {
  while (qp.departures_head != nullptr) forget(pop(qp.departures_head));
  if (qp.is_unreliable()) waiting_unreliable -= qp.waiting_count;
  while (qp.waiting_head != nullptr) forget(pop(qp.waiting_head));
  qp.waiting_count = 0;
  if (qp.local_wait != nullptr) std::exchange(qp.local_wait, nullptr)->stage = Transfer::Stage::kOrphan;
  while (qp.arrivals_head != nullptr) {
    Transfer& transfer = pop(qp.arrivals_head);
    qp.transport().on_memory_done(transfer.op.side, MemoryResult::kOk, 0, now);
    forget(transfer);
  }
}

// Forgets packets to send that carry a program's bytes; acknowledgements go on.
void Engine::Loop::drop_departures(Qp& qp) {
  Transfer* waiting = std::exchange(qp.departures_head, nullptr);
  while (waiting != nullptr) {
    Transfer& transfer = pop(waiting);
    if (transfer.payload_bytes > 0) {
      forget(transfer);
    } else {
      append(qp.departures_head, qp.departures_tail, transfer);
    }
  }
  release_departures(qp);
}

void Engine::Loop::free_transfer(Transfer& transfer) {
  Qp& qp = *transfer.qp;
  if (transfer.frame != nullptr) io::free_frame(transfer.frame);
  if (std::byte* buffer = detach_buffer(transfer); buffer != nullptr) pool.give_back_buffer(buffer);
  pool.give_back(transfer);
  --qp.transfers;
  --qp.session().held(index).transfers;
  has_freed = true;
  settle_quiesce(qp);
}

}  // namespace urdma::engine
