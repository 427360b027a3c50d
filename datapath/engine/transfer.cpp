// The pools of transfers and of buffers.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/transfer.hpp"

#include "urdma/base/check.hpp"

namespace urdma::engine {

TransferPool::TransferPool(std::uint32_t transfers, std::uint32_t buffers)
    : storage_(new Transfer[transfers]),
      // Not initialised on purpose: pages that are never used are never touched.
      buffer_storage_(new std::byte[std::size_t{buffers} * kLocalPacketBytes]) {
  for (std::uint32_t i = 0; i < transfers; ++i) give_back(storage_[i]);
  buffers_.reserve(buffers);
  for (std::uint32_t i = 0; i < buffers; ++i) {
    buffers_.push_back(buffer_storage_.get() + std::size_t{i} * kLocalPacketBytes);
  }
}

Transfer& TransferPool::take() {
  URDMA_CHECK(free_ != nullptr);
  Transfer& transfer = *free_;
  free_ = transfer.next;
  --free_count_;
  transfer.next = nullptr;
  transfer.result = transport::MemoryResult::kOk;
  transfer.frame = nullptr;
  transfer.buffer = nullptr;
  transfer.payload = nullptr;
  transfer.payload_bytes = 0;
  return transfer;
}

std::byte* TransferPool::take_buffer() {
  URDMA_CHECK(!buffers_.empty());
  std::byte* buffer = buffers_.back();
  buffers_.pop_back();
  return buffer;
}

void TransferPool::give_back(Transfer& transfer) {
  transfer.qp = nullptr;
  transfer.next = free_;
  free_ = &transfer;
  ++free_count_;
}

}  // namespace urdma::engine
