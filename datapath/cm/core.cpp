// What the state machines of a manager share. See core.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/cm/core.hpp"

#include <algorithm>

#include "datapath/cm/messages.hpp"

namespace urdma::cm {

namespace {

// A deadline of each connection may send one message, and its peer's message another.
constexpr std::size_t kOutgoingPerConnection = 2;
constexpr std::size_t kOutgoingWithoutState = 64;
constexpr unsigned kCounterMask = 0xF;

}  // namespace

Core::Core(const Config& config)
    : config_(config),
      period_(timeout_of(timeout_code(config.response_time))),
      random_(config.secret),
      table_(config.most_connections, random_),
      most_outgoing_(config.most_connections * kOutgoingPerConnection + kOutgoingWithoutState) {}

Connection* Core::add(const Ends& ends, State state) {
  while (table_.is_crowded() && !lingering_.empty()) finish(*table_.find(lingering_.begin()->second));
  return table_.add(ends, state);
}

void Core::note_lingering(const Connection& connection) {
  lingering_.insert({connection.time_wait_end, connection.id.value});
}

void Core::send(const Ends& ends, const Mad& mad) {
  if (outgoing_.size() >= most_outgoing_) {
    ++counters_.not_sent;
    return;
  }
  const auto& header = wire::overlay<wire::MadWire>(mad.data());
  ++counters_.sent[header.attribute_id.get() & kCounterMask];
  outgoing_.push_back({ends, mad});
}

void Core::send_and_keep(Connection& connection, const Mad& mad) {
  connection.message = mad;
  send(connection.ends, mad);
}

void Core::send_until_answered(Connection& connection, const Mad& mad, Instant now) {
  send_and_keep(connection, mad);
  connection.retries_left = config_.most_retries;
  set_deadline(connection, now + period_);
}

void Core::answer_again(Connection& connection) {
  ++counters_.duplicates;
  send(connection.ends, connection.message);
}

bool Core::poll_transmit(OutgoingMad& out) {
  if (outgoing_.empty()) return false;
  out = outgoing_.front();
  outgoing_.pop_front();
  return true;
}

void Core::raise(const Connection& connection, Event event) {
  if (connection.is_forgotten) return;
  event.connection = connection.id;
  events_.push_back({connection.serial, std::move(event)});
}

void Core::raise(const Connection& connection, EventKind kind) {
  Event event;
  event.kind = kind;
  raise(connection, std::move(event));
}

bool Core::poll_event(Event& event) {
  while (!events_.empty()) {
    const Raised raised = std::move(events_.front());
    events_.pop_front();
    const Connection* connection = table_.find(raised.event.connection.value);
    if (connection == nullptr || connection->serial != raised.serial || connection->is_forgotten) continue;
    event = raised.event;
    return true;
  }
  return false;
}

void Core::set_deadline(Connection& connection, Instant at) {
  if (!connection.deadline.is_never()) deadlines_.erase({connection.deadline, connection.id.value});
  connection.deadline = at;
  if (!at.is_never()) deadlines_.insert({at, connection.id.value});
}

Instant Core::next_deadline() const {
  return deadlines_.empty() ? Instant::never() : deadlines_.begin()->first;
}

Connection* Core::take_due(Instant now) {
  if (next_deadline() > now) return nullptr;
  Connection* due = table_.find(deadlines_.begin()->second);
  set_deadline(*due, Instant::never());
  return due;
}

void Core::finish(Connection& connection) {
  set_deadline(connection, Instant::never());
  lingering_.erase({connection.time_wait_end, connection.id.value});
  connection.state = State::kOver;
  table_.unlist(PeerNumber::kQp, connection);
  table_.free_qpn(connection);
  if (connection.is_forgotten) table_.remove(connection);
}

bool Core::enter_time_wait(Connection& connection, Instant now) {
  // Without a QP it is a courtesy to a peer that may repeat itself; a flood of such must not use up the room.
  if (!connection.holds_qpn && table_.is_crowded()) {
    finish(connection);
    return false;
  }
  connection.state = State::kTimeWait;
  table_.unlist(PeerNumber::kQp, connection);
  connection.time_wait_end = now + config_.time_wait;
  set_deadline(connection, connection.time_wait_end);
  if (connection.is_forgotten) note_lingering(connection);
  return true;
}

}  // namespace urdma::cm
