// Multicast groups (see multicast.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/multicast.hpp"

#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "datapath/control/event_loop.hpp"
#include "urdma/base/check.hpp"
#include "urdma/wire/resolution.hpp"

namespace urdma::control {
namespace {

template <typename Option>
bool join_by(int socket, int level, int name, const Option& option) {
  return socket >= 0 && ::setsockopt(socket, level, name, &option, sizeof(option)) == 0;
}

// Not open, with errno set, where the kernel refuses.
UniqueFd join_by_ip(int interface, const wire::Gid& group) {
  const bool is_ipv4 = wire::is_ipv4_mapped(group);
  UniqueFd socket(::socket(is_ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  bool joined = false;
  if (is_ipv4) {
    ip_mreqn request{};
    std::memcpy(&request.imr_multiaddr, group.data() + 12, sizeof(request.imr_multiaddr));
    request.imr_ifindex = interface;
    joined = join_by(socket.get(), IPPROTO_IP, IP_ADD_MEMBERSHIP, request);
  } else {
    ipv6_mreq request{};
    std::memcpy(&request.ipv6mr_multiaddr, group.data(), sizeof(request.ipv6mr_multiaddr));
    request.ipv6mr_interface = static_cast<unsigned>(interface);
    joined = join_by(socket.get(), IPPROTO_IPV6, IPV6_JOIN_GROUP, request);
  }
  return joined ? std::move(socket) : UniqueFd(-1);
}

UniqueFd join_by_link(int interface, const wire::Gid& group) {
  UniqueFd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));  // of no protocol: it receives nothing
  const wire::MacAddress mac = *wire::multicast_mac(group);
  packet_mreq request{};
  request.mr_ifindex = interface;
  request.mr_type = PACKET_MR_MULTICAST;
  request.mr_alen = static_cast<unsigned short>(mac.size());
  std::copy(mac.begin(), mac.end(), request.mr_address);
  return join_by(socket.get(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, request) ? std::move(socket) : UniqueFd(-1);
}

}  // namespace

void MulticastGroups::join(const Device& device, const wire::Gid& group) {
  URDMA_CHECK(wire::is_multicast_gid(group));
  Group& entry = groups_[{device.index, group}];
  if (++entry.members == 1) join_network(device, group, entry);
}

void MulticastGroups::join_anew(const Device& device) {
  for (auto& [key, entry] : groups_) {
    const bool is_elsewhere = key.first == device.index && entry.interface != device.interface_index;
    if (is_elsewhere) join_network(device, key.second, entry);
  }
}

void MulticastGroups::join_network(const Device& device, const wire::Gid& group, Group& entry) {
  entry.interface = device.interface_index;
  if (device.reports != nullptr) device.reports->join(group, monotonic_now());
  if (device.interface_index == 0) return;
  entry.kernel = join_by_ip(device.interface_index, group);
  if (!entry.kernel.is_open()) {
    spdlog::warn("{}: the kernel does not join {}, so switches may hold its frames back: {}", device.name,
                 gid_text(group), std::strerror(errno));
  }
  entry.link = join_by_link(device.interface_index, group);
  if (!entry.link.is_open()) {
    spdlog::warn("{}: the interface may not take frames to {}: {}", device.name, gid_text(group),
                 std::strerror(errno));
  }
}

void MulticastGroups::leave(const Device& device, const wire::Gid& group) {
  const auto found = groups_.find({device.index, group});
  URDMA_CHECK(found != groups_.end());
  if (--found->second.members > 0) return;
  groups_.erase(found);
  if (device.reports != nullptr) device.reports->leave(group, monotonic_now());
}

std::uint32_t MulticastGroups::members(const Device& device, const wire::Gid& group) const {
  const auto found = groups_.find({device.index, group});
  return found != groups_.end() ? found->second.members : 0;
}

}  // namespace urdma::control
