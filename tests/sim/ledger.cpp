// The books of one endpoint, and the checker. See ledger.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/ledger.hpp"

#include <algorithm>
#include <cstring>

#include "tests/sim/check.hpp"

namespace urdma::sim {

using transport::Completion;

namespace {

// The judge has a table of its own: what it judges must not be what it asks.
WcOpcode expected_opcode(WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::kRdmaWrite:
    case WrOpcode::kRdmaWriteWithImm:
      return WcOpcode::kRdmaWrite;
    case WrOpcode::kSend:
    case WrOpcode::kSendWithImm:
    case WrOpcode::kSendWithInv:
      return WcOpcode::kSend;
    case WrOpcode::kRdmaRead:
      return WcOpcode::kRdmaRead;
    case WrOpcode::kCompareSwap:
      return WcOpcode::kCompSwap;
    case WrOpcode::kFetchAdd:
      return WcOpcode::kFetchAdd;
    case WrOpcode::kLocalInv:
      return WcOpcode::kLocalInv;
    case WrOpcode::kBindMw:
      return WcOpcode::kBindMw;
    case WrOpcode::kAtomicWrite:
      return WcOpcode::kAtomicWrite;
  }
  fail_run("no such opcode");
}

std::uint8_t receive_flags(WrOpcode opcode) {
  if (opcode == WrOpcode::kSendWithInv) return kWcWithInv;
  const bool has_immediate = opcode == WrOpcode::kSendWithImm || opcode == WrOpcode::kRdmaWriteWithImm;
  return has_immediate ? kWcWithImm : std::uint8_t{0};
}

}  // namespace

std::uint64_t AtomicCell::current() const {
  std::uint64_t value = 0;
  std::memcpy(&value, region->bytes.data() + offset, sizeof(value));
  return value;
}

Arena::Arena(Memory& memory, Random& random, std::uint64_t ring_bytes)
    : source(memory.add(0, ring_bytes), random),
      landing(memory.add(kAccessLocalWrite, ring_bytes), random),
      receive(memory.add(kAccessLocalWrite, ring_bytes), random),
      target(memory.add(kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead, ring_bytes), random) {}

void Ledger::distrust_peer() {
  trusts_peer_ = false;
  arena_.target.set_unguarded();
}

PostedSend& Ledger::add_send(PostedSend send) {
  sends_.push_back(std::move(send));
  return sends_.back();
}

const PostedReceive* Ledger::next_offer() {
  return offered_ < receives_.size() ? &receives_[offered_++] : nullptr;
}

std::uint64_t Ledger::add_expected(ExpectedMessage message) {
  expected_.push_back(std::move(message));
  return expected_base_ + expected_.size() - 1;
}

const ExpectedMessage* Ledger::message_for_next_receive() const {
  return receives_.size() < expected_.size() ? &expected_[receives_.size()] : nullptr;
}

const PostedSend* Ledger::find(std::uint32_t wqe_index) const {
  if (sends_.empty()) return nullptr;
  const std::uint32_t place = wqe_index - sends_.front().request.wqe_index;
  return place < sends_.size() ? &sends_[place] : nullptr;
}

void Ledger::allow_send_errors(std::initializer_list<WcStatus> statuses) { allowed_send_ = statuses; }
void Ledger::allow_receive_errors(std::initializer_list<WcStatus> statuses) { allowed_receive_ = statuses; }

void Ledger::clear_errors() {
  send_error_.reset();
  receive_error_.reset();
  allowed_send_.clear();
  allowed_receive_.clear();
}

void Ledger::on_completion(const Completion& completion, QpState state, Instant now) {
  trace("{:>12} {} {} wr {} status {} opcode {} bytes {}", now.ns, name_,
        completion.is_receive ? "receive done" : "send done", completion.wr_id,
        static_cast<int>(completion.status), static_cast<int>(completion.opcode), completion.byte_len);
  if (completion.status != WcStatus::kSuccess)
    require(completion.is_solicited, "{}: an error completion does not count as solicited", name_);
  if (completion.is_receive)
    on_receive_completion(completion, state);
  else
    on_send_completion(completion, state, now);
}

