// What goes into and comes out of the transport: work requests, packets, memory operations,
// completions. Plain values; the module does no I/O, reads no clock, allocates only when a QP is made.
//
// The transport touches no memory of programs. It says what is to be moved (Payload for a packet to
// send, MemoryOp for a packet received); its caller, an engine or the simulator, moves it, at
// once or later, and answers with a MemoryResult.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <span>

#include "urdma/base/ids.hpp"
#include "urdma/base/time.hpp"
#include "urdma/base/verbs.hpp"
#include "urdma/wire/headers.hpp"

namespace urdma::transport {

inline constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 31;

// A scatter/gather element; the address is the program's.
struct Sge {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  MemoryKey lkey;
};

// A send request, copied out of shared memory and checked for form (opcode known, num_sge and
// inline size within the QP's caps, total length at most kMaxMessageBytes).
struct SendRequest {
  std::uint64_t wr_id = 0;
  WrOpcode opcode = WrOpcode::kSend;
  std::uint8_t flags = 0;  // kSendSignaled ...
  std::uint32_t immediate = 0;
  std::uint64_t remote_address = 0;
  MemoryKey rkey;  // also the key to invalidate
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;
  // Datagrams; with XRC remote_qpn is the peer's SRQ number
  Qpn remote_qpn;
  std::uint32_t remote_qkey = 0;
  std::uint32_t address_handle = 0;
  // kBindMw: the window's new key, and where it begins, how long it is, and what it allows. Its key so far is
  // `rkey`, and the region's lkey the only element's.
  MemoryKey bind_key;
  std::uint32_t bind_access = 0;
  std::uint64_t length = 0;     // bytes of all elements, or inline bytes; kBindMw: of the window
  std::uint32_t wqe_index = 0;  // free-running index of its slot; names the inline data, too
  // Not kSuccess: the request is bad in itself, and completes with this once it is first in order.
  WcStatus verdict = WcStatus::kSuccess;
};

struct ReceiveRequest {
  std::uint64_t wr_id = 0;
  std::uint32_t wqe_index = 0;  // free-running index behind its slot, as the completion reports it
  std::uint32_t srq = 0;        // the caller's name for the SRQ that it came from; 0: none
};

// Which half of a QP a packet or a memory operation belongs to.
enum class Side : std::uint8_t { kRequester, kResponder };

// Where the payload of a packet to send comes from.
struct Payload {
  enum class Kind : std::uint8_t { kNone, kElements, kInline, kRegion };

  Kind kind = Kind::kNone;
  std::uint32_t length = 0;       // bytes
  std::span<const Sge> elements;  // kElements: all of the request's; valid until it completes
  std::uint64_t offset = 0;       // kElements, kInline: where in the message
  std::uint32_t wqe_index = 0;    // kInline
  MemoryKey key;                  // kRegion: a READ's source, access kAccessRemoteRead
  std::uint64_t address = 0;      // kRegion
};

// A send request that stays on this node (IBTA 10.6.7, 10.6.6.2.6).
struct LocalOp {
  enum class Kind : std::uint8_t { kNone, kInvalidate, kBind };

  Kind kind = Kind::kNone;
  MemoryKey key;       // kInvalidate: of a region or a window; kBind: the window's so far
  MemoryKey bind_key;  // kBind, and the following
  MemoryKey region_key;
  std::uint32_t access = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;  // 0: the window is bound to nothing
};

// A packet to send. The caller gathers the payload, adds the lower headers, and sends it in the order
// in which packets were polled from this side of the QP. Where `local` says something there is no packet: the
// caller carries it out, and answers by on_local_done() before it polls again.
struct TxPacket {
  wire::Headers headers;
  Payload payload;
  Side side = Side::kRequester;
  std::uint32_t address_handle = 0;  // datagrams: where to
  // The services without acknowledgements: that the packet's payload has been gathered is answered by
  // QueuePair::on_departed, in order, as on_gather_failed answers that it has not. A buffer is the program's
  // again only then.
  bool reports_departure = false;
  LocalOp local;
};

// What a received packet asks of memory. Operations of one QP are carried out in the order in which
// they were returned, and each is answered by QueuePair::on_memory_done, in that order for each side.
struct MemoryOp {
  enum class Kind : std::uint8_t {
    kNone,     // nothing; not answered
    kCheck,    // check the range only (READ request, WRITE of no bytes to place now)
    kWrite,    // check the range, and write the payload to its start
    kScatter,  // write the payload into elements (lkey, kAccessLocalWrite), at `offset` in them
    kAtomic,   // check 8 bytes, then compare-and-swap or fetch-and-add, in host order
    kNothing,  // nothing to do, but it is answered (kOk) to keep its place in the order
  };

