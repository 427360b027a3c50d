// What the control thread does to an engine's objects, on the engine's thread inside run().
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "datapath/engine/loop.hpp"
#include "datapath/memory/windows.hpp"
#include "urdma/base/check.hpp"

namespace urdma::engine {

void Engine::Loop::add_session(Session& session) {
  sessions.push_back(&session);
  if (std::find(spaces.begin(), spaces.end(), &session.space()) == spaces.end()) {
    spaces.push_back(&session.space());
  }
  epoll_event event{};
  // Edge-triggered and never read: the client shares the description, and could drain it.
  event.events = EPOLLIN | EPOLLET;
  const int result = ::epoll_ctl(epoll, EPOLL_CTL_ADD, session.doorbell_eventfd(index), &event);
  URDMA_CHECK(result == 0);
}

void Engine::Loop::remove_session(Session& session) {
  ::epoll_ctl(epoll, EPOLL_CTL_DEL, session.doorbell_eventfd(index), nullptr);
  std::erase(sessions, &session);
  std::erase(async_sessions, &session);
  const bool is_used = std::any_of(sessions.begin(), sessions.end(),
                                   [&](const Session* other) { return &other->space() == &session.space(); });
  if (is_used) return;
  (void)take_copies_of(session.space());  // the last events of this engine's
  forget_space(session.space());
  std::erase(spaces, &session.space());
}

void Engine::add_session(Session& session) {
  if (common_->has_several()) session.enable_lock();
  for (const auto& loop : common_->loops) loop->add_session(session);
}

void Engine::remove_session(Session& session) {
  for (const auto& loop : common_->loops) loop->remove_session(session);
}

void Engine::post_async(Session& session, std::uint64_t element, AsyncEvent event) {
  session.post_async(element, event);
  common_->loops.front()->list_async(session);
}

void Engine::add_cq(CompletionQueue& cq) {
  if (common_->has_several()) cq.enable_lock();
}

void Engine::remove_cq(CompletionQueue& cq) {
  cq.session().drop_async(cq.user_pointer());
  for (const auto& loop : common_->loops) std::erase(loop->listed_cqs, &cq);
}

void Engine::fail_users(CompletionQueue& cq) { common_->loops.front()->fail_users(cq); }

void Engine::add_qp(Qp& qp) {
  const auto least = std::min_element(common_->loops.begin(), common_->loops.end(),
                                      [](const auto& a, const auto& b) { return a->qp_count < b->qp_count; });
  ++(*least)->qp_count;
  qp.set_engine((*least)->index);
  qp.instance = ++common_->last_instance;
  const bool inserted = common_->qps.insert(qp.qpn().value, qp);
  URDMA_CHECK(inserted);
  if (qp.config().doorbell != kNoDoorbell) qp.session().bind_doorbell(qp.config().doorbell, &qp);
  if (qp.config().send_cq != nullptr) qp.config().send_cq->qps.push_back(&qp);
  const bool has_other = qp.config().recv_cq != nullptr && qp.config().recv_cq != qp.config().send_cq;
  if (has_other) qp.config().recv_cq->qps.push_back(&qp);
}

void Engine::add_opener(Qp& qp, Session& session, std::uint64_t user_pointer) {
  qp.openers.push_back({&session, user_pointer});
}

void Engine::remove_opener(Qp& qp, Session& session, std::uint64_t user_pointer) {
  session.drop_async(user_pointer);
  std::erase_if(qp.openers, [&](const Qp::Opener& opener) {
    return opener.session == &session && opener.user_pointer == user_pointer;
  });
}

void Engine::add_srq(SharedReceiveQueue& srq) {
  if (common_->has_several()) srq.enable_lock();
  const bool inserted = common_->srqs.insert(srq.config().number, srq);
  URDMA_CHECK(inserted);
  if (srq.config().cq != nullptr) srq.config().cq->srqs.push_back(&srq);
}

void Engine::remove_srq(SharedReceiveQueue& srq) {
  common_->srqs.erase(srq.config().number);
  srq.config().session->drop_async(srq.config().user_pointer);
  if (srq.config().cq != nullptr) std::erase(srq.config().cq->srqs, &srq);
}

void Engine::remove_qp(Qp& qp) {
  Loop& loop = loop_of(qp);
  qp.is_removed = true;
  --loop.qp_count;
  common_->qps.erase(qp.qpn().value);
  if (qp.config().doorbell != kNoDoorbell) qp.session().bind_doorbell(qp.config().doorbell, nullptr);
  for (const Qp::Opener& opener : qp.openers) opener.session->drop_async(opener.user_pointer);
  qp.openers.clear();
  if (qp.config().send_cq != nullptr) std::erase(qp.config().send_cq->qps, &qp);
  if (qp.config().recv_cq != nullptr) std::erase(qp.config().recv_cq->qps, &qp);
  for (auto group = common_->groups.begin(); group != common_->groups.end();) {
    std::erase(group->second, &qp);
    group = group->second.empty() ? common_->groups.erase(group) : std::next(group);
  }
  loop.unlist(qp);
  loop.purge(qp);
}

// Takes a QP off all lists of the engine.
void Engine::Loop::unlist(Qp& qp) {
  std::erase(ready, &qp);
  std::erase(starved, &qp);
  std::replace(serving.begin(), serving.end(), &qp, static_cast<Qp*>(nullptr));
  qp.is_ready = false;
  qp.is_starved = false;
  timers.set(qp, Instant::never());
}

// To another engine: nothing in flight names the QP. Its program may still ring here (take_doorbells).
void Engine::move(Qp& qp, std::uint32_t index) {
  Loop& from = loop_of(qp);
  Loop& to = *common_->loops[index];
  from.unlist(qp);
  --from.qp_count;
  ++to.qp_count;
  qp.set_engine(index);
  to.mark_ready(qp);
}

int Engine::modify_qp(Qp& qp, std::uint32_t mask, const transport::QpAttributes& attributes,
                      const Path& path) {
  Loop& loop = loop_of(qp);
  loop.now = Loop::clock();
  const bool is_state_change = (mask & kAttrState) != 0;
  const Qp* peer = nullptr;
  if (is_state_change && attributes.state == QpState::kRtr && path.is_local && !qp.is_datagram()) {
    peer = common_->qps.find(attributes.dest_qpn.value);
  }
  const bool moves = peer != nullptr && peer->engine() != qp.engine();
  if (moves && qp.transfers != 0) return EBUSY;  // of its former connection
  const int error = qp.transport().modify(mask, attributes, loop.now);
  if (error != 0) return error;
  if ((mask & kAttrAv) != 0) qp.path() = path;
  const QpState state = qp.transport().state();
  if (state == QpState::kReset) {
    loop.purge(qp);
    qp.reset_rings();
    qp.path() = Path{};
    qp.last_failure = transport::FailureReason::kNone;
  }
  if (state != QpState::kErr && qp.is_flushing) {
    qp.is_flushing = false;
    qp.set_flush_receives(false);
  }
  if (moves) {
    move(qp, peer->engine());
  } else {
    loop.mark_ready(qp);
  }
  return 0;
}

bool Engine::add_region(memory::Region& region) { return common_->regions.insert(region); }

void Engine::remove_region(memory::Region& region) {
  memory::unbind_all_windows(region);
  memory::unbind_window(region);
  common_->regions.erase(region.key);
}

void Engine::Loop::settle_quiesce(Qp& qp) {
  if (qp.transfers != 0 || qp.quiesce_cookie == 0) return;
  // The report comes last: the control thread frees the QP when it has it.
  const std::uint64_t cookie = std::exchange(qp.quiesce_cookie, 0);
  report({Report::Kind::kQuiesced, cookie, 0, 0, nullptr});
}

bool Engine::quiesce(Qp& qp, std::uint64_t cookie) {
  if (qp.transfers == 0) return true;
  // One wait at a time: the QP goes while its RESET was waited for, which nobody wants to know any more.
  if (qp.quiesce_cookie != 0)
    common_->loops.front()->report({Report::Kind::kQuiesced, qp.quiesce_cookie, 0, 0, nullptr});
  qp.quiesce_cookie = cookie;
  return false;
}

bool Engine::quiesce(Session& session, std::uint64_t cookie) {
  if (session.space().copier().outstanding() == 0) return true;
  run_by_copier(session, nullptr, nullptr, cookie);
  return false;
}

void Engine::run_by_copier(Session& session, void (*errand)(void*), void* argument, std::uint64_t cookie) {
  // Not of the pool, which the packets of the very client that goes may have used up.
  Loop& loop = *common_->loops.front();
  Transfer& fence = *loop.fences.emplace_back(std::make_unique<Transfer>());
  fence.stage = Transfer::Stage::kFence;
  fence.cookie = cookie;
  fence.job.kind = memory::CopyJob::Kind::kFence;
  fence.job.segments = {};
  fence.job.errand = errand;
  fence.job.argument = argument;
  fence.job.owner = &fence;
  session.space().copier().submit(fence.job, loop.index);
}

const Counters& Engine::counters(std::uint32_t index) const { return common_->loops[index]->counters; }

Counters Engine::counters() const {
  Counters sum;
  for (const auto& loop : common_->loops) sum += loop->counters;
  return sum;
}

std::uint32_t Engine::qp_count(std::uint32_t index) const { return common_->loops[index]->qp_count; }

}  // namespace urdma::engine
