// Network ports over DPDK devices: see port.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/io/port.hpp"

#include <fmt/format.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "datapath/io/af_packet.hpp"
#include "datapath/io/eal.hpp"
#include "datapath/io/frame.hpp"
#include "datapath/io/frame_pool.hpp"
#include "datapath/io/stale_socket.hpp"
#include "urdma/base/check.hpp"

namespace urdma::io {
namespace {

constexpr const char* kVirtualBus = "vdev";
// Jumbo frames, as a data centre has them: the largest path MTU fits.
constexpr std::uint32_t kLoopbackMtu = 9000;
// Locally administered; no other node ever sees it.
constexpr wire::MacAddress kLoopbackMac = {0x02, 'u', 'r', 'd', 'm', 'a'};
constexpr std::uint16_t kDescriptors = 1024;
constexpr std::uint16_t kBurst = 32;

bool is_zero(const wire::MacAddress& mac) {
  return std::all_of(mac.begin(), mac.end(), [](std::uint8_t byte) { return byte == 0; });
}

wire::MacAddress device_mac(std::uint16_t device) {
  rte_ether_addr address{};
  rte_eth_macaddr_get(device, &address);
  wire::MacAddress mac{};
  std::memcpy(mac.data(), address.addr_bytes, mac.size());
  return mac;
}

// A device's name is unique in the process.
std::string next_loopback_name() {
  static std::atomic<unsigned> count{0};
  return fmt::format("net_ring_lo{}", count++);
}

}  // namespace

Port::Port(PortSpec spec) : spec_(std::move(spec)) {}

Result<std::unique_ptr<Port>> Port::open(const PortSpec& spec, rte_mempool* frames) {
  std::unique_ptr<Port> port(new Port(spec));
  Status opened;
  switch (spec.kind) {
    case PortSpec::Kind::kLoopback:
      opened = port->open_loopback(frames);
      break;
    case PortSpec::Kind::kAfPacket:
      opened = port->open_af_packet(frames);
      break;
    case PortSpec::Kind::kVdev:
      opened = port->open_vdev(frames);
      break;
  }
  if (!opened) return tl::make_unexpected(opened.error());
  return port;
}

Port::~Port() {
  // The driver closes its socket, which is an AF_PACKET port's wake descriptor.
  if (spec_.kind == PortSpec::Kind::kLoopback && wake_descriptor_ >= 0) close(wake_descriptor_);
  close_device();
}

void Port::close_device() {
  if (guard_socket_ >= 0) close(std::exchange(guard_socket_, -1));
  if (device_name_.empty()) return;
  if (is_started_) drain();
  rte_eth_dev_stop(device_);
  af_packet_.reset();
  rte_eth_dev_close(device_);
  rte_eal_hotplug_remove(kVirtualBus, device_name_.c_str());
  device_name_.clear();
  is_started_ = false;
}

Status Port::reopen(rte_mempool* frames) {
  URDMA_CHECK(spec_.kind == PortSpec::Kind::kAfPacket);
  if (is_started_) counted_ = counters();
  segmented_.store(0, std::memory_order_relaxed);
  close_device();
  wake_descriptor_ = -1;
  return open_af_packet(frames);
}

bool Port::connects_at_start() const {
  return spec_.device.starts_with("net_memif") && spec_.device.find("role=server") == std::string::npos;
}

Status Port::restart() {
  rte_eth_dev_stop(device_);
  const int result = rte_eth_dev_start(device_);
  if (result == 0) return {};
  return fail(-result, fmt::format("the port '{}' does not start: {}", spec_.text, last_eal_message()));
}

bool Port::is_link_up() const {
  rte_eth_link link{};
  return rte_eth_link_get_nowait(device_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

// A ring device's transmit queue 0 is its receive queue 0.
Status Port::open_loopback(rte_mempool* frames) {
  mac_ = kLoopbackMac;
  mtu_ = most_mtu_ = kLoopbackMtu;
  wake_descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_descriptor_ < 0) return fail_errno(errno, "no descriptor for the loopback port");
  if (auto made = make_device(next_loopback_name(), ""); !made) return made;
  return start_device(frames);
}

Status Port::open_vdev(rte_mempool* frames) {
  const std::size_t comma = spec_.device.find(',');
  const std::string arguments = comma == std::string::npos ? "" : spec_.device.substr(comma + 1);
  if (spec_.device.starts_with("net_memif")) remove_stale_memif_socket(arguments);
  if (auto made = make_device(spec_.device.substr(0, comma), arguments); !made) return made;
  if (auto started = start_device(frames); !started) return started;

  mac_ = device_mac(device_);
  if (is_zero(mac_)) rte_eth_random_addr(mac_.data());
  std::uint16_t mtu = 0;
  if (rte_eth_dev_get_mtu(device_, &mtu) != 0) mtu = RTE_ETHER_MTU;
  mtu_ = most_mtu_ = mtu;
  return {};
}

Status Port::open_af_packet(rte_mempool* frames) {
  const auto mtu = usable_interface_mtu(spec_.interface);
  if (!mtu) return tl::make_unexpected(mtu.error());
  if (auto allowed = check_packet_sockets(); !allowed) return allowed;
  mtu_ = *mtu;
  most_mtu_ = kLargestFrameBytes - static_cast<std::uint32_t>(wire::kEthernetBytes);

  const std::vector<int> before = packet_sockets();
  const auto ring = make_af_packet_device();
  if (!ring) return tl::make_unexpected(ring.error());
  if (auto started = start_device(frames); !started) return started;
  for (const int socket : packet_sockets()) {
    if (!std::binary_search(before.begin(), before.end(), socket)) wake_descriptor_ = socket;
  }
  if (wake_descriptor_ < 0)
    return fail(EIO, fmt::format("the socket of the port '{}' was not found", spec_.text));

  auto queue = AfPacketQueue::attach(wake_descriptor_, *ring);
  if (!queue) return tl::make_unexpected(queue.error());
  af_packet_ = std::move(*queue);
  guard_socket_ = open_guard_socket(spec_.interface);
  mac_ = device_mac(device_);
  drain();
  return {};
}

// Long rings carry a port over the moments when its engine does not run. The driver locks them in memory, and
// an ordinary user may lock little: then they are shorter. Slots hold the largest frame there is, since
// the interface's MTU may grow. Frames pass the interface's queueing discipline: a
// bypass is no faster to speak of, loses frames when a NIC's ring is full, and hides them from tcpdump and
// netem.
Result<AfPacketRing> Port::make_af_packet_device() {
  constexpr std::array<std::uint32_t, 3> kSlots = {2048, 512, 128};
  Status made;
  for (const std::uint32_t slots : kSlots) {
    const AfPacketRing ring = AfPacketRing::fit(most_mtu_, slots);
    made = make_device(fmt::format("net_af_packet_{}", spec_.interface),
                       fmt::format("iface={},blocksz={},framesz={},framecnt={},qdisc_bypass=0",
                                   spec_.interface, ring.block_bytes, ring.slot_bytes, ring.slots));
    if (made) return ring;
    if (made.error().code == EEXIST) break;
  }
  return tl::make_unexpected(made.error());
}

Status Port::make_device(const std::string& name, const std::string& arguments) {
  if (rte_eth_dev_get_port_by_name(name.c_str(), &device_) == 0) {
    return fail(EEXIST, fmt::format("the port '{}' is there already", spec_.text));
  }
  const int result = rte_eal_hotplug_add(kVirtualBus, name.c_str(), arguments.c_str());
  if (result != 0) {
    return fail(-result, fmt::format("the port '{}' could not be made: {}", spec_.text, last_eal_message()));
  }
  if (rte_eth_dev_get_port_by_name(name.c_str(), &device_) != 0) {
    rte_eal_hotplug_remove(kVirtualBus, name.c_str());
    return fail(ENODEV,
                fmt::format("the port '{}' cannot be used: '{}' is no network device", spec_.text, name));
  }
  device_name_ = name;
  return {};
}

// One queue each way, and no offloads: the ICRC and the headers are urdma's own work.
Status Port::start_device(rte_mempool* frames) {
  const auto failed = [&](int code) {
    return fail(-code, fmt::format("the port '{}' could not be set up: {}", spec_.text, last_eal_message()));
  };
  const rte_eth_conf configuration{};
  if (int r = rte_eth_dev_configure(device_, 1, 1, &configuration); r != 0) return failed(r);
  std::uint16_t receive_descriptors = kDescriptors;
  std::uint16_t send_descriptors = kDescriptors;
  if (int r = rte_eth_dev_adjust_nb_rx_tx_desc(device_, &receive_descriptors, &send_descriptors); r != 0) {
    return failed(r);
  }
  const auto socket = static_cast<unsigned>(SOCKET_ID_ANY);
  if (int r = rte_eth_rx_queue_setup(device_, 0, receive_descriptors, socket, nullptr, frames); r != 0)
    return failed(r);
  if (int r = rte_eth_tx_queue_setup(device_, 0, send_descriptors, socket, nullptr); r != 0) return failed(r);
  if (int r = rte_eth_dev_start(device_); r != 0) return failed(r);
  is_started_ = true;
  return {};
}

// Frees what waits to be received: frames from before the filter, and a loopback's last ones.
void Port::drain() {
  constexpr int kMaxBursts = 1024;
  std::array<rte_mbuf*, kBurst> frames{};
  for (int i = 0; i < kMaxBursts; ++i) {
    const std::uint16_t count = rte_eth_rx_burst(device_, 0, frames.data(), kBurst);
    if (count == 0) return;
    rte_pktmbuf_free_bulk(frames.data(), count);
  }
}

std::uint32_t Port::receive(std::span<rte_mbuf*> frames) {
  const std::uint16_t count =
      rte_eth_rx_burst(device_, 0, frames.data(), static_cast<std::uint16_t>(frames.size()));
  std::uint32_t kept = 0;
  for (rte_mbuf* frame : frames.first(count)) {
    note_taken(frame);
    if (frame->nb_segs == 1) [[likely]] {
      frames[kept++] = frame;
    } else {
      rte_pktmbuf_free(frame);
      segmented_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  return kept;
}

std::uint32_t Port::send(std::span<rte_mbuf*> frames) {
  for (rte_mbuf* frame : frames) note_handed_on(frame);
  if (af_packet_ != nullptr) return send_af_packet(frames);
  return rte_eth_tx_burst(device_, 0, frames.data(), static_cast<std::uint16_t>(frames.size()));
}

// Never more than the ring has room for: the driver would wait. It frees a frame that is longer than a slot
// without using the slot.
std::uint32_t Port::send_af_packet(std::span<rte_mbuf*> frames) {
  const std::uint32_t room = af_packet_->free_slots(static_cast<std::uint32_t>(frames.size()));
  std::uint32_t slots = 0;
  for (const rte_mbuf* frame : frames.first(room))
    slots += frame->pkt_len <= af_packet_->send_bytes() ? 1 : 0;
  const std::uint32_t taken = rte_eth_tx_burst(device_, 0, frames.data(), static_cast<std::uint16_t>(room));
  URDMA_CHECK(taken == room);
  af_packet_->advance(slots);
  return taken;
}

bool Port::flush() { return af_packet_ != nullptr && af_packet_->kick(); }

Port::Counters Port::counters() const {
  Counters counters = device_counters();
  counters.received += counted_.received;
  counters.sent += counted_.sent;
  counters.receive_missed += counted_.receive_missed;
  counters.send_errors += counted_.send_errors;
  return counters;
}

Port::Counters Port::device_counters() const {
  if (!is_started_) return {};
  rte_eth_stats stats{};
  rte_eth_stats_get(device_, &stats);
  const std::uint64_t missed =
      stats.imissed + stats.ierrors + (af_packet_ != nullptr ? af_packet_->missed() : 0);
  return {.received = stats.ipackets,
          .sent = stats.opackets,
          .receive_missed = missed + segmented_.load(std::memory_order_relaxed),
          .send_errors = stats.oerrors};
}

std::uint8_t path_mtu_code_for(std::uint32_t mtu) {
  constexpr std::uint32_t kHeaders =
      wire::kIpv6Bytes + wire::kUdpBytes + wire::kMaxHeaderBytes + wire::kIcrcBytes;
  constexpr std::uint8_t kLargestCode = 5;
  for (std::uint8_t code = kLargestCode; code > 0; --code) {
    if (mtu >= (128U << code) + kHeaders) return code;
  }
  return 0;
}

}  // namespace urdma::io
