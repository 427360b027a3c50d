// What a responder owes for packets whose memory operation is not answered yet, in the order of the packets.
// An acknowledgement or a completion may go out only when the bytes of all packets up to it are in place.
//
// Owner: a Responder. One thread at a time. A ring of fixed size, allocated by the constructor.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <memory>

#include "datapath/transport/receive_queue.hpp"
#include "urdma/base/check.hpp"

namespace urdma::transport {

struct Settlement {
  enum class Kind : std::uint8_t {
    kPlaced,        // a packet of a SEND or a WRITE
    kRead,          // a READ to answer
    kRepeatedRead,  // a duplicate READ to answer again
    kAtomic,        // an atomic to answer
    kAtomicWrite,   // an ATOMIC WRITE to answer
    kNotify,        // a NAK after which the connection goes on: sequence error, RNR
    kReject,        // a NAK after which it does not
  };

  Kind kind = Kind::kPlaced;
  bool wants_ack = false;
  bool ends_message = false;
  bool ends_receive = false;                        // `result` goes to the oldest receive request in use
  bool invalidates = false;                         // the operation does, besides
  bool is_local = false;                            // the operation is on the receive request's own elements
  wire::AethKind aeth_kind = wire::AethKind::kNak;  // kNotify
  std::uint8_t aeth_value = 0;                      // kNotify, kReject
  Psn psn;
  Psn last_psn;               // of the response, for a READ
  std::uint64_t address = 0;  // READs
  MemoryKey rkey;
  std::uint32_t length = 0;
  std::uint32_t message = 0;  // UC: its number
  ReceiveResult result;
};

class SettlementQueue {
 public:
  static constexpr std::uint32_t kSlots = 64;

  SettlementQueue() : slots_(std::make_unique<Settlement[]>(kSlots)) {}

  [[nodiscard]] bool is_empty() const { return head_ == tail_; }
  [[nodiscard]] bool has_room() const { return tail_ - head_ < kSlots; }
  [[nodiscard]] std::uint32_t size() const { return tail_ - head_; }

  void push(const Settlement& settlement) {
    URDMA_CHECK(has_room());
    slots_[tail_++ % kSlots] = settlement;
  }
  [[nodiscard]] Settlement pop() {
    URDMA_CHECK(!is_empty());
    return slots_[head_++ % kSlots];
  }
  void clear() { head_ = tail_; }

 private:
  std::unique_ptr<Settlement[]> slots_;
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
};

}  // namespace urdma::transport
