// The end of connections: DREQ and DREP (IBTA 1, 12.9.7.3), stale ones (12.9.8.3.1), and whoever is gone.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>

#include "datapath/cm/machine.hpp"

namespace urdma::cm {

namespace {

void send_dreq(Core& core, Connection& connection, Bytes data, Instant now) {
  connection.state = State::kDisconnectSent;
  connection.transaction_id = core.new_transaction();
  core.send_until_answered(connection, make_dreq(connection, data), now);
}

// The peer has ended an established connection.
void end_by_peer(Core& core, Connection& connection, const PrivateData& data, Instant now) {
  Event event;
  event.kind = EventKind::kDisconnecting;
  event.data = data;
  core.raise(connection, std::move(event));
  core.enter_time_wait(connection, now);
}

// A peer that has never said RTU ends what it has asked for, or been asked for.
void end_before_established(Core& core, Connection& connection, Instant now) {
  Event event;
  event.kind = EventKind::kRejected;
  event.reason = RejectReason::kConsumer;
  core.raise(connection, std::move(event));
  core.enter_time_wait(connection, now);
}

}  // namespace

int disconnect(Core& core, Connection& connection, Bytes data, Instant now) {
  if (connection.state != State::kEstablished || data.size() > kDisconnectPrivateBytes) return EINVAL;
  send_dreq(core, connection, data, now);
  return 0;
}

void forget(Core& core, Connection& connection, Instant now) {
  connection.is_forgotten = true;
  switch (connection.state) {
    case State::kRequestSent:
      return refuse_silent_peer(core, connection, now);
    case State::kReplied:
    case State::kRequested:
    case State::kReplySent:
      return refuse(core, connection, RejectReason::kConsumer, now);
    case State::kEstablished:
      return send_dreq(core, connection, {}, now);
    case State::kResolveRequested: {
      Resolved refusal;
      refusal.status = ResolveStatus::kRejected;
      (void)answer(core, connection, refusal, now);  // it is in the state for it, without data
      return;
    }
    case State::kResolveSent:
    case State::kOver:
      return core.finish(connection);
    case State::kTimeWait:
    case State::kResolveAnswered:
      return core.note_lingering(connection);  // it ends by itself
    case State::kDisconnectSent:
      return;  // it does so too
  }
}

void end_disconnecting(Core& core, Connection& connection, Instant now) {
  core.raise(connection, EventKind::kDisconnected);
  core.enter_time_wait(connection, now);
}

bool clear_qpn(Core& core, const wire::Gid& peer, Qpn qpn, Instant now) {
  Connection* known = core.table().find_peer(PeerNumber::kQp, peer, qpn.value);
  if (known == nullptr) return true;
  const bool is_stale = known->state == State::kEstablished;
  end_stale(core, *known, now);
  return !is_stale;
}

void end_stale(Core& core, Connection& connection, Instant now) {
  switch (connection.state) {
    case State::kRequested:
    case State::kReplied:
    case State::kReplySent: {
      Event event;
      event.kind = EventKind::kRejected;
      event.reason = RejectReason::kStaleConnection;
      core.raise(connection, std::move(event));
      return refuse(core, connection, RejectReason::kStaleConnection, now);
    }
    case State::kEstablished:
      core.send(connection.ends, make_dreq(connection, {}));
      return end_by_peer(core, connection, {}, now);
    case State::kDisconnectSent:
      return end_disconnecting(core, connection, now);
    case State::kRequestSent:
    case State::kTimeWait:
    case State::kResolveSent:
    case State::kResolveRequested:
    case State::kResolveAnswered:
    case State::kOver:
      return;
  }
}

void on_dreq(Core& core, const Incoming<wire::CmDreqWire>& dreq) {
  Connection* connection = find_both(core, dreq);
  if (connection == nullptr) {  // of a life before this one: so that the peer need not repeat it
    ++core.counters().unmatched;
    return core.send(dreq.ends, make_drep(answer_address(dreq)));
  }
  if (connection->local_qpn.value != dreq.body.remote_qpn.get()) {
    ++core.counters().malformed;
    return;
  }
  core.send(connection->ends, make_drep(answer_address(dreq)));
  const PrivateData data = private_data_of(dreq.body.private_data);
  switch (connection->state) {
    case State::kReplySent:  // RTU was lost: who has not said it does not say DREQ
      establish(core, *connection, {});
      return end_by_peer(core, *connection, data, dreq.now);
    case State::kEstablished:
      return end_by_peer(core, *connection, data, dreq.now);
    case State::kDisconnectSent:  // crossed: either DREQ answers the other
      return end_disconnecting(core, *connection, dreq.now);
    case State::kReplied:
      return end_before_established(core, *connection, dreq.now);
    case State::kTimeWait:
      ++core.counters().duplicates;
      return;
    case State::kRequestSent:
    case State::kRequested:
    case State::kResolveSent:
    case State::kResolveRequested:
    case State::kResolveAnswered:
    case State::kOver:
      return;
  }
}

void on_drep(Core& core, const Incoming<wire::CmDrepWire>& drep) {
  Connection* connection = find_both(core, drep);
  if (connection == nullptr) {
    ++core.counters().unmatched;
  } else if (connection->state == State::kDisconnectSent) {
    end_disconnecting(core, *connection, drep.now);
  }
}

}  // namespace urdma::cm
