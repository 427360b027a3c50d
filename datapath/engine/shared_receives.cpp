// Receive requests for packets, from a QP's own ring or from a shared queue; and what follows from that:
// whose keys an operation names, where its completion goes, who is told of events.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <mutex>

#include "datapath/engine/loop.hpp"
#include "datapath/engine/shared_receive_queue.hpp"

namespace urdma::engine {

namespace {

constexpr std::uint32_t kNoSrq = ~0U;  // beyond the numbers of 24 bits

}  // namespace

void Engine::Loop::offer_receive(Qp& qp, const wire::Headers& headers) {
  if (qp.has_srq()) {
    if (qp.transport().needs_receive(headers)) offer_shared(qp, headers);
    return;
  }
  if (!qp.transport().wants_receive()) return;
  bool is_sound = true;
  (void)qp.fetch_receive(is_sound);
  if (!is_sound) break_session(qp.session(), "the receive queue's index or entry was out of range");
}

void Engine::Loop::offer_shared(Qp& qp, const wire::Headers& headers) {
  SharedReceiveQueue* srq = srq_for(qp, headers.srqn);
  if (srq == nullptr) {
    // The peer names an SRQ that is not there for it: a receive without room, so that the message is an
    // invalid request and not one to be repeated. Its completion goes nowhere.
    qp.transport().offer_receive({0, 0, kNoSrq}, {});
    return;
  }
  Session& session = *srq->config().session;
  const std::lock_guard guard(srq->lock());
  transport::ReceiveRequest request;
  std::span<const transport::Sge> elements;
  switch (srq->fetch(request, elements)) {
    case SharedReceiveQueue::Fetched::kNone:
      return;
    case SharedReceiveQueue::Fetched::kBroken:
      break_session(session, "a shared receive queue's index or entry was out of range");
      return;
    case SharedReceiveQueue::Fetched::kOne:
      qp.transport().offer_receive(request, elements);
      break;
  }
  if (!srq->take_limit_event()) return;
  session.post_async(srq->config().user_pointer, AsyncEvent::kSrqLimitReached);
  list_async(session);
}

SharedReceiveQueue* Engine::Loop::srq_for(const Qp& qp, Qpn srqn) const {
  if (!qp.is_xrc_receive()) return qp.config().srq;
  SharedReceiveQueue* srq = srqs.find(srqn.value);
  return srq != nullptr && srq->config().domain == qp.config().domain ? srq : nullptr;
}

PdId Engine::Loop::domain_of(const Qp& qp, const transport::MemoryOp& op, Qpn srqn) const {
  const bool is_responder = op.side == transport::Side::kResponder;
  const bool is_shared =
      is_responder && (qp.is_xrc_receive() || op.kind == transport::MemoryOp::Kind::kScatter);
  if (!is_shared || !qp.has_srq()) return qp.config().pd;
  // With XRC all that a packet names is the SRQ's (IBTA 1, annex A14); else its own elements alone are.
  const SharedReceiveQueue* srq = srq_for(qp, srqn);
  return srq != nullptr ? srq->config().pd : PdId{};
}

PdId Engine::Loop::source_domain_of(const Qp& qp, const transport::Payload& payload) const {
  if (!qp.is_xrc_receive()) return qp.config().pd;
  // A READ's response. The request has been judged by the protection domain of the SRQ that it named.
  const memory::Region* region = regions.find(payload.key);
  return region != nullptr ? region->pd : PdId{};
}

CompletionQueue* Engine::Loop::queue_of(const Qp& qp, const transport::Completion& completion) const {
  if (!completion.is_receive) return qp.config().send_cq;
  if (!qp.is_xrc_receive()) return qp.config().recv_cq;
  const SharedReceiveQueue* srq = srqs.find(completion.srq);
  return srq != nullptr ? srq->config().cq : nullptr;
}

void Engine::Loop::post_qp_event(const Qp& qp, AsyncEvent event) {
  for (const Qp::Opener& opener : qp.openers) {
    opener.session->post_async(opener.user_pointer, event);
    list_async(*opener.session);
  }
}

}  // namespace urdma::engine
