// The send ring of a QP, the client's side: work requests into slots that the engine reads.
//
// It has no lock of its own: QueuePair serialises post, publish, reset and flush_one; release() may run
// beside them, from whoever polls the send CQ.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "urdma/abi/queues.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::provider {

class SendQueue {
 public:
  struct Shape {
    std::byte* slots = nullptr;                      // in the QP's memory
    std::atomic<std::uint32_t>* producer = nullptr;  // QpPage::send_producer
    std::uint32_t slot_count = 1;                    // a power of two
    std::uint32_t stride = 0;                        // bytes a slot
    std::uint32_t max_requests = 0;                  // what the program was granted
    std::uint32_t max_sge = 0;
    std::uint32_t max_inline = 0;  // bytes
    QpType type = QpType::kRc;
  };
  explicit SendQueue(const Shape& shape) : shape_(shape) {}

  // Writes the next slot, which the engine sees after publish(). 0, EINVAL (what a request on such a QP
  // cannot be), or ENOMEM (no free slot). Inline data has been copied on return.
  [[nodiscard]] int post(const ibv_send_wr& request);
  void publish() { shape_.producer->store(head_, std::memory_order_release); }

  // ---- For ibv_wr_*: slots are claimed, filled in place, and published or taken back together ----
  // The next slot's entry, with nothing behind it yet; the errors of post().
  [[nodiscard]] int claim(std::uint32_t opcode, std::uint64_t wr_id, unsigned flags, abi::SendWqe*& wqe);
  // What stands behind a claimed entry. 0 or EINVAL: more than was granted.
  [[nodiscard]] int set_elements(abi::SendWqe& wqe, std::span<const ibv_sge> elements) const;
  [[nodiscard]] int set_inline(abi::SendWqe& wqe, std::span<const ibv_data_buf> buffers) const;
  // An atomic write's 8 bytes, for which every slot has room.
  static void set_operand(abi::SendWqe& wqe, const void* operand);
  [[nodiscard]] std::uint32_t head() const { return head_; }
  // Takes back what was claimed since head() was `head`.
  void take_back(std::uint32_t head) { head_ = head; }

  // All slots before `index` are free: Cqe::wqe_index. An index that the ring cannot have is ignored.
  void release(std::uint32_t index);
  // Completes the oldest outstanding request, signalled or not, as flushed. False when there is none.
  [[nodiscard]] bool flush_one(ibv_wc& completion);
  [[nodiscard]] bool has_outstanding() const { return tail_.load(std::memory_order_acquire) != head_; }
  // Forgets everything, as a move to RESET does: both sides begin at slot 0 again.
  void reset();

 private:
  [[nodiscard]] std::byte* slot(std::uint32_t index) const {
    return shape_.slots + std::size_t{index & (shape_.slot_count - 1)} * shape_.stride;
  }
  [[nodiscard]] bool is_full();
  template <typename Buffer>
  [[nodiscard]] int write_inline(abi::SendWqe& wqe, std::span<const Buffer> buffers) const;
  [[nodiscard]] int write_request(const ibv_send_wr& request, abi::SendWqe& wqe) const;

  Shape shape_;
  std::uint32_t head_ = 0;        // the next slot to write
  std::uint32_t known_tail_ = 0;  // a copy of tail_, refreshed when the ring looks full
  // Writers: the poller of the send CQ (release), and the QP's lock holder (flush_one, reset).
  alignas(abi::kCacheLine) std::atomic<std::uint32_t> tail_{0};
};

// Makes `wqe` a bind of `mw`, and notes the window's new key. 0, or EINVAL: it names no region.
[[nodiscard]] int bind_window(abi::SendWqe& wqe, ibv_mw& mw, std::uint32_t new_key,
                              const ibv_mw_bind_info& info);

}  // namespace urdma::provider
