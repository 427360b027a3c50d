// Beside DPDK's AF_PACKET driver: see af_packet.hpp. What is said here of that driver holds for 22.11.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/io/af_packet.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "datapath/io/frame_pool.hpp"
#include "datapath/io/port.hpp"
#include "urdma/base/unique_fd.hpp"
#include "urdma/wire/frame.hpp"

namespace urdma::io {
namespace {

// In front of a received frame in its slot: the kernel's header, then the address, both padded so that the IP
// header is aligned; less the Ethernet header, which stands before that boundary.
constexpr std::uint32_t kReceiveOverhead =
    TPACKET_ALIGN(TPACKET2_HDRLEN + 16) - static_cast<std::uint32_t>(wire::kEthernetBytes);
// In front of a frame to send: the kernel's header only.
constexpr std::uint32_t kSendOverhead = TPACKET2_HDRLEN - sizeof(sockaddr_ll);
constexpr std::uint32_t kSlotAlignment = 64;

ifreq request_for(const std::string& interface) {
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  return request;
}

bool is_packet_socket(int descriptor) {
  int domain = 0;
  socklen_t size = sizeof domain;
  return getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_PACKET;
}

bool attach_filter(int socket, std::span<sock_filter> program) {
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  return setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0;
}

constexpr sock_filter load(std::uint16_t width, std::uint32_t offset) {
  return {static_cast<std::uint16_t>(BPF_LD | width | BPF_ABS), 0, 0, offset};
}
// Goes on where the accumulator is `value`, else jumps `skip` instructions.
constexpr sock_filter require(std::uint32_t value, std::uint8_t skip) {
  return {BPF_JMP | BPF_JEQ | BPF_K, 0, skip, value};
}
constexpr sock_filter metadata(std::uint32_t which) {
  return load(BPF_W, static_cast<std::uint32_t>(SKF_AD_OFF) + which);
}

// Frames for this host, not tagged, IPv4 without fragments or IPv6, UDP to the RoCE port.
std::array<sock_filter, 21> roce_filter() {
  constexpr std::uint32_t kTypeOffset = 12;
  constexpr std::uint32_t kIpOffset = wire::kEthernetBytes;
  constexpr std::uint32_t kFragmentBits = 0x3FFF;
  constexpr std::uint32_t kDestPortOffset = 2;
  constexpr std::uint32_t kWhole = 0xFFFFFFFF;
  return {{
      metadata(SKF_AD_PKTTYPE),                                       // 0: to us, broadcast or multicast:
      {BPF_JMP | BPF_JGE | BPF_K, 18, 0, PACKET_OTHERHOST},           // 1: not others' and not outgoing
      metadata(SKF_AD_VLAN_TAG_PRESENT),                              // 2
      require(0, 16),                                                 // 3
      load(BPF_H, kTypeOffset),                                       // 4
      require(ETH_P_IP, 8),                                           // 5
      load(BPF_B, kIpOffset + 9),                                     // 6: protocol
      require(IPPROTO_UDP, 12),                                       // 7
      load(BPF_H, kIpOffset + 6),                                     // 8
      {BPF_JMP | BPF_JSET | BPF_K, 10, 0, kFragmentBits},             // 9
      {BPF_LDX | BPF_B | BPF_MSH, 0, 0, kIpOffset},                   // 10: header length
      {BPF_LD | BPF_H | BPF_IND, 0, 0, kIpOffset + kDestPortOffset},  // 11
      require(wire::kRocePort, 7),                                    // 12
      {BPF_RET | BPF_K, 0, 0, kWhole},                                // 13
      require(ETH_P_IPV6, 5),                                         // 14
      load(BPF_B, kIpOffset + 6),                                     // 15: next header
      require(IPPROTO_UDP, 3),                                        // 16
      load(BPF_H, kIpOffset + static_cast<std::uint32_t>(wire::kIpv6Bytes) + kDestPortOffset),  // 17
      require(wire::kRocePort, 1),                                                              // 18
      {BPF_RET | BPF_K, 0, 0, kWhole},                                                          // 19
      {BPF_RET | BPF_K, 0, 0, 0},                                                               // 20
  }};
}

// The transmit ring is what limits the frames under way, so the socket's own limit must not be lower.
void enlarge_send_buffer(int socket, const AfPacketRing& ring) {
  constexpr std::size_t kKernelOverhead = 1024;  // of a frame under way
  const int bytes = static_cast<int>(ring.bytes() + ring.slots * kKernelOverhead);
  if (setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) == 0) return;
  // Without CAP_NET_ADMIN, as much as the host allows; kick() copes with the rest.
  (void)setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

// The address of a socket on the RoCE port, for both IP versions where `family` is IPv6.
bool bind_guard(int socket, int family) {
  if (family == AF_INET) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(wire::kRocePort);
    return bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  const int off = 0;
  setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(wire::kRocePort);
  return bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

Result<std::uint32_t> usable_interface_mtu(const std::string& name) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return fail_errno(errno, "no socket to look at interfaces with");
  ifreq flags = request_for(name);
  if (ioctl(socket.get(), SIOCGIFFLAGS, &flags) != 0) {
    return fail(ENODEV,
                fmt::format("there is no network interface '{}': 'ip link' shows those there are", name));
  }
  if ((flags.ifr_flags & IFF_UP) == 0) {
    return fail(ENETDOWN,
                fmt::format("the network interface '{0}' is down: 'ip link set {0} up' starts it", name));
  }
  ifreq hardware = request_for(name);
  ifreq mtu = request_for(name);
  if (ioctl(socket.get(), SIOCGIFHWADDR, &hardware) != 0 || ioctl(socket.get(), SIOCGIFMTU, &mtu) != 0) {
    return fail_errno(errno, fmt::format("the network interface '{}' cannot be looked at", name));
  }
  const int type = hardware.ifr_hwaddr.sa_family;
  if (type != ARPHRD_ETHER && type != ARPHRD_LOOPBACK) {
    return fail(EOPNOTSUPP, fmt::format("the network interface '{}' does not carry Ethernet frames", name));
  }
  return static_cast<std::uint32_t>(mtu.ifr_mtu);
}

Status check_packet_sockets() {
  const UniqueFd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (socket.is_open()) return {};
  if (errno != EPERM) return fail_errno(errno, "the kernel gives no packet socket");
  return fail(EPERM,
              "af_packet ports need the capability CAP_NET_RAW: start the node as root, or in a network "
              "namespace of your own ('unshare -rn', with a directory of yours in URDMA_DIR)");
}

std::vector<int> packet_sockets() {
  std::vector<int> found;
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return found;
  while (const dirent* entry = readdir(directory)) {
    const int descriptor =
        std::atoi(entry->d_name);  // "." and ".." give 0: no packet socket, or it was asked for
    if (is_packet_socket(descriptor)) found.push_back(descriptor);
  }
  closedir(directory);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

int open_guard_socket(const std::string& interface) {
  std::array<sock_filter, 1> drop_all = {{{BPF_RET | BPF_K, 0, 0, 0}}};
  for (const int family : {AF_INET6, AF_INET}) {
    UniqueFd socket(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) continue;
    const int on = 1;
    const auto length = static_cast<socklen_t>(interface.size());
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(socket.get(), SOL_SOCKET, SO_BINDTODEVICE, interface.c_str(), length);
    if (attach_filter(socket.get(), drop_all) && bind_guard(socket.get(), family)) return socket.release();
  }
  return -1;
}

AfPacketRing AfPacketRing::fit(std::uint32_t mtu, std::uint32_t slots) {
  const std::uint32_t frame = std::min(frame_bytes_for(mtu), kLargestFrameBytes);
  AfPacketRing ring;
  ring.slot_bytes = (frame + kReceiveOverhead + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  ring.block_bytes = std::lcm(ring.slot_bytes, static_cast<std::uint32_t>(getpagesize()));
  const std::uint32_t slots_of_block = ring.block_bytes / ring.slot_bytes;
  ring.slots = (slots + slots_of_block - 1) / slots_of_block * slots_of_block;
  return ring;
}

std::uint32_t AfPacketRing::send_bytes() const { return slot_bytes - kSendOverhead; }

Result<std::unique_ptr<AfPacketQueue>> AfPacketQueue::attach(int socket, const AfPacketRing& ring) {
  auto filter = roce_filter();
  if (!attach_filter(socket, filter))
    return fail_errno(errno, "the kernel does not take the filter for RoCE");
  enlarge_send_buffer(socket, ring);
  void* map = mmap(nullptr, 2 * ring.bytes(), PROT_READ, MAP_SHARED, socket, 0);
  if (map == MAP_FAILED) return fail_errno(errno, "the packet rings cannot be mapped");
  return std::unique_ptr<AfPacketQueue>(new AfPacketQueue(socket, ring, static_cast<std::byte*>(map)));
}

AfPacketQueue::~AfPacketQueue() { munmap(map_, 2 * ring_.bytes()); }

std::uint32_t AfPacketQueue::slot_status(std::uint32_t slot) const {
  const std::byte* header = map_ + ring_.bytes() + std::size_t{slot} * ring_.slot_bytes;
  static_assert(offsetof(tpacket2_hdr, tp_status) == 0);
  // Acquire: pairs with the kernel's write after it is done with the slot.
  const auto status = __atomic_load_n(reinterpret_cast<const std::uint32_t*>(header), __ATOMIC_ACQUIRE);
  // Time stamps are reported in the same word.
  return status & ~static_cast<std::uint32_t>(TP_STATUS_TS_SOFTWARE | TP_STATUS_TS_RAW_HARDWARE);
}

std::uint32_t AfPacketQueue::free_slots(std::uint32_t wanted) const {
  const std::uint32_t most = std::min(wanted, ring_.slots);
  std::uint32_t slot = next_slot_;
  std::uint32_t count = 0;
  for (; count < most && slot_status(slot) == TP_STATUS_AVAILABLE; ++count) {
    if (++slot == ring_.slots) slot = 0;
  }
  return count;
}

// The kernel sends in order: when the last frame does not wait to be picked up, none does.
bool AfPacketQueue::is_last_waiting() const {
  const std::uint32_t last = next_slot_ == 0 ? ring_.slots - 1 : next_slot_ - 1;
  return slot_status(last) == TP_STATUS_SEND_REQUEST;
}

bool AfPacketQueue::kick() {
  if (!is_last_waiting()) {
    clear_error_now_and_then();
    return false;
  }
  // Congestion passes soon. Without a carrier the error is the same, but stays: then the frames wait for the
  // next kick, and the engine need not.
  constexpr std::uint32_t kMostFailures = 1000;
  if (sendto(socket_, nullptr, 0, MSG_DONTWAIT, nullptr, 0) >= 0) {
    failed_kicks_ = 0;
    return is_last_waiting();
  }
  const bool is_congested = errno == ENOBUFS || errno == EAGAIN || errno == EINTR;
  failed_kicks_ = std::min(failed_kicks_ + 1, kMostFailures);
  if (is_congested && failed_kicks_ < kMostFailures) return true;
  clear_error_now_and_then();
  return false;
}

// An interface that goes down leaves an error on the socket, for which epoll would wake the engine without
// end. Reading it costs a system call, so it is done once in many kicks that find nothing to do.
void AfPacketQueue::clear_error_now_and_then() {
  constexpr std::uint32_t kPeriod = 256;
  if (++idle_kicks_ % kPeriod != 0) return;
  int error = 0;
  socklen_t size = sizeof error;
  (void)getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
}

std::uint64_t AfPacketQueue::missed() {
  tpacket_stats stats{};
  socklen_t size = sizeof stats;
  // Reading starts the kernel's count anew.
  if (getsockopt(socket_, SOL_PACKET, PACKET_STATISTICS, &stats, &size) != 0) stats.tp_drops = 0;
  return missed_.fetch_add(stats.tp_drops, std::memory_order_relaxed) + stats.tp_drops;
}

}  // namespace urdma::io
