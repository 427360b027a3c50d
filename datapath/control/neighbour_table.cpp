// Neighbours of a port that the kernel does not know: see neighbour_table.hpp. Pure.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/neighbour_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "datapath/control/gid_table.hpp"

namespace urdma::control {
namespace {

using Kind = wire::Resolution::Kind;

constexpr std::size_t kMostOutgoing = 2 * NeighbourTable::kMostNeighbours;

bool has_mac(const wire::MacAddress& mac) { return mac != wire::MacAddress{}; }

}  // namespace

bool NeighbourTable::is_own(const wire::Gid& gid) const {
  return std::any_of(own_.addresses.begin(), own_.addresses.end(),
                     [&](const io::PortAddress& address) { return address.gid == gid; });
}

// Who is asked for packets to `dest`: itself where it is on a network of the port's, else a gateway.
Result<wire::Gid> NeighbourTable::next_hop(const wire::Gid& dest) const {
  const bool is_near = wire::is_link_local(dest) || std::any_of(own_.addresses.begin(), own_.addresses.end(),
                                                                [&](const io::PortAddress& address) {
                                                                  return io::is_in_network(dest, address);
                                                                });
  if (is_near) return dest;
  for (const wire::Gid& gateway : own_.gateways) {
    if (wire::is_ipv4_mapped(gateway) == wire::is_ipv4_mapped(dest)) return gateway;
  }
  return fail(ENETUNREACH, "it is on none of the networks of the port, which has no gateway for it (gw=)");
}

// A place for one more, if need be that of who was wanted least lately. False when all are being asked.
bool NeighbourTable::make_room() {
  if (entries_.size() < kMostNeighbours) return true;
  auto oldest = entries_.end();
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    if (at->second.state == State::kAsking) continue;
    if (oldest == entries_.end() || at->second.used < oldest->second.used) oldest = at;
  }
  if (oldest == entries_.end()) return false;
  entries_.erase(oldest);
  return true;
}

void NeighbourTable::resolve(const wire::Gid& source, const wire::Gid& dest, Instant now, Done done) {
  if (const auto group = wire::multicast_mac(dest)) return done(*group);
  const auto hop = next_hop(dest);
  if (!hop) return done(tl::make_unexpected(hop.error()));
  auto found = entries_.find(*hop);
  if (found == entries_.end()) {
    if (!make_room()) return done(fail(ENOBUFS, "too many neighbours are being looked for"));
    found = entries_.emplace(*hop, Entry{}).first;
    found->second.source = source;
    ask(*hop, found->second, now);
  }
  Entry& entry = found->second;
  entry.used = now;
  entry.source = source;
  if (entry.state == State::kAsking) {
    entry.waits.push_back(std::move(done));
    return;
  }
  if (entry.state == State::kStale) {
    entry.state = State::kProbing;
    entry.asked = 0;
    ask(*hop, entry, now);
  }
  done(entry.mac);
}

// Everybody while nothing is known; then the neighbour alone.
void NeighbourTable::ask(const wire::Gid& neighbour, Entry& entry, Instant now) {
  ++entry.asked;
  ++counters_.questions;
  settle(entry, entry.state, now + kRetry);
  send({Kind::kQuestion, false, true, neighbour, entry.source, own_.mac},
       entry.state == State::kAsking ? wire::question_mac(neighbour) : entry.mac);
}

void NeighbourTable::settle(Entry& entry, State state, Instant deadline) {
  entry.state = state;
  entry.deadline = deadline;
  next_ = earlier(next_, deadline);
}

void NeighbourTable::on_message(const wire::Resolution& heard, Instant now) {
  if (heard.mac == own_.mac) return;  // our own, come back
  switch (heard.kind) {
    case Kind::kQuestion:
      return on_question(heard, now);
    case Kind::kAnswer:
      return on_answer(heard, now);
  }
}

