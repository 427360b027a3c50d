// What a responder has to send, in PSN order: acknowledgements, NAKs, READ responses, atomic answers. An
// acknowledgement never overtakes the answer to an earlier READ. The answer to a duplicate takes its place in
// that order, too: the requester waits for it, and drops what comes from beyond it.
//
// Owner: a Responder. One thread at a time. A ring, allocated by reserve(). When it is full, what is
// pushed is lost, as a packet may be on its way, and the protocol repairs it.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <memory>

#include "datapath/transport/types.hpp"

namespace urdma::transport {

class ResponseQueue {
 public:
  ResponseQueue() { reserve(0); }
  // Sees to room for the answers of `max_dest_rd_atomic` READs and atomics, as many duplicates, and what is
  // between. What is in the queue stays there.
  void reserve(std::uint32_t max_dest_rd_atomic);

  [[nodiscard]] bool is_empty() const { return head_ == tail_; }
  // READs and atomics, without duplicates, whose answer has not been sent completely.
  [[nodiscard]] std::uint32_t unanswered_requests() const { return unanswered_requests_; }
  // Whether the answer to an atomic, or what is left of the response to a READ, starts with this PSN.
  [[nodiscard]] bool will_answer(Psn psn) const;

  // Acknowledges everything up to `psn`. One that is not sent yet takes over the later PSN.
  void push_ack(Psn psn, std::uint32_t msn);
  void push_nak(Psn psn, wire::AethKind kind, std::uint8_t value, std::uint32_t msn);
  // A READ of `length` bytes, whose response starts with `psn`. A duplicate of the end of a READ whose
  // response is still being sent makes that one go back, or forward: who asks for the rest has what is before
  // it.
  void push_read(Psn psn, std::uint64_t address, MemoryKey rkey, std::uint32_t length,
                 std::uint32_t packet_bytes, std::uint32_t msn, bool is_duplicate);
  void push_atomic(Psn psn, std::uint64_t original, std::uint32_t msn, bool is_duplicate);
  void clear();

  // The next packet but for its destination; false if there is none.
  [[nodiscard]] bool poll(TxPacket& packet);

 private:
  struct Response {
    enum class Kind : std::uint8_t { kAck, kNak, kRead, kAtomic };
    Kind kind = Kind::kAck;
    wire::AethKind aeth_kind = wire::AethKind::kAck;
    std::uint8_t aeth_value = wire::kNoCredits;
    bool is_duplicate = false;
    bool has_begun = false;  // kRead: its first packet is sent
    Psn psn;                 // kRead: of the next packet
    std::uint32_t msn = 0;
    std::uint32_t packet_bytes = 0;  // kRead
    std::uint32_t left_bytes = 0;    // kRead
    MemoryKey rkey;                  // kRead
    std::uint64_t value = 0;         // kRead: address of the next byte; kAtomic: the original value
  };

  // The READ in the queue whose response ends with `last`; null if there is none.
  [[nodiscard]] Response* find_read(Psn last);
  // In front of everything beyond `psn`; null if there is no room.
  [[nodiscard]] Response* insert(Response::Kind kind, Psn psn, std::uint32_t msn);
  // Behind everything; null if there is no room.
  [[nodiscard]] Response* add(Response::Kind kind, Psn psn, std::uint32_t msn);
  [[nodiscard]] Response& at(std::uint32_t index) { return slots_[index % slot_count_]; }
  [[nodiscard]] const Response& at(std::uint32_t index) const { return slots_[index % slot_count_]; }
  // Fills in the next packet of a READ response; true if it is the last.
  static bool next_read_packet(Response& response, TxPacket& packet);
  void pop();

  std::unique_ptr<Response[]> slots_;
  std::uint32_t slot_count_ = 0;  // a power of two, so that free-running indices may wrap
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
  std::uint32_t unanswered_requests_ = 0;
};

}  // namespace urdma::transport
