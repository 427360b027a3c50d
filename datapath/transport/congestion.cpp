// The window of packets in flight; see the header.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/congestion.hpp"

#include <algorithm>

namespace urdma::transport {

void CongestionControl::on_acknowledged(std::uint32_t packets) {
  if (window_packets_ == kMaxPackets) return;
  acknowledged_packets_ += packets;
  while (acknowledged_packets_ >= window_packets_ && window_packets_ < kMaxPackets) {
    acknowledged_packets_ -= window_packets_;
    ++window_packets_;
  }
  if (window_packets_ == kMaxPackets) acknowledged_packets_ = 0;
}

void CongestionControl::on_loss() {
  window_packets_ = std::max(kMinPackets, window_packets_ / 2);
  acknowledged_packets_ = 0;
}

void CongestionControl::reset() {
  window_packets_ = kInitialPackets;
  acknowledged_packets_ = 0;
}

}  // namespace urdma::transport
