// Two hosts with connection managers: datagrams and time. See cm_world.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/cm_world.hpp"

#include <algorithm>

#include "tests/sim/check.hpp"
#include "urdma/wire/mad.hpp"

namespace urdma::sim {

namespace {

constexpr std::uint32_t kMostSteps = 2'000'000;
constexpr std::int64_t kLatestNs = 3'000'000'000;
constexpr std::uint32_t kMostChanges = 4;

wire::Gid gid_of(std::size_t host) {
  return wire::gid_from_ipv4(0x0A000001U + static_cast<std::uint32_t>(host));
}

wire::Headers headers_of_mad() {
  wire::Headers headers;
  headers.opcode = wire::Opcode::kUdSendOnly;
  headers.dest_qp = headers.source_qp = Qpn{1};
  headers.qkey = wire::kManagementQkey;
  headers.payload_bytes = cm::kMadBytes;
  return headers;
}

}  // namespace

CmWorld::CmWorld(std::uint64_t seed, const CmConfig& config) : config_(config), random_(seed) {
  for (std::size_t i = 0; i < kHosts; ++i) {
    Host& host = hosts_[i];
    cm::Config manager;
    manager.secret = {random_.next(), i};
    manager.channel_adapter_guid = i + 1;
    manager.most_connections = config.most_connections;
    manager.most_responder_resources = 16;
    host.manager = std::make_unique<cm::Manager>(manager);
    host.gid = gid_of(i);
    for (std::size_t to = 0; to < kHosts; ++to)
      host.links[to] = std::make_unique<Link>(to == i ? LinkConfig{} : config.link, pool_, random_);
  }
  attempts_.resize(config.attempts);
}

void CmWorld::run() {
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    const auto start = static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(config_.span.ns)));
    later(nanoseconds(start), [this, i] { begin(i); });
  }
  run_until_quiet();
  check_attempts();
  sweep();
  run_until_quiet();
  check_empty();
}

void CmWorld::run_until_quiet() {
  for (std::uint32_t steps = 0;; ++steps) {
    require(steps < kMostSteps, "it goes on for ever");
    while (step()) {
    }
    const Instant next = next_wakeup();
    if (next.is_never()) return;
    require(next > now_, "a wake-up that is due, and that nothing serves");
    now_ = next;
  }
}

// Programs hear of everything before they act.
bool CmWorld::hear() {
  bool moved = false;
  for (Host& host : hosts_)
    while (take_event(host)) moved = true;
  return moved;
}

// Everything that can happen now. Whether anything has.
bool CmWorld::step() {
  bool moved = deliver();
  for (Host& host : hosts_) {
    if (host.manager->next_deadline() > now_) continue;
    host.manager->on_deadline(now_);
    moved = true;
  }
  moved = hear() || moved;
  while (!acts_.empty() && acts_.begin()->first <= now_) {
    const std::function<void()> act = std::move(acts_.begin()->second);
    acts_.erase(acts_.begin());
    act();
    (void)hear();
    moved = true;
  }
  for (Host& host : hosts_)
    while (transmit(host)) moved = true;
  return moved;
}

Instant CmWorld::next_wakeup() const {
  Instant next = acts_.empty() ? Instant::never() : acts_.begin()->first;
  for (const Host& host : hosts_) {
    next = earlier(next, host.manager->next_deadline());
    for (const auto& link : host.links) next = earlier(next, link->next_arrival());
  }
  return next;
}

void CmWorld::later(Duration delay, std::function<void()> act) {
  acts_.emplace(now_ + delay, std::move(act));
}

