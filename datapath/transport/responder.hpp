// The responder of a reliable connection (IBTA 9.7.4, 9.7.5): checks request packets in the order of the
// protocol, says where their bytes go, and owes acknowledgements, answers, completions and NAKs for them.
//
// Owner: a QueuePair. One thread at a time. It knows nothing of the QP's state but what its commands tell it.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

#include "datapath/transport/answered_requests.hpp"
#include "datapath/transport/receive_side.hpp"
#include "datapath/transport/response_queue.hpp"
#include "datapath/transport/types.hpp"

namespace urdma::transport {

class Responder : public ReceiveSide {
 public:
  // `counters` outlives the responder.
  Responder(const QpConfig& config, QpCounters& counters);

  // ---- Getters ----
  [[nodiscard]] bool can_transmit() const { return !responses_.is_empty(); }

  // ---- Commands ----
  void configure(const QpAttributes& attributes);
  // Packets are taken from now on, the first with this PSN.
  void start(Psn first_psn);
  // Packets are not taken any more; receive requests are flushed. What led to a failure is still sent, else
  // nothing is.
  void stop();
  // Forgets everything.
  void reset();

  // ---- Input ----
  [[nodiscard]] bool needs_receive(const wire::Headers& headers) const;
  [[nodiscard]] MemoryOp on_packet(const wire::Headers& headers);
  void on_memory_done(MemoryResult result, std::uint64_t original);
  // The payload of the READ response with this PSN could not be gathered.
  void on_gather_failed(Psn psn, MemoryResult result);

  // ---- Output ----
  [[nodiscard]] bool poll_transmit(TxPacket& packet);

 private:
  // The checks, in their order, and what may come of them.
  enum class Step : std::uint8_t {
    kState,
    kPsn,
    kSequence,
    kOperation,
    kLength,
    kOutstanding,
    kReceive,
    kAccept,
    kGap,             // packets are missing
    kDuplicate,       // taken before
    kNotReady,        // no receive request
    kInvalidRequest,  // the connection ends
    kTooLong,         // for its receive request: the connection ends
    kDrop,
  };
  // The SEND or WRITE of which not all packets have come.
  struct Message {
    wire::OpClass op_class = wire::OpClass::kInvalid;  // kInvalid: none
    std::uint64_t bytes = 0;                           // so far
    std::uint64_t left_bytes = 0;                      // WRITE: announced and not come
    std::uint64_t address = 0;                         // WRITE: of the next byte
    MemoryKey rkey;
  };

  [[nodiscard]] Step judge(const wire::Headers& headers) const;
  // responder.cpp: checks, each of which returns the next step
  [[nodiscard]] Step check_state(const wire::Headers& headers) const;
  [[nodiscard]] Step check_psn(const wire::Headers& headers) const;
  [[nodiscard]] Step check_sequence(const wire::Headers& headers) const;
  [[nodiscard]] Step check_operation(const wire::Headers& headers) const;
  [[nodiscard]] Step check_length(const wire::Headers& headers) const;
  [[nodiscard]] bool is_write_length_sound(const wire::Headers& headers) const;
  [[nodiscard]] Step check_outstanding(const wire::Headers& headers) const;
  [[nodiscard]] Step check_receive(const wire::Headers& headers) const;

  // responder.cpp: what comes of them
  [[nodiscard]] MemoryOp accept(const wire::Headers& headers);
  [[nodiscard]] MemoryOp accept_send(const wire::Headers& headers);
  [[nodiscard]] MemoryOp accept_write(const wire::Headers& headers);
  [[nodiscard]] MemoryOp accept_read(const wire::Headers& headers);
  [[nodiscard]] MemoryOp accept_atomic(const wire::Headers& headers);
  [[nodiscard]] MemoryOp accept_atomic_write(const wire::Headers& headers);
  [[nodiscard]] MemoryOp note_gap(const wire::Headers& headers);
  [[nodiscard]] MemoryOp repeat(const wire::Headers& headers);
  [[nodiscard]] Psn newest_to_acknowledge(Psn repeated);
  [[nodiscard]] MemoryOp repeat_read(const wire::Headers& headers);
  [[nodiscard]] MemoryOp report_not_ready(const wire::Headers& headers);
  [[nodiscard]] MemoryOp reject(const wire::Headers& headers, Step why);

  // responder_settlement.cpp
  // Enters what is owed, and returns its operation; settles at once where nothing has to be waited for.
  [[nodiscard]] MemoryOp owe(const Settlement& settlement, const MemoryOp& operation);
  [[nodiscard]] bool settle_failure(const Settlement& settlement, MemoryResult result);
  void fail_invalidation(const Settlement& settlement);
  void settle(const Settlement& settlement, std::uint64_t original);
  void fail(Failure failure, Psn psn, wire::NakCode code);

  QpCounters& counters_;
  ResponseQueue responses_;
  AnsweredRequests answered_;

  std::uint8_t service_;
  bool is_rejecting_ = false;  // a packet was rejected, which is not settled yet: nothing more is taken
  bool has_sent_gap_nak_ = false;
  bool is_not_ready_ = false;  // an RNR NAK is out, and the packet has not come again
  std::uint8_t min_rnr_timer_ = 0;
  std::uint8_t max_dest_rd_atomic_ = 0;
  std::uint32_t packet_bytes_ = 0;
  std::uint32_t access_flags_ = 0;
  Qpn dest_qpn_;

  Psn expected_;           // of the next packet
  Psn highest_beyond_;     // out of order, valid if has_sent_gap_nak_
  Psn settled_;            // everything up to it is in place
  std::uint32_t msn_ = 0;  // messages that are settled
  Message message_;
  std::uint32_t unsettled_answers_ = 0;  // READs and atomics among the settlements, without duplicates
};

}  // namespace urdma::transport
