// The ring of receive requests; see the header.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/receive_queue.hpp"

#include <algorithm>

#include "urdma/base/check.hpp"

namespace urdma::transport {

ReceiveQueue::ReceiveQueue(std::uint32_t max_sge)
    : slots_(std::make_unique<Slot[]>(kSlots)),
      elements_(std::make_unique<Sge[]>(std::size_t{kSlots} * max_sge)),
      max_sge_(max_sge) {}

void ReceiveQueue::push(const ReceiveRequest& request, std::span<const Sge> elements) {
  URDMA_CHECK(has_room() && elements.size() <= max_sge_);
  Slot& added = slot(tail_);
  added = Slot{};
  added.request = request;
  added.element_count = static_cast<std::uint32_t>(elements.size());
  for (const Sge& element : elements) added.capacity_bytes += element.length;
  std::copy(elements.begin(), elements.end(), &elements_[std::size_t{tail_ % kSlots} * max_sge_]);
  ++tail_;
}

std::span<const Sge> ReceiveQueue::elements() const {
  const std::uint32_t index = used_ - 1;
  return {&elements_[std::size_t{index % kSlots} * max_sge_], slot(index).element_count};
}

std::uint64_t ReceiveQueue::capacity_bytes() const { return slot(used_ - 1).capacity_bytes; }

void ReceiveQueue::finish(const ReceiveResult& result) {
  URDMA_CHECK(has_undone());
  slot(done_).result = result;
  if (used_ == done_) ++used_;
  ++done_;
}

void ReceiveQueue::pop(Completion& completion) {
  URDMA_CHECK(has_done());
  const Slot& oldest = slot(head_);
  const ReceiveResult& result = oldest.result;
  completion = Completion{};
  completion.wr_id = oldest.request.wr_id;
  completion.wqe_index = oldest.request.wqe_index;
  completion.is_receive = true;
  completion.status = result.status;
  completion.reason = result.reason;
  completion.opcode = result.opcode;
  completion.flags = result.flags;
  completion.is_solicited = result.is_solicited || result.status != WcStatus::kSuccess;
  completion.byte_len = result.byte_len;
  completion.immediate = result.immediate;
  completion.source_qp = result.source_qp;
  completion.network = result.network;
  completion.srq = oldest.request.srq;
  ++head_;
}

void ReceiveQueue::clear() { head_ = done_ = used_ = tail_; }

}  // namespace urdma::transport
