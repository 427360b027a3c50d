// A payload on its way that could not be moved at once: a packet to send whose bytes a copier is
// reading, or a received packet whose bytes a copier is writing or which waits behind such a one.
// Owner: an engine. Pools are sized at start; nothing is allocated later but fences, which are rare.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "datapath/engine/path.hpp"
#include "datapath/engine/pieces.hpp"
#include "datapath/memory/copier.hpp"
#include "datapath/transport/types.hpp"

struct rte_mbuf;

namespace urdma::engine {

class Qp;

struct Transfer {
  enum class Stage : std::uint8_t {
    kDeparting,  // to send: a copier reads the payload
    kDeparted,   // to send: the payload is there (or failed)
    kWaiting,    // received: the transport takes it once it has answers to what it has asked for
    kHeld,       // received: waits for those before it
    kPlacing,    // received: a copier writes the payload
    kPlaced,     // received: to be answered
    kOrphan,     // its QP has forgotten it, and a copier still has it in hand
    kLocal,      // a fence for a request of its QP that closes a window
    kFence,      // names nothing: tells when a copier has done all before it
  };

  Transfer* next = nullptr;
  Qp* qp = nullptr;
  Stage stage = Stage::kHeld;
  transport::MemoryResult result = transport::MemoryResult::kOk;
  transport::TxPacket packet;    // to send
  Route route;                   // of a frame to send
  transport::MemoryOp op;        // received
  Qpn srqn;                      // received: the SRQ that an XRC packet named
  std::uint64_t original = 0;    // an atomic's old value
  rte_mbuf* frame = nullptr;     // a wire: holds the payload
  std::byte* buffer = nullptr;   // inside the node: kLocalPacketBytes of the pool
  std::byte* payload = nullptr;  // in the frame or the buffer
  std::uint32_t payload_bytes = 0;
  Instant expires;                        // kWaiting, for a receive: then it is dropped
  std::uint64_t cookie = 0;               // kFence
  memory::AddressSpace* space = nullptr;  // kLocal: of the region whose window has been closed
  memory::CopyJob job;
  std::array<memory::CopySegment, kMostPieces> segments;
};

// Transfers of a QP in order, by their links.
inline void append(Transfer*& head, Transfer*& tail, Transfer& transfer) {
  transfer.next = nullptr;
  if (head == nullptr) {
    head = &transfer;
  } else {
    tail->next = &transfer;
  }
  tail = &transfer;
}

inline Transfer& pop(Transfer*& head) {
  Transfer& first = *head;
  head = first.next;
  first.next = nullptr;
  return first;
}

class TransferPool {
 public:
  TransferPool(std::uint32_t transfers, std::uint32_t buffers);

  [[nodiscard]] std::uint32_t free_transfers() const { return free_count_; }
  [[nodiscard]] std::uint32_t free_buffers() const { return static_cast<std::uint32_t>(buffers_.size()); }
  // Both must be known to be there.
  [[nodiscard]] Transfer& take();
  [[nodiscard]] std::byte* take_buffer();
  void give_back(Transfer& transfer);
  void give_back_buffer(std::byte* buffer) { buffers_.push_back(buffer); }

 private:
  std::unique_ptr<Transfer[]> storage_;
  std::unique_ptr<std::byte[]> buffer_storage_;
  std::vector<std::byte*> buffers_;
  Transfer* free_ = nullptr;
  std::uint32_t free_count_ = 0;
};

}  // namespace urdma::engine
