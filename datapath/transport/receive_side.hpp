// What the responders of all services have in common: the receive requests at hand, what is owed for packets
// whose memory operation is not answered, and how both end.
//
// Owner: a responder, which derives from it (nothing here is virtual). One thread at a time.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <span>

#include "datapath/transport/receive_queue.hpp"
#include "datapath/transport/settlement.hpp"
#include "datapath/transport/types.hpp"

namespace urdma::transport {

class ReceiveSide {
 public:
  // What a failure is to the program besides completions: nothing, or an asynchronous event.
  enum class Failure : std::uint8_t { kNone, kCompletion, kInvalidRequest, kAccess };

  ReceiveSide(const ReceiveSide&) = delete;
  ReceiveSide& operator=(const ReceiveSide&) = delete;

  [[nodiscard]] bool can_accept() const {
    return settlements_.has_room() && (receives_.has_unused() || receives_.has_room());
  }
  [[nodiscard]] bool wants_receive() const;
  // Whether a receive request is at hand that has not completed.
  [[nodiscard]] bool has_receives() const { return !receives_.is_empty(); }
  [[nodiscard]] std::uint32_t unanswered_operations() const { return settlements_.size() + ignored_answers_; }
  // Not kNone: the QP has to go to ERR.
  [[nodiscard]] Failure failure() const { return failure_; }
  [[nodiscard]] bool can_complete() const;
  // wants_receive() or needs_receive() holds.
  void offer_receive(const ReceiveRequest& request, std::span<const Sge> elements);
  [[nodiscard]] bool poll_completion(Completion& completion);

 protected:
  enum class Mode : std::uint8_t { kIdle, kRunning, kStopped };

  explicit ReceiveSide(const QpConfig& config);
  ~ReceiveSide() = default;

  // Nothing is taken any more; what is owed is forgotten, and receive requests are flushed.
  void stop_receiving();
  // Forgets everything.
  void reset_receiving();
  // Enters what is owed for `operation`, and returns what the caller is to carry out for it.
  [[nodiscard]] MemoryOp enter(const Settlement& settlement, const MemoryOp& operation);
  // Takes what the oldest unanswered operation was for; false where that is forgotten.
  [[nodiscard]] bool take_settlement(Settlement& settlement);
  // The oldest receive request in use could not be written.
  void fail_receive();

  ReceiveQueue receives_;
  SettlementQueue settlements_;
  bool has_own_queue_;  // receives are the QP's own, not an SRQ's
  Mode mode_ = Mode::kIdle;
  Failure failure_ = Failure::kNone;
  std::uint32_t ignored_answers_ = 0;  // still to come for operations that were forgotten
};

}  // namespace urdma::transport
