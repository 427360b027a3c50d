// The programs over the connection managers, and what they may expect. See cm_world.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <algorithm>

#include "tests/sim/check.hpp"
#include "tests/sim/cm_world.hpp"

namespace urdma::sim {

using cm::EventKind;

namespace {

constexpr Duration kTimeWait = cm::Config{}.time_wait;
constexpr std::uint32_t kFirstQpn = 0x10;
constexpr std::uint32_t kPercent = 10'000;  // in a million
constexpr std::uint8_t kMtuCode = 3;

// A number that both programs know of an attempt. Forged requests may have any.
cm::ServiceId service_of(std::size_t index) { return {0x0000000001060000U + index}; }
std::size_t index_of(cm::ServiceId service) {
  return static_cast<std::size_t>(service.value - service_of(0).value);
}

}  // namespace

CmWorld::Side& CmWorld::side_of(Whose whose) {
  Attempt& attempt = attempts_[whose.attempt];
  return whose.is_active ? attempt.active : attempt.passive;
}

// Most programs answer within milliseconds; some think for seconds.
Duration CmWorld::pause() {
  if (config_.is_orderly || random_.one_in(2)) return microseconds(random_.between32(1, 3'000));
  return microseconds(random_.between32(1, 3'000'000));
}

// The lowest that is free, so that numbers are used again as soon as may be.
Qpn CmWorld::new_qpn(Host& host) {
  std::uint32_t qpn = kFirstQpn;
  while (host.qpns.contains(qpn) || host.manager->is_in_use(Qpn{qpn})) ++qpn;
  const auto free_again = host.free_again.find(qpn);
  require(is_forged() || free_again == host.free_again.end() || free_again->second <= now_,
          "QP {} is free again too early", qpn);
  host.qpns.insert(qpn);
  return Qpn{qpn};
}

void CmWorld::adopt(Side& side, Whose whose) {
  Host& host = hosts_[side.host];
  require(host.ids.insert(side.id.value).second, "communication ID {:#x} is used again", side.id.value);
  host.mine[side.id.value] = whose;
}

void CmWorld::outcome(Side& side) {
  ++side.outcomes;
  require(side.outcomes == 1, "a second outcome");
}

void CmWorld::begin(std::size_t index) {
  Attempt& attempt = attempts_[index];
  attempt.number = static_cast<std::uint32_t>(index);
  attempt.is_resolution = !config_.is_orderly && random_.chance(15 * kPercent);
  attempt.active.host = random_.below(kHosts);
  attempt.passive.host =
      !config_.is_orderly && random_.chance(10 * kPercent) ? attempt.active.host : 1 - attempt.active.host;
  attempt.active.phase = Phase::kAsking;
  if (attempt.is_resolution) {
    begin_resolution(attempt);
  } else {
    Host& host = hosts_[attempt.active.host];
    attempt.active.qpn = new_qpn(host);
    cm::Request request;
    request.ends = {host.gid, hosts_[attempt.passive.host].gid};
    request.service = service_of(index);
    request.qp.qpn = attempt.active.qpn;
    request.qp.responder_resources = request.qp.initiator_depth = 8;
    request.path_mtu = kMtuCode;
    require(host.manager->connect(request, now_, attempt.active.id) == 0, "no room to connect");
  }
  adopt(attempt.active, {index, true});
  if (config_.is_orderly || !random_.chance(10 * kPercent)) return;
  later(pause(), [this, index] { forget({index, true}); });  // it dies, whatever it is doing
}

void CmWorld::begin_resolution(Attempt& attempt) {
  Host& host = hosts_[attempt.active.host];
  const cm::Ends ends{host.gid, hosts_[attempt.passive.host].gid};
  require(host.manager->resolve({ends, service_of(attempt.number), {}}, now_, attempt.active.id) == 0,
          "no room to resolve");
}

bool CmWorld::take_event(Host& host) {
  cm::Event event;
  if (!host.manager->poll_event(event)) return false;
  const auto index = static_cast<std::size_t>(&host - hosts_.data());
  trace("{:>12} host {} event {} of {:#x}", now_.ns / 1000, index, static_cast<int>(event.kind),
        event.connection.value);
  handle(index, event);
  return true;
}

void CmWorld::handle(std::size_t host, const cm::Event& event) {
  if (event.kind == EventKind::kRequested) return on_requested(host, event);
  if (event.kind == EventKind::kResolveRequested) return on_resolve_requested(host, event);
  const auto found = hosts_[host].mine.find(event.connection.value);
  require(found != hosts_[host].mine.end(), "an event of a connection that nobody has");
  const Whose whose = found->second;
  switch (event.kind) {
    case EventKind::kReplied:
      require(whose.is_active && side_of(whose).phase == Phase::kAsking, "replied to nothing");
      return on_replied(whose.attempt);
    case EventKind::kEstablished:
      require(!whose.is_active && side_of(whose).phase == Phase::kAnswered, "established from nothing");
      return on_established(whose);
    case EventKind::kRejected:
    case EventKind::kUnreachable:
      return on_failed(whose, event);
    case EventKind::kDisconnecting:
    case EventKind::kDisconnected:
      return on_ended(whose);
    case EventKind::kTimeWaitOver:
      require(side_of(whose).was_told, "time-wait of what has not ended");
      require(!hosts_[host].manager->is_in_use(side_of(whose).qpn) || is_forged(), "in use after time-wait");
      return forget(whose);
    case EventKind::kResolved:
      return on_resolved(whose, event);
    case EventKind::kRequested:
    case EventKind::kResolveRequested:
      return;
  }
}

// A REQ that is repeated must not show twice, as long as the time-wait of the first has not gone by.
void CmWorld::on_requested(std::size_t host, const cm::Event& event) {
  const std::size_t index = index_of(event.request.service);
  const bool is_known = index < attempts_.size() && attempts_[index].passive.host == host &&
                        !attempts_[index].is_resolution && attempts_[index].active.phase != Phase::kIdle;
  if (is_forged() && (!is_known || attempts_[index].passive.phase != Phase::kIdle))
    return hosts_[host].manager->forget(event.connection, now_);
  require(is_known, "a request for something else");
  Side& side = attempts_[index].passive;
  const bool is_again = side.phase != Phase::kIdle;
  const bool is_long_over =
      (side.phase == Phase::kOver || side.phase == Phase::kForgotten) && side.over_since + kTimeWait <= now_;
  require(!is_again || (is_long_over && is_lossy()), "one request shows twice");
  if (side.phase == Phase::kOver) forget({index, false});
  side = Side{.host = host, .id = event.connection, .phase = Phase::kDeciding};
  adopt(side, {index, false});
  if (random_.one_in(2)) manager_of(side).delay(side.id, now_);
  const cm::ConnectionId id = side.id;
  const auto is_same = [this, index, id] { return attempts_[index].passive.id == id; };
  later(pause(), [this, index, is_same] {
    if (is_same()) decide(index);
  });
  if (!config_.is_orderly && random_.chance(5 * kPercent))
    later(pause(), [this, index, is_same] {
      if (is_same()) forget({index, false});
    });
}

void CmWorld::decide(std::size_t index) {
  Side& side = attempts_[index].passive;
  if (side.phase != Phase::kDeciding) return;
  if (!config_.is_orderly && random_.chance(12 * kPercent)) {
    require(manager_of(side).reject(side.id, cm::RejectReason::kConsumer, {}, {}, now_) == 0, "no reject");
    side.phase = Phase::kOver;
    side.over_since = now_;
    return later(pause(), [this, index] { forget({index, false}); });
  }
  side.qpn = new_qpn(hosts_[side.host]);
  cm::Reply reply;
  reply.qp.qpn = side.qpn;
  reply.qp.responder_resources = reply.qp.initiator_depth = 8;
  require(manager_of(side).accept(side.id, reply, now_) == 0, "accept fails");
  side.phase = Phase::kAnswered;
}

void CmWorld::on_replied(std::size_t index) {
  Side& replied = attempts_[index].active;
  replied.phase = Phase::kDeciding;
  if (random_.one_in(2)) manager_of(replied).delay(replied.id, now_);
  later(pause(), [this, index] {
    Side& side = attempts_[index].active;
    if (side.phase != Phase::kDeciding) return;
    if (!config_.is_orderly && random_.chance(8 * kPercent)) {
      require(manager_of(side).reject(side.id, cm::RejectReason::kConsumer, {}, {}, now_) == 0, "no reject");
      side.phase = Phase::kOver;
      side.over_since = now_;
      return forget({index, true});
    }
    require(manager_of(side).confirm(side.id, {}, now_) == 0, "confirm fails");
    on_established({index, true});
    plan_end(index);
    const cm::ConnectionId id = attempts_[index].passive.id;
    if (random_.one_in(4))  // its first packet may be there before RTU
      later(microseconds(5), [this, index, id] {
        Side& passive = attempts_[index].passive;
        if (passive.id == id && passive.phase == Phase::kAnswered)
          (void)manager_of(passive).on_traffic(passive.id, now_);
      });
  });
}

void CmWorld::on_established(Whose whose) {
  Side& side = side_of(whose);
  outcome(side);
  side.phase = Phase::kEstablished;
  side.was_established = true;
}

// One side ends it, or both do, at nearly the same time.
void CmWorld::plan_end(std::size_t index) {
  const Duration hold = config_.is_orderly ? milliseconds(random_.between32(10, 200)) : pause() + pause();
  const std::uint64_t who = random_.below(3);
  if (who != 0) later(hold, [this, index] { disconnect({index, true}); });
  if (who != 1)
    later(hold + microseconds(random_.between32(0, 40)), [this, index] { disconnect({index, false}); });
}

void CmWorld::disconnect(Whose whose) {
  Side& side = side_of(whose);
  if (side.phase != Phase::kEstablished) return;
  side.has_ended_it = true;
  if (!config_.is_orderly && random_.one_in(5)) return forget(whose);  // it dies instead
  (void)manager_of(side).disconnect(side.id, {}, now_);                // the peer may have been first
}

void CmWorld::on_failed(Whose whose, const cm::Event& event) {
  Side& side = side_of(whose);
  if (event.kind == EventKind::kRejected && event.reason == cm::RejectReason::kStaleConnection) ++stale_;
  require(!config_.is_orderly, "attempt {} has failed: event {}, reason {}", whose.attempt,
          static_cast<int>(event.kind), static_cast<int>(event.reason));
  outcome(side);
  side.phase = Phase::kOver;
  side.over_since = now_;
  later(pause(), [this, whose, id = side.id] {
    if (side_of(whose).id == id) forget(whose);
  });
}

void CmWorld::on_ended(Whose whose) {
  Side& side = side_of(whose);
  require(side.phase == Phase::kEstablished && !side.was_told, "the end of what is not established");
  side.was_told = true;
  side.over_since = now_;
  hosts_[side.host].free_again[side.qpn.value] = now_ + kTimeWait;
  if (random_.one_in(2)) return;  // until TimeWaitOver
  later(pause(), [this, whose, id = side.id] {
    if (side_of(whose).id == id) forget(whose);
  });
}

void CmWorld::on_resolve_requested(std::size_t host, const cm::Event& event) {
  const std::size_t index = index_of(event.resolve.service);
  const bool is_known =
      index < attempts_.size() && attempts_[index].passive.host == host && attempts_[index].is_resolution;
  if (is_forged() && (!is_known || attempts_[index].passive.phase != Phase::kIdle))
    return hosts_[host].manager->forget(event.connection, now_);
  require(is_known, "a request for something else");
  Side& side = attempts_[index].passive;
  require(
      side.phase == Phase::kIdle || (side.phase == Phase::kForgotten && side.over_since + kTimeWait <= now_),
      "one request shows twice");
  side = Side{.host = host, .id = event.connection, .phase = Phase::kDeciding};
  adopt(side, {index, false});
  later(pause(), [this, index] {
    Side& asked = attempts_[index].passive;
    if (asked.phase != Phase::kDeciding) return;
    const auto status =
        random_.one_in(4) ? cm::ResolveStatus::kUnsupportedService : cm::ResolveStatus::kValid;
    const bool dies = random_.one_in(10);
    if (!dies) require(manager_of(asked).answer(asked.id, {status, Qpn{99}, 1, {}}, now_) == 0, "no answer");
    forget({index, false});
  });
}

void CmWorld::on_resolved(Whose whose, const cm::Event& event) {
  Side& side = side_of(whose);
  require(whose.is_active && side.phase == Phase::kAsking, "resolved, and nobody has asked");
  require(event.resolved.status != cm::ResolveStatus::kValid || event.resolved.qpn == Qpn{99} || is_forged(),
          "resolved to QP {}", event.resolved.qpn.value);
  outcome(side);
  side.phase = Phase::kOver;
  later(pause(), [this, whose] { forget(whose); });
}

void CmWorld::forget(Whose whose) {
  Side& side = side_of(whose);
  if (side.phase == Phase::kForgotten || side.phase == Phase::kIdle) return;
  if (side.phase == Phase::kEstablished && !side.was_told) {
    side.has_ended_it = true;
    hosts_[side.host].free_again[side.qpn.value] = now_ + kTimeWait;
  }
  if (side.phase != Phase::kOver) side.over_since = now_;
  side.phase = Phase::kForgotten;
  manager_of(side).forget(side.id, now_);
  hosts_[side.host].mine.erase(side.id.value);
  hosts_[side.host].qpns.erase(side.qpn.value);
}

// Nothing will happen any more: whoever asked has an answer, and both sides agree.
void CmWorld::check_attempts() {
  for (Attempt& attempt : attempts_) {
    const Side& active = attempt.active;
    const Side& passive = attempt.passive;
    require(active.phase != Phase::kAsking, "attempt {} has no outcome", attempt.number);
    require(active.phase == Phase::kForgotten || active.outcomes == 1, "attempt {}: {} outcomes",
            attempt.number, active.outcomes);
    if (is_forged()) continue;
    if (config_.is_orderly)
      require(active.was_established && passive.was_established, "attempt {} has failed", attempt.number);
    // Whoever leaves an established connection does not leave the other behind.
    const bool is_left = active.has_ended_it || active.was_told;
    require(!is_left || passive.phase != Phase::kEstablished || passive.was_told,
            "attempt {}: the passive side was not told", attempt.number);
    require(!passive.has_ended_it || active.phase != Phase::kEstablished || active.was_told,
            "attempt {}: the active side was not told", attempt.number);
    require(!active.was_established || passive.phase != Phase::kAnswered,
            "attempt {}: not established at both ends", attempt.number);
  }
  if (is_forged()) return;
  for (const Host& host : hosts_) {
    const cm::Counters& counters = host.manager->counters();
    // Fifteen repeats arrive, at any loss that there is here; and whoever they reach answers them.
    require(counters.given_up == 0, "{} times nobody answered", counters.given_up);
    require(counters.malformed == 0, "{} datagrams were malformed", counters.malformed);
  }
  require(is_lossy() || stale_ == 0, "{} stale connections on links that lose nothing", stale_);
}

// All programs end.
void CmWorld::sweep() {
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    forget({i, true});
    forget({i, false});
  }
}

}  // namespace urdma::sim
