// A packet of an interface, and the raw socket that receives and sends them. A packet carries the kernel's
// virtio_net_hdr in front, so that checksums that are still to be computed and segments that are still to be
// cut (TCP over veth has both) cross the relay as they are. One thread; a socket owns its descriptor.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace urdma::interop {

// virtio_net_hdr; <linux/virtio_net.h> does not compile as C++.
inline constexpr std::size_t kVnetHeaderBytes = 10;
inline constexpr std::uint8_t kVnetNeedsChecksum = 1;  // in its first byte

class Packet {
 public:
  // The Ethernet frame.
  [[nodiscard]] std::span<std::uint8_t> frame() { return std::span(bytes).subspan(kVnetHeaderBytes); }
  [[nodiscard]] std::span<const std::uint8_t> frame() const {
    return std::span(bytes).subspan(kVnetHeaderBytes);
  }
  // UDP to port 4791 over IPv4 without options, or over IPv6 without extension headers.
  [[nodiscard]] bool is_roce() const { return bth_offset() != 0; }
  [[nodiscard]] std::size_t bth_offset() const;  // within the frame; 0 if there is none

  std::vector<std::uint8_t> bytes;  // virtio_net_hdr, then the frame
};

class PacketSocket {
 public:
  explicit PacketSocket(const std::string& interface);
  ~PacketSocket();
  PacketSocket(const PacketSocket&) = delete;
  PacketSocket& operator=(const PacketSocket&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  // False when there is nothing to receive.
  bool receive(Packet& packet);
  // A frame that the interface does not take is lost, as on a wire.
  void send(const Packet& packet);

 private:
  int fd_ = -1;
  std::vector<std::uint8_t> buffer_;
};

}  // namespace urdma::interop
