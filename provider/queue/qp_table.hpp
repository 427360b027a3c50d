// The QPs of a context by the cookie that comes back in their completions.
//
// find() is for pollers, any thread, without a lock; the rest is serialised by a mutex. A QP stays valid
// for a poller that holds the lock of one of its CQs, since a QP is taken out of the table before
// its CQs forget it.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace urdma::provider {

class QueuePair;

class QpTable {
 public:
  // A cookie that no other QP has; bind() then gives it its QP. Nothing when 65,536 are in use.
  [[nodiscard]] std::optional<std::uint32_t> reserve();
  void bind(std::uint32_t cookie, QueuePair* qp);
  // After it find() does not yield the QP any more.
  void release(std::uint32_t cookie);

  [[nodiscard]] QueuePair* find(std::uint32_t cookie) const {
    const Chunk* chunk = chunks_[(cookie & kIndexMask) / kChunkEntries].load(std::memory_order_acquire);
    if (chunk == nullptr) return nullptr;
    const Entry& entry = (*chunk)[cookie % kChunkEntries];
    QueuePair* qp = entry.qp.load(std::memory_order_acquire);
    // The upper half tells the present owner of an index from a former one.
    return entry.cookie.load(std::memory_order_relaxed) == cookie ? qp : nullptr;
  }

 private:
  static constexpr std::uint32_t kIndexMask = 0xFFFF;
  static constexpr std::uint32_t kChunkEntries = 1024;
  static constexpr std::uint32_t kChunks = (kIndexMask + 1) / kChunkEntries;
  static constexpr std::uint32_t kGeneration = kIndexMask + 1;

  struct Entry {
    std::atomic<QueuePair*> qp{nullptr};
    std::atomic<std::uint32_t> cookie{0};
  };
  using Chunk = std::array<Entry, kChunkEntries>;

  std::mutex mutex_;
  std::array<std::atomic<Chunk*>, kChunks> chunks_{};
  std::array<std::unique_ptr<Chunk>, kChunks> owned_;  // guarded by mutex_
  std::vector<std::uint32_t> free_;                    // guarded by mutex_: cookies for the next use
  std::uint32_t used_indices_ = 0;                     // guarded by mutex_
};

}  // namespace urdma::provider
