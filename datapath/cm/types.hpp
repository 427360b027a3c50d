// What the connection manager exchanges with what is above it: parameters in, events out (IBTA 1, 12).
// Values only; the times and sizes are in their units, not in the encodings of the wire.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

#include "urdma/base/ids.hpp"
#include "urdma/base/time.hpp"
#include "urdma/base/verbs.hpp"
#include "urdma/wire/frame.hpp"

namespace urdma::cm {

// A connection, or a resolution of a datagram service, of one manager: its local communication ID (IBTA 1,
// 12.9.5), which is not used again while a packet of it may be about. 0 is none.
struct ConnectionId {
  std::uint32_t value = 0;
  friend constexpr auto operator<=>(ConnectionId, ConnectionId) = default;
};

// Host order. The port space and the port of a service of the RDMA IP connection manager (IBTA 1, annex A11).
struct ServiceId {
  std::uint64_t value = 0;
  friend constexpr auto operator<=>(ServiceId, ServiceId) = default;
};

// Private data of a message, as long as `size`; the wire pads it with zeros.
struct PrivateData {
  static constexpr std::size_t kMost = 224;
  std::array<std::uint8_t, kMost> bytes{};
  std::uint8_t size = 0;

  [[nodiscard]] std::span<const std::uint8_t> view() const { return {bytes.data(), size}; }
};

// The most that a message can carry, of what the caller gives.
inline constexpr std::size_t kRequestPrivateBytes = 92;
inline constexpr std::size_t kReplyPrivateBytes = 196;
inline constexpr std::size_t kReadyPrivateBytes = 224;
inline constexpr std::size_t kRejectPrivateBytes = 148;
inline constexpr std::size_t kRejectInfoBytes = 72;  // additional rejection information
inline constexpr std::size_t kDisconnectPrivateBytes = 220;
inline constexpr std::size_t kResolvePrivateBytes = 216;
inline constexpr std::size_t kResolvedPrivateBytes = 136;

// Reasons of REJ (IBTA 1, 12.6.7.2), those that this side sends or asks for; others come as they are.
enum class RejectReason : std::uint16_t {
  kNoResources = 3,
  kTimeout = 4,
  kUnsupported = 5,
  kInvalidCommId = 6,
  kInvalidServiceId = 8,
  kInvalidTransport = 9,
  kStaleConnection = 10,
  kInvalidGid = 12,
  kInvalidPathMtu = 26,
  kConsumer = 28,
  kVendorOptionNotSupported = 35,
};

// Between which addresses the messages and the connection go.
struct Ends {
  wire::Gid local{};
  wire::Gid remote{};
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;
};

// What both sides say of their QP.
struct QpParameters {
  Qpn qpn{};
  Psn starting_psn{};
  std::uint8_t responder_resources = 0;  // READs and atomics that it answers at once
  std::uint8_t initiator_depth = 0;      // that it has under way at once
  std::uint8_t rnr_retry_count = 0;      // 0 to 7
  bool has_srq = false;
  bool has_end_to_end_flow_control = false;
};

struct Request {
  Ends ends;
  ServiceId service;
  QpParameters qp;
  QpType type = QpType::kRc;     // RC, UC, or XRC send
  std::uint8_t path_mtu = 0;     // code 1 to 5
  std::uint8_t retry_count = 7;  // 0 to 7
  std::uint8_t ack_timeout = 0;  // code (4.096 us << code)
  std::uint32_t qkey = 0;
  PrivateData data;  // up to kRequestPrivateBytes
};

struct Reply {
  QpParameters qp;
  std::uint8_t target_ack_delay = 0;  // code
  PrivateData data;                   // up to kReplyPrivateBytes
};

// A service of datagrams is asked for its QP (SIDR, IBTA 1, 12.11).
struct Resolve {
  Ends ends;
  ServiceId service;
  PrivateData data;  // up to kResolvePrivateBytes
};

enum class ResolveStatus : std::uint8_t {
  kValid = 0,
  kUnsupportedService = 1,
  kRejected = 2,
  kNoQp = 3,
  kRedirected = 4,
  kUnsupportedVersion = 5,
};

struct Resolved {
  ResolveStatus status = ResolveStatus::kValid;
  Qpn qpn{};
  std::uint32_t qkey = 0;
  PrivateData data;  // up to kResolvedPrivateBytes
};

// What happened to a connection. Each says which members of Event it fills.
enum class EventKind : std::uint8_t {
  kRequested,         // a peer asks for a connection: `request`, whose ends are as seen from here
  kReplied,           // the peer has accepted: `reply`; confirm() or reject() is due
  kEstablished,       // the peer has confirmed, or its first packet has told: `data`
  kRejected,          // `reason`, `info`, `data`; the connection is gone for the manager but for forget()
  kUnreachable,       // no answer within the retries
  kDisconnecting,     // the peer disconnects: `data`. It has been answered
  kDisconnected,      // the peer has answered disconnect(), or has not within the retries: `is_timed_out`
  kTimeWaitOver,      // the QP number may be used again
  kResolveRequested,  // a peer asks for a datagram service: `resolve`
  kResolved,          // `resolved`
};

struct Event {
  EventKind kind{};
  ConnectionId connection;
  Request request;
  Reply reply;
  Resolve resolve;
  Resolved resolved;
  RejectReason reason{};
  bool is_timed_out = false;
  PrivateData info;
  PrivateData data;
};

// A management datagram (IBTA 1, 13.4.2), as it stands behind the DETH of a packet of QP 1.
inline constexpr std::size_t kMadBytes = 256;
using Mad = std::array<std::uint8_t, kMadBytes>;

struct OutgoingMad {
  Ends ends;
  Mad mad{};
};

// What has gone in and out, by kind of message, and what was not taken.
struct Counters {
  std::uint64_t sent[16]{};  // by low nibble of the attribute ID (0x0010 REQ to 0x0018 SIDR_REP, ...)
  std::uint64_t received[16]{};
  std::uint64_t repeated = 0;    // sent again for want of an answer
  std::uint64_t given_up = 0;    // repeats that were all in vain
  std::uint64_t duplicates = 0;  // received again, and answered again
  std::uint64_t malformed = 0;
  std::uint64_t unmatched = 0;  // of no connection here
  std::uint64_t no_room = 0;    // requests turned away because the tables are full
  std::uint64_t not_sent = 0;   // dropped because nobody took what is to be sent
};

}  // namespace urdma::cm
