// The side that is asked for a connection: REQ in, REP out, RTU in (IBTA 1, 12.9.7.2).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <algorithm>
#include <cerrno>

#include "datapath/cm/machine.hpp"

namespace urdma::cm {

namespace {

// The number of the sender's QP goes without saying: QP 0 and 1, and the multicast QP, have no connections.
bool is_well_formed(const wire::CmReqWire& req) { return is_connectable(Qpn{req.local_qpn.get()}); }

void turn_away(Core& core, const Incoming<wire::CmReqWire>& req, RejectReason reason) {
  const Refusal refusal{reason, wire::CmSubject::kReq, {}, {}};
  core.send(req.ends, make_rej({0, req.body.local_comm_id.get(), req.transaction_id}, refusal));
}

// Whether it is the very REQ that the connection began with, and not another one of a peer that uses the same
// communication ID again.
bool is_repeat(const Connection& connection, const wire::CmReqWire& req) {
  return connection.remote_qpn.value == req.local_qpn.get() &&
         connection.remote_psn.value() == req.starting_psn.get() &&
         connection.service.value == req.service_id.get();
}

// 12.9.8.3: what an answer that may be lost was.
void answer_repeated_request(Core& core, Connection& connection) {
  switch (connection.state) {
    case State::kRequested:
      return answer_impatience(core, connection);
    case State::kReplySent:
      return core.answer_again(connection);
    case State::kTimeWait:
      if (!connection.is_refused) return;
      connection.message = rej_of_req(connection.message);
      return core.answer_again(connection);
    case State::kEstablished:  // it is late: the peer has REP
    case State::kDisconnectSent:
    case State::kOver:
    case State::kRequestSent:
    case State::kReplied:
    case State::kResolveSent:
    case State::kResolveRequested:
    case State::kResolveAnswered:
      return;
  }
}

// Looks for what is in the way of a new connection: the peer's communication ID, or its QP, in use. Whether
// nothing is any more. What is in the way is over for the peer, and so it is here. Of an established
// connection the peer is told, and has to ask again (12.9.8.3.1); one that was still being made simply gives
// way.
bool make_way(Core& core, const Incoming<wire::CmReqWire>& req) {
  Table& table = core.table();
  if (Connection* same_id =
          table.find_peer(PeerNumber::kRequest, req.ends.remote, req.body.local_comm_id.get())) {
    table.unlist(PeerNumber::kRequest, *same_id);
    const bool is_stale = same_id->state == State::kEstablished;
    end_stale(core, *same_id, req.now);
    if (is_stale) return false;
  }
  return clear_qpn(core, req.ends.remote, Qpn{req.body.local_qpn.get()}, req.now);
}

void take_request(Core& core, const Incoming<wire::CmReqWire>& req) {
  Request request = read_req(req.body, req.ends);
  Connection* connection = core.add(request.ends, State::kRequested);
  if (connection == nullptr) {
    ++core.counters().no_room;
    return turn_away(core, req, RejectReason::kNoResources);
  }
  connection->type = request.type;
  connection->service = request.service;
  connection->transaction_id = req.transaction_id;
  connection->remote_id = req.body.local_comm_id.get();
  connection->knows_remote_id = true;
  connection->remote_qpn = request.qp.qpn;
  connection->remote_psn = request.qp.starting_psn;
  connection->wants_failover = req.body.alternate.remote_gid != wire::Gid{};
  request.qp.initiator_depth = std::min(request.qp.initiator_depth, core.config().most_responder_resources);
  core.table().list(PeerNumber::kRequest, *connection);
  core.table().list(PeerNumber::kQp, *connection);
  Event event;
  event.kind = EventKind::kRequested;
  event.request = request;
  core.raise(*connection, std::move(event));
}

}  // namespace

void on_req(Core& core, const Incoming<wire::CmReqWire>& req) {
  if (!is_well_formed(req.body)) {
    ++core.counters().malformed;
    return;
  }
  Connection* known =
      core.table().find_peer(PeerNumber::kRequest, req.ends.remote, req.body.local_comm_id.get());
  if (known != nullptr && is_repeat(*known, req.body)) return answer_repeated_request(core, *known);
  if (const auto fault = fault_of(req.body, req.ends)) {
    ++core.counters().malformed;
    return turn_away(core, req, *fault);
  }
  if (!make_way(core, req)) return turn_away(core, req, RejectReason::kStaleConnection);
  take_request(core, req);
}

int accept(Core& core, Connection& connection, const Reply& reply, Instant now) {
  if (connection.state != State::kRequested || reply.data.size > kReplyPrivateBytes ||
      !is_connectable(reply.qp.qpn))
    return EINVAL;
  // Not cut by what REQ said: the program sets up its QP by what it gives here, and the peer its own by REP.
  Reply granted = reply;
  granted.qp.responder_resources =
      std::min(reply.qp.responder_resources, core.config().most_responder_resources);
  connection.local_qpn = reply.qp.qpn;
  core.table().hold_qpn(connection);
  connection.state = State::kReplySent;
  core.send_until_answered(connection, make_rep(connection, granted, core.config()), now);
  return 0;
}

void establish(Core& core, Connection& connection, const PrivateData& data) {
  connection.state = State::kEstablished;
  connection.has_been_established = true;
  core.set_deadline(connection, Instant::never());
  Event event;
  event.kind = EventKind::kEstablished;
  event.data = data;
  core.raise(connection, std::move(event));
}

void on_rtu(Core& core, const Incoming<wire::CmRtuWire>& rtu) {
  Connection* connection = find_both(core, rtu);
  if (connection == nullptr) {
    ++core.counters().unmatched;
  } else if (connection->state == State::kReplySent) {
    establish(core, *connection, private_data_of(rtu.body.private_data));
  } else if (connection->state == State::kTimeWait && connection->is_refused) {
    core.answer_again(*connection);  // the peer does not know yet
  }
}

int on_traffic(Core& core, Connection& connection) {
  if (connection.state == State::kEstablished) return EISCONN;
  if (connection.state != State::kReplySent) return EINVAL;
  establish(core, connection, {});
  return 0;
}

}  // namespace urdma::cm
