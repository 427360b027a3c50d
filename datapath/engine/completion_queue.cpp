// Completions into shared memory, and events for queues that are armed.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/completion_queue.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "urdma/base/check.hpp"

namespace urdma::engine {

CompletionQueue::CompletionQueue(Config config, memory::SharedMemory memory)
    : config_(std::move(config)), memory_(std::move(memory)) {
  URDMA_CHECK((config_.depth & (config_.depth - 1)) == 0);
  URDMA_CHECK(memory_.size() >= memory_bytes(config_.depth));
}

std::size_t CompletionQueue::memory_bytes(std::uint32_t depth) {
  return abi::kCqRingOffset + std::size_t{depth} * sizeof(abi::Cqe);
}

abi::CqPage& CompletionQueue::page() const { return *reinterpret_cast<abi::CqPage*>(memory_.data()); }

abi::Cqe& CompletionQueue::entry(std::uint32_t index) const {
  auto* ring = reinterpret_cast<abi::Cqe*>(memory_.data() + abi::kCqRingOffset);
  return ring[index & (config_.depth - 1)];
}

bool CompletionQueue::push(const transport::Completion& completion, std::uint32_t qpn, std::uint32_t cookie,
                           std::uint64_t timestamp_ns, std::uint32_t srq_cookie) {
  const std::lock_guard guard(lock_);
  if (overrun_) return false;
  // Whatever the client writes as its index, an entry lands inside the ring: a wrong one only loses
  // the client's own completions.
  const std::uint32_t used = producer_ - page().consumer.load(std::memory_order_acquire);
  if (used >= config_.depth) {
    overrun_ = true;
    page().overrun.store(1, std::memory_order_release);
    return false;
  }
  abi::Cqe& cqe = entry(producer_);
  cqe.wr_id = completion.wr_id;
  cqe.timestamp_ns = timestamp_ns;
  cqe.byte_len = completion.byte_len;
  cqe.immediate = completion.immediate;
  cqe.qpn = qpn;
  cqe.source_qpn = completion.source_qp.value;
  cqe.status = static_cast<std::uint8_t>(completion.status);
  cqe.opcode = static_cast<std::uint8_t>(completion.opcode);
  cqe.flags = completion.flags;
  cqe.is_receive = completion.is_receive ? 1 : 0;
  cqe.vendor_error = static_cast<std::uint32_t>(completion.reason);
  cqe.wqe_index = completion.wqe_index;
  cqe.qp_cookie = cookie;
  cqe.srq_cookie = srq_cookie;
  cqe.network = static_cast<std::uint8_t>(completion.network);
  ++producer_;
  cqe.sequence.store(producer_, std::memory_order_release);  // pairs with the poll's acquire
  pushed_any_ = true;
  pushed_solicited_ |= completion.is_solicited || completion.status != WcStatus::kSuccess;
  return true;
}

bool CompletionQueue::resize(std::uint32_t depth, memory::SharedMemory& memory) {
  URDMA_CHECK((depth & (depth - 1)) == 0 && memory.size() >= memory_bytes(depth));
  const std::uint32_t consumer = page().consumer.load(std::memory_order_acquire);
  // Whatever the client writes as its index, no more than the ring is copied.
  const std::uint32_t waiting = std::min(producer_ - consumer, config_.depth);
  if (waiting > depth) return false;
  auto* fresh = reinterpret_cast<abi::CqPage*>(memory.data());
  auto* ring = reinterpret_cast<abi::Cqe*>(memory.data() + abi::kCqRingOffset);
  for (std::uint32_t i = 0; i < waiting; ++i) {
    std::memcpy(static_cast<void*>(&ring[i]), &entry(producer_ - waiting + i), sizeof(abi::Cqe));
    ring[i].sequence.store(i + 1, std::memory_order_relaxed);
  }
  fresh->arm.store(page().arm.load(std::memory_order_relaxed), std::memory_order_relaxed);
  fresh->fired.store(fired_, std::memory_order_relaxed);
  fresh->overrun.store(overrun_ ? 1 : 0, std::memory_order_relaxed);
  std::swap(memory_, memory);
  config_.depth = depth;
  producer_ = waiting;
  return true;
}

// Whether an event is owed for what has been pushed since the last decision. Takes note of which arming it
// answers: the program may arm anew before the write is known to be made.
bool CompletionQueue::decide_event() {
  // Pairs with the fence of the client's arming: either it sees our entry, or we see its arm word.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::uint32_t arm = page().arm.load(std::memory_order_acquire);
  const auto kind = static_cast<abi::ArmKind>(arm & 3);
  const bool wanted = kind == abi::ArmKind::kNext || (kind == abi::ArmKind::kSolicited && pushed_solicited_);
  pushed_any_ = false;
  pushed_solicited_ = false;
  if (arm == fired_ || !wanted) return false;
  answered_arm_ = arm;
  return true;
}

bool CompletionQueue::notify(std::uint32_t lane) {
  const std::lock_guard guard(lock_);
  while (is_sending_ || pushed_any_) {
    if (!is_sending_ && !decide_event()) return true;
    is_sending_ = true;
    const std::uint64_t event = config_.user_pointer;
    if (!config_.channel.write(std::as_bytes(std::span(&event, 1)), lane)) return false;
    is_sending_ = false;
    fired_ = answered_arm_;
    page().fired.store(fired_, std::memory_order_release);
  }
  return true;
}

}  // namespace urdma::engine
