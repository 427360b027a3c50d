// Frame pools: see frame_pool.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/io/frame_pool.hpp"

#include <fmt/format.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <algorithm>

namespace urdma::io {
namespace {

constexpr std::size_t kMaxPoolBytes = std::size_t{1} << 30;
constexpr std::uint32_t kMaxFrameBytes = 16 * 1024;
// AF_PACKET wants room for its own slot, which is rounded up: see AfPacketRing.
constexpr std::uint32_t kDriverSlackBytes = 128;
constexpr std::uint32_t kCacheFrames = 256;
// In DPDK's usual ring who comes second spins until the first is through. The control thread frees frames of
// a port that it closes, and may lose its core in the midst: an engine, at real-time priority, would spin on
// it.
constexpr const char* kOperations = "ring_mt_rts";

constexpr std::uint32_t room_bytes(std::uint32_t largest_frame_bytes) {
  return RTE_PKTMBUF_HEADROOM + (largest_frame_bytes + kDriverSlackBytes + 63U) / 64U * 64U;
}

// DPDK's header, the mbuf, its room, and what keeps the next one aligned.
std::size_t element_bytes(const FramePoolConfig& config) {
  constexpr std::size_t kPerObject = 256;
  return sizeof(rte_mbuf) + room_bytes(config.largest_frame_bytes) + kPerObject;
}

}  // namespace

std::size_t frame_pool_bytes(const FramePoolConfig& config) {
  constexpr std::size_t kRingEntry = 16;  // the pool's ring of pointers, rounded up to a power of two
  return std::size_t{config.frames} * (element_bytes(config) + kRingEntry);
}

Result<FramePool> FramePool::create(const FramePoolConfig& config) {
  const bool is_sane = config.frames > 0 && config.largest_frame_bytes <= kMaxFrameBytes &&
                       frame_pool_bytes(config) <= kMaxPoolBytes;
  if (!is_sane) {
    return fail(EINVAL, fmt::format("a pool of {} frames of {} bytes is too large", config.frames,
                                    config.largest_frame_bytes));
  }
  const std::uint32_t cache = std::min(kCacheFrames, config.frames / 4);
  rte_mempool* pool = rte_pktmbuf_pool_create_by_ops(
      config.name.c_str(), config.frames, cache, 0,
      static_cast<std::uint16_t>(room_bytes(config.largest_frame_bytes)), SOCKET_ID_ANY, kOperations);
  if (pool == nullptr) {
    return fail_errno(rte_errno, fmt::format("no memory for {} frames of {} bytes", config.frames,
                                             config.largest_frame_bytes));
  }
  return FramePool(pool);
}

FramePool::~FramePool() { rte_mempool_free(pool_); }

std::uint32_t FramePool::free_frames() const { return rte_mempool_avail_count(pool_); }

}  // namespace urdma::io
