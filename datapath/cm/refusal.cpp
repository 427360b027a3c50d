// REJ (IBTA 1, 12.6.7), sent and received, and what is left of a connection that was refused.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <bit>
#include <cerrno>

#include "datapath/cm/machine.hpp"

namespace urdma::cm {

namespace {

// Which message is refused: the newest of the peer, if any.
wire::CmSubject subject_in(State state) {
  switch (state) {
    case State::kRequested:
      return wire::CmSubject::kReq;
    case State::kReplied:
      return wire::CmSubject::kRep;
    case State::kRequestSent:
    case State::kReplySent:
    case State::kEstablished:
    case State::kDisconnectSent:
    case State::kTimeWait:
    case State::kResolveSent:
    case State::kResolveRequested:
    case State::kResolveAnswered:
    case State::kOver:
      return wire::CmSubject::kOther;
  }
  return wire::CmSubject::kOther;
}

// Sends it, and keeps it for what may still come.
void send_refusal(Core& core, Connection& connection, Refusal refusal, Instant now) {
  refusal.subject = subject_in(connection.state);
  const bool is_patient = connection.has_delayed || connection.state == State::kReplySent;
  core.send_and_keep(connection, make_rej(address_of(connection), refusal));
  connection.is_refused = true;
  connection.retries_left = is_patient ? kUnaskedRepeats : 0;
  if (core.enter_time_wait(connection, now) && is_patient)
    core.set_deadline(connection, earlier(now + core.period(), connection.time_wait_end));
}

// By the ID here; or, of a peer that has given up before it knew that, by its own (reason "timeout").
Connection* find_refused(Core& core, const Incoming<wire::CmRejWire>& rej) {
  const std::uint32_t local_id = rej.body.remote_comm_id.get();
  const std::uint32_t remote_id = rej.body.local_comm_id.get();
  if (local_id == 0) {
    if (static_cast<RejectReason>(rej.body.reason.get()) != RejectReason::kTimeout) return nullptr;
    return core.table().find_peer(PeerNumber::kRequest, rej.ends.remote, remote_id);
  }
  Connection* connection = find_local(core, rej.ends, local_id);
  if (connection == nullptr) return nullptr;
  if (connection->knows_remote_id && connection->remote_id != remote_id) return nullptr;
  return connection;
}

Event rejected(const wire::CmRejWire& rej) {
  Event event;
  event.kind = EventKind::kRejected;
  event.reason = static_cast<RejectReason>(rej.reason.get());
  const std::size_t info = wire::kRejectInfoLength.of(rej.info_length);
  event.info = private_data_of(Bytes(rej.info).first(std::min(info, rej.info.size())));
  event.data = private_data_of(rej.private_data);
  return event;
}

}  // namespace

int reject(Core& core, Connection& connection, const Refusal& refusal, Instant now) {
  const bool is_being_made = connection.state == State::kRequestSent || connection.state == State::kReplied ||
                             connection.state == State::kRequested || connection.state == State::kReplySent;
  if (!is_being_made) return EINVAL;
  if (refusal.info.size() > kRejectInfoBytes || refusal.data.size() > kRejectPrivateBytes) return EINVAL;
  send_refusal(core, connection, refusal, now);
  return 0;
}

void refuse(Core& core, Connection& connection, RejectReason reason, Instant now) {
  send_refusal(core, connection, {reason, {}, {}, {}}, now);
}

// The peer may know neither our ID nor, as Linux does, look for its own without our GUID (12.6.7.2, code 4).
void refuse_silent_peer(Core& core, Connection& connection, Instant now) {
  using Guid = std::array<std::uint8_t, sizeof(std::uint64_t)>;
  const auto guid = std::bit_cast<Guid>(core.config().channel_adapter_guid);
  send_refusal(core, connection, {RejectReason::kTimeout, {}, guid, {}}, now);
}

void on_rej(Core& core, const Incoming<wire::CmRejWire>& rej) {
  Connection* connection = find_refused(core, rej);
  if (connection == nullptr) {
    ++core.counters().unmatched;
    return;
  }
  switch (connection->state) {
    case State::kRequestSent: {
      const Event event = rejected(rej.body);
      core.raise(*connection, event);
      // A peer that believes our QP connected is to forget that first.
      if (event.reason != RejectReason::kStaleConnection) return core.finish(*connection);
      core.enter_time_wait(*connection, rej.now);
      return;
    }
    case State::kReplied:  // the peer knows our QP
    case State::kRequested:
    case State::kReplySent:
      core.raise(*connection, rejected(rej.body));
      core.enter_time_wait(*connection, rej.now);
      return;
    case State::kEstablished: {  // the peer has never got RTU, and gives up
      Event event;
      event.kind = EventKind::kDisconnecting;
      core.raise(*connection, std::move(event));
      core.enter_time_wait(*connection, rej.now);
      return;
    }
    case State::kDisconnectSent:
      return end_disconnecting(core, *connection, rej.now);
    case State::kTimeWait:
    case State::kOver:
    case State::kResolveSent:
    case State::kResolveRequested:
    case State::kResolveAnswered:
      return;
  }
}

}  // namespace urdma::cm