  Kind kind = Kind::kNone;
  Side side = Side::kResponder;
  bool is_compare_swap = false;  // kAtomic
  bool ends_message = true;      // its last byte has to become visible behind all others
  std::uint32_t access = 0;      // kCheck, kWrite, kAtomic: flags that the region must have
  std::uint32_t length = 0;      // bytes of payload to write
  MemoryKey key;
  std::uint64_t address = 0;      // remote address: the region's iova space
  std::uint64_t check_bytes = 0;  // from `address`; 0: key and address are not looked at (IBTA 9.7.4)
  std::span<const Sge> elements;  // kScatter: valid until answered
  std::uint64_t offset = 0;       // kScatter
  // After the payload is in place: this region or window is invalidated; kProtection when it cannot be.
  bool invalidates = false;
  MemoryKey invalidate_key;
  // kScatter with an atomic's answer: the 8 bytes to write, instead of the packet's payload.
  bool has_value = false;
  std::uint64_t value = 0;
  std::uint64_t swap_or_add = 0;  // kAtomic
  std::uint64_t compare = 0;      // kAtomic
};

enum class MemoryResult : std::uint8_t {
  kOk,
  kProtection,  // no such key in this protection domain, out of bounds, or access not allowed
  kFault,       // the program's memory is not there any more
};

// Why a request failed, for people: `urdma status` turns it into words.
enum class FailureReason : std::uint8_t {
  kNone,
  kNoAnswer,        // nothing at all came back from the peer
  kAnswersStopped,  // the peer did answer before
  kSequenceErrors,  // the peer kept saying that packets were missing
  kReceiverNotReady,
  kRemoteAccess,
  kRemoteInvalidRequest,
  kRemoteOperation,
  kLocalProtection,
  kLocalLength,
  kLocalOperation,
  kBadResponse,
  kCqOverrun,
  kFlushed,
};

struct Completion {
  std::uint64_t wr_id = 0;
  WcStatus status = WcStatus::kSuccess;
  WcOpcode opcode = WcOpcode::kSend;
  std::uint8_t flags = 0;  // kWcWithImm ...
  bool is_receive = false;
  bool is_solicited = false;  // counts as solicited for an armed CQ: also every error
  FailureReason reason = FailureReason::kNone;
  std::uint32_t byte_len = 0;
  std::uint32_t immediate = 0;
  Qpn source_qp;
  NetworkHeader network = NetworkHeader::kNone;  // of a received datagram
  std::uint32_t srq = 0;                         // ReceiveRequest::srq of a receive
  std::uint32_t wqe_index = 0;  // free-running index behind the slot: slots before it are free
};

// Fixed when the QP is made.
struct QpConfig {
  Qpn qpn;
  QpType type = QpType::kRc;
  bool signal_all = false;
  // Receives come from an SRQ: only for a packet that needs one, see QueuePair::needs_receive.
  bool has_srq = false;
  std::uint32_t send_slots = 1;  // requests in flight at most; a power of two
  std::uint32_t max_send_sge = 1;
  std::uint32_t max_recv_sge = 1;
  std::uint32_t max_rd_atomic = 16;  // the device's limits, for which room is made
  std::uint32_t max_dest_rd_atomic = 16;
};

// What a modify call may set, after the control path has resolved the address (IBTA 11.2.5.2).
struct QpAttributes {
  QpState state = QpState::kReset;
  QpState current_state = QpState::kReset;
  std::uint8_t path_mtu_code = 0;  // 1 (256 B) to 5 (4096 B)
  // Payload bytes a packet holds: mtu_bytes(path_mtu_code) on a wire, more between two QPs of a node. Taken
  // with kAttrPathMtu; of datagrams, which have no path MTU, with any attribute where it is not 0 (the port's
  // MTU).
  std::uint32_t packet_bytes = 0;
  std::uint8_t max_rd_atomic = 0;
  std::uint8_t max_dest_rd_atomic = 0;
  std::uint8_t min_rnr_timer = 0;  // code of IBTA table 45
  std::uint8_t timeout = 0;        // 4.096 us x 2^timeout; 0: never
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry = 0;  // 7: for ever
  std::uint8_t port = 0;
  bool sqd_notify = false;
  std::uint32_t qkey = 0;
  Psn rq_psn;
  Psn sq_psn;
  Qpn dest_qpn;
  std::uint32_t access_flags = 0;
  std::uint16_t pkey_index = 0;
};

// Counters of one QP, all free-running.
struct QpCounters {
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t packets_retransmitted = 0;
  std::uint64_t duplicates_received = 0;
  std::uint64_t out_of_sequence_received = 0;
  std::uint64_t ack_timeouts = 0;
  std::uint64_t sequence_naks_sent = 0;
  std::uint64_t sequence_naks_received = 0;
  std::uint64_t rnr_naks_sent = 0;
  std::uint64_t rnr_naks_received = 0;
  std::uint64_t error_naks_sent = 0;
  std::uint64_t error_naks_received = 0;
  std::uint64_t implied_naks = 0;
  std::uint64_t dropped_invalid = 0;  // stale, malformed for the state, or beyond bounds
  // UC and UD, which drop where RC answers with a NAK:
  std::uint64_t dropped_no_receive = 0;  // messages
  std::uint64_t dropped_qkey = 0;
};

}  // namespace urdma::transport
