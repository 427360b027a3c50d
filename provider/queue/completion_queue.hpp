// A completion queue, the client's side: polls the engine's entries, arms the channel, and, once the daemon
// is gone, completes what is outstanding by itself.
//
// All methods are thread-safe. An empty poll reads one line of shared memory and takes no lock.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "provider/control/liveness.hpp"
#include "provider/control/mapping.hpp"
#include "provider/queue/qp_table.hpp"
#include "urdma/abi/control.hpp"
#include "urdma/abi/queues.hpp"
#include "urdma/base/unique_fd.hpp"

namespace urdma::provider {

class QueuePair;

class CompletionQueue {
 public:
  struct Config {
    std::uint32_t depth = 0;         // a power of two
    std::uint64_t user_pointer = 0;  // what an event in the channel carries
    int channel_fd = -1;             // the program's; -1: none
    bool yields_when_idle = false;
    bool is_single_threaded = false;  // the program says that it uses the CQ from one thread at a time
  };
  // `memory` is at least kCqRingOffset + depth entries. `table` and `liveness` outlive the object.
  CompletionQueue(Config config, Mapping memory, const QpTable& table, Liveness& liveness);

  // As ibv_poll_cq: how many completions were stored, at most `most`.
  [[nodiscard]] int poll(int most, ibv_wc* completions);
  // As ibv_start_poll, ibv_next_poll and ibv_end_poll: 0, and polled() is the completion; or ENOENT. From a
  // start_poll() that finds one to end_poll() the CQ is the caller's alone: others' polls wait, unless the CQ
  // is single-threaded.
  struct Polled {
    ibv_wc wc{};
    std::uint64_t timestamp_ns = 0;  // CLOCK_MONOTONIC, when the engine wrote it; 0: flushed after its death
  };
  [[nodiscard]] int start_poll();
  [[nodiscard]] int next_poll();
  void end_poll();
  [[nodiscard]] const Polled& polled() const { return polled_; }

  // As ibv_req_notify_cq. Stays armed until it fires once; solicited-only does not weaken an arming that has
  // not fired yet.
  void arm(bool solicited_only);

  // Goes over to another ring. `request` asks the daemon for it, as int(CreateCqReply&, vector<UniqueFd>&):
  // 0 or a positive errno. Nothing is polled or armed meanwhile. 0 or a positive errno.
  template <typename Request>
  [[nodiscard]] int resize(Request&& request) {
    const std::lock_guard lock(mutex_);
    abi::CreateCqReply reply{};
    std::vector<UniqueFd> fds;
    const int error = request(reply, fds);
    return error != 0 ? error : take_over(reply, fds);
  }
  // Maps the daemon's queue. 0 or a positive errno.
  [[nodiscard]] static int map(const abi::CreateCqReply& reply, const std::vector<UniqueFd>& fds,
                               Mapping& memory);

  // A QP that completes its sends, its receives or both here.
  void attach(QueuePair& qp, bool sends, bool receives);
  // Drops the completions of the QP that were not polled yet, and leaves those of others in order. The
  // engine writes no more of them. For RESET, and before detach().
  void purge(std::uint32_t cookie);
  // The same of an SRQ that completes here by itself, with XRC.
  void purge_shared(std::uint32_t srq_cookie);
  // On return no poller uses the QP. It has been taken out of the table.
  void detach(QueuePair& qp);
  [[nodiscard]] bool has_users();

  // Wakes readers of the channel: the daemon is gone, so that polls now yield flushed completions.
  void wake_readers();
  // A request was posted while the daemon was gone: it is flushed at once, so that an armed queue fires.
  void on_posted_after_death();

 private:
  // A Cqe without its sequence, which can be copied.
  struct Entry {
    std::uint64_t wr_id;
    std::uint64_t timestamp_ns;
    std::uint32_t byte_len;
    std::uint32_t immediate;
    std::uint32_t qpn;
    std::uint32_t source_qpn;
    std::uint32_t vendor_error;
    std::uint32_t wqe_index;
    std::uint32_t qp_cookie;
    std::uint32_t srq_cookie;
    std::uint8_t status;
    std::uint8_t opcode;
    std::uint8_t flags;
    std::uint8_t is_receive;
    std::uint8_t network;

