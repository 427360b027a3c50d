// A QP's two rings with their locks, its state as far as posting depends on it, and its doorbell.
//
// All methods are thread-safe. Made when the QP is created, destroyed after both CQs have forgotten it.
// Lock order: a CQ's lock before a QP's.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "provider/control/liveness.hpp"
#include "provider/control/mapping.hpp"
#include "provider/queue/doorbell.hpp"
#include "provider/queue/receive_queue.hpp"
#include "provider/queue/send_queue.hpp"
#include "provider/queue/work_request_batch.hpp"
#include "urdma/abi/control.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::provider {

class CompletionQueue;

class QueuePair {
 public:
  struct Config {
    std::uint32_t cookie = 0;
    QpType type = QpType::kRc;
  };
  // `memory` is laid out as `reply` says, which has been checked by is_sound().
  QueuePair(Mapping memory, const abi::CreateQpReply& reply, const Config& config, const DoorbellPanel& panel,
            const Liveness& liveness, CompletionQueue& send_cq, CompletionQueue& receive_cq);

  // Whether a reply's geometry lies within its memory, and holds what it grants.
  [[nodiscard]] static bool is_sound(const abi::CreateQpReply& reply);

  // As ibv_post_send and ibv_post_recv: 0 or a positive errno, with `*bad` the first request that was not
  // taken. Those before it are carried out; one doorbell a list.
  [[nodiscard]] int post_send(ibv_send_wr* list, ibv_send_wr** bad);
  [[nodiscard]] int post_receive(ibv_recv_wr* list, ibv_recv_wr** bad);

  // As ibv_wr_start, _complete and _abort. The send queue is locked from the first to one of the others.
  WorkRequestBatch& start_batch();
  [[nodiscard]] int complete_batch();
  void abort_batch();
  // Between the two.
  [[nodiscard]] WorkRequestBatch& batch() { return batch_; }

  [[nodiscard]] std::uint32_t cookie() const { return config_.cookie; }
  [[nodiscard]] std::uint32_t qpn() const { return qpn_; }
  [[nodiscard]] CompletionQueue& send_cq() const { return send_cq_; }
  [[nodiscard]] CompletionQueue& receive_cq() const { return receive_cq_; }

  // The state that the daemon has confirmed; QpState::kReset at first.
  void set_state(QpState state) { state_.store(state, std::memory_order_release); }
  [[nodiscard]] QpState state() const { return state_.load(std::memory_order_acquire); }
  // After a move to RESET, when the CQs hold no completion of it any more.
  void reset();

  // For pollers, under their CQ's lock.
  void release_send(std::uint32_t index) { send_.release(index); }
  void release_receive(std::uint32_t index) { receive_.release(index); }
  // Once the daemon is gone: the oldest outstanding request as flushed; false when there is none.
  [[nodiscard]] bool flush_send(ibv_wc& completion);
  [[nodiscard]] bool flush_receive(ibv_wc& completion);
  [[nodiscard]] bool has_outstanding_sends();
  [[nodiscard]] bool has_outstanding_receives();

 private:
  [[nodiscard]] const abi::QpPage& page() const {
    return *reinterpret_cast<const abi::QpPage*>(memory_.data());
  }

  Mapping memory_;
  const Config config_;
  const std::uint32_t qpn_;
  const Doorbell doorbell_;
  const Liveness& liveness_;
  CompletionQueue& send_cq_;
  CompletionQueue& receive_cq_;
  std::atomic<QpState> state_{QpState::kReset};
  std::mutex send_mutex_;
  SendQueue send_;          // guarded by send_mutex_, but for release()
  WorkRequestBatch batch_;  // guarded by send_mutex_
  std::mutex receive_mutex_;
  ReceiveQueue receive_;  // guarded by receive_mutex_, but for release()
};

}  // namespace urdma::provider
