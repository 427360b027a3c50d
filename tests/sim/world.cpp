// Two hosts, their links, and the virtual clock. See world.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/world.hpp"

#include <algorithm>
#include <string>

#include "tests/sim/check.hpp"

namespace urdma::sim {

namespace {

constexpr std::uint32_t kMostRoundsAtOnce = 1'000'000;  // without time passing: a livelock
constexpr Duration kDrainLimit = seconds(60);
constexpr std::uint64_t kCounterBytes = 16;

wire::FlowTemplate make_flow_from(std::size_t host, bool is_ipv6) {
  wire::FlowAddress address;
  const auto mine = static_cast<std::uint8_t>(host + 1);
  const auto other = static_cast<std::uint8_t>(2 - host);
  address.source_mac = {2, 0, 0, 0, 0, mine};
  address.dest_mac = {2, 0, 0, 0, 0, other};
  address.source_gid = wire::gid_from_ipv4(0x0A000000U | mine);
  address.dest_gid = wire::gid_from_ipv4(0x0A000000U | other);
  if (is_ipv6) {
    address.source_gid = {0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, mine};
    address.dest_gid = {0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, other};
  }
  return wire::make_flow(address);
}

}  // namespace

Duration ack_timeout(std::uint8_t code) { return nanoseconds(std::int64_t{4096} << code); }

Duration rnr_delay(std::uint8_t code) {
  constexpr std::array<std::int64_t, 32> kHundredthsOfMs = {
      65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
      256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return microseconds(kHundredthsOfMs[code & 31] * 10);
}

World::World(std::uint64_t seed, const LinkConfig& link) : random_(seed) {
  const bool is_ipv6 = random_.one_in(3);
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    hosts_[i] = std::make_unique<Host>(link, pool_, random_);
    flows_[i] = make_flow_from(i, is_ipv6);
    SharedCounter& counter = hosts_[i]->counter;
    counter.region = &hosts_[i]->memory.add(kAccessRemoteAtomic, kCounterBytes);
    counter.offset = (8 - counter.region->address % 8) % 8;
    counter.first = AtomicCell{counter.region, counter.offset, {}, 0}.current();
  }
}

Connection World::connect(EndpointConfig a, EndpointConfig b) {
  const std::size_t index = endpoints_.size() / 2;
  a.qp.qpn = Qpn{random_.between32(2, 0x7FFFFF)};
  b.qp.qpn = Qpn{random_.between32(0x800000, kQpnMask)};
  endpoints_.push_back(
      std::make_unique<Endpoint>(fmt::format("a{}", index), a, hosts_[0]->memory, pool_, random_));
  endpoints_.push_back(
      std::make_unique<Endpoint>(fmt::format("b{}", index), b, hosts_[1]->memory, pool_, random_));
  Endpoint* first = endpoints_[2 * index].get();
  Endpoint* second = endpoints_[2 * index + 1].get();
  first->set_peer(*second, flows_[0]);
  second->set_peer(*first, flows_[1]);
  first->ledger().shared = &hosts_[1]->counter;
  second->ledger().shared = &hosts_[0]->counter;
  hosts_[0]->endpoints.push_back(first);
  hosts_[1]->endpoints.push_back(second);
  by_qpn_[a.qp.qpn.value] = first;
  by_qpn_[b.qp.qpn.value] = second;
  const Connection connection{first, second};
  reconnect(connection);
  return connection;
}

void World::reconnect(const Connection& connection) {
  // Every third connection starts its numbers just below the wrap.
  std::array<Psn, 2> starts;
  for (Psn& start : starts)
    start = random_.one_in(3) ? Psn(0).minus(random_.between32(0, 64))
                              : Psn(static_cast<std::uint32_t>(random_.next()));
  Endpoint* ends[2] = {connection.a, connection.b};
  for (std::size_t i = 0; i < 2; ++i) {
    transport::QpAttributes attributes = ends[i]->config().attributes;
    attributes.port = 1;
    attributes.dest_qpn = ends[1 - i]->config().qp.qpn;
    attributes.sq_psn = starts[i];
    attributes.rq_psn = starts[1 - i];
    ends[i]->set_attributes(attributes);
    ends[i]->connect(now_);
  }
}

void World::inject(const Endpoint& from, wire::Headers headers) {
  const std::size_t host = &from == endpoints_[0].get() ? 0 : 1;
  headers.dest_qp = from.peer().config().qp.qpn;
  FramePtr frame = pool_.take();
  frame->is_encoded = true;
  frame->resize(wire::frame_bytes(flows_[host], headers));
  const std::size_t at = wire::write_frame_headers(flows_[host], headers, 0, frame->bytes.data());
  for (std::uint32_t i = 0; i < headers.payload_bytes; ++i)
    frame->bytes[at + i] = static_cast<std::uint8_t>(i);
  wire::finish_frame(frame->content());
  hosts_[host]->link.send(std::move(frame), now_);
}

bool World::deliver_frame(FramePtr frame, Host& to) {
  wire::FrameView view;
  if (frame->is_encoded) {
    const auto error = wire::parse_frame(frame->content(), wire::IcrcPolicy::kCheck, view);
    if (error != wire::ParseError::kNone) {
      trace("{:>12} a frame of {} bytes is dropped, parse error {}", now_.ns, frame->size,
            static_cast<int>(error));
      pool_.give(std::move(frame));
      return true;
    }
  } else {
    view.headers = frame->headers;
    view.payload = frame->content();
  }
  const auto found = by_qpn_.find(view.headers.dest_qp.value);
  require(found != by_qpn_.end(), "a packet for unknown QP {}", view.headers.dest_qp.value);
  Endpoint& endpoint = *found->second;
  if (endpoint.can_accept()) {
    endpoint.receive(std::move(frame), view.headers, view.payload, now_);
    return true;
  }
  ++frames_refused_;
  if (frame->is_encoded) {  // a wire loses it
    pool_.give(std::move(frame));
    return true;
  }
  to.waiting = std::move(frame);
  return false;
}

// Hands over what has arrived from a host. Returns whether anything moved.
bool World::deliver(std::size_t from) {
  Host& to = *hosts_[1 - from];
  bool moved = false;
  if (to.waiting) {
    if (!deliver_frame(std::move(to.waiting), to)) return false;
    moved = true;
  }
  while (FramePtr frame = hosts_[from]->link.receive(now_)) {
    if (!deliver_frame(std::move(frame), to)) break;
    moved = true;
  }
  return moved;
}

// One packet of each QP in turn, while the port takes them. Returns whether anything was sent.
bool World::transmit(Host& host) {
  bool moved = false;
  std::size_t idle = 0;
  while (idle < host.endpoints.size() && host.link.ready_at(now_) <= now_) {
    Endpoint& endpoint = *host.endpoints[host.next_sender++ % host.endpoints.size()];
    if (endpoint.transmit(host.link, now_)) {
      moved = true;
      idle = 0;
    } else {
      ++idle;
    }
  }
  return moved;
}

// Everything that happens at this instant.
void World::pump() {
  for (std::uint32_t round = 0;; ++round) {
    require(round < kMostRoundsAtOnce, "no end of output at one instant");
    bool moved = deliver(0);
    moved |= deliver(1);
    for (const auto& endpoint : endpoints_)
      if (endpoint->next_wakeup() <= now_ || endpoint->qp().state() == QpState::kErr)
        moved |= endpoint->service(now_);
    for (const auto& actor : actors_) actor->act(now_);
    for (const auto& host : hosts_) moved |= transmit(*host);
    if (!moved) return;
  }
}

Instant World::next_wakeup() const {
  Instant next = Instant::never();
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (!hosts_[1 - i]->waiting) next = earlier(next, hosts_[i]->link.next_arrival());
    const Instant ready = hosts_[i]->link.ready_at(now_);
    for (const Endpoint* endpoint : hosts_[i]->endpoints)
      next = earlier(next, std::max(ready, endpoint->next_departure()));
    if (ready > now_) next = earlier(next, ready);
  }
  for (const auto& endpoint : endpoints_) next = earlier(next, endpoint->next_wakeup());
  for (const auto& actor : actors_) next = earlier(next, actor->next_wakeup());
  return next;
}