    explicit Entry(const abi::Cqe& cqe)
        : wr_id(cqe.wr_id),
          timestamp_ns(cqe.timestamp_ns),
          byte_len(cqe.byte_len),
          immediate(cqe.immediate),
          qpn(cqe.qpn),
          source_qpn(cqe.source_qpn),
          vendor_error(cqe.vendor_error),
          wqe_index(cqe.wqe_index),
          qp_cookie(cqe.qp_cookie),
          srq_cookie(cqe.srq_cookie),
          status(cqe.status),
          opcode(cqe.opcode),
          flags(cqe.flags),
          is_receive(cqe.is_receive),
          network(cqe.network) {}
  };
  struct User {
    QueuePair* qp;
    bool sends;
    bool receives;
  };

  // A ring, and how much of it has been polled: what the empty poll reads is one ring's, whole.
  struct Ring {
    Ring(Mapping ring_memory, std::uint32_t ring_depth) : memory(std::move(ring_memory)), depth(ring_depth) {}
    [[nodiscard]] abi::CqPage& page() const { return *reinterpret_cast<abi::CqPage*>(memory.data()); }
    [[nodiscard]] const abi::Cqe& entry(std::uint32_t index) const {
      const auto* entries = reinterpret_cast<const abi::Cqe*>(memory.data() + abi::kCqRingOffset);
      return entries[index & (depth - 1)];
    }
    [[nodiscard]] bool is_new(std::uint32_t index) const {
      return entry(index).sequence.load(std::memory_order_acquire) == index + 1;
    }
    [[nodiscard]] bool has_new() const { return is_new(consumer.load(std::memory_order_relaxed)); }

    const Mapping memory;
    const std::uint32_t depth;
    alignas(abi::kCacheLine) std::atomic<std::uint32_t> consumer{0};  // written with mutex_ held
  };

  [[nodiscard]] Ring& ring() const { return *ring_.load(std::memory_order_acquire); }
  void use(Mapping memory, std::uint32_t depth);
  [[nodiscard]] bool looks_empty() const {
    return !ring().has_new() && !has_backlog_.load(std::memory_order_relaxed);
  }
  // After an empty poll: true when the daemon is gone; else other threads may have had the core.
  [[nodiscard]] bool note_empty();
  [[nodiscard]] int poll_dead(int most, ibv_wc* completions);
  // The following with mutex_ held.
  [[nodiscard]] int take_one();
  [[nodiscard]] int take_backlog(int most, ibv_wc* completions);
  [[nodiscard]] int take_ring(int most, ibv_wc* completions);
  [[nodiscard]] int take_over(const abi::CreateCqReply& reply, const std::vector<UniqueFd>& fds);
  [[nodiscard]] int flush_users(int most, ibv_wc* completions);
  [[nodiscard]] bool release_slot(const Entry& from) const;
  template <typename Condition>
  void purge_if(Condition&& condition);
  [[nodiscard]] bool complete(const Entry& from, ibv_wc& to);
  [[nodiscard]] bool has_flushable() const;

  const Config config_;
  const QpTable& table_;
  Liveness& liveness_;

  // What the empty poll reads; written with mutex_ held.
  alignas(abi::kCacheLine) std::atomic<Ring*> ring_{nullptr};
  std::atomic<bool> has_backlog_{false};
  // Consecutive empty polls; only a hint, any poller writes it.
  alignas(abi::kCacheLine) std::atomic<std::uint32_t> empty_polls_{0};

  std::mutex mutex_;
  // Guarded. The last is in use; former ones stay for polls that have just looked up theirs.
  std::vector<std::unique_ptr<Ring>> rings_;
  std::deque<Entry> backlog_;       // guarded: taken off the ring by purge(), older than the ring
  std::vector<User> users_;         // guarded
  std::uint32_t arm_count_ = 0;     // guarded
  bool ring_is_closed_ = false;     // guarded: the daemon is gone and the ring is drained
  bool armed_after_death_ = false;  // guarded
  // Of the poll that start_poll() began; guarded, and read by its caller.
  Polled polled_;
  bool is_polling_ = false;
};

}  // namespace urdma::provider
