// The responder of an unreliable datagram QP (IBTA 9.8.3): a packet is a message, from anybody who knows the
// Q_Key. It is dropped, and counted, where it cannot be taken; nothing is answered.
//
// Owner: a QueuePair. One thread at a time.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

#include "datapath/transport/receive_side.hpp"
#include "datapath/transport/types.hpp"

namespace urdma::transport {

// What stands in front of a datagram in the receive's buffer: the GRH, or the IPv4 header in its last 20
// bytes (IBTA 11.4.1.2, annex A17.4.5). The caller puts it there.
inline constexpr std::uint32_t kGrhBytes = 40;

class DatagramResponder : public ReceiveSide {
 public:
  // `counters` outlives the responder.
  DatagramResponder(const QpConfig& config, QpCounters& counters)
      : ReceiveSide(config), counters_(counters) {}

  void configure(const QpAttributes& attributes) { qkey_ = attributes.qkey; }
  // A datagram's PSN means nothing to its receiver (IBTA 9.8.3.1).
  void start(Psn) { mode_ = Mode::kRunning; }
  void stop() { stop_receiving(); }
  void reset() { reset_receiving(); }

  [[nodiscard]] bool needs_receive(const wire::Headers& headers) const;
  [[nodiscard]] MemoryOp on_packet(const wire::Headers& headers);
  void on_memory_done(MemoryResult result, std::uint64_t original);

  // It never sends.
  void on_gather_failed(Psn, MemoryResult) {}
  [[nodiscard]] bool can_transmit() const { return false; }
  [[nodiscard]] bool poll_transmit(TxPacket&) { return false; }

 private:
  [[nodiscard]] bool is_taking() const {
    return mode_ == Mode::kRunning && failure_ == Failure::kNone && can_accept();
  }

  QpCounters& counters_;
  std::uint32_t qkey_ = 0;
};

}  // namespace urdma::transport
