// The QPs of a context by cookie.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/queue/qp_table.hpp"

namespace urdma::provider {

std::optional<std::uint32_t> QpTable::reserve() {
  const std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    const std::uint32_t cookie = free_.back();
    free_.pop_back();
    return cookie;
  }
  if (used_indices_ > kIndexMask) return std::nullopt;
  const std::uint32_t index = used_indices_++;
  std::unique_ptr<Chunk>& chunk = owned_[index / kChunkEntries];
  if (chunk == nullptr) {
    chunk = std::make_unique<Chunk>();
    chunks_[index / kChunkEntries].store(chunk.get(), std::memory_order_release);
  }
  return index;
}

void QpTable::bind(std::uint32_t cookie, QueuePair* qp) {
  Entry& entry = (*owned_[(cookie & kIndexMask) / kChunkEntries])[cookie % kChunkEntries];
  entry.cookie.store(cookie, std::memory_order_relaxed);
  entry.qp.store(qp, std::memory_order_release);
}

void QpTable::release(std::uint32_t cookie) {
  const std::lock_guard lock(mutex_);
  Entry& entry = (*owned_[(cookie & kIndexMask) / kChunkEntries])[cookie % kChunkEntries];
  entry.qp.store(nullptr, std::memory_order_release);
  free_.push_back(cookie + kGeneration);
}

}  // namespace urdma::provider
