// The requester of a reliable connection (IBTA 9.7.3 to 9.7.7): cuts send requests into packets, and
// finishes them by the acknowledgements, answers and errors that come back. Go-back-N.
//
// Owner: a QueuePair. One thread at a time. It knows nothing of the QP's state but what its commands
// tell it: start, drain, resume, stop, reset.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <span>

#include "datapath/transport/congestion.hpp"
#include "datapath/transport/retransmission.hpp"
#include "datapath/transport/send_queue.hpp"
#include "datapath/transport/types.hpp"

namespace urdma::transport {

// An acknowledgement is asked for at least once in this many packets of a message.
inline constexpr std::uint32_t kAckRequestPackets = 32;
// Memory operations that may be unanswered on a side; with more, packets are not taken.
inline constexpr std::uint32_t kMaxUnansweredOperations = 64;

class Requester {
 public:
  // `counters` outlives the requester.
  Requester(const QpConfig& config, QpCounters& counters);

  // ---- Getters ----
  [[nodiscard]] bool has_room() const { return queue_.has_room(); }
  [[nodiscard]] bool can_accept() const { return unanswered_operations_ < kMaxUnansweredOperations; }
  [[nodiscard]] std::uint32_t unanswered_operations() const {
    return unanswered_operations_ + ignored_answers_;
  }
  [[nodiscard]] Instant next_deadline() const { return retransmission_.next_deadline(); }
  // Whether a request has failed, so that the QP has to go to ERR.
  [[nodiscard]] bool has_failed() const { return has_failed_; }
  [[nodiscard]] FailureReason failure_reason() const { return failure_reason_; }
  // Whether every message that has begun is complete but for its completion.
  [[nodiscard]] bool is_drained() const;
  [[nodiscard]] bool can_transmit() const;
  [[nodiscard]] bool can_complete() const;

  // ---- Commands ----
  void configure(const QpAttributes& attributes);
  // Requests are sent from now on, the first with this PSN.
  void start(Psn first_psn);
  // Messages that have begun are finished; no other begins until resume().
  void drain();
  void resume(Instant now);
  // Nothing is sent or received any more; what is queued and what is posted is flushed.
  void stop();
  // Forgets all requests.
  void reset();
  // There is room.
  void post(const SendRequest& request, std::span<const Sge> elements);

  // ---- Input ----
  [[nodiscard]] MemoryOp on_packet(const wire::Headers& headers, Instant now);
  // Answers the oldest unanswered operation.
  void on_memory_done(MemoryResult result);
  void on_local_done(MemoryResult result);
  void on_gather_failed(Psn psn);
  void on_deadline(Instant now);

  // ---- Output ----
  [[nodiscard]] bool poll_transmit(Instant now, TxPacket& packet);
  [[nodiscard]] bool poll_completion(Completion& completion);

 private:
  enum class Mode : std::uint8_t { kIdle, kSending, kDraining, kStopped };
  // What the oldest request is ready for.
  enum class Outcome : std::uint8_t { kWait, kSucceed, kFail, kFlush };
  // A packet in the queue: a request, and which of its packets.
  struct Position {
    std::uint32_t request = 0;
    std::uint32_t packet = 0;
  };

  // requester.cpp: sending and completing
  [[nodiscard]] bool may_begin(const SendWork& work) const;
  [[nodiscard]] bool has_credit(const SendWork& work) const;
  [[nodiscard]] bool wants_ack(const SendWork& work) const;
  [[nodiscard]] WcStatus judge(const SendRequest& request) const;
  void fill_packet(const SendWork& work, TxPacket& packet) const;
  void fill_answered_request(const SendWork& work, TxPacket& packet) const;
  void count_sent(const SendWork& work, Instant now);
  [[nodiscard]] Outcome outcome_of_oldest() const;
  void fill_completion(const SendWork& work, Outcome outcome, Completion& completion) const;
  [[nodiscard]] bool is_reported(const SendWork& work, Outcome outcome) const;
  void retire_silent();

  // requester_input.cpp: acknowledgements, answers, errors
  void on_ack(const wire::Headers& headers, Instant now);
  void on_nak(const wire::Headers& headers, Instant now);
  void on_sequence_nak(Psn psn, Instant now);
  void on_rnr_nak(const wire::Headers& headers, Instant now);
  [[nodiscard]] MemoryOp on_answer(const wire::Headers& headers, Instant now);
  [[nodiscard]] MemoryOp take_read_response(SendWork& work, const wire::Headers& headers, Instant now);
  [[nodiscard]] MemoryOp take_atomic_answer(SendWork& work, const wire::Headers& headers, Instant now);
  [[nodiscard]] MemoryOp take_write_answer(SendWork& work, const wire::Headers& headers, Instant now);
  [[nodiscard]] bool is_sound_read_response(const SendWork& work, const wire::Headers& headers) const;
  // Acknowledges packets up to `last`. False if it came upon one that only an answer acknowledges.
  [[nodiscard]] bool acknowledge_through(Psn last, Instant now);
  void advance(SendWork& work, std::uint32_t packets);
  void note_progress(Instant now);
  void rewind();
  void rewind_for_missing_answer();
  void fail_request(std::uint32_t index, WcStatus status, FailureReason reason);
  void mark_unsendable(std::uint32_t index, WcStatus status);
  void fail_oldest_unacknowledged(WcStatus status, FailureReason reason);
  // Lets a request fail that cannot be sent, once all before it are acknowledged.
  void fail_unsendable();

  QpCounters& counters_;
  Retransmission retransmission_;
  CongestionControl congestion_;
  SendQueue queue_;

  std::uint32_t packet_bytes_ = 0;
  Qpn dest_qpn_;
  std::uint8_t max_rd_atomic_ = 0;
  bool signal_all_;
  std::uint8_t service_;
  Mode mode_ = Mode::kIdle;

  Psn una_;   // oldest unacknowledged; belongs to the request una_request_
  Psn nxt_;   // next to send; the packet at cursor_
  Psn high_;  // one past the highest ever sent
  std::uint32_t una_request_ = 0;
  Position cursor_;
  std::uint32_t packets_in_flight_ = 0;   // of SENDs and WRITEs, in [una_, nxt_)
  std::uint32_t answers_in_flight_ = 0;   // READ and atomic request packets in [una_, nxt_)
  std::uint32_t unfinished_answers_ = 0;  // READs and atomics that have begun and are not complete

  std::uint32_t operation_request_ = 0;  // no request before it has unanswered operations
  std::uint32_t unanswered_operations_ = 0;
  std::uint32_t ignored_answers_ = 0;  // still to come for requests that reset() forgot

  std::uint32_t failed_request_ = 0;      // valid if has_failed_
  std::uint32_t unsendable_request_ = 0;  // valid if has_unsendable_: nothing from it on is sent
  FailureReason failure_reason_ = FailureReason::kNone;
  bool has_failed_ = false;
  bool has_unsendable_ = false;
  bool has_heard_ = false;            // anything at all from the peer
  bool has_sequence_errors_ = false;  // the last trouble was a sequence NAK
  bool has_rewound_ = false;          // for a missing answer, since the last progress or timeout
};

}  // namespace urdma::transport
