// What a port on a kernel interface needs besides DPDK's AF_PACKET driver: rings that fit the interface, a
// filter, a look at the transmit ring (the driver blocks when it is full, and forgets frames
// whose kick failed), and a guard against ICMP. Only port.cpp uses it; threads as for Port.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "urdma/base/result.hpp"

namespace urdma::io {

// The IP MTU of an interface that is there, up, and has Ethernet frames; otherwise a sentence.
[[nodiscard]] Result<std::uint32_t> usable_interface_mtu(const std::string& name);
// EPERM, with what to do, when this process may not open packet sockets.
[[nodiscard]] Status check_packet_sockets();
// The packet sockets that this process has open now.
[[nodiscard]] std::vector<int> packet_sockets();
// A socket on the RoCE port of `interface` that drops everything: the kernel then sends no ICMP port
// unreachable. -1 when something else has the port, which does as well.
[[nodiscard]] int open_guard_socket(const std::string& interface);

// The geometry of the two rings of the driver's socket, which are alike.
struct AfPacketRing {
  std::uint32_t slot_bytes = 0;
  std::uint32_t block_bytes =
      0;  // a multiple of a page and of slot_bytes: the driver takes slots as contiguous
  std::uint32_t slots = 0;

  // At least `slots` slots in whole blocks; each holds the largest RoCE frame of the interface.
  [[nodiscard]] static AfPacketRing fit(std::uint32_t mtu, std::uint32_t slots);
  [[nodiscard]] std::size_t bytes() const { return std::size_t{slots} * slot_bytes; }
  // Of the longest frame that can be sent.
  [[nodiscard]] std::uint32_t send_bytes() const;
};

class AfPacketQueue {
 public:
  // `socket` is the driver's, and stays its; it gets the filter and a send buffer as large as the ring.
  [[nodiscard]] static Result<std::unique_ptr<AfPacketQueue>> attach(int socket, const AfPacketRing& ring);
  ~AfPacketQueue();
  AfPacketQueue(const AfPacketQueue&) = delete;
  AfPacketQueue& operator=(const AfPacketQueue&) = delete;

  // How many of the next `wanted` transmit slots are free.
  [[nodiscard]] std::uint32_t free_slots(std::uint32_t wanted) const;
  // The driver has filled `slots` more.
  void advance(std::uint32_t slots) { next_slot_ = (next_slot_ + slots) % ring_.slots; }
  // Makes the kernel send what is left in the ring. True when something still is, and another kick may help.
  [[nodiscard]] bool kick();
  [[nodiscard]] std::uint32_t send_bytes() const { return ring_.send_bytes(); }
  // Frames the kernel had no slot for, since the start. Any thread.
  [[nodiscard]] std::uint64_t missed();

 private:
  AfPacketQueue(int socket, const AfPacketRing& ring, std::byte* map)
      : socket_(socket), ring_(ring), map_(map) {}
  [[nodiscard]] std::uint32_t slot_status(std::uint32_t slot) const;
  [[nodiscard]] bool is_last_waiting() const;
  void clear_error_now_and_then();

  int socket_;
  AfPacketRing ring_;
  std::byte* map_;               // both rings, read only: receive, then transmit
  std::uint32_t next_slot_ = 0;  // that the driver fills next
  std::uint32_t idle_kicks_ = 0;
  std::uint32_t failed_kicks_ = 0;  // in a row
  std::atomic<std::uint64_t> missed_{0};
};

}  // namespace urdma::io