bool CmWorld::transmit(Host& host) {
  cm::OutgoingMad out;
  if (!host.manager->poll_transmit(out)) return false;
  require(out.ends.local == host.gid, "a datagram from somewhere else");
  const std::size_t to = out.ends.remote == hosts_[0].gid ? 0 : 1;
  require(out.ends.remote == hosts_[to].gid, "a datagram to a stranger");
  wire::FlowAddress address;
  address.source_gid = out.ends.local;
  address.dest_gid = out.ends.remote;
  const wire::FlowTemplate flow = wire::make_flow(address);
  const wire::Headers headers = headers_of_mad();
  FramePtr frame = pool_.take();
  frame->is_encoded = true;
  frame->resize(wire::frame_bytes(flow, headers));
  const std::size_t at = wire::write_frame_headers(flow, headers, 0, frame->bytes.data());
  std::copy(out.mad.begin(), out.mad.end(), frame->bytes.begin() + static_cast<std::ptrdiff_t>(at));
  wire::finish_frame(frame->content());
  host.links[to]->send(std::move(frame), now_);
  return true;
}

bool CmWorld::deliver() {
  bool moved = false;
  for (Host& from : hosts_) {
    for (std::size_t to = 0; to < kHosts; ++to) {
      while (FramePtr frame = from.links[to]->receive(now_)) {
        moved = true;
        wire::FrameView view;
        const auto error = wire::parse_frame(frame->content(), wire::IcrcPolicy::kCheck, view);
        if (error == wire::ParseError::kNone) take(hosts_[to], view);
        pool_.give(std::move(frame));
      }
    }
  }
  return moved;
}

void CmWorld::take(Host& host, const wire::FrameView& view) {
  require(view.payload.size() == cm::kMadBytes, "a datagram of {} bytes", view.payload.size());
  cm::Mad mad{};
  std::copy(view.payload.begin(), view.payload.end(), mad.begin());
  const cm::Ends ends{view.dest_gid, view.source_gid, view.traffic_class, view.hop_limit, 0};
  const auto header = wire::parse_cm_header(mad);
  trace("{:>12} host {} gets {:#x}", now_.ns / 1000, &host - hosts_.data(),
        header ? static_cast<unsigned>(header->attribute) : 0);
  host.manager->on_mad(ends, mad, now_);
  harm(static_cast<std::size_t>(&host - hosts_.data()), ends, mad);
}

// What a network, or somebody in it, may do besides: the same datagram comes once more, late; or one that is
// nearly the same.
void CmWorld::harm(std::size_t host, const cm::Ends& ends, const cm::Mad& mad) {
  const auto late = [this] {
    return nanoseconds(static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(kLatestNs))));
  };
  const auto give = [this, host, ends](const cm::Mad& copy, Duration delay) {
    later(delay, [this, host, ends, copy] { hosts_[host].manager->on_mad(ends, copy, now_); });
  };
  if (random_.chance(config_.late_ppm)) give(mad, late());
  if (!random_.chance(config_.forged_ppm)) return;
  cm::Mad forged = mad;
  for (std::uint64_t changes = random_.between(1, kMostChanges); changes > 0; --changes) {
    const std::uint64_t bit = random_.one_in(2) ? random_.below(80 * 8) : random_.below(forged.size() * 8);
    forged[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
  }
  give(forged, late());
}

void CmWorld::check_empty() {
  for (const Host& host : hosts_) {
    require(host.manager->connections() == 0, "{} connections are left", host.manager->connections());
    require(host.manager->next_deadline().is_never(), "a deadline of nothing");
    for (const auto& [qpn, at] : host.free_again)
      require(!host.manager->is_in_use(Qpn{qpn}), "QP {} is in use by nobody", qpn);
    require(host.manager->counters().not_sent == 0, "datagrams were not sent");
    require(host.mine.empty(), "a program has forgotten to forget");
  }
  require(pool_.frames_out() == 0, "{} frames are lost", pool_.frames_out());
}

bool CmWorld::is_lossy() const {
  const LinkConfig& link = config_.link;
  return link.loss_ppm + link.corrupt_ppm > 0;
}

std::uint64_t CmWorld::packets() const {
  std::uint64_t sum = 0;
  for (const Host& host : hosts_)
    for (const auto& link : host.links) sum += link->stats().sent;
  return sum;
}

}  // namespace urdma::sim
