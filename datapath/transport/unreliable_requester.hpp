// The requester of the services without acknowledgements, unreliable connections and datagrams (IBTA 9.8.2.1,
// 9.8.3.1): cuts send requests into packets, once. A request is complete when its last packet has left.
//
// Owner: a QueuePair. One thread at a time. It knows nothing of the QP's state but what its commands
// tell it: start, drain, resume, stop, reset. A failure stops it by itself (the state SQE), until resume().
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <span>

#include "datapath/transport/send_queue.hpp"
#include "datapath/transport/types.hpp"

namespace urdma::transport {

class UnreliableRequester {
 public:
  // `counters` outlives the requester.
  UnreliableRequester(const QpConfig& config, QpCounters& counters);

  // ---- Getters ----
  [[nodiscard]] bool has_room() const { return queue_.has_room(); }
  // Whether a request has failed, so that the QP has to go to SQE.
  [[nodiscard]] bool has_failed() const { return mode_ == Mode::kFailed; }
  [[nodiscard]] FailureReason failure_reason() const { return failure_reason_; }
  [[nodiscard]] bool is_drained() const { return cursor_.packet == 0 && pending_departures_ == 0; }
  [[nodiscard]] bool can_transmit() const;
  [[nodiscard]] bool can_complete() const { return outcome_of_oldest() != Outcome::kWait; }

  // ---- Commands ----
  void configure(const QpAttributes& attributes);
  // Requests are sent from now on, the first with this PSN.
  void start(Psn first_psn);
  // Messages that have begun are finished; no other begins until resume().
  void drain() { mode_ = Mode::kDraining; }
  void resume(Instant now);
  // Nothing is sent any more; what is queued and what is posted is flushed.
  void stop();
  // Forgets all requests.
  void reset();
  // There is room.
  void post(const SendRequest& request, std::span<const Sge> elements);

  // ---- Input ----
  // The oldest packet that has not been answered: its payload has been gathered, or could not be.
  void on_departed();
  void on_gather_failed(Psn psn);
  void on_local_done(MemoryResult result);

  // ---- Output ----
  [[nodiscard]] bool poll_transmit(Instant now, TxPacket& packet);
  [[nodiscard]] bool poll_completion(Completion& completion);

  // ---- What nothing comes of: no packet comes in for it, and no timer runs ----
  [[nodiscard]] bool can_accept() const { return true; }
  [[nodiscard]] std::uint32_t unanswered_operations() const { return 0; }
  [[nodiscard]] Instant next_deadline() const { return Instant::never(); }
  [[nodiscard]] MemoryOp on_packet(const wire::Headers& headers, Instant now);
  void on_memory_done(MemoryResult) {}
  void on_deadline(Instant) {}

 private:
  enum class Mode : std::uint8_t { kIdle, kSending, kDraining, kFailed, kStopped };
  // What the oldest request is ready for.
  enum class Outcome : std::uint8_t { kWait, kSucceed, kFail };
  // A packet in the queue: a request, and which of its packets.
  struct Position {
    std::uint32_t request = 0;
    std::uint32_t packet = 0;
  };

  [[nodiscard]] bool is_running() const { return mode_ == Mode::kSending || mode_ == Mode::kDraining; }
  [[nodiscard]] WcStatus judge(const SendRequest& request) const;
  void fill_datagram(const SendWork& work, TxPacket& packet) const;
  [[nodiscard]] bool take_departure();
  [[nodiscard]] Outcome outcome_of_oldest() const;
  [[nodiscard]] bool is_reported(const SendWork& work) const;
  void retire_silent();
  // Lets a request fail that cannot be sent, once all before it have left.
  void fail_unsendable();
  void fail(std::uint32_t index, WcStatus status, FailureReason reason);
  // All requests from `index` on.
  void flush_from(std::uint32_t index);

  QpCounters& counters_;
  SendQueue queue_;
  QpType type_;
  bool signal_all_;
  Qpn own_qpn_;
  std::uint32_t packet_bytes_ = 0;
  std::uint32_t own_qkey_ = 0;
  Qpn dest_qpn_;
  Mode mode_ = Mode::kIdle;
  FailureReason failure_reason_ = FailureReason::kNone;

  Psn nxt_;                               // next to send; the packet at cursor_
  Position cursor_;                       // nothing before it is still to be sent
  Position departing_;                    // the oldest packet that was handed out and not answered
  std::uint32_t pending_departures_ = 0;  // packets handed out and not answered
  std::uint32_t ignored_departures_ = 0;  // still to be answered, of requests that are flushed
};

}  // namespace urdma::transport
