// One connection, or one resolution of a datagram service, as the manager keeps it: what is known of it, and
// its place in the table. The state machines (machine.hpp) change it.
//
// Owner: a Table. One thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstdint>

#include "datapath/cm/types.hpp"

namespace urdma::cm {

// IBTA 1, 12.9.7, with the states that only wait for the program of this side folded into one each. MRA is
// no state of its own: it moves a deadline.
enum class State : std::uint8_t {
  kRequestSent,       // active: REQ repeated until it is answered
  kReplied,           // active: REP has come, and this side has not said RTU yet
  kRequested,         // passive: REQ has come, and this side has not said REP yet
  kReplySent,         // passive: REP repeated until RTU, or traffic
  kEstablished,       // nothing is waited for
  kDisconnectSent,    // DREQ repeated until DREP
  kTimeWait,          // over, while packets may be about; repeats are answered
  kResolveSent,       // SIDR_REQ repeated until it is answered
  kResolveRequested,  // SIDR_REQ has come
  kResolveAnswered,   // SIDR_REP sent, and kept for repeats
  kOver,              // nothing left to do but to be forgotten
};

// By which numbers of a peer a connection is found; each with the peer's GID.
enum class PeerNumber : std::uint8_t {
  kRequest,  // the communication ID of its REQ
  kResolve,  // the request ID of its SIDR_REQ
  kQp,       // its QP number, as long as that QP is believed to be connected
};
inline constexpr std::size_t kPeerNumbers = 3;

struct Connection {
  ConnectionId id;
  std::uint64_t serial = 0;  // unique in the life of the manager, unlike `id`
  State state = State::kOver;
  bool is_active = false;
  bool is_forgotten = false;
  bool knows_remote_id = false;
  bool has_been_established = false;
  bool may_delay = false;    // the program takes its time: a repeat of the peer is answered with MRA
  bool has_delayed = false;  // MRA was sent: the peer is patient
  bool is_refused = false;   // kTimeWait: `message` is a REJ, the answer to whatever comes
  bool wants_failover = false;
  bool holds_qpn = false;  // local_qpn counts as in use
  std::array<bool, kPeerNumbers> is_listed{};
  Ends ends;
  QpType type = QpType::kRc;
  ServiceId service;
  std::uint32_t remote_id = 0;  // communication or request ID of the peer
  std::uint64_t transaction_id = 0;
  Qpn local_qpn{};
  Qpn remote_qpn{};
  Psn remote_psn{};
  // On the active side, of its REQ: what it answers at once and has under way at once.
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint32_t retries_left = 0;
  Instant deadline = Instant::never();
  Instant time_wait_end = Instant::never();
  Mad message{};  // the newest that was sent and may have to be sent again
};

// A QP that can be connected: neither the special ones nor the multicast destination.
constexpr bool is_connectable(Qpn qpn) { return qpn.value > 1 && qpn.value < kMulticastQpn.value; }

}  // namespace urdma::cm
