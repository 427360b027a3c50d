// A network port: bursts of Ethernet frames in and out of one DPDK device, and a descriptor that wakes
// a sleeping engine. Made by the control path before engines start; then one engine calls
// receive, send and flush.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "datapath/io/port_spec.hpp"
#include "urdma/base/result.hpp"
#include "urdma/wire/frame.hpp"

struct rte_mbuf;
struct rte_mempool;

namespace urdma::io {

class AfPacketQueue;
struct AfPacketRing;

class Port {
 public:
  // Makes and starts the device that `spec` names. EAL has been started. `frames` outlives the port;
  // its buffers hold frames of frame_bytes_for(mtu) or more.
  [[nodiscard]] static Result<std::unique_ptr<Port>> open(const PortSpec& spec, rte_mempool* frames);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  // Up to frames.size() received frames; the caller owns them. Frames in several segments are dropped.
  // Those of a loopback port are the very buffers that were sent.
  [[nodiscard]] std::uint32_t receive(std::span<rte_mbuf*> frames);
  // Takes the first N frames, and returns N; the rest stays the caller's.
  [[nodiscard]] std::uint32_t send(std::span<rte_mbuf*> frames);
  // Pushes out what the driver holds back. True when something is left: call again before sleeping.
  [[nodiscard]] bool flush();
  // Readable (level-triggered) when frames wait, for epoll; -1 where the device has none, and the
  // engine must look again after a short nap instead. A loopback port's is never readable, because its frames
  // come from its own engine: receive once more after the last send. epoll shows EPOLLERR while an
  // interface has just gone down; flush() clears that.
  [[nodiscard]] int wake_descriptor() const { return wake_descriptor_; }

  [[nodiscard]] const PortSpec& spec() const { return spec_; }
  [[nodiscard]] const wire::MacAddress& mac() const { return mac_; }
  // The interface's IP MTU in bytes, when the port was opened.
  [[nodiscard]] std::uint32_t mtu() const { return mtu_; }
  // The largest IP packet that the port can carry, where the MTU of its interface becomes larger.
  [[nodiscard]] std::uint32_t most_mtu() const { return most_mtu_; }
  // Whether a device that is no interface of the kernel is connected. Control thread.
  [[nodiscard]] bool is_link_up() const;
  // Whether a device that has lost its link finds it again only by restart(): a memif client, whose driver
  // connects when it is started.
  [[nodiscard]] bool connects_at_start() const;
  // Stops the device, and starts it again; may fail, and be tried again. No engine may use it meanwhile.
  // Control thread.
  [[nodiscard]] Status restart();
  // Opens an af_packet port anew, on the interface that has its name now. Until it succeeds, which it may be
  // tried for again, the port is closed. No engine may use it meanwhile. Control thread.
  [[nodiscard]] Status reopen(rte_mempool* frames);
  // Frames never leave this process's memory, so that the ICRC of what is received can be trusted.
  [[nodiscard]] bool is_loopback() const { return spec_.kind == PortSpec::Kind::kLoopback; }
  // Frames that the device dropped or could not send, for `urdma status`. Any thread.
  struct Counters {
    std::uint64_t received = 0;
    std::uint64_t sent = 0;
    std::uint64_t receive_missed = 0;
    std::uint64_t send_errors = 0;
  };
  [[nodiscard]] Counters counters() const;

 private:
  explicit Port(PortSpec spec);
  [[nodiscard]] Status open_loopback(rte_mempool* frames);
  [[nodiscard]] Status open_af_packet(rte_mempool* frames);
  [[nodiscard]] Status open_vdev(rte_mempool* frames);
  [[nodiscard]] Result<AfPacketRing> make_af_packet_device();
  // Makes the DPDK device `name`; start_device() sets it up.
  [[nodiscard]] Status make_device(const std::string& name, const std::string& arguments);
  [[nodiscard]] Status start_device(rte_mempool* frames);
  [[nodiscard]] std::uint32_t send_af_packet(std::span<rte_mbuf*> frames);
  [[nodiscard]] Counters device_counters() const;
  void close_device();
  void drain();

  PortSpec spec_;
  std::string device_name_;   // empty: no device made
  std::uint16_t device_ = 0;  // DPDK port id
  bool is_started_ = false;
  int wake_descriptor_ = -1;
  int guard_socket_ = -1;                     // keeps the kernel from answering RoCE with ICMP
  std::unique_ptr<AfPacketQueue> af_packet_;  // what the driver does not do; null for other kinds
  std::uint32_t mtu_ = 0;
  std::uint32_t most_mtu_ = 0;
  Counters counted_;  // of devices that the port had before
  wire::MacAddress mac_{};
  std::atomic<std::uint64_t> segmented_{0};  // frames dropped; written by the engine
};

// The most bytes of a frame on an interface with this IP MTU: Ethernet header and IP packet.
constexpr std::uint32_t frame_bytes_for(std::uint32_t mtu) {
  return mtu + static_cast<std::uint32_t>(wire::kEthernetBytes);
}

// The largest path MTU code (1 to 5) whose packets fit an interface with this IP MTU: headers of IPv6,
// UDP, transport, and ICRC included. 0 when not even 256 bytes fit.
[[nodiscard]] std::uint8_t path_mtu_code_for(std::uint32_t mtu);

}  // namespace urdma::io
