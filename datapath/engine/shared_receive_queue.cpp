// The ring of a shared receive queue: requests are copied out of shared memory once, and the copy is judged.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/shared_receive_queue.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "datapath/engine/ring.hpp"
#include "urdma/base/check.hpp"

namespace urdma::engine {

SrqGeometry SrqGeometry::of(std::uint32_t max_wr, std::uint32_t max_sge) {
  SrqGeometry geometry;
  geometry.slots = std::bit_ceil(std::max(max_wr, 1U));
  geometry.stride = receive_slot_stride(max_sge);
  geometry.slots_offset = sizeof(abi::SrqPage);
  geometry.memory_bytes = geometry.slots_offset + std::uint64_t{geometry.slots} * geometry.stride;
  return geometry;
}

SharedReceiveQueue::SharedReceiveQueue(const Config& config, std::uint32_t max_wr,
                                       memory::SharedMemory memory)
    : config_(config),
      max_wr_(max_wr),
      geometry_(SrqGeometry::of(max_wr, config.max_sge)),
      memory_(std::move(memory)),
      scratch_(config.max_sge) {
  URDMA_CHECK(memory_.size() >= geometry_.memory_bytes);
}

abi::SrqPage& SharedReceiveQueue::page() const { return *reinterpret_cast<abi::SrqPage*>(memory_.data()); }

const std::byte* SharedReceiveQueue::slot(std::uint32_t index) const {
  return memory_.data() + geometry_.slots_offset +
         std::size_t{index & (geometry_.slots - 1)} * geometry_.stride;
}

std::uint32_t SharedReceiveQueue::waiting() const {
  return page().producer.load(std::memory_order_acquire) - consumer_;
}

SharedReceiveQueue::Fetched SharedReceiveQueue::fetch(transport::ReceiveRequest& request,
                                                      std::span<const transport::Sge>& elements) {
  if (is_broken_) return Fetched::kNone;
  const std::uint32_t there = waiting();
  if (there == 0) return Fetched::kNone;
  const std::byte* from = slot(consumer_);
  const auto wqe = copy_once<abi::ReceiveWqe>(from);
  if (there > geometry_.slots || wqe.num_sge > config_.max_sge) {
    is_broken_ = true;
    return Fetched::kBroken;
  }
  request.wr_id = wqe.wr_id;
  request.wqe_index = 0;
  request.srq = config_.number;
  elements = copy_elements(from + sizeof wqe, wqe.num_sge, scratch_);
  ++consumer_;
  page().consumer.store(consumer_, std::memory_order_release);  // the slot has been read
  has_passed_limit_ |= there - 1 < limit_;
  return Fetched::kOne;
}

bool SharedReceiveQueue::take_limit_event() {
  if (!has_passed_limit_) return false;
  has_passed_limit_ = false;
  limit_ = 0;
  return true;
}

bool SharedReceiveQueue::resize(std::uint32_t max_wr, memory::SharedMemory& memory) {
  const SrqGeometry geometry = SrqGeometry::of(max_wr, config_.max_sge);
  URDMA_CHECK(memory.size() >= geometry.memory_bytes && geometry.stride == geometry_.stride);
  const std::uint32_t there = waiting();
  if (there > std::min(max_wr, geometry_.slots)) return false;
  std::byte* to = memory.data() + geometry.slots_offset;
  for (std::uint32_t i = 0; i < there; ++i) {
    // What the client changes meanwhile is judged when it is taken.
    std::memcpy(to + std::size_t{i} * geometry.stride, slot(consumer_ + i), geometry_.stride);
  }
  auto* fresh = reinterpret_cast<abi::SrqPage*>(memory.data());
  fresh->producer.store(there, std::memory_order_relaxed);
  fresh->consumer.store(0, std::memory_order_relaxed);
  std::swap(memory_, memory);
  geometry_ = geometry;
  max_wr_ = max_wr;
  consumer_ = 0;
  return true;
}

}  // namespace urdma::engine