void Ledger::judge_error(const Completion& completion, QpState state, std::optional<Completion>& first,
                         const std::vector<WcStatus>& allowed) const {
  const auto status = static_cast<int>(completion.status);
  require(completion.reason != transport::FailureReason::kNone, "{}: wr {} failed without a reason", name_,
          completion.wr_id);
  if (first) {
    require(completion.status == WcStatus::kWrFlushErr, "{}: wr {} has status {} after an error, not flushed",
            name_, completion.wr_id, status);
    return;
  }
  require(std::find(allowed.begin(), allowed.end(), completion.status) != allowed.end(),
          "{}: wr {} ({}) failed with status {}, reason {}", name_, completion.wr_id,
          completion.is_receive ? "receive" : "send", status, static_cast<int>(completion.reason));
  require(state == QpState::kErr, "{}: wr {} failed with status {} in state {}", name_, completion.wr_id,
          status, static_cast<int>(state));
  first = completion;
}

void Ledger::on_send_completion(const Completion& completion, QpState state, Instant now) {
  const bool is_success = completion.status == WcStatus::kSuccess;
  require(!is_success || !send_error_, "{}: wr {} succeeded after an error", name_, completion.wr_id);
  while (true) {
    require(!sends_.empty(), "{}: wr {} completed, and is not posted", name_, completion.wr_id);
    PostedSend& send = sends_.front();
    if (send.request.wr_id == completion.wr_id) break;
    require((send.request.flags & kSendSignaled) == 0 && !send_error_, "{}: wr {} completed before wr {}",
            name_, completion.wr_id, send.request.wr_id);
    retire(send);
    sends_.pop_front();
  }
  PostedSend& send = sends_.front();
  require(completion.wqe_index == send.request.wqe_index + 1, "{}: wr {} frees slots up to {}, not {}", name_,
          completion.wr_id, completion.wqe_index, send.request.wqe_index + 1);
  slots_freed_ = completion.wqe_index;
  if (is_success) {
    require((send.request.flags & kSendSignaled) != 0, "{}: unsignalled wr {} completed", name_,
            completion.wr_id);
    require(completion.opcode == expected_opcode(send.request.opcode), "{}: wr {} completed as opcode {}",
            name_, completion.wr_id, static_cast<int>(completion.opcode));
    retire(send);
  } else {
    if (!send_error_) send_error_at_ = now;
    judge_error(completion, state, send_error_, allowed_send_);
    if (completion.status == WcStatus::kWrFlushErr) ++sends_flushed_;
    abandon(send);
  }
  sends_.pop_front();
}

// The request has succeeded: its bytes are where they belong, on both sides.
void Ledger::retire(PostedSend& send) {
  if (trusts_peer_) check_bytes(send);
  ++sends_succeeded_;
  bytes_completed_ += send.request.length;
  if (send.cell != nullptr) ++send.cell->completed;
  if (send.addend != 0) shared->completed_sum += send.addend;
  if (send.message && trusts_peer_) {
    require(*send.message < peer_->expected_base_, "{}: wr {} succeeded, and {} has no completion of it",
            name_, send.request.wr_id, peer_->name_);
  }
  if (send.owns_source) arena_.source.release(send.source);
  if (send.owns_landing) arena_.landing.release(send.landing);
  if (send.owns_target) peer_->arena_.target.release(send.target);
}

void Ledger::check_bytes(const PostedSend& send) const {
  if (send.cell != nullptr) {
    const auto* original = reinterpret_cast<const std::uint8_t*>(&send.original);
    require(!send.landing.difference({original, sizeof(send.original)}),
            "{}: atomic wr {} did not yield {:#x}", name_, send.request.wr_id, send.original);
  }
  const bool is_read = send.request.opcode == WrOpcode::kRdmaRead;
  const bool is_write =
      send.request.opcode == WrOpcode::kRdmaWrite || send.request.opcode == WrOpcode::kRdmaWriteWithImm;
  if (!is_read && !(is_write && send.checks_target)) return;
  const auto expected = message_bytes(send.pattern, send.request.length);
  const auto difference = (is_read ? send.landing : send.target).difference(expected);
  require(!difference, "{}: {} wr {} of {} bytes succeeded with a wrong byte at {}", name_,
          is_read ? "READ" : "WRITE", send.request.wr_id, send.request.length, difference.value_or(0));
}

// The request has failed. Packets of it may still reach its target, which is released at the end.
void Ledger::abandon(PostedSend& send) {
  if (send.owns_source) arena_.source.release(send.source);
  if (send.owns_landing) arena_.landing.release(send.landing);
  if (send.owns_target) orphans_.push_back(send.target);
}

