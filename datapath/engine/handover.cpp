// What engines give each other: received frames, in a ring for each pair of them, and doorbells that were
// rung on the board of an engine that has the QP no more.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fmt/format.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include <type_traits>

#include "datapath/engine/loop.hpp"
#include "datapath/io/frame.hpp"

namespace urdma::engine {

namespace {

constexpr unsigned kInboxFrames = 512;

struct InboxFrame {
  rte_mbuf* frame = nullptr;
  std::uint32_t port = 0;
  wire::IcrcPolicy policy = wire::IcrcPolicy::kCheck;
};
static_assert(sizeof(InboxFrame) == 16 && std::is_trivially_copyable_v<InboxFrame>);

}  // namespace

Status Engine::Loop::make_inbox() {
  static std::atomic<unsigned> count{0};  // a ring's name is unique in the process
  for (std::uint32_t sender = 0; sender < config.count; ++sender) {
    if (sender == index) continue;
    inbox[sender] = rte_ring_create_elem(fmt::format("inbox-{}", count++).c_str(), sizeof(InboxFrame),
                                         kInboxFrames, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
    if (inbox[sender] == nullptr) return fail(ENOMEM, "no memory for the rings between engines");
  }
  return {};
}

void Engine::Loop::drain_inbox() {
  for (rte_ring* ring : inbox) {
    InboxFrame given;
    while (ring != nullptr && rte_ring_sc_dequeue_elem(ring, &given, sizeof given) == 0) {
      io::free_frame(given.frame);
    }
  }
}

Qp* Engine::Loop::own_qp(std::uint32_t qpn) const {
  Qp* qp = qps.find(qpn);
  return qp != nullptr && qp->engine() == index ? qp : nullptr;
}

void Engine::Loop::pass_on(Session& session, const Qp& qp) {
  abi::ring(session.board(qp.engine()), qp.config().doorbell);
  engines_to_wake |= 1U << qp.engine();
}

// Whether the frame is sound is for the QP's engine to find out, and whether it is one for no QP for this
// one.
bool Engine::Loop::hand_to_owner(std::uint32_t port, rte_mbuf* frame, wire::IcrcPolicy policy) {
  if (!common.has_several()) return false;
  const auto* bytes = rte_pktmbuf_mtod(frame, const std::uint8_t*);
  const auto dest = wire::peek_dest_qp({bytes, rte_pktmbuf_data_len(frame)});
  const Qp* qp = dest.has_value() ? qps.find(dest->value) : nullptr;
  if (qp == nullptr || qp->engine() == index) return false;
  hand_to(qp->engine(), port, frame, policy);
  return true;
}

void Engine::Loop::hand_to(std::uint32_t engine, std::uint32_t port, rte_mbuf* frame,
                           wire::IcrcPolicy policy) {
  InboxFrame given{frame, port, policy};
  if (rte_ring_sp_enqueue_elem(common.loops[engine]->inbox[index], &given, sizeof given) != 0) {
    ++counters.dropped_handover;
    io::free_frame(frame);
    return;
  }
  ++counters.handed_over;
  engines_to_wake |= 1U << engine;
}

void Engine::Loop::spread(const std::vector<Qp*>& members, std::uint32_t port, rte_mbuf* frame) {
  std::uint32_t engines = 0;
  for (const Qp* member : members) engines |= 1U << member->engine();
  engines &= ~(1U << index);
  for (; engines != 0; engines &= engines - 1) {
    rte_mbuf* copy = io::copy_frame(frame, config.frames);
    if (copy == nullptr) {
      ++counters.dropped_no_buffer;
      return;
    }
    hand_to(static_cast<std::uint32_t>(__builtin_ctz(engines)), port, copy, wire::IcrcPolicy::kTrusted);
  }
}

bool Engine::Loop::take_inbox() {
  bool any = false;
  for (std::uint32_t sender = 0; sender < config.count; ++sender) {
    if (sender == index) continue;
    std::array<InboxFrame, kBurst> given;
    const unsigned count =
        rte_ring_sc_dequeue_burst_elem(inbox[sender], given.data(), sizeof given[0], kBurst, nullptr);
    for (unsigned i = 0; i < count; ++i) {
      take_frame(ports[given[i].port], given[i].frame, given[i].policy, Origin::kOtherEngine);
    }
    any |= count > 0;
  }
  has_freed |= any;
  return any;
}

// Once a round: those that sleep may do so no longer.
void Engine::Loop::wake_others() {
  if (engines_to_wake == 0) return;
  std::uint32_t engines = std::exchange(engines_to_wake, 0);
  for (; engines != 0; engines &= engines - 1) common.loops[__builtin_ctz(engines)]->wake_if_asleep();
}

}  // namespace urdma::engine
