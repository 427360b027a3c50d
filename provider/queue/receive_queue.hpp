// The receive ring of a QP, the client's side.
//
// Locking as in send_queue.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "urdma/abi/queues.hpp"

namespace urdma::provider {

class ReceiveQueue {
 public:
  struct Shape {
    std::byte* slots = nullptr;                      // in the QP's memory
    std::atomic<std::uint32_t>* producer = nullptr;  // QpPage::receive_producer
    std::uint32_t slot_count = 1;                    // a power of two
    std::uint32_t stride = 0;                        // bytes a slot
    std::uint32_t max_requests = 0;                  // what the program was granted
    std::uint32_t max_sge = 0;
  };
  explicit ReceiveQueue(const Shape& shape) : shape_(shape) {}

  // Writes the next slot, which the engine sees after publish(). 0, EINVAL (too many elements), or ENOMEM
  // (no free slot).
  [[nodiscard]] int post(const ibv_recv_wr& request);
  void publish() { shape_.producer->store(head_, std::memory_order_release); }

  // All slots before `index` are free: Cqe::wqe_index. An index that the ring cannot have is ignored.
  void release(std::uint32_t index);
  // Completes the oldest outstanding request as flushed. False when there is none.
  [[nodiscard]] bool flush_one(ibv_wc& completion);
  [[nodiscard]] bool has_outstanding() const { return tail_.load(std::memory_order_acquire) != head_; }
  // Forgets everything, as a move to RESET does: both sides begin at slot 0 again.
  void reset();

 private:
  [[nodiscard]] std::byte* slot(std::uint32_t index) const {
    return shape_.slots + std::size_t{index & (shape_.slot_count - 1)} * shape_.stride;
  }

  Shape shape_;
  std::uint32_t head_ = 0;        // the next slot to write
  std::uint32_t known_tail_ = 0;  // a copy of tail_, refreshed when the ring looks full
  // Writers: the poller of the receive CQ (release), and the QP's lock holder (flush_one, reset).
  alignas(abi::kCacheLine) std::atomic<std::uint32_t> tail_{0};
};

}  // namespace urdma::provider
