// The state machines: what each command, message and deadline does to a connection, by the side that it
// concerns. Free functions over a Core; the manager only dispatches to them.
//
// Commands return what Manager's do. A connection that is given to a function may be gone when it returns.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include "datapath/cm/core.hpp"
#include "datapath/cm/messages.hpp"

namespace urdma::cm {

// What has come in, and how.
template <typename Body>
struct Incoming {
  const Ends& ends;
  std::uint64_t transaction_id;
  const Body& body;
  Instant now;
};

// What is not answered, and what a peer that was told to wait may not ask for again before long, is sent more
// than once.
inline constexpr std::uint32_t kUnaskedRepeats = 3;

// ---- active.cpp: who asks ----
[[nodiscard]] int connect(Core& core, const Request& request, Instant now, ConnectionId& id);
[[nodiscard]] int confirm(Core& core, Connection& connection, Bytes data, Instant now);
void on_rep(Core& core, const Incoming<wire::CmRepWire>& rep);

// ---- passive.cpp: who is asked ----
void on_req(Core& core, const Incoming<wire::CmReqWire>& req);
[[nodiscard]] int accept(Core& core, Connection& connection, const Reply& reply, Instant now);
void on_rtu(Core& core, const Incoming<wire::CmRtuWire>& rtu);
[[nodiscard]] int on_traffic(Core& core, Connection& connection);
// The peer's RTU has come, or what proves it.
void establish(Core& core, Connection& connection, const PrivateData& data);

// ---- ending.cpp: disconnections, and the end of whoever had a connection ----
[[nodiscard]] int disconnect(Core& core, Connection& connection, Bytes data, Instant now);
void forget(Core& core, Connection& connection, Instant now);
void on_dreq(Core& core, const Incoming<wire::CmDreqWire>& dreq);
void on_drep(Core& core, const Incoming<wire::CmDrepWire>& drep);
// The peer has given up this connection without a word: it uses its QP, or its ID, for another (12.9.8.3.1).
void end_stale(Core& core, Connection& connection, Instant now);
// Ends what is known of the peer's QP. Whether the QP may be connected now: not where it was believed to be.
[[nodiscard]] bool clear_qpn(Core& core, const wire::Gid& peer, Qpn qpn, Instant now);
void end_disconnecting(Core& core, Connection& connection, Instant now);

// ---- refusal.cpp: REJ, both ways ----
[[nodiscard]] int reject(Core& core, Connection& connection, const Refusal& refusal, Instant now);
// REJ of a connection that is not established; its subject follows from the state. The connection ends.
void refuse(Core& core, Connection& connection, RejectReason reason, Instant now);
// The same, since the peer has not answered.
void refuse_silent_peer(Core& core, Connection& connection, Instant now);
void on_rej(Core& core, const Incoming<wire::CmRejWire>& rej);

// ---- waiting.cpp: time ----
void delay(Connection& connection);
// The peer has repeated what a program has to decide on.
void answer_impatience(Core& core, Connection& connection);
void on_mra(Core& core, const Incoming<wire::CmMraWire>& mra);
void on_due(Core& core, Connection& connection, Instant now);

// ---- resolution.cpp: datagram services ----
[[nodiscard]] int resolve(Core& core, const Resolve& resolve, Instant now, ConnectionId& id);
[[nodiscard]] int answer(Core& core, Connection& connection, const Resolved& resolved, Instant now);
void on_sidr_req(Core& core, const Incoming<wire::CmSidrReqWire>& req);
void on_sidr_rep(Core& core, const Incoming<wire::CmSidrRepWire>& rep);

// ---- Shared ----

// Whether it is one of datagram services, which no message of connections concerns.
[[nodiscard]] bool is_resolution(const Connection& connection);
// The connection whose ID here is `local_id`, of that peer; or null.
[[nodiscard]] Connection* find_local(Core& core, const Ends& ends, std::uint32_t local_id);
// The one that the message means by both IDs and the peer's GID; or null.
template <typename Body>
Connection* find_both(Core& core, const Incoming<Body>& in) {
  Connection* connection = find_local(core, in.ends, in.body.remote_comm_id.get());
  if (connection == nullptr || !connection->knows_remote_id) return nullptr;
  return connection->remote_id == in.body.local_comm_id.get() ? connection : nullptr;
}
// The IDs of an answer to a message that no connection backs.
template <typename Body>
Address answer_address(const Incoming<Body>& in) {
  return {in.body.remote_comm_id.get(), in.body.local_comm_id.get(), in.transaction_id};
}

}  // namespace urdma::cm
