// A completion queue, the client's side.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/queue/completion_queue.hpp"

#include <endian.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <span>
#include <utility>

#include "provider/control/event_pipe.hpp"
#include "provider/queue/queue_pair.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::provider {

namespace {

// Every so many empty polls in a row the core is offered to others: the engine and the peer may be
// waiting for it. The first ones are free, for completions that are just about to arrive.
constexpr std::uint32_t kEmptyPollsPerYield = 8;
// Every so many the daemon's mark of life is looked at.
constexpr std::uint32_t kEmptyPollsPerLook = 64;
static_assert(kEmptyPollsPerLook % kEmptyPollsPerYield == 0);

}  // namespace

CompletionQueue::CompletionQueue(Config config, Mapping memory, const QpTable& table, Liveness& liveness)
    : config_(config), table_(table), liveness_(liveness) {
  use(std::move(memory), config.depth);
}

int CompletionQueue::map(const abi::CreateCqReply& reply, const std::vector<UniqueFd>& fds, Mapping& memory) {
  const std::uint64_t needed = abi::kCqRingOffset + std::uint64_t{reply.depth} * sizeof(abi::Cqe);
  if (fds.size() != 1 || !std::has_single_bit(reply.depth) || reply.memory_bytes < needed) return EPROTO;
  return memory.map(fds[0].get(), reply.memory_bytes, Mapping::Access::kReadWrite);
}

void CompletionQueue::use(Mapping memory, std::uint32_t depth) {
  rings_.push_back(std::make_unique<Ring>(std::move(memory), depth));
  ring_.store(rings_.back().get(), std::memory_order_release);
}

int CompletionQueue::take_over(const abi::CreateCqReply& reply, const std::vector<UniqueFd>& fds) {
  Mapping memory;
  if (const int error = map(reply, fds, memory); error != 0) return error;
  use(std::move(memory), reply.depth);  // in which completion 0 is the first that has not been polled
  return 0;
}

// What a completion frees in its QP's rings. False when it is of a QP that is being destroyed.
bool CompletionQueue::release_slot(const Entry& from) const {
  if (from.qp_cookie == abi::kNoCookie) return true;  // XRC: the QP may be another process's
  QueuePair* qp = table_.find(from.qp_cookie);
  if (qp == nullptr) [[unlikely]]
    return false;
  if (from.is_receive == 0)
    qp->release_send(from.wqe_index);
  else if (from.srq_cookie == abi::kNoCookie)
    qp->release_receive(from.wqe_index);
  return true;
}

bool CompletionQueue::complete(const Entry& from, ibv_wc& to) {
  if (!release_slot(from)) return false;
  polled_.timestamp_ns = from.timestamp_ns;
  to.wr_id = from.wr_id;
  to.status = static_cast<ibv_wc_status>(from.status);
  to.opcode = static_cast<ibv_wc_opcode>(from.opcode);
  to.vendor_err = from.vendor_error;
  to.byte_len = from.byte_len;
  if ((from.flags & kWcWithInv) != 0)
    to.invalidated_rkey = from.immediate;
  else
    to.imm_data = htobe32(from.immediate);
  to.qp_num = from.qpn;
  to.src_qp = from.source_qpn;
  to.wc_flags = from.flags;
  to.pkey_index = 0;
  to.slid = 0;
  to.sl = from.network;
  to.dlid_path_bits = 0;
  return true;
}

int CompletionQueue::poll(int most, ibv_wc* completions) {
  if (looks_empty()) {
    if (note_empty()) return poll_dead(most, completions);
    // It may have yielded. What came meanwhile came before whatever its program looks at next: libfabric
    // reads a disconnection there, and gives up what it has not polled.
    if (looks_empty()) return 0;
  }
  const std::lock_guard lock(mutex_);
  if (empty_polls_.load(std::memory_order_relaxed) != 0) empty_polls_.store(0, std::memory_order_relaxed);
  int taken = 0;
  if (!backlog_.empty()) [[unlikely]]
    taken = take_backlog(most, completions);
  return taken + take_ring(most - taken, completions + taken);
}

bool CompletionQueue::note_empty() {
  const std::uint32_t empty = empty_polls_.load(std::memory_order_relaxed) + 1;
  empty_polls_.store(empty, std::memory_order_relaxed);
  const bool looks = empty % kEmptyPollsPerLook == 0;
  if (liveness_.is_gone() || (looks && liveness_.look())) [[unlikely]]
    return true;
  if (config_.yields_when_idle && empty % kEmptyPollsPerYield == 0) ::sched_yield();
  return false;
}

int CompletionQueue::start_poll() {
  if (looks_empty() && !note_empty() && looks_empty()) return ENOENT;
  std::unique_lock lock(mutex_);
  if (empty_polls_.load(std::memory_order_relaxed) != 0) empty_polls_.store(0, std::memory_order_relaxed);
  const int error = take_one();
  if (error != 0) return error;
  is_polling_ = true;
  if (!config_.is_single_threaded) lock.release();  // until end_poll()
  return 0;
}

int CompletionQueue::next_poll() {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (config_.is_single_threaded) lock.lock();
  return take_one();
}

// Programs call it after a start_poll() that found nothing, too.
void CompletionQueue::end_poll() {
  if (!is_polling_) return;
  is_polling_ = false;
  if (!config_.is_single_threaded) mutex_.unlock();
}

