// Questions to the kernel: see kernel_network.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/kernel_network.hpp"

#include <fmt/format.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netlink/cache.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/neighbour.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "urdma/wire/resolution.hpp"

namespace urdma::control {
namespace {

constexpr std::size_t kIpv4Start = 12;  // of an IPv4 address in a GID
constexpr std::uint8_t kIpv4Bits = 96;
constexpr std::uint32_t kMostHops = 255;
constexpr std::uint8_t kUsualHops = 64;  // where the kernel does not say

struct FreeMessage {
  void operator()(nl_msg* message) const { nlmsg_free(message); }
};
struct FreeCache {
  void operator()(nl_cache* cache) const { nl_cache_free(cache); }
};
struct FreeCallbacks {
  void operator()(nl_cb* callbacks) const { nl_cb_put(callbacks); }
};
using Message = std::unique_ptr<nl_msg, FreeMessage>;
using Cache = std::unique_ptr<nl_cache, FreeCache>;
using Callbacks = std::unique_ptr<nl_cb, FreeCallbacks>;

// An address as the kernel takes it: 4 or 16 bytes.
struct RawAddress {
  explicit RawAddress(const wire::Gid& gid)
      : family(static_cast<std::uint8_t>(wire::is_ipv4_mapped(gid) ? AF_INET : AF_INET6)),
        bytes(family == AF_INET ? gid.data() + kIpv4Start : gid.data()),
        size(family == AF_INET ? 4 : 16) {}

  std::uint8_t family;
  const std::uint8_t* bytes;
  int size;
};

std::optional<wire::Gid> gid_from(const void* bytes, std::size_t size) {
  wire::Gid gid{};
  if (size == 4) {
    gid[10] = gid[11] = 0xFF;
    std::memcpy(gid.data() + kIpv4Start, bytes, size);
    return gid;
  }
  if (size != gid.size()) return std::nullopt;
  std::memcpy(gid.data(), bytes, size);
  return gid;
}

std::optional<wire::Gid> gid_from(nl_addr* address) {
  if (address == nullptr) return std::nullopt;
  return gid_from(nl_addr_get_binary_addr(address), nl_addr_get_len(address));
}

wire::MacAddress mac_from(nl_addr* address) {
  wire::MacAddress mac{};
  if (address != nullptr && nl_addr_get_len(address) == mac.size()) {
    std::memcpy(mac.data(), nl_addr_get_binary_addr(address), mac.size());
  }
  return mac;
}

bool is_zero(const wire::MacAddress& mac) {
  return std::all_of(mac.begin(), mac.end(), [](std::uint8_t byte) { return byte == 0; });
}

// The order in which a port's GIDs stand: see InterfaceState.
int rank(const wire::Gid& gid) {
  if (wire::is_link_local(gid)) return 0;
  return wire::is_ipv4_mapped(gid) ? 1 : 2;
}

template <typename Object, typename Function>
void for_each(const Cache& cache, Function&& function) {
  if (cache == nullptr) return;
  for (nl_object* object = nl_cache_get_first(cache.get()); object != nullptr;
       object = nl_cache_get_next(object)) {
    function(reinterpret_cast<Object*>(object));
  }
}

InterfaceState state_from(rtnl_link* link) {
  InterfaceState state;
  state.index = rtnl_link_get_ifindex(link);
  if (const char* name = rtnl_link_get_name(link); name != nullptr) state.name = name;
  state.mac = mac_from(rtnl_link_get_addr(link));
  state.mtu = rtnl_link_get_mtu(link);
  constexpr unsigned kUp = IFF_UP | IFF_RUNNING | IFF_LOWER_UP;
  state.is_up = (rtnl_link_get_flags(link) & kUp) == kUp;
  return state;
}

// An address that may be used: not one that duplicate address detection still checks, or has refused.
std::optional<InterfaceAddress> address_from(rtnl_addr* address) {
  const unsigned flags = rtnl_addr_get_flags(address);
  const bool is_tentative = (flags & IFA_F_TENTATIVE) != 0 && (flags & IFA_F_OPTIMISTIC) == 0;
  if (is_tentative || (flags & IFA_F_DADFAILED) != 0) return std::nullopt;
  const auto gid = gid_from(rtnl_addr_get_local(address));
  if (!gid) return std::nullopt;
  const int bits = rtnl_addr_get_prefixlen(address) + (wire::is_ipv4_mapped(*gid) ? kIpv4Bits : 0);
  return InterfaceAddress{*gid, static_cast<std::uint8_t>(bits)};
}

Neighbour neighbour_from(rtnl_neigh* entry) {
  Neighbour neighbour;
  neighbour.index = rtnl_neigh_get_ifindex(entry);
  if (const auto gid = gid_from(rtnl_neigh_get_dst(entry))) neighbour.gid = *gid;
  neighbour.mac = mac_from(rtnl_neigh_get_lladdr(entry));
  constexpr int kValid = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_DELAY | NUD_PROBE;
  const int state = rtnl_neigh_get_state(entry);
  if (state == NUD_FAILED) {
    neighbour.state = NeighbourState::kFailed;
  } else if (is_zero(neighbour.mac)) {
    neighbour.state = NeighbourState::kUnknown;
  } else if ((state & kValid) != 0) {
    neighbour.state = NeighbourState::kUsable;
  } else if (state == NUD_STALE) {
    neighbour.state = NeighbourState::kStale;
  }
  return neighbour;
}

// A UDP endpoint as the kernel takes it.
struct Endpoint {
  Endpoint(const wire::Gid& gid, std::uint16_t port, int index) {
    const RawAddress raw(gid);
    storage.ss_family = raw.family;
    if (raw.family == AF_INET) {
      auto& address = reinterpret_cast<sockaddr_in&>(storage);
      address.sin_port = htons(port);
      std::memcpy(&address.sin_addr, raw.bytes, sizeof address.sin_addr);
      size = sizeof address;
    } else {
      auto& address = reinterpret_cast<sockaddr_in6&>(storage);
      address.sin6_port = htons(port);
      address.sin6_scope_id = wire::is_link_local(gid) ? static_cast<std::uint32_t>(index) : 0;
      std::memcpy(&address.sin6_addr, raw.bytes, sizeof address.sin6_addr);
      size = sizeof address;
    }
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }

