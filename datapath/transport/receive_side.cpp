// What responders share; see the header.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/receive_side.hpp"

#include "urdma/base/check.hpp"

namespace urdma::transport {

ReceiveSide::ReceiveSide(const QpConfig& config)
    : receives_(config.max_recv_sge),
      has_own_queue_(!config.has_srq && config.type != QpType::kXrcSend && config.type != QpType::kXrcRecv) {}

// Those of an SRQ are taken for the packet that needs one, and are not flushed with the QP.
bool ReceiveSide::wants_receive() const {
  if (!has_own_queue_) return false;
  switch (mode_) {
    case Mode::kIdle:
      return false;
    case Mode::kRunning:
      return !receives_.has_unused() && receives_.has_room();
    case Mode::kStopped:
      return receives_.has_room();
  }
  return false;
}

bool ReceiveSide::can_complete() const {
  if (receives_.has_done()) return true;
  return mode_ == Mode::kStopped && receives_.has_undone() && unanswered_operations() == 0;
}

void ReceiveSide::offer_receive(const ReceiveRequest& request, std::span<const Sge> elements) {
  URDMA_CHECK(receives_.has_room());
  receives_.push(request, elements);
}

bool ReceiveSide::poll_completion(Completion& completion) {
  if (!receives_.has_done()) {
    if (!can_complete()) return false;
    ReceiveResult flushed;
    flushed.status = WcStatus::kWrFlushErr;
    flushed.reason = FailureReason::kFlushed;
    receives_.finish(flushed);
  }
  receives_.pop(completion);
  return true;
}

void ReceiveSide::stop_receiving() {
  mode_ = Mode::kStopped;
  ignored_answers_ += settlements_.size();
  settlements_.clear();
}

void ReceiveSide::reset_receiving() {
  mode_ = Mode::kIdle;
  ignored_answers_ += settlements_.size();
  settlements_.clear();
  receives_.clear();
  failure_ = Failure::kNone;
}

MemoryOp ReceiveSide::enter(const Settlement& settlement, const MemoryOp& operation) {
  settlements_.push(settlement);
  MemoryOp answered = operation;
  if (answered.kind == MemoryOp::Kind::kNone) answered.kind = MemoryOp::Kind::kNothing;
  answered.side = Side::kResponder;
  return answered;
}

bool ReceiveSide::take_settlement(Settlement& settlement) {
  if (ignored_answers_ > 0) {
    --ignored_answers_;
    return false;
  }
  if (settlements_.is_empty()) return false;
  settlement = settlements_.pop();
  return true;
}

void ReceiveSide::fail_receive() {
  ReceiveResult local;
  local.status = WcStatus::kLocProtErr;
  local.reason = FailureReason::kLocalProtection;
  receives_.finish(local);
}

}  // namespace urdma::transport
