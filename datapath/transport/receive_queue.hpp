// The receive requests that a responder has at hand: those that messages use, those that are done and wait to
// be polled, and at most one that waits for its message.
//
// Owner: a Responder. One thread at a time. A ring of fixed size, allocated by the constructor.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "datapath/transport/types.hpp"

namespace urdma::transport {

// How a receive request ended.
struct ReceiveResult {
  WcStatus status = WcStatus::kSuccess;
  FailureReason reason = FailureReason::kNone;
  WcOpcode opcode = WcOpcode::kRecv;
  std::uint8_t flags = 0;
  bool is_solicited = false;
  std::uint32_t byte_len = 0;
  std::uint32_t immediate = 0;  // or the key to invalidate
  Qpn source_qp;                // of a datagram
  NetworkHeader network = NetworkHeader::kNone;
};

class ReceiveQueue {
 public:
  static constexpr std::uint32_t kSlots = 16;

  explicit ReceiveQueue(std::uint32_t max_sge);

  [[nodiscard]] bool has_room() const { return tail_ - head_ < kSlots; }
  // Whether there is one that no message uses.
  [[nodiscard]] bool has_unused() const { return used_ != tail_; }
  // Whether a message uses one that is not done.
  [[nodiscard]] bool has_used() const { return done_ != used_; }
  [[nodiscard]] bool has_done() const { return head_ != done_; }
  // Whether there is none at all.
  [[nodiscard]] bool is_empty() const { return head_ == tail_; }
  // Whether there is any at all that is not done.
  [[nodiscard]] bool has_undone() const { return done_ != tail_; }

  // There is room, and the elements are at most max_sge.
  void push(const ReceiveRequest& request, std::span<const Sge> elements);
  // A message begins to use the oldest unused one. There is one.
  void use() { ++used_; }
  // The message that uses the newest one in use does not come: the next one may have it. There is one.
  void give_back() { --used_; }
  // Of the one most recently used: its elements, and how many bytes they take.
  [[nodiscard]] std::span<const Sge> elements() const;
  [[nodiscard]] std::uint64_t capacity_bytes() const;
  // The oldest that is not done ends like this, used or not. There is one.
  void finish(const ReceiveResult& result);
  // The oldest that is done leaves the ring. There is one.
  void pop(Completion& completion);
  void clear();

 private:
  struct Slot {
    ReceiveRequest request;
    std::uint32_t element_count = 0;
    std::uint64_t capacity_bytes = 0;
    ReceiveResult result;
  };
  [[nodiscard]] Slot& slot(std::uint32_t index) { return slots_[index % kSlots]; }
  [[nodiscard]] const Slot& slot(std::uint32_t index) const { return slots_[index % kSlots]; }

  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<Sge[]> elements_;
  std::uint32_t max_sge_;
  // Free-running: head_ <= done_ <= used_ <= tail_.
  std::uint32_t head_ = 0;
  std::uint32_t done_ = 0;
  std::uint32_t used_ = 0;
  std::uint32_t tail_ = 0;
};

}  // namespace urdma::transport