int CompletionQueue::take_one() {
  int taken = backlog_.empty() ? 0 : take_backlog(1, &polled_.wc);
  if (taken == 0) taken = take_ring(1, &polled_.wc);
  if (taken == 0 && liveness_.is_gone()) [[unlikely]] {
    ring_is_closed_ = true;
    polled_.timestamp_ns = 0;
    taken = flush_users(1, &polled_.wc);
  }
  return taken == 1 ? 0 : ENOENT;
}

int CompletionQueue::poll_dead(int most, ibv_wc* completions) {
  const std::lock_guard lock(mutex_);
  int taken = take_backlog(most, completions);
  taken += take_ring(most - taken, completions + taken);
  if (taken > 0 || most <= 0) return taken;
  ring_is_closed_ = true;
  taken = flush_users(most, completions);
  if (taken == 0 && config_.yields_when_idle) ::sched_yield();
  return taken;
}

int CompletionQueue::take_backlog(int most, ibv_wc* completions) {
  int taken = 0;
  while (taken < most && !backlog_.empty()) {
    if (complete(backlog_.front(), completions[taken])) ++taken;
    backlog_.pop_front();
  }
  has_backlog_.store(!backlog_.empty(), std::memory_order_relaxed);
  return taken;
}

int CompletionQueue::take_ring(int most, ibv_wc* completions) {
  if (ring_is_closed_) return 0;
  Ring& current = ring();
  const std::uint32_t first = current.consumer.load(std::memory_order_relaxed);
  std::uint32_t index = first;
  int taken = 0;
  while (taken < most && current.is_new(index)) {
    if (complete(Entry(current.entry(index)), completions[taken])) ++taken;
    ++index;
  }
  if (index == first) return taken;
  current.consumer.store(index, std::memory_order_relaxed);
  // The entries have been read: the engine may write over them.
  current.page().consumer.store(index, std::memory_order_release);
  return taken;
}

int CompletionQueue::flush_users(int most, ibv_wc* completions) {
  int taken = 0;
  for (const User& user : users_) {
    while (user.sends && taken < most && user.qp->flush_send(completions[taken])) ++taken;
    while (user.receives && taken < most && user.qp->flush_receive(completions[taken])) ++taken;
  }
  return taken;
}

void CompletionQueue::arm(bool solicited_only) {
  bool fires = false;
  {
    const std::lock_guard lock(mutex_);
    abi::CqPage& page = ring().page();
    const std::uint32_t before = page.arm.load(std::memory_order_relaxed);
    const bool is_armed = before != page.fired.load(std::memory_order_acquire);
    const bool is_stronger = static_cast<abi::ArmKind>(before & 3) == abi::ArmKind::kNext;
    if (!(is_armed && is_stronger && solicited_only)) {
      const auto kind = solicited_only ? abi::ArmKind::kSolicited : abi::ArmKind::kNext;
      page.arm.store(++arm_count_ << 2 | static_cast<std::uint32_t>(kind), std::memory_order_release);
    }
    // Pairs with the engine's fence between a completion and its look at `arm`: the program polls next, and
    // either that poll sees the completion or the engine sees the arming.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (liveness_.is_gone()) [[unlikely]] {
      fires = has_flushable();
      armed_after_death_ = !fires;
    }
  }
  if (fires) wake_readers();
}

bool CompletionQueue::has_flushable() const {
  if (!backlog_.empty()) return true;
  if (!ring_is_closed_ && ring().has_new()) return true;
  return std::any_of(users_.begin(), users_.end(), [](const User& user) {
    return (user.sends && user.qp->has_outstanding_sends()) ||
           (user.receives && user.qp->has_outstanding_receives());
  });
}

void CompletionQueue::attach(QueuePair& qp, bool sends, bool receives) {
  const std::lock_guard lock(mutex_);
  users_.push_back({&qp, sends, receives});
}

void CompletionQueue::detach(QueuePair& qp) {
  const std::lock_guard lock(mutex_);
  std::erase_if(users_, [&](const User& user) { return user.qp == &qp; });
}

void CompletionQueue::purge(std::uint32_t cookie) {
  purge_if([=](const Entry& taken) { return taken.qp_cookie == cookie; });
}

void CompletionQueue::purge_shared(std::uint32_t srq_cookie) {
  purge_if([=](const Entry& taken) { return taken.srq_cookie == srq_cookie; });
}

template <typename Condition>
void CompletionQueue::purge_if(Condition&& condition) {
  const std::lock_guard lock(mutex_);
  Ring& current = ring();
  std::uint32_t index = current.consumer.load(std::memory_order_relaxed);
  for (; !ring_is_closed_ && current.is_new(index); ++index) backlog_.emplace_back(current.entry(index));
  std::erase_if(backlog_, condition);
  has_backlog_.store(!backlog_.empty(), std::memory_order_relaxed);
  current.consumer.store(index, std::memory_order_relaxed);
  current.page().consumer.store(index, std::memory_order_release);
}

bool CompletionQueue::has_users() {
  const std::lock_guard lock(mutex_);
  return !users_.empty();
}

void CompletionQueue::wake_readers() {
  if (config_.channel_fd < 0) return;
  const std::uint64_t event = config_.user_pointer;
  write_event(config_.channel_fd, std::as_bytes(std::span(&event, 1)));
}

void CompletionQueue::on_posted_after_death() {
  bool fires;
  {
    const std::lock_guard lock(mutex_);
    fires = std::exchange(armed_after_death_, false);
  }
  if (fires) wake_readers();
}

}  // namespace urdma::provider
