// The queues that a client and its daemon share: send, receive and completion queues.
//
// Each QP and each CQ is one memfd that the daemon makes, sizes, seals and passes to the client.
// Indices are free-running 32-bit counters over rings of 2^n slots. Every cache line has one
// writer, named below. The daemon copies an entry once and trusts nothing that it has read: an index
// that is out of range ends the session. No pointers, no lock shared between processes.
//
// Thread contract: the client serialises posts per queue and polls per CQ; the daemon's side of a QP
// belongs to one engine, and that of a CQ to one at a time.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "urdma/abi/version.hpp"

namespace urdma::abi {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// A scatter/gather element; addresses are the client's.
struct Sge {
  std::uint64_t address;
  std::uint32_t length;  // bytes
  std::uint32_t lkey;
};
static_assert(sizeof(Sge) == 16);

// A send request. In its slot it is followed by `num_sge` Sge, or by `inline_bytes` bytes where
// kSendInline is set.
//  kLocalInv  immediate: the rkey to invalidate
//  kBindMw    rkey: the window's key so far; immediate: its new one; remote_address, compare_add: where it
//  begins
//             and how long it is (0: unbound); one Sge, whose lkey is the region's; remote_qkey: the window's
//             access; num_sge is 0 when the window is unbound
//  UD         remote_qpn, remote_qkey, address_handle
//  XRC        remote_srqn (in remote_qpn)
struct SendWqe {
  std::uint8_t opcode;  // WrOpcode
  std::uint8_t flags;   // kSendFence ...
  std::uint8_t num_sge;
  std::uint8_t reserved0;
  std::uint32_t immediate;  // host order; or the rkey to invalidate
  std::uint64_t wr_id;
  std::uint64_t remote_address;
  std::uint32_t rkey;
  std::uint32_t inline_bytes;
  std::uint64_t compare_add;
  std::uint64_t swap;
  std::uint32_t remote_qpn;  // UD; XRC: the peer's SRQ
  std::uint32_t remote_qkey;
  std::uint32_t address_handle;
  std::uint32_t reserved1;
};
static_assert(sizeof(SendWqe) == 64 && offsetof(SendWqe, compare_add) == 32);

// A receive request, followed by `num_sge` Sge.
struct ReceiveWqe {
  std::uint64_t wr_id;
  std::uint32_t num_sge;
  std::uint32_t reserved;
};
static_assert(sizeof(ReceiveWqe) == 16);

// A completion. Written by the daemon, `sequence` last (release; the poll's acquire pairs with it):
// entry i of the ring is new to the client when its sequence equals the client's counter + 1, where the
// counter is the free-running number of the completions polled so far. Memory starts as zeros.
struct Cqe {
  std::uint64_t wr_id;
  std::uint64_t timestamp_ns;
  std::uint32_t byte_len;
  std::uint32_t immediate;  // host order; or the invalidated rkey
  std::uint32_t qpn;
  std::uint32_t source_qpn;
  std::uint8_t status;  // WcStatus
  std::uint8_t opcode;  // WcOpcode
  std::uint8_t flags;   // kWcWithImm ...
  std::uint8_t is_receive;
  std::uint32_t vendor_error;  // a transport::FailureReason: why, for people
  // Send completions: the send queue's free-running index behind the request that completed; all
  // slots before it are free. Receive completions: the same of the receive queue.
  std::uint32_t wqe_index;
  std::uint32_t qp_cookie;  // CreateQp::cookie of the QP; kNoCookie where it is not of the CQ's client: XRC
  // CreateSrq::cookie of the SRQ that a receive came from; kNoCookie otherwise.
  std::uint32_t srq_cookie;
  std::uint8_t network;  // NetworkHeader of a received datagram
  std::uint8_t reserved[3];
  std::uint32_t padding;
  std::atomic<std::uint32_t> sequence;
};
static_assert(sizeof(Cqe) == 64 && offsetof(Cqe, sequence) == 60);

inline constexpr std::uint32_t kNoCookie = 0xFFFFFFFF;

// The head of an SRQ's memory; slots of ReceiveWqe follow as CreateSrqReply says. A slot is free again as
// soon as the engine has taken it: several QPs take from the ring, and complete in any order.
struct SrqPage {
  // Writer: the client.
  alignas(kCacheLine) std::atomic<std::uint32_t> producer;
  // Writer: the daemon. How many the engine has taken (release).
  alignas(kCacheLine) std::atomic<std::uint32_t> consumer;
};
static_assert(sizeof(SrqPage) == 2 * kCacheLine && std::is_standard_layout_v<SrqPage>);

// The head of a QP's memory. SQ and RQ slots follow at the offsets that CreateQpReply names.
struct QpPage {
  // Writer: the client. Slots below it are complete (release; the engine's acquire pairs with it).
  // But for RESET: while a ModifyQp to RESET is under way the engine stores 0 into both, and the client,
  // which posts nothing meanwhile, starts from 0 once it has the reply (whose socket orders the two).
  alignas(kCacheLine) std::atomic<std::uint32_t> send_producer;
  alignas(kCacheLine) std::atomic<std::uint32_t> receive_producer;
  // Writer: the daemon.
  // The engine that serves the QP, an index into the boards and eventfds of the session.
  alignas(kCacheLine) std::atomic<std::uint32_t> engine;
  // Not zero once the QP is in ERR: a receive that is posted now needs a doorbell to be flushed.
  // Handshake: the client stores receive_producer, fences, then reads this; the engine stores this,
  // fences, then reads receive_producer (both fences sequentially consistent).
  std::atomic<std::uint32_t> flush_receives;
};
static_assert(sizeof(QpPage) == 3 * kCacheLine && std::is_standard_layout_v<QpPage>);

// What a client wants an event for. The client's arm word is (count << 2 | ArmKind), the count
// raised at every arming, so that the daemon sees an arming that equals the last one.
enum class ArmKind : std::uint32_t { kNone = 0, kSolicited = 1, kNext = 2 };

// The head of a CQ's memory; the ring of Cqe follows at kCqRingOffset.
struct CqPage {
  // Writer: the client. How many completions it has taken; the engine reads it to find room.
  alignas(kCacheLine) std::atomic<std::uint32_t> consumer;
  // Writer: the client. Handshake: the client stores arm, fences, and polls again; the engine stores a
  // Cqe, fences, then reads arm (both fences sequentially consistent).
  alignas(kCacheLine) std::atomic<std::uint32_t> arm;
  // Writer: the daemon. The last arm word that led to an event: equal to `arm` means not armed.
  alignas(kCacheLine) std::atomic<std::uint32_t> fired;
  // Not zero once the CQ has overrun: no entry is written any more.
  std::atomic<std::uint32_t> overrun;
};
static_assert(sizeof(CqPage) == 3 * kCacheLine && std::is_standard_layout_v<CqPage>);
inline constexpr std::size_t kCqRingOffset = 4 * kCacheLine;

}  // namespace urdma::abi