  sockaddr_storage storage{};
  socklen_t size = 0;
};

// Sends an empty datagram to the discard port. False when the kernel refused it.
bool send_datagram(int index, const wire::Gid& source, const wire::Gid& dest) {
  constexpr std::uint16_t kDiscardPort = 9;
  const Endpoint from(source, 0, index);
  const Endpoint to(dest, kDiscardPort, index);
  const int socket = ::socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return false;
  // Fails for an address that the kernel does not have; it then takes one of its own.
  (void)bind(socket, from.get(), from.size);
  const bool is_sent = setsockopt(socket, SOL_SOCKET, SO_BINDTOIFINDEX, &index, sizeof index) == 0 &&
                       sendto(socket, nullptr, 0, 0, to.get(), to.size) == 0;
  close(socket);
  return is_sent;
}

}  // namespace

std::optional<Neighbour> parse_neighbour(nlmsghdr* message) {
  rtnl_neigh* entry = nullptr;
  if (rtnl_neigh_parse(message, &entry) < 0) return std::nullopt;
  const int family = rtnl_neigh_get_family(entry);
  const Neighbour neighbour = neighbour_from(entry);
  rtnl_neigh_put(entry);
  if (family != AF_INET && family != AF_INET6) return std::nullopt;
  return neighbour;
}

void KernelNetwork::FreeSocket::operator()(nl_sock* socket) const { nl_socket_free(socket); }

Result<std::unique_ptr<KernelNetwork>> KernelNetwork::create() {
  nl_sock* socket = nl_socket_alloc();
  if (socket == nullptr) return fail(ENOMEM, "no memory for a netlink socket");
  std::unique_ptr<KernelNetwork> network(new KernelNetwork(socket));
  if (const int result = nl_connect(socket, NETLINK_ROUTE); result < 0) {
    return fail(EIO, fmt::format("the kernel gives no netlink socket: {}", nl_geterror(result)));
  }
  // Each request says itself whether it wants an acknowledgement.
  nl_socket_disable_auto_ack(socket);
  return network;
}

std::vector<InterfaceState> KernelNetwork::interfaces() {
  nl_cache* links = nullptr;
  nl_cache* addresses = nullptr;
  rtnl_link_alloc_cache(socket_.get(), AF_UNSPEC, &links);
  rtnl_addr_alloc_cache(socket_.get(), &addresses);
  const Cache own_links(links);
  const Cache own_addresses(addresses);

  std::vector<InterfaceState> states;
  for_each<rtnl_link>(own_links, [&](rtnl_link* link) { states.push_back(state_from(link)); });
  for_each<rtnl_addr>(own_addresses, [&](rtnl_addr* entry) {
    const int index = rtnl_addr_get_ifindex(entry);
    const auto state =
        std::find_if(states.begin(), states.end(), [&](const auto& s) { return s.index == index; });
    const auto address = address_from(entry);
    if (state != states.end() && address) state->addresses.push_back(*address);
  });
  for (InterfaceState& state : states) {
    std::stable_sort(state.addresses.begin(), state.addresses.end(),
                     [](const auto& a, const auto& b) { return rank(a.gid) < rank(b.gid); });
  }
  return states;
}

int KernelNetwork::on_route(nl_msg* message, void* route) {
  auto& found = *static_cast<std::optional<Route>*>(route);
  nlmsghdr* header = nlmsg_hdr(message);
  nlattr* attributes[RTA_MAX + 1] = {};
  if (header->nlmsg_type != RTM_NEWROUTE ||
      nlmsg_parse(header, sizeof(rtmsg), attributes, RTA_MAX, nullptr) < 0) {
    return NL_OK;
  }
  found.emplace();
  found->type = static_cast<const rtmsg*>(nlmsg_data(header))->rtm_type;
  if (attributes[RTA_OIF] != nullptr) found->index = static_cast<int>(nla_get_u32(attributes[RTA_OIF]));
  if (const nlattr* gateway = attributes[RTA_GATEWAY]; gateway != nullptr) {
    found->gateway = gid_from(nla_data(gateway), static_cast<std::size_t>(nla_len(gateway)));
  }
  if (const nlattr* source = attributes[RTA_PREFSRC]; source != nullptr) {
    found->source = gid_from(nla_data(source), static_cast<std::size_t>(nla_len(source)));
  }
  nlattr* metrics[RTAX_MAX + 1] = {};
  if (attributes[RTA_METRICS] != nullptr &&
      nla_parse_nested(metrics, RTAX_MAX, attributes[RTA_METRICS], nullptr) >= 0 &&
      metrics[RTAX_HOPLIMIT] != nullptr) {
    found->hop_limit = nla_get_u32(metrics[RTAX_HOPLIMIT]);
  }
  // An IPv4 route by way of an IPv6 gateway.
  if (nlattr* via = attributes[RTA_VIA]; via != nullptr) {
    constexpr int kFamilyBytes = offsetof(rtvia, rtvia_addr);
    found->gateway = gid_from(static_cast<const std::uint8_t*>(nla_data(via)) + kFamilyBytes,
                              static_cast<std::size_t>(std::max(nla_len(via) - kFamilyBytes, 0)));
  }
  return NL_OK;
}

std::optional<KernelNetwork::Route> KernelNetwork::route(int index, const wire::Gid* source,
                                                         const wire::Gid& dest, std::uint32_t flags) {
  constexpr unsigned kBitsOfByte = 8;
  const RawAddress to(dest);
  rtmsg request{};
  request.rtm_family = to.family;
  request.rtm_dst_len = static_cast<unsigned char>(static_cast<unsigned>(to.size) * kBitsOfByte);
  request.rtm_src_len = source != nullptr ? request.rtm_dst_len : static_cast<unsigned char>(0);
  request.rtm_flags = flags;
  const Message message(nlmsg_alloc_simple(RTM_GETROUTE, NLM_F_REQUEST));
  nlmsg_append(message.get(), &request, sizeof request, NLMSG_ALIGNTO);
  nla_put(message.get(), RTA_DST, to.size, to.bytes);
  if (source != nullptr) nla_put(message.get(), RTA_SRC, to.size, RawAddress(*source).bytes);
  if (index != 0) nla_put_u32(message.get(), RTA_OIF, static_cast<std::uint32_t>(index));

  std::optional<Route> found;
  const Callbacks usual(nl_socket_get_cb(socket_.get()));
  const Callbacks callbacks(nl_cb_clone(usual.get()));
  nl_cb_set(callbacks.get(), NL_CB_VALID, NL_CB_CUSTOM, &KernelNetwork::on_route, &found);
  if (nl_send_auto(socket_.get(), message.get()) < 0 || nl_recvmsgs(socket_.get(), callbacks.get()) < 0)
    return {};
  return found;
}

// The source matters to policy routing. An address that is only the port's own, not the kernel's, is refused
// there.
std::optional<KernelNetwork::Route> KernelNetwork::route_from(int index, const wire::Gid*& source,
                                                              const wire::Gid& dest) {
  if (auto found = route(index, source, dest, 0)) return found;
  source = nullptr;
  return route(index, source, dest, 0);
}

std::uint8_t KernelNetwork::hop_limit(int index, const wire::Gid& source, const wire::Gid& dest) {
  const wire::Gid* from = &source;
  const auto found = route_from(index, from, dest);
  if (found && found->hop_limit > 0 && found->hop_limit <= kMostHops) {
    return static_cast<std::uint8_t>(found->hop_limit);
  }
  std::string name;
  for (const InterfaceState& state : interfaces()) {
    if (state.index == index) name = state.name;
  }
  const bool is_ipv4 = wire::is_ipv4_mapped(dest);
  std::ifstream setting(is_ipv4 ? "/proc/sys/net/ipv4/ip_default_ttl"
                                : fmt::format("/proc/sys/net/ipv6/conf/{}/hop_limit", name));
  std::uint32_t hops = 0;
  return setting >> hops && hops > 0 && hops <= kMostHops ? static_cast<std::uint8_t>(hops) : kUsualHops;
}

Result<wire::Gid> KernelNetwork::next_hop(int index, const wire::Gid& source, const wire::Gid& dest) {
  const auto unreachable = [&] {
    return fail(ENETUNREACH, fmt::format("no route leads to the peer out of interface {}", index));
  };
  const bool is_one_family = wire::is_ipv4_mapped(source) == wire::is_ipv4_mapped(dest);
  if (!is_one_family) return unreachable();
  const wire::Gid* from = &source;
  const auto found = route_from(index, from, dest);
  if (!found || found->type != RTN_UNICAST || found->index != index) return unreachable();
  // Without a route the kernel takes an IPv4 destination to be on the link that was named. Whether a route
  // was there is seen when it is asked for the route itself.
  if (!found->gateway && !route(index, from, dest, RTM_F_FIB_MATCH)) return unreachable();
  return found->gateway.value_or(dest);
}

std::optional<RouteSource> KernelNetwork::find_source(int index, const wire::Gid& dest) {
  const auto found = route(index, nullptr, dest, 0);
  const bool is_way = found && (found->type == RTN_UNICAST || found->type == RTN_MULTICAST);
  return is_way ? std::optional<RouteSource>({found->index, found->source}) : std::nullopt;
}

std::vector<Neighbour> KernelNetwork::neighbours() {
  nl_cache* entries = nullptr;
  rtnl_neigh_alloc_cache(socket_.get(), &entries);
  const Cache own_entries(entries);
  std::vector<Neighbour> result;
  for_each<rtnl_neigh>(own_entries, [&](rtnl_neigh* entry) { result.push_back(neighbour_from(entry)); });
  return result;
}

// A datagram needs no privilege, and gives the kernel a source to ask from, without which IPv6 waits for the
// link-local address. A firewall may refuse it; then the kernel is told to use the entry, which needs
// CAP_NET_ADMIN.
void KernelNetwork::solicit(int index, const wire::Gid& source, const wire::Gid& dest,
                            const wire::Gid& next_hop) {
  if (send_datagram(index, source, dest)) return;
  const RawAddress address(next_hop);
  ndmsg request{};
  request.ndm_family = address.family;
  request.ndm_ifindex = index;
  request.ndm_flags = NTF_USE;
  const Message message(nlmsg_alloc_simple(RTM_NEWNEIGH, NLM_F_REQUEST | NLM_F_CREATE | NLM_F_ACK));
  nlmsg_append(message.get(), &request, sizeof request, NLMSG_ALIGNTO);
  nla_put(message.get(), NDA_DST, address.size, address.bytes);
  if (nl_send_auto(socket_.get(), message.get()) >= 0) (void)nl_recvmsgs_default(socket_.get());
}

}  // namespace urdma::control
