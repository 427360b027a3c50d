// Socket addresses (see socket_address.hpp). Any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/rdma_cm/socket_address.hpp"

#include <endian.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace urdma::control::rdma_cm {
namespace {

constexpr sa_family_t kIbFamily = 27;  // AF_IB, which libc does not know
constexpr std::size_t kIpv4Start = 12;

// What programs know as sockaddr_ib; in network order but for the family.
struct IbAddress {
  std::uint16_t family;
  std::uint16_t pkey;
  std::uint32_t flow_info;
  std::uint8_t gid[16];
  std::uint64_t service_id;
  std::uint64_t service_mask;
  std::uint64_t scope;
};
static_assert(sizeof(IbAddress) == 48);

bool is_zero(std::span<const std::uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

template <typename Kernel>
std::optional<Kernel> take(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Kernel)) return std::nullopt;
  Kernel address;
  std::memcpy(&address, bytes.data(), sizeof(address));
  return address;
}

std::optional<SocketAddress> read_ipv4(std::span<const std::byte> bytes) {
  const auto from = take<sockaddr_in>(bytes);
  if (!from) return std::nullopt;
  SocketAddress address;
  address.family = Family::kIpv4;
  address.gid = wire::gid_from_ipv4(ntohl(from->sin_addr.s_addr));
  address.port = ntohs(from->sin_port);
  return address;
}

std::optional<SocketAddress> read_ipv6(std::span<const std::byte> bytes) {
  const auto from = take<sockaddr_in6>(bytes);
  if (!from) return std::nullopt;
  SocketAddress address;
  address.family = Family::kIpv6;
  std::memcpy(address.gid.data(), &from->sin6_addr, address.gid.size());
  address.port = ntohs(from->sin6_port);
  address.flow_info = from->sin6_flowinfo;
  address.scope = from->sin6_scope_id;
  return address;
}

std::optional<SocketAddress> read_ib(std::span<const std::byte> bytes) {
  const auto from = take<IbAddress>(bytes);
  if (!from) return std::nullopt;
  SocketAddress address;
  address.family = Family::kIb;
  std::copy(std::begin(from->gid), std::end(from->gid), address.gid.begin());
  address.pkey = be16toh(from->pkey);
  address.flow_info = from->flow_info;
  address.service_id = be64toh(from->service_id);
  address.service_mask = be64toh(from->service_mask);
  address.port = static_cast<std::uint16_t>(address.service_id & address.service_mask);
  return address;
}

template <typename Kernel>
std::size_t put(const Kernel& address, std::span<std::byte> bytes) {
  if (bytes.size() < sizeof(address)) return 0;
  std::memcpy(bytes.data(), &address, sizeof(address));
  return sizeof(address);
}

std::size_t write_ipv4(const SocketAddress& address, std::span<std::byte> bytes) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(address.port);
  std::memcpy(&to.sin_addr, address.gid.data() + kIpv4Start, sizeof(to.sin_addr));
  return put(to, bytes);
}

std::size_t write_ipv6(const SocketAddress& address, std::span<std::byte> bytes) {
  sockaddr_in6 to{};
  to.sin6_family = AF_INET6;
  to.sin6_port = htons(address.port);
  to.sin6_flowinfo = address.flow_info;
  to.sin6_scope_id = address.scope;
  std::memcpy(&to.sin6_addr, address.gid.data(), address.gid.size());
  return put(to, bytes);
}

std::size_t write_ib(const SocketAddress& address, std::span<std::byte> bytes) {
  IbAddress to{};
  to.family = kIbFamily;
  to.pkey = htobe16(address.pkey);
  to.flow_info = address.flow_info;
  std::copy(address.gid.begin(), address.gid.end(), to.gid);
  to.service_id = htobe64(address.service_id);
  to.service_mask = htobe64(address.service_mask);
  return put(to, bytes);
}

}  // namespace

bool SocketAddress::is_any() const {
  switch (family) {
    case Family::kNone:
      return true;
    case Family::kIpv4:
      return is_zero(std::span(gid).subspan(kIpv4Start));
    case Family::kIpv6:
    case Family::kIb:
      return is_zero(gid);
  }
  return false;
}

bool SocketAddress::is_loopback() const {
  constexpr std::uint8_t kLoopbackNet = 127;
  constexpr std::size_t kLast = 15;
  switch (family) {
    case Family::kNone:
      return false;
    case Family::kIpv4:
      return gid[kIpv4Start] == kLoopbackNet;
    case Family::kIpv6:
    case Family::kIb:
      return is_zero(std::span(gid).first(kLast)) && gid[kLast] == 1;
  }
  return false;
}

std::size_t address_bytes(Family family) {
  switch (family) {
    case Family::kNone:
      return 0;
    case Family::kIpv4:
      return sizeof(sockaddr_in);
    case Family::kIpv6:
      return sizeof(sockaddr_in6);
    case Family::kIb:
      return sizeof(IbAddress);
  }
  return 0;
}

std::optional<SocketAddress> read_address(std::span<const std::byte> bytes) {
  sa_family_t family = AF_UNSPEC;
  if (bytes.size() < sizeof(family)) return std::nullopt;
  std::memcpy(&family, bytes.data(), sizeof(family));
  switch (family) {
    case AF_UNSPEC:
      return SocketAddress{};
    case AF_INET:
      return read_ipv4(bytes);
    case AF_INET6:
      return read_ipv6(bytes);
    case kIbFamily:
      return read_ib(bytes);
    default:
      return std::nullopt;
  }
}

std::size_t write_address(const SocketAddress& address, std::span<std::byte> bytes) {
  switch (address.family) {
    case Family::kNone:
      return 0;
    case Family::kIpv4:
      return write_ipv4(address, bytes);
    case Family::kIpv6:
      return write_ipv6(address, bytes);
    case Family::kIb:
      return write_ib(address, bytes);
  }
  return 0;
}

SocketAddress any_address(Family family) {
  SocketAddress address;
  address.family = family;
  if (family == Family::kIpv4) address.gid = wire::gid_from_ipv4(0);
  return address;
}

SocketAddress address_of(const wire::Gid& gid, std::uint16_t port) {
  SocketAddress address;
  address.family = wire::is_ipv4_mapped(gid) ? Family::kIpv4 : Family::kIpv6;
  address.gid = gid;
  address.port = port;
  return address;
}

}  // namespace urdma::control::rdma_cm