void NeighbourTable::on_question(const wire::Resolution& heard, Instant now) {
  // Whoever asks says where it is; that is no proof that it hears us.
  const auto asker = entries_.find(heard.peer);
  const bool knows_asker = asker != entries_.end();
  const wire::MacAddress to = has_mac(heard.mac) || !knows_asker ? heard.mac : asker->second.mac;
  if (knows_asker) learn(asker->second, heard.mac, false, now);
  if (is_own(heard.peer)) return defend(heard.peer, heard.mac, now);
  if (!is_own(heard.subject)) return;
  ++counters_.answers;
  const bool is_probe = wire::is_unspecified(heard.peer);
  if (is_probe && !wire::is_ipv4_mapped(heard.subject)) return announce(heard.subject);
  if (has_mac(to)) send({Kind::kAnswer, true, true, heard.subject, heard.peer, own_.mac}, to);
}

void NeighbourTable::on_answer(const wire::Resolution& heard, Instant now) {
  if (is_own(heard.subject)) return defend(heard.subject, heard.mac, now);
  const auto found = entries_.find(heard.subject);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  const bool is_news = has_mac(heard.mac) && heard.mac != entry.mac;
  if (entry.state != State::kAsking && is_news && !heard.is_override) {
    // Somebody else claims the address, without insisting: ask before it is used again.
    return settle(entry, State::kStale, now + kForget);
  }
  learn(entry, has_mac(heard.mac) ? heard.mac : entry.mac, heard.is_solicited, now);
}

void NeighbourTable::learn(Entry& entry, wire::MacAddress mac, bool is_confirmed, Instant now) {
  if (!has_mac(mac)) return;
  const bool was_asking = entry.state == State::kAsking;
  const bool is_news = entry.mac != mac;
  has_changed_ |= is_news && !was_asking;
  entry.mac = mac;
  if (is_confirmed) {
    settle(entry, State::kReachable, now + kReachable);
  } else if (is_news) {
    settle(entry, State::kStale, now + kForget);
  }
  // They may call resolve() again.
  for (const Done& done : std::exchange(entry.waits, {})) done(mac);
}

// RFC 5227, 2.4 (c): we keep the address, and say so, but not as often as the other does.
void NeighbourTable::defend(const wire::Gid& address, const wire::MacAddress& other, Instant now) {
  if (!has_mac(other)) return;
  ++counters_.conflicts;
  if (counters_.conflicts > 1 && now - defended_ < kDefence) return;
  defended_ = now;
  announce(address);
}

void NeighbourTable::announce(const wire::Gid& address) {
  constexpr wire::MacAddress kAllNodes = {0x33, 0x33, 0, 0, 0, 1};
  const bool is_ipv4 = wire::is_ipv4_mapped(address);
  send({Kind::kAnswer, false, true, address, wire::unspecified_like(address), own_.mac},
       is_ipv4 ? wire::question_mac(address) : kAllNodes);
}

void NeighbourTable::send(const wire::Resolution& message, const wire::MacAddress& dest) {
  if (outgoing_.size() < kMostOutgoing) outgoing_.push_back({message, dest});
}

bool NeighbourTable::poll_transmit(Outgoing& outgoing) {
  if (outgoing_.empty()) return false;
  outgoing = outgoing_.front();
  outgoing_.pop_front();
  return true;
}

void NeighbourTable::on_link_up(Instant now) {
  for (const io::PortAddress& address : own_.addresses) announce(address.gid);
  for (auto& [neighbour, entry] : entries_) {
    if (entry.state == State::kReachable) settle(entry, State::kStale, now + kForget);
  }
}

Instant NeighbourTable::on_time(Instant now) {
  if (now < next_) return next_;
  std::vector<Done> failed;
  next_ = Instant::never();
  for (auto at = entries_.begin(); at != entries_.end();) {
    const auto current = at++;
    if (now < current->second.deadline) {
      next_ = earlier(next_, current->second.deadline);
    } else {
      expire(current, now, failed);
    }
  }
  for (const Done& done : failed) done(fail(ETIMEDOUT, "nobody on the link answers for it"));
  return next_;
}

void NeighbourTable::expire(Entries::iterator at, Instant now, std::vector<Done>& failed) {
  Entry& entry = at->second;
  switch (entry.state) {
    case State::kReachable:
      return settle(entry, State::kStale, now + kForget);
    case State::kAsking:
    case State::kProbing:
      if (entry.asked < kQuestions) return ask(at->first, entry, now);
      ++counters_.unanswered;
      for (Done& done : entry.waits) failed.push_back(std::move(done));
      break;
    case State::kStale:
      break;
  }
  entries_.erase(at);
}

}  // namespace urdma::control