void Ledger::on_receive_completion(const Completion& completion, QpState state) {
  require(!receives_.empty() && offered_ > 0, "{}: receive {} completed, and none is posted", name_,
          completion.wr_id);
  const PostedReceive& receive = receives_.front();
  require(receive.request.wr_id == completion.wr_id, "{}: receive {} completed before {}", name_,
          completion.wr_id, receive.request.wr_id);
  require(completion.wqe_index == receive.request.wqe_index, "{}: receive {} frees slots up to {}", name_,
          completion.wr_id, completion.wqe_index);
  if (completion.status == WcStatus::kSuccess) {
    require(!receive_error_, "{}: receive {} succeeded after an error", name_, completion.wr_id);
    ++receives_succeeded_;
    if (!trusts_peer_) {
      finish_receive();
      return;
    }
    require(!expected_.empty(), "{}: receive {} got a message that nobody sent", name_, completion.wr_id);
    check_message(completion, expected_.front(), receive);
    expected_.pop_front();
    ++expected_base_;
  } else {
    judge_error(completion, state, receive_error_, allowed_receive_);
    if (completion.status == WcStatus::kWrFlushErr) ++receives_flushed_;
  }
  finish_receive();
}

void Ledger::finish_receive() {
  const PostedReceive& receive = receives_.front();
  if (receive.buffer.is_set()) arena_.receive.release(receive.buffer);
  receives_.pop_front();
  --offered_;
}

void Ledger::check_message(const Completion& completion, ExpectedMessage& message,
                           const PostedReceive& receive) const {
  const bool is_write = message.opcode == WrOpcode::kRdmaWriteWithImm;
  const std::uint8_t flags = receive_flags(message.opcode);
  require(completion.opcode == (is_write ? WcOpcode::kRecvRdmaWithImm : WcOpcode::kRecv),
          "{}: receive {} completed as opcode {}", name_, completion.wr_id,
          static_cast<int>(completion.opcode));
  require(completion.byte_len == message.length, "{}: receive {} has {} bytes of {}", name_, completion.wr_id,
          completion.byte_len, message.length);
  require(completion.flags == flags, "{}: receive {} has flags {:#x}", name_, completion.wr_id,
          completion.flags);
  require(flags == 0 || completion.immediate == message.immediate,
          "{}: receive {} has immediate {:#x}, not {:#x}", name_, completion.wr_id, completion.immediate,
          message.immediate);
  require(completion.is_solicited == message.is_solicited, "{}: receive {} is solicited: {}", name_,
          completion.wr_id, completion.is_solicited);
  if (message.length == 0) return;
  const auto difference =
      (is_write ? message.target : receive.buffer).difference(message_bytes(message.pattern, message.length));
  require(!difference, "{}: receive {} of {} bytes completed with a wrong byte at {}", name_,
          completion.wr_id, message.length, difference.value_or(0));
}

bool Ledger::awaits_send() const {
  if (send_error_) return !sends_.empty();
  return std::any_of(sends_.begin(), sends_.end(),
                     [](const PostedSend& send) { return (send.request.flags & kSendSignaled) != 0; });
}

void Ledger::retire_silent() {
  if (awaits_send()) return;
  for (PostedSend& send : sends_) retire(send);
  sends_.clear();
}

void Ledger::forget() {
  for (PostedSend& send : sends_) abandon(send);
  sends_.clear();
  for (const PostedReceive& receive : receives_)
    if (receive.buffer.is_set()) arena_.receive.release(receive.buffer);
  receives_.clear();
  offered_ = 0;
  expected_base_ += expected_.size();
  expected_.clear();
  slots_freed_ = 0;
}

void Ledger::release_orphans() {
  for (const Buffer& target : orphans_) peer_->arena_.target.release(target);
  orphans_.clear();
}

void Ledger::require_finished() const {
  require(sends_.empty(), "{}: {} sends never completed, the first is wr {}", name_, sends_.size(),
          sends_.empty() ? 0 : sends_.front().request.wr_id);
  require(receives_.empty(), "{}: {} receives never completed", name_, receives_.size());
  require(peer_->send_error_ || !trusts_peer_ || expected_.empty(), "{}: {} messages never arrived", name_,
          expected_.size());
  arena_.source.require_clean();
  arena_.landing.require_clean();
  arena_.receive.require_clean();
  peer_->arena_.target.require_clean();
}

}  // namespace urdma::sim
