// The receive ring of a QP, the client's side.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/queue/receive_queue.hpp"

#include <cerrno>
#include <cstring>

namespace urdma::provider {

int ReceiveQueue::post(const ibv_recv_wr& request) {
  if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > shape_.max_sge) return EINVAL;
  if (head_ - known_tail_ >= shape_.max_requests) {
    known_tail_ = tail_.load(std::memory_order_acquire);
    if (head_ - known_tail_ >= shape_.max_requests) return ENOMEM;
  }
  std::byte* const where = slot(head_);
  const abi::ReceiveWqe wqe{request.wr_id, static_cast<std::uint32_t>(request.num_sge), 0};
  std::memcpy(where, &wqe, sizeof(wqe));
  if (request.num_sge > 0)
    std::memcpy(where + sizeof(wqe), request.sg_list,
                static_cast<std::size_t>(request.num_sge) * sizeof(abi::Sge));
  ++head_;
  return 0;
}

void ReceiveQueue::release(std::uint32_t index) {
  const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
  const std::uint32_t published = shape_.producer->load(std::memory_order_relaxed);
  if (index - tail <= published - tail) tail_.store(index, std::memory_order_release);
}

bool ReceiveQueue::flush_one(ibv_wc& completion) {
  const std::uint32_t tail = tail_.load(std::memory_order_acquire);
  if (tail == head_) return false;
  abi::ReceiveWqe wqe;
  std::memcpy(&wqe, slot(tail), sizeof(wqe));
  completion = {};
  completion.wr_id = wqe.wr_id;
  completion.status = IBV_WC_WR_FLUSH_ERR;
  completion.opcode = IBV_WC_RECV;
  tail_.store(tail + 1, std::memory_order_release);
  return true;
}

void ReceiveQueue::reset() {
  head_ = 0;
  known_tail_ = 0;
  tail_.store(0, std::memory_order_release);
  publish();
}

}  // namespace urdma::provider
