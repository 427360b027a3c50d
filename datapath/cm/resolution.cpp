// Datagram services: SIDR_REQ and SIDR_REP, both sides (IBTA 1, 12.11).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>

#include "datapath/cm/machine.hpp"

namespace urdma::cm {

bool is_resolution(const Connection& connection) {
  switch (connection.state) {
    case State::kResolveSent:
    case State::kResolveRequested:
    case State::kResolveAnswered:
      return true;
    case State::kRequestSent:
    case State::kReplied:
    case State::kRequested:
    case State::kReplySent:
    case State::kEstablished:
    case State::kDisconnectSent:
    case State::kTimeWait:
    case State::kOver:
      return false;
  }
  return false;
}

int resolve(Core& core, const Resolve& resolve, Instant now, ConnectionId& id) {
  if (resolve.data.size > kResolvePrivateBytes) return EINVAL;
  Connection* connection = core.add(resolve.ends, State::kResolveSent);
  if (connection == nullptr) return ENOMEM;
  connection->is_active = true;
  connection->service = resolve.service;
  connection->transaction_id = core.new_transaction();
  id = connection->id;
  core.send_until_answered(*connection, make_sidr_req(*connection, resolve), now);
  return 0;
}

int answer(Core& core, Connection& connection, const Resolved& resolved, Instant now) {
  if (connection.state != State::kResolveRequested || resolved.data.size > kResolvedPrivateBytes)
    return EINVAL;
  if (resolved.status == ResolveStatus::kValid && !is_connectable(resolved.qpn)) return EINVAL;
  core.send_and_keep(connection, make_sidr_rep(connection, resolved));
  if (core.table().is_crowded()) {
    core.finish(connection);
    return 0;
  }
  connection.state = State::kResolveAnswered;
  connection.time_wait_end = now + core.config().time_wait;
  core.set_deadline(connection, connection.time_wait_end);
  if (connection.is_forgotten) core.note_lingering(connection);
  return 0;
}

void on_sidr_req(Core& core, const Incoming<wire::CmSidrReqWire>& req) {
  Table& table = core.table();
  Connection* known = table.find_peer(PeerNumber::kResolve, req.ends.remote, req.body.request_id.get());
  if (known != nullptr && known->service.value == req.body.service_id.get()) {
    const bool is_answered = known->state == State::kResolveAnswered || known->state == State::kOver;
    if (is_answered) core.answer_again(*known);
    return;
  }
  if (known != nullptr) table.unlist(PeerNumber::kResolve, *known);  // the peer uses its ID again
  Connection* connection = core.add(req.ends, State::kResolveRequested);
  if (connection == nullptr) {
    ++core.counters().no_room;
    return core.send(req.ends, make_sidr_refusal(req.body, req.transaction_id, ResolveStatus::kNoQp));
  }
  const Resolve resolve = read_sidr_req(req.body, req.ends);
  connection->service = resolve.service;
  connection->transaction_id = req.transaction_id;
  connection->remote_id = req.body.request_id.get();
  table.list(PeerNumber::kResolve, *connection);
  Event event;
  event.kind = EventKind::kResolveRequested;
  event.resolve = resolve;
  core.raise(*connection, std::move(event));
}

void on_sidr_rep(Core& core, const Incoming<wire::CmSidrRepWire>& rep) {
  Connection* connection = core.table().find(rep.body.request_id.get());
  if (connection == nullptr || connection->state != State::kResolveSent ||
      connection->ends.remote != rep.ends.remote) {
    ++core.counters().unmatched;
    return;
  }
  const auto resolved = read_sidr_rep(rep.body);
  if (!resolved) {
    ++core.counters().malformed;
    return;
  }
  Event event;
  event.kind = EventKind::kResolved;
  event.resolved = *resolved;
  core.raise(*connection, std::move(event));
  core.finish(*connection);
}

}  // namespace urdma::cm
