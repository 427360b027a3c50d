// Where frames live: a pool of packet buffers in DPDK's memory, shared by the ports and engines of a
// node. Made after EAL and before the ports, by the control path; outlives both ports and engines. Taking
// and giving back buffers is safe from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "urdma/base/result.hpp"
#include "urdma/wire/frame.hpp"

struct rte_mempool;

namespace urdma::io {

// The largest RoCE frame there is: path MTU 4096 with all headers. An interface may have a larger MTU;
// what is longer than this is not RoCE, and is cut by the port and refused by the parser.
inline constexpr std::uint32_t kLargestFrameBytes =
    static_cast<std::uint32_t>(wire::kMaxFrameHeaderBytes + 4096 + wire::kMaxFrameTrailerBytes);

struct FramePoolConfig {
  std::string name = "frames";  // unique in the process, at most 20 characters
  std::uint32_t frames = 8192;
  std::uint32_t largest_frame_bytes = kLargestFrameBytes;
};

// What the pool takes of EAL's memory, bytes: for EalConfig. Pages are used up as frames are, not before.
[[nodiscard]] std::size_t frame_pool_bytes(const FramePoolConfig& config);

class FramePool {
 public:
  // ENOMEM when EAL was given less than frame_pool_bytes(); EINVAL for sizes beyond 1 GiB in all.
  [[nodiscard]] static Result<FramePool> create(const FramePoolConfig& config);
  ~FramePool();
  FramePool(FramePool&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)) {}
  FramePool& operator=(FramePool&& other) noexcept {
    std::swap(pool_, other.pool_);
    return *this;
  }

  [[nodiscard]] rte_mempool* get() const { return pool_; }
  // Frames that nobody holds now. Any thread; slow.
  [[nodiscard]] std::uint32_t free_frames() const;

 private:
  explicit FramePool(rte_mempool* pool) : pool_(pool) {}

  rte_mempool* pool_ = nullptr;
};

}  // namespace urdma::io
