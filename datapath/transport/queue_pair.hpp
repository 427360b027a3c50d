// One queue pair's transport: a state machine that dispatches to its requester and its responder.
//
// Owner: an engine, or the simulator. One thread at a time. Packets, requests and the time go in by
// on_* and commands; packets, completions, events and the next deadline come out by poll_*.
// It does no I/O, reads no clock, and allocates in its constructor only.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <span>

#include "datapath/transport/halves.hpp"
#include "datapath/transport/types.hpp"

namespace urdma::transport {

class QueuePair {
 public:
  explicit QueuePair(const QpConfig& config);
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  // ---- Getters ----
  [[nodiscard]] QpState state() const { return state_; }
  [[nodiscard]] const QpAttributes& attributes() const { return attributes_; }  // state is current
  [[nodiscard]] QpCounters counters() const;
  // When on_deadline is next due; Instant::never() if no timer runs.
  [[nodiscard]] Instant next_deadline() const;
  // Whether poll_transmit, poll_completion or poll_event may yield something now.
  [[nodiscard]] bool has_output(Instant now) const;
  [[nodiscard]] bool is_sq_draining() const;
  // Why the QP went to ERR by itself or by fail(); kNone where it did not, or where only its peer erred.
  [[nodiscard]] FailureReason failure_reason() const { return failure_reason_; }

  // ---- Commands ----
  // Applies the attributes named by `mask` (kAttrState ...). The transition and its required and
  // optional attributes are judged by state_machine.hpp before anything changes. A move to RESET drops all
  // requests without completions; one to ERR flushes them. Returns 0 or a positive errno (EINVAL).
  [[nodiscard]] int modify(std::uint32_t mask, const QpAttributes& attributes, Instant now);

  // Puts the QP into ERR for a fault outside of it (CQ overrun, a client's damaged ring).
  void fail(FailureReason reason);

  // Whether another send request may be posted now: there is room, and the state takes requests
  // (RTS, SQD; and ERR, where they are flushed).
  [[nodiscard]] bool can_post_send() const;
  void post_send(const SendRequest& request, std::span<const Sge> elements);

  // Whether the responder has no receive request at hand and could use one: before a packet that
  // consumes one is handed in, the caller then offers the oldest of the receive queue. In ERR it is true
  // while the queue is to be flushed; what is offered comes back as a flushed completion.
  [[nodiscard]] bool wants_receive() const;
  // The same where receives come from an SRQ: whether this packet, if handed in now, uses a receive request
  // that the responder does not have. What is offered then is used by it.
  [[nodiscard]] bool needs_receive(const wire::Headers& headers) const;
  void offer_receive(const ReceiveRequest& request, std::span<const Sge> elements);

  // ---- Input ----
  // Whether a packet can be taken now. False while too many memory operations are unanswered: a wire
  // drops the packet, which the protocol repairs; a link inside the node waits.
  [[nodiscard]] bool can_accept() const;
  // Takes a packet whose P_Key and destination have been checked. The caller carries out the returned
  // operation (unless kNone) with the packet's payload and answers it.
  [[nodiscard]] MemoryOp on_packet(const wire::Headers& headers, Instant now);
  // Answers the oldest unanswered operation of `side`. `original` is an atomic's old value.
  void on_memory_done(Side side, MemoryResult result, std::uint64_t original, Instant now);
  // Answers TxPacket::local.
  void on_local_done(MemoryResult result, Instant now);
  // `packet`, which asks for it by reports_departure, is complete: its payload has been gathered. Answered in
  // the order of the packets. In ERR an answer may stay away, and after a move to RESET it has to.
  void on_departed(const TxPacket& packet, Instant now);
  // The payload of `packet` could not be gathered; the packet has not been sent.
  void on_gather_failed(const TxPacket& packet, MemoryResult result, Instant now);
  void on_deadline(Instant now);

  // ---- Output ----
  // The next packet to send; false if there is none now.
  [[nodiscard]] bool poll_transmit(Instant now, TxPacket& packet);
  [[nodiscard]] bool poll_completion(Completion& completion);
  [[nodiscard]] bool poll_event(AsyncEvent& event);
  // Memory operations handed out and not answered yet, on both sides.
  [[nodiscard]] std::uint32_t unanswered_operations() const;

 private:
  void apply(std::uint32_t mask, const QpAttributes& attributes);
  void enter(QpState next, Instant now);
  void raise(AsyncEvent event);
  // Draws the consequences of an input: failures, and the end of draining.
  void follow_up(Instant now);
  void tell_last_wqe();
  [[nodiscard]] bool takes_requests() const;
  [[nodiscard]] bool is_of_service(wire::Opcode opcode) const;
  [[nodiscard]] bool is_unreliable() const;

  QpConfig config_;
  QpState state_ = QpState::kReset;
  QpAttributes attributes_;
  QpCounters counters_;  // both halves count here
  RequesterHalf requester_;
  ResponderHalf responder_;
  std::uint32_t pending_events_ = 0;  // a bit an AsyncEvent
  FailureReason failure_reason_ = FailureReason::kNone;
  bool communication_established_ = false;
  bool owes_drained_event_ = false;
  bool owes_last_wqe_event_ = false;  // SRQ
  bool is_responders_turn_ = true;    // the halves take turns in sending
};

}  // namespace urdma::transport