void World::run_until(const std::function<bool()>& is_over, Duration limit) {
  const Instant end = now_ + limit;
  while (true) {
    pump();
    if (is_over()) return;
    const Instant next = next_wakeup();
    if (next.is_never()) fail_run("at {} ns: nothing will ever happen again; {}", now_.ns, describe_actors());
    if (next <= now_)
      fail_run("at {} ns: a wake-up is due that nothing serves; {}", now_.ns, describe_actors());
    if (next > end)
      fail_run("not over after {} ms of virtual time; {}", limit.ns / 1'000'000, describe_actors());
    now_ = next;
  }
}

std::string World::describe_actors() const {
  std::string text;
  for (const auto& actor : actors_)
    if (!actor->is_done()) text += actor->describe() + "; ";
  return text;
}

void World::run_for(Duration time) {
  const Instant end = now_ + time;
  for (pump(); now_ < end; pump()) now_ = earlier(end, next_wakeup());
}

void World::run_to_completion(Duration limit) {
  run_until(
      [this] {
        return std::all_of(actors_.begin(), actors_.end(),
                           [](const auto& actor) { return actor->is_done(); });
      },
      limit);
  drain_links();
}

void World::drain_links() {
  run_until(
      [this] {
        return std::all_of(
                   hosts_.begin(), hosts_.end(),
                   [](const auto& host) { return host->link.next_arrival().is_never() && !host->waiting; }) &&
               std::all_of(endpoints_.begin(), endpoints_.end(), [this](const auto& endpoint) {
                 return endpoint->next_wakeup().is_never() && endpoint->next_departure().is_never() &&
                        !endpoint->qp().has_output(now_);
               });
      },
      kDrainLimit);
}

