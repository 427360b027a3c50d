// The responder of an unreliable connection (IBTA 9.8.2): a message is taken whole or not at all. One with a
// gap, or with an error, is dropped in silence, and its receive request is kept for the next (class D of IBTA
// 9.9.3.2).
//
// Owner: a QueuePair. One thread at a time.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

#include "datapath/transport/receive_side.hpp"
#include "datapath/transport/types.hpp"

namespace urdma::transport {

class UnreliableResponder : public ReceiveSide {
 public:
  // `counters` outlives the responder.
  UnreliableResponder(const QpConfig& config, QpCounters& counters)
      : ReceiveSide(config), counters_(counters) {}

  // False also while it is open whether a receive request that a WRITE with immediate uses is free again.
  [[nodiscard]] bool can_accept() const { return !is_immediate_open_ && ReceiveSide::can_accept(); }

  void configure(const QpAttributes& attributes);
  // Packets are taken from now on, the first with this PSN.
  void start(Psn first_psn);
  void stop() { stop_receiving(); }
  void reset();

  [[nodiscard]] bool needs_receive(const wire::Headers& headers) const;
  [[nodiscard]] MemoryOp on_packet(const wire::Headers& headers);
  void on_memory_done(MemoryResult result, std::uint64_t original);

  // It never sends.
  void on_gather_failed(Psn, MemoryResult) {}
  [[nodiscard]] bool can_transmit() const { return false; }
  [[nodiscard]] bool poll_transmit(TxPacket&) { return false; }

 private:
  // The message of which not all packets have come.
  struct Message {
    wire::OpClass op_class = wire::OpClass::kInvalid;  // kInvalid: none
    std::uint32_t number = 0;
    bool has_receive = false;      // SEND: uses a receive request
    std::uint64_t bytes = 0;       // so far
    std::uint64_t left_bytes = 0;  // WRITE: announced and not come
    std::uint64_t address = 0;     // WRITE: of the next byte
    MemoryKey rkey;
  };

  [[nodiscard]] bool is_taking() const {
    return mode_ == Mode::kRunning && failure_ == Failure::kNone && can_accept();
  }
  [[nodiscard]] bool goes_on(const wire::Headers& headers) const;
  [[nodiscard]] bool begin_or_go_on(const wire::Headers& headers);
  [[nodiscard]] bool is_allowed(const wire::Headers& headers) const;
  [[nodiscard]] bool is_length_sound(const wire::Headers& headers) const;
  [[nodiscard]] bool take_receive(const wire::Headers& headers);
  void abandon();
  [[nodiscard]] MemoryOp accept(const wire::Headers& headers);
  [[nodiscard]] MemoryOp place(const wire::Headers& headers);
  void settle(const Settlement& settlement);

  QpCounters& counters_;
  std::uint32_t packet_bytes_ = 0;
  std::uint32_t access_flags_ = 0;
  Psn expected_;
  Message message_;
  std::uint32_t last_number_ = 0;  // of messages that began
  std::uint32_t bad_number_ = 0;   // the latest whose bytes could not be placed; 0: none
  bool is_immediate_open_ = false;
};

}  // namespace urdma::transport
