// The side that asks for a connection: REQ out, REP in, RTU out (IBTA 1, 12.9.7.1).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <algorithm>
#include <cerrno>

#include "datapath/cm/machine.hpp"

namespace urdma::cm {

namespace {

bool is_connected_service(QpType type) {
  switch (type) {
    case QpType::kRc:
    case QpType::kUc:
    case QpType::kXrcSend:
      return true;
    case QpType::kUd:
    case QpType::kXrcRecv:
      return false;
  }
  return false;
}

bool is_possible(const Request& request) {
  return request.data.size <= kRequestPrivateBytes && is_connected_service(request.type) &&
         is_connectable(request.qp.qpn) && is_mtu_code(request.path_mtu);
}

// The first REP. What it says of READs and atomics holds, also where it is more than REQ said: its QP is set
// up by it.
void take_reply(Core& core, Connection& connection, const Incoming<wire::CmRepWire>& rep, Reply reply) {
  connection.remote_id = rep.body.local_comm_id.get();
  connection.knows_remote_id = true;
  connection.remote_qpn = reply.qp.qpn;
  connection.remote_psn = reply.qp.starting_psn;
  connection.state = State::kReplied;
  core.set_deadline(connection, Instant::never());
  if (!clear_qpn(core, rep.ends.remote, reply.qp.qpn, rep.now)) {
    Event event;
    event.kind = EventKind::kRejected;
    event.reason = RejectReason::kStaleConnection;
    core.raise(connection, std::move(event));
    return refuse(core, connection, RejectReason::kStaleConnection, rep.now);
  }
  core.table().list(PeerNumber::kQp, connection);
  reply.qp.initiator_depth = std::min(reply.qp.initiator_depth, core.config().most_responder_resources);
  Event event;
  event.kind = EventKind::kReplied;
  event.reply = reply;
  core.raise(connection, std::move(event));
}

// REP came again: what it was answered with may be lost.
void answer_repeated_reply(Core& core, Connection& connection) {
  switch (connection.state) {
    case State::kReplied:
      return answer_impatience(core, connection);
    case State::kEstablished:
      if (connection.is_active) core.answer_again(connection);
      return;
    case State::kTimeWait:
      if (connection.is_refused) core.answer_again(connection);
      return;
    case State::kRequestSent:
    case State::kRequested:
    case State::kReplySent:
    case State::kDisconnectSent:  // DREQ says more than RTU would, and is repeated
    case State::kResolveSent:
    case State::kResolveRequested:
    case State::kResolveAnswered:
    case State::kOver:
      return;
  }
}

}  // namespace

int connect(Core& core, const Request& request, Instant now, ConnectionId& id) {
  if (!is_possible(request)) return EINVAL;
  Connection* connection = core.add(request.ends, State::kRequestSent);
  if (connection == nullptr) return ENOMEM;
  connection->is_active = true;
  connection->type = request.type;
  connection->service = request.service;
  connection->transaction_id = core.new_transaction();
  connection->local_qpn = request.qp.qpn;
  connection->responder_resources =
      std::min(request.qp.responder_resources, core.config().most_responder_resources);
  connection->initiator_depth = request.qp.initiator_depth;
  core.table().hold_qpn(*connection);
  id = connection->id;
  core.send_until_answered(*connection, make_req(*connection, request, core.config()), now);
  return 0;
}

int confirm(Core& core, Connection& connection, Bytes data, Instant now) {
  if (connection.state != State::kReplied || data.size() > kReadyPrivateBytes) return EINVAL;
  connection.state = State::kEstablished;
  connection.has_been_established = true;
  core.send_and_keep(connection, make_rtu(connection, data));
  if (connection.has_delayed) {
    connection.retries_left = kUnaskedRepeats;
    core.set_deadline(connection, now + core.period());
  }
  return 0;
}

void on_rep(Core& core, const Incoming<wire::CmRepWire>& rep) {
  Connection* connection = find_local(core, rep.ends, rep.body.remote_comm_id.get());
  const bool is_unknown = connection == nullptr || connection->state == State::kOver;
  if (is_unknown) {  // given up here, or never known: the peer need not wait for RTU
    ++core.counters().unmatched;
    const Refusal refusal{RejectReason::kInvalidCommId, wire::CmSubject::kRep, {}, {}};
    return core.send(rep.ends, make_rej(answer_address(rep), refusal));
  }
  if (connection->state == State::kRequestSent) {
    const auto reply = read_rep(rep.body, connection->type);
    if (!reply) {
      ++core.counters().malformed;
      return;
    }
    return take_reply(core, *connection, rep, *reply);
  }
  // Refused before an answer came: it need not be known by its ID.
  const bool is_meant = connection->knows_remote_id ? connection->remote_id == rep.body.local_comm_id.get()
                                                    : connection->state == State::kTimeWait;
  if (!is_meant) {
    ++core.counters().unmatched;
    return;
  }
  answer_repeated_reply(core, *connection);
}

}  // namespace urdma::cm