void World::stop_faults() {
  for (const auto& host : hosts_) host->link.stop_faults();
}

std::uint64_t World::packets() const { return hosts_[0]->link.stats().sent + hosts_[1]->link.stats().sent; }

void World::check_counters(const Endpoint& endpoint) const {
  const transport::QpCounters counters = endpoint.qp().counters();
  const std::string& name = endpoint.ledger().name();
  require(counters.packets_sent >= endpoint.packets_sent(), "{}: {} packets counted of {} sent", name,
          counters.packets_sent, endpoint.packets_sent());
  require(counters.packets_received <= endpoint.packets_received(), "{}: {} packets counted of {} received",
          name, counters.packets_received, endpoint.packets_received());
  require(counters.packets_retransmitted <= counters.packets_sent, "{}: more packets sent again than sent",
          name);
  require(counters.duplicates_received + counters.out_of_sequence_received <= endpoint.packets_received(),
          "{}: more duplicates and gaps than packets", name);
}

// Each atomic was executed exactly once and in order; after a failure, up to some point.
void World::check_atomics(Endpoint& endpoint) const {
  if (!endpoint.ledger().trusts_peer()) return;
  for (const AtomicCell& cell : endpoint.cells()) {
    const auto from = cell.values.begin() + static_cast<std::ptrdiff_t>(cell.completed);
    const bool is_exact = !endpoint.ledger().send_error();
    require(!is_exact || cell.completed + 1 == cell.values.size(), "{}: {} atomics completed of {}",
            endpoint.ledger().name(), cell.completed, cell.values.size() - 1);
    require(std::find(from, cell.values.end(), cell.current()) != cell.values.end(),
            "{}: an atomic was lost or executed twice: {:#x}", endpoint.ledger().name(), cell.current());
  }
}

void World::finish() {
  for (const auto& endpoint : endpoints_) {
    if (endpoint->qp().state() == QpState::kErr) endpoint->ledger().retire_silent();
    check_atomics(*endpoint);
    endpoint->ledger().allow_receive_errors({WcStatus::kWrFlushErr});
    if (endpoint->qp().state() != QpState::kErr && endpoint->qp().state() != QpState::kReset)
      endpoint->move_to(QpState::kErr, now_);
  }
  drain_links();
  for (const auto& endpoint : endpoints_) endpoint->ledger().release_orphans();
  for (const auto& endpoint : endpoints_) {
    endpoint->require_quiet(now_);
    endpoint->ledger().require_finished();
    check_counters(*endpoint);
  }
  const bool is_forged = std::any_of(endpoints_.begin(), endpoints_.end(),
                                     [](const auto& endpoint) { return !endpoint->ledger().trusts_peer(); });
  for (const auto& host : hosts_) {
    const LinkStats& link = host->link.stats();
    trace("a link: {} sent, {} lost, {} doubled, {} corrupted, {} reordered, {} overflowed, {} delivered",
          link.sent, link.lost, link.duplicated, link.corrupted, link.reordered, link.overflowed,
          link.delivered);
    if (is_forged) continue;
    const SharedCounter& counter = host->counter;
    const std::uint64_t sum = AtomicCell{counter.region, counter.offset, {}, 0}.current() - counter.first;
    require(sum >= counter.completed_sum && sum <= counter.posted_sum,
            "fetch-and-add sum {}, completed {}, posted {}", sum, counter.completed_sum, counter.posted_sum);
  }
  trace("{} frames came when their QP took none", frames_refused_);
  require(pool_.frames_out() == 0, "{} frames are lost in the simulator", pool_.frames_out());
}

}  // namespace urdma::sim
