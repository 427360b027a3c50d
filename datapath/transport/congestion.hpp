// How many packets of SENDs and WRITEs a requester may have in flight: additive increase,
// multiplicative decrease. It is told what was acknowledged and that something was lost, and knows nothing of
// how losses are found or repaired.
//
// Owner: a Requester. One thread at a time.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

namespace urdma::transport {

class CongestionControl {
 public:
  static constexpr std::uint32_t kInitialPackets = 64;
  static constexpr std::uint32_t kMinPackets = 4;
  static constexpr std::uint32_t kMaxPackets = 512;

  [[nodiscard]] std::uint32_t window_packets() const { return window_packets_; }

  // `packets` were acknowledged for the first time: one packet more for each window of them.
  void on_acknowledged(std::uint32_t packets);
  // A packet was lost, or is taken to be: half the window.
  void on_loss();
  void reset();

 private:
  std::uint32_t window_packets_ = kInitialPackets;
  std::uint32_t acknowledged_packets_ = 0;  // since the window last grew
};

}  // namespace urdma::transport
