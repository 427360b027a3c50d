// The send requests of a queue pair that have not completed, oldest first, and how each lies in packets.
//
// Owner: a Requester. One thread at a time. A ring of fixed size, allocated by the constructor, with
// free-running indices: a request keeps its index while it is in the ring.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "datapath/transport/types.hpp"

namespace urdma::transport {

// A READ request packet asks for at most this many response packets. It bounds the PSNs in flight, and
// how much a responder sends unasked.
inline constexpr std::uint32_t kReadRequestPackets = 512;

// ATOMIC WRITE counts as one: it is answered, and takes its place among them (IBTA 9.4.5).
constexpr bool is_read_or_atomic(WrOpcode opcode) {
  return opcode == WrOpcode::kRdmaRead || opcode == WrOpcode::kCompareSwap || opcode == WrOpcode::kFetchAdd ||
         opcode == WrOpcode::kAtomicWrite;
}

// A send request and how far it has come. A READ's packets are those of its response; a local one has none.
struct SendWork {
  SendRequest request;
  Psn first_psn;  // set when its first packet is sent
  std::uint32_t packets = 1;
  std::uint32_t acknowledged_packets = 0;
  std::uint32_t unanswered_operations = 0;
  std::uint32_t element_count = 0;
  bool awaits_execution = false;         // a local one that has not been carried out
  WcStatus status = WcStatus::kSuccess;  // otherwise what it fails with
  FailureReason reason = FailureReason::kNone;

  // Whether only an answer with data acknowledges it.
  [[nodiscard]] bool needs_answer() const { return is_read_or_atomic(request.opcode); }
  [[nodiscard]] bool is_acknowledged() const { return acknowledged_packets == packets && !awaits_execution; }
  // Whether nothing of it is ever to be sent any more.
  [[nodiscard]] bool is_executed() const { return packets == 0 && !awaits_execution; }
  // Where the READ request packet that covers `packet` ends: one behind its last response packet.
  [[nodiscard]] std::uint32_t answer_end(std::uint32_t packet) const {
    if (request.opcode != WrOpcode::kRdmaRead) return packets;
    return std::min(packets, (packet / kReadRequestPackets + 1) * kReadRequestPackets);
  }
};

class SendQueue {
 public:
  // `slots` is a power of two.
  SendQueue(std::uint32_t slots, std::uint32_t max_sge);

  [[nodiscard]] std::uint32_t head() const { return head_; }  // the oldest request's index
  [[nodiscard]] std::uint32_t tail() const { return tail_; }  // the index that the next one gets
  [[nodiscard]] bool is_empty() const { return head_ == tail_; }
  [[nodiscard]] bool has_room() const { return tail_ - head_ < slots_; }
  // Whether the request with this index is (still) in the ring.
  [[nodiscard]] bool holds(std::uint32_t index) const { return index - head_ < tail_ - head_; }
  [[nodiscard]] SendWork& operator[](std::uint32_t index) { return works_[index & (slots_ - 1)]; }
  [[nodiscard]] const SendWork& operator[](std::uint32_t index) const { return works_[index & (slots_ - 1)]; }
  [[nodiscard]] std::span<const Sge> elements(std::uint32_t index) const;
  // The index behind `index`, but for local requests that have been carried out.
  [[nodiscard]] std::uint32_t next(std::uint32_t index) const {
    do ++index;
    while (holds(index) && (*this)[index].is_executed());
    return index;
  }
  [[nodiscard]] LocalOp local_of(std::uint32_t index) const;
  // The `length` bytes from `offset` on of what the request sends.
  [[nodiscard]] Payload payload_of(std::uint32_t index, std::uint64_t offset, std::uint32_t length) const;

  // There is room, and the elements are at most max_sge.
  void push(const SendRequest& request, std::span<const Sge> elements, std::uint32_t packet_bytes);
  void pop() { ++head_; }
  void clear() { head_ = tail_; }

 private:
  std::unique_ptr<SendWork[]> works_;
  std::unique_ptr<Sge[]> elements_;
  std::uint32_t slots_;
  std::uint32_t max_sge_;
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
};

}  // namespace urdma::transport
