// The relay's end of an interface; see the header.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "packet_socket.hpp"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace urdma::interop {

namespace {

constexpr std::size_t kLargestPacket = 70'000;  // with segmentation offload, more than any MTU
constexpr int kSocketBuffer = 16 << 20;
constexpr std::uint16_t kRocePort = 4791;

void set_option(int fd, int level, int option, int value, const char* name) {
  if (setsockopt(fd, level, option, &value, sizeof(value)) != 0) {
    throw std::runtime_error(std::string(name) + ": " + std::strerror(errno));
  }
}

std::uint16_t be16_at(std::span<const std::uint8_t> bytes, std::size_t offset) {
  return static_cast<std::uint16_t>((bytes[offset] << 8) | bytes[offset + 1]);
}

}  // namespace

std::size_t Packet::bth_offset() const {
  constexpr std::size_t kEthernet = 14;
  constexpr std::size_t kUdp = 8;
  const auto bytes_of_frame = frame();
  if (bytes_of_frame.size() < kEthernet + 20 + kUdp + 12) return 0;
  const std::uint16_t type = be16_at(bytes_of_frame, 12);
  std::size_t udp = 0;
  if (type == ETH_P_IP && bytes_of_frame[kEthernet] == 0x45 && bytes_of_frame[kEthernet + 9] == IPPROTO_UDP) {
    udp = kEthernet + 20;
  } else if (type == ETH_P_IPV6 && bytes_of_frame[kEthernet + 6] == IPPROTO_UDP) {
    udp = kEthernet + 40;
  }
  if (udp == 0 || udp + kUdp + 12 > bytes_of_frame.size()) return 0;
  return be16_at(bytes_of_frame, udp + 2) == kRocePort ? udp + kUdp : 0;
}

PacketSocket::PacketSocket(const std::string& interface)
    : fd_(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), buffer_(kLargestPacket) {
  if (fd_ < 0) throw std::runtime_error(std::string("a packet socket: ") + std::strerror(errno));
  set_option(fd_, SOL_PACKET, PACKET_VNET_HDR, 1, "PACKET_VNET_HDR");
  set_option(fd_, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING");
  set_option(fd_, SOL_SOCKET, SO_RCVBUFFORCE, kSocketBuffer, "SO_RCVBUFFORCE");
  set_option(fd_, SOL_SOCKET, SO_SNDBUFFORCE, kSocketBuffer, "SO_SNDBUFFORCE");
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  if (address.sll_ifindex == 0) throw std::runtime_error("there is no interface " + interface);
  if (bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    throw std::runtime_error("bind to " + interface + ": " + std::strerror(errno));
  }
}

PacketSocket::~PacketSocket() { close(fd_); }

bool PacketSocket::receive(Packet& packet) {
  const ssize_t size = recv(fd_, buffer_.data(), buffer_.size(), 0);
  if (size < ssize_t{kVnetHeaderBytes}) return false;
  packet.bytes.assign(buffer_.begin(), buffer_.begin() + size);
  // "The checksum was found right" is for receivers only.
  packet.bytes[0] &= kVnetNeedsChecksum;
  return true;
}

void PacketSocket::send(const Packet& packet) {
  // The interface may be down or full; either way it is what wires do.
  [[maybe_unused]] const ssize_t sent = ::send(fd_, packet.bytes.data(), packet.bytes.size(), 0);
}

}  // namespace urdma::interop
