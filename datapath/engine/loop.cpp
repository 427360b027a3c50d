// A round of the poll loop, and what an engine does when there is nothing to do.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/loop.hpp"

#include <pthread.h>
#include <rte_ring.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "datapath/engine/cpu.hpp"

namespace urdma::engine {

namespace {

// How long an engine looks for work before it sleeps. Measured with two spinning programs on two cores (64 B
// SEND and WRITE, typical, against TCP's latency in the same run): 2 us gives 1.10 and 0.99, 0.7 us gives
// 0.93 and 0.83, none 3.2 and 0.77. Where cores are plenty, a wake-up costs more than the spin.
constexpr Duration kShortSpin = nanoseconds(700);
constexpr Duration kLongSpin = microseconds(20);
constexpr long kManyCores = 8;
constexpr Duration kLongNap = milliseconds(500);
// How long a timer is put off while a copier has the packets that it waits for.
constexpr Duration kCopyGrace = milliseconds(5);
// And how often without anything happening to the QP: a peer whose copier hangs is given up then.
constexpr std::uint32_t kMostCopyGraces = 1000;

Duration spin_of(IdlePolicy policy) {
  switch (policy) {
    case IdlePolicy::kPoll:
      return seconds(1'000'000);
    case IdlePolicy::kInterrupt:
      return nanoseconds(0);
    case IdlePolicy::kAdaptive:
      return ::sysconf(_SC_NPROCESSORS_ONLN) >= kManyCores ? kLongSpin : kShortSpin;
  }
  return kShortSpin;
}

}  // namespace

Engine::Loop::Loop(EngineConfig engine_config, Common& engine_common, std::uint32_t engine_index)
    : config(std::move(engine_config)),
      common(engine_common),
      index(engine_index),
      regions(common.regions),
      qps(common.qps),
      srqs(common.srqs),
      timers(config.limits.max_qp),
      pool(kTransfers, kBuffers),
      spin(spin_of(config.idle)) {
  sessions.reserve(config.limits.max_sessions);
  ready.reserve(config.limits.max_qp);
  serving.reserve(config.limits.max_qp);
  listed_cqs.reserve(config.limits.max_cq);
  async_sessions.reserve(config.limits.max_sessions);
  starved.reserve(config.limits.max_qp);
  fences.reserve(config.limits.max_sessions);
  for (io::Port* port : config.ports) {
    ports.emplace_back().port = port;
    PortState& state = ports.back();
    state.backlog.reserve(kMostBacklog + kPacketsPerTurn);
    state.sending = &common.sending[ports.size() - 1];
    state.is_receiving = (ports.size() - 1) % config.count == index;
    if (state.is_receiving && port->wake_descriptor() < 0 && !port->is_loopback()) has_napping_port = true;
  }
}

Engine::Loop::~Loop() {
  if (epoll >= 0) ::close(epoll);
  if (wake >= 0) ::close(wake);
  rte_ring_free(heard);
  rte_ring_free(management);
  for (rte_ring* ring : inbox) rte_ring_free(ring);
}

Instant Engine::Loop::clock() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return {time.tv_sec * 1'000'000'000 + time.tv_nsec};
}

void Engine::Loop::work() {
  Instant last_work = clock();
  while (!stopping.load(std::memory_order_acquire)) {
    now = clock();
    ++counters.loops;
    if (realtime.look(now)) ++counters.respites;
    if (round()) {
      last_work = now;
    } else if (now - last_work < spin) {
      pause_cpu();
    } else {
      nap();
      last_work = clock();
    }
  }
}

bool Engine::Loop::round() {
  // Release: who reads a later number sees all that was done in the rounds before.
  rounds.store(rounds.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  bool worked = receive();
  worked |= take_inbox();
  worked |= take_doorbells();
  worked |= take_copies();
  worked |= fire_timers();
  resume_starved();
  worked |= serve_ready();
  worked |= flush_ports();
  worked |= notify_all();
  worked |= look_at_other_rounds();
  wake_others();
  worked |= attend_meeting();
  return worked;
}

void Engine::Loop::mark_ready(Qp& qp) {
  if (qp.is_ready || qp.is_removed) return;
  qp.is_ready = true;
  ready.push_back(&qp);
}

void Engine::Loop::list_cq(CompletionQueue& cq) {
  if (cq.is_listed[index]) return;
  cq.is_listed[index] = true;
  listed_cqs.push_back(&cq);
}

void Engine::Loop::list_async(Session& session) {
  const auto listed = std::find(async_sessions.begin(), async_sessions.end(), &session);
  if (listed == async_sessions.end()) async_sessions.push_back(&session);
}

bool Engine::Loop::take_doorbells() {
  bool any = false;
  for (Session* session : sessions) {
    abi::DoorbellBoard& board = session->board(index);
    for (std::uint32_t s = 0; s < abi::DoorbellBoard::kSummaryWords; ++s) {
      if (board.summary[s].load(std::memory_order_relaxed) == 0) continue;
      // Summary before leaf: a bit that is set in between is seen in the leaf, or leaves a summary bit.
      std::uint64_t words = board.summary[s].exchange(0, std::memory_order_acquire);
      for (; words != 0; words &= words - 1) {
        const std::uint32_t word = s * 64 + static_cast<std::uint32_t>(__builtin_ctzll(words));
        std::uint64_t bits = board.leaf[word].exchange(0, std::memory_order_acquire);
        for (; bits != 0; bits &= bits - 1) {
          Qp* qp = session->qp_at(word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(bits)));
          if (qp == nullptr) continue;
          if (qp->engine() == index) [[likely]] {
            mark_ready(*qp);
          } else {
            pass_on(*session, *qp);
          }
        }
      }
      any = true;
    }
  }
  return any;
}

bool Engine::Loop::attend_meeting() {
  if (!common.meeting.is_called(attended)) return false;
  // What copiers were done with when the control thread called is carried out before it does anything.
  if (take_copies()) (void)serve_ready();
  common.meeting.attend(attended, [this] {
    for (const auto& other : common.loops) engines_to_wake |= 1U << other->index;
    wake_others();
  });
  return true;
}

bool Engine::Loop::fire_timers() {
  bool any = false;
  while (Qp* qp = timers.take_due(now)) {
    if (qp->timer_delays < kMostCopyGraces && is_waiting_for_copies(*qp)) {
      ++qp->timer_delays;
      timers.set(*qp, now + kCopyGrace);
      continue;
    }
    qp->transport().on_deadline(now);
    mark_ready(*qp);
    any = true;
  }
  return any;
}

// Whether an answer is late because a copier of this node is: then nothing is lost, and neither a
// retransmission nor a retry that is counted would help.
bool Engine::Loop::is_waiting_for_copies(Qp& qp) const {
  if (qp.departures_head != nullptr || qp.waiting_head != nullptr) return true;
  if (!qp.path().is_local) return false;
  const Qp* peer = own_qp(qp.transport().attributes().dest_qpn.value);
  return peer != nullptr && (peer->arrivals_head != nullptr || peer->departures_head != nullptr);
}

bool Engine::Loop::serve_ready() {
  if (ready.empty()) return false;
  serving.swap(ready);
  for (Qp* qp : serving) {
    if (qp == nullptr) continue;
    qp->is_ready = false;
    serve(*qp);
  }
  serving.clear();
  return true;
}

// Sends the events that armed queues are owed. A full pipe is tried again in later rounds.
bool Engine::Loop::notify_all() {
  std::size_t kept = 0;
  for (CompletionQueue* cq : listed_cqs) {
    if (cq->notify(index)) {
      cq->is_listed[index] = false;
    } else {
      listed_cqs[kept++] = cq;
    }
  }
  const bool any = kept != listed_cqs.size();
  listed_cqs.resize(kept);
  std::erase_if(async_sessions, [this](Session* session) { return session->flush_async(index); });
  return any;
}

// Whether nothing has come up since the sleep word was set.
bool Engine::Loop::may_sleep() {
  return !take_doorbells() && ready.empty() && !common.meeting.is_called(attended) && !receive() &&
         !take_inbox() && !take_copies() && !stopping.load(std::memory_order_acquire);
}

Instant Engine::Loop::wake_time() const {
  Instant at = earlier(timers.next(), now + kLongNap);
  const bool waits_blindly = !starved.empty() || has_held_frames || has_napping_port || !listed_cqs.empty() ||
                             !async_sessions.empty() || closing_fences_head != nullptr;
  if (waits_blindly) at = earlier(at, now + kImpatience);
  return at;
}

void Engine::Loop::nap() {
  words().sleeping.store(1, std::memory_order_relaxed);
  // Pairs with the fence behind a client's doorbell, and the control thread's mail: either they see
  // the word, or we see what they have left.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool is_idle = may_sleep();
  wake_others();
  if (is_idle) {
    has_held_frames = hold_frames();
    const Duration wait = wake_time() - now;
    const timespec timeout{wait.ns > 0 ? wait.ns / 1'000'000'000 : 0,
                           wait.ns > 0 ? wait.ns % 1'000'000'000 : 0};
    std::array<epoll_event, 16> events;
    ++counters.sleeps;
    ::epoll_pwait2(epoll, events.data(), static_cast<int>(events.size()), &timeout, nullptr);
  }
  words().sleeping.store(0, std::memory_order_relaxed);
  has_freed = true;  // look again, whatever it is that has changed
}

void Engine::Loop::wake_if_asleep() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (words().sleeping.load(std::memory_order_relaxed) != 0) write_wake();
}

void Engine::Loop::write_wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake, &one, sizeof one);
}

void Engine::Loop::report(const Report& news) {
  {
    const std::lock_guard guard(common.reports_lock);
    common.reports.push_back(news);
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(config.control_eventfd, &one, sizeof one);
}

void Engine::Loop::break_session(Session& session, const char* reason) {
  if (session.is_broken.exchange(true)) return;
  report({Report::Kind::kSessionBroken, 0, session.id(), 0, reason});
}

}  // namespace urdma::engine
