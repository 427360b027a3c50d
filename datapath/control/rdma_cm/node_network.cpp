// The node's network for the connection manager (see node_network.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/rdma_cm/node_network.hpp"

#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "datapath/control/addressing.hpp"
#include "datapath/control/device.hpp"
#include "datapath/control/event_loop.hpp"
#include "datapath/control/rdma_cm/path_constants.hpp"

namespace urdma::control::rdma_cm {
namespace {

constexpr Duration kWayLife = seconds(5);
constexpr std::size_t kMostWays = 4096;
constexpr std::size_t kMostWaiting = 64;  // messages for one way; they are repeated
constexpr std::size_t kMostAtOnce = 64;   // datagrams that engines stand still for
constexpr std::uint8_t kRate10Gbps = 3;

bool is_ipv4(const wire::Gid& gid) { return wire::is_ipv4_mapped(gid); }

// The first of its entries that `wanted` is true of.
template <typename Wanted>
const PortGid* find_gid(const Device& device, const Wanted& wanted) {
  for (std::uint32_t index = 0; index < device.gids.capacity(); ++index) {
    const PortGid* entry = device.gids.at(index);
    if (entry != nullptr && wanted(*entry)) return entry;
  }
  return nullptr;
}

std::optional<LocalEnd> end_of(const Device& device, const PortGid* entry) {
  return entry != nullptr ? std::optional<LocalEnd>({device.index, entry->gid}) : std::nullopt;
}

}  // namespace

NodeNetwork::NodeNetwork(Node& node, Netlink& netlink, const cm::Key& secret)
    : node_(node), netlink_(netlink) {
  cm::Random random(secret);
  for (const Device& device : node.devices.all()) {
    cm::Config config;
    config.secret = random.next_key();
    config.channel_adapter_guid = htobe64(device.node_guid);
    config.most_connections = node.limits.max_rdma_cm_connections;
    config.most_responder_resources =
        static_cast<std::uint8_t>(std::min<std::uint32_t>(node.limits.max_dest_rd_atomic, 0xFF));
    managers_.push_back(std::make_unique<cm::Manager>(config));
  }
}

Instant NodeNetwork::now() const { return monotonic_now(); }

Result<LocalEnd> NodeNetwork::find_loopback(const SocketAddress& address) const {
  for (const Device& device : node_.devices.all()) {
    const PortGid* same = device.gids.find(address.gid);
    if (same != nullptr) return *end_of(device, same);
  }
  for (const Device& device : node_.devices.all()) {
    const auto is_of_family = [&](const PortGid& entry) {
      return is_ipv4(entry.gid) == (address.family == Family::kIpv4);
    };
    if (const auto end = end_of(device, find_gid(device, is_of_family))) return *end;
  }
  return fail(ENODEV, "no device has an address of this family");
}

Result<LocalEnd> NodeNetwork::find_local(const SocketAddress& address) const {
  if (address.is_loopback()) return find_loopback(address);
  for (const Device& device : node_.devices.all()) {
    const auto is_it = [&](const PortGid& entry) {
      const bool is_in_scope = address.scope == 0 || static_cast<int>(address.scope) == entry.ifindex;
      return entry.gid == address.gid && is_in_scope;
    };
    if (const auto end = end_of(device, find_gid(device, is_it))) return *end;
  }
  for (const InterfaceState& interface : netlink_.interfaces()) {
    for (const InterfaceAddress& own : interface.addresses) {
      if (own.gid == address.gid)
        return fail(ENODEV, fmt::format("no device has the address {}", gid_text(address.gid)));
    }
  }
  return fail(EADDRNOTAVAIL, fmt::format("this host does not have the address {}", gid_text(address.gid)));
}

// Ports that the kernel has no interface for have networks of their own.
std::optional<LocalEnd> NodeNetwork::find_on_link(const wire::Gid& dest) const {
  for (const Device& device : node_.devices.all()) {
    if (device.neighbours == nullptr) continue;
    for (const io::PortAddress& address : device.port->spec().addresses) {
      if (io::is_in_network(dest, address)) return LocalEnd{device.index, address.gid};
    }
  }
  return std::nullopt;
}

std::optional<LocalEnd> NodeNetwork::find_by_gateway(const wire::Gid& dest) const {
  for (const Device& device : node_.devices.all()) {
    if (device.neighbours == nullptr) continue;
    for (const wire::Gid& gateway : device.port->spec().gateways) {
      if (is_ipv4(gateway) != is_ipv4(dest)) continue;
      for (const io::PortAddress& address : device.port->spec().addresses) {
        if (io::is_in_network(gateway, address)) return LocalEnd{device.index, address.gid};
      }
    }
  }
  return std::nullopt;
}

std::optional<LocalEnd> NodeNetwork::find_by_route(const RouteSource& route, const wire::Gid& dest) const {
  const auto is_preferred = [&](const PortGid& entry) {
    return route.source == entry.gid && entry.ifindex == route.index;
  };
  const auto is_usable = [&](const PortGid& entry) {
    return entry.ifindex == route.index && is_ipv4(entry.gid) == is_ipv4(dest);
  };
  for (const Device& device : node_.devices.all()) {
    const PortGid* entry = find_gid(device, is_preferred);
    if (entry == nullptr) entry = find_gid(device, is_usable);
    if (const auto end = end_of(device, entry)) return end;
  }
  return std::nullopt;
}

Result<LocalEnd> NodeNetwork::find_source(const SocketAddress& dest) {
  if (node_.devices.find_by_gid(dest.gid) != nullptr) return find_local(dest);
  if (const auto end = find_on_link(dest.gid)) return *end;
  const auto route = netlink_.find_source(static_cast<int>(dest.scope), dest.gid);
  if (route) {
    if (const auto end = find_by_route(*route, dest.gid)) return *end;
  }
  if (const auto end = find_by_gateway(dest.gid)) return *end;
  // Groups need no route.
  if (dest.is_multicast()) return find_loopback(dest);
  if (!route) return fail(ENETUNREACH, fmt::format("no route leads to {}", gid_text(dest.gid)));
  return fail(ENODEV, fmt::format("the way to {} goes out of no device", gid_text(dest.gid)));
}

void NodeNetwork::resolve(std::uint32_t id, const LocalEnd& source, const wire::Gid& dest, const Done& done) {
  const Ends ends{source.device, source.gid, dest, 0};
  if (!gid_index(source)) return done(EADDRNOTAVAIL);
  Way* way = reserve_way(ends);
  if (way == nullptr) return done(ENOBUFS);
  if (!way->is_asking && way->until > now()) return done(0);
  way->resolving[id] = done;
  resolving_[id] = ends;
  if (!way->is_asking) ask_way(ends);
}

void NodeNetwork::stop_resolving(std::uint32_t id) {
  const auto found = resolving_.find(id);
  if (found == resolving_.end()) return;
  ways_.at(found->second).resolving.erase(id);
  resolving_.erase(found);
}

DeviceFacts NodeNetwork::facts(std::uint32_t device) const {
  const Device& described = node_.devices.at(device);
  return {htobe64(described.node_guid), described.active_mtu_code, kRate10Gbps};
}

std::optional<std::uint8_t> NodeNetwork::gid_index(const LocalEnd& end) const {
  const GidTable& gids = node_.devices.at(end.device).gids;
  for (std::uint32_t index = 0; index < gids.capacity(); ++index) {
    const PortGid* entry = gids.at(index);
    if (entry != nullptr && entry->gid == end.gid) return static_cast<std::uint8_t>(index);
  }
  return std::nullopt;
}

NodeNetwork::Way* NodeNetwork::reserve_way(const Ends& ends) {
  if (const auto known = ways_.find(ends); known != ways_.end()) return &known->second;
  if (ways_.size() >= kMostWays)
    std::erase_if(ways_, [](const auto& entry) { return !entry.second.is_asking; });
  return ways_.size() < kMostWays ? &ways_[ends] : nullptr;
}

void NodeNetwork::ask_way(const Ends& ends) {
  const auto& [device, source, dest, traffic_class] = ends;
  ways_.at(ends).is_asking = true;
  ++counters_.ways_asked;
  const auto index = gid_index({device, source});
  if (!index) return end_asking(ends, fail(EADDRNOTAVAIL, "the address has gone"));
  abi::AddressVector address{};
  std::copy(dest.begin(), dest.end(), address.dest_gid);
  address.source_gid_index = *index;
  address.hop_limit = kHopLimit;
  address.traffic_class = traffic_class;
  address.is_global = 1;
  address.port = kPort;
  node_.addressing.find_path(node_.devices.at(device), address, kManagementQpn, kManagementQpn,
                             [this, ends](const Result<engine::Path>& path) { end_asking(ends, path); });
}

// Sends what waits for the way, and tells those who do. One that was not found is asked for again.
void NodeNetwork::end_asking(const Ends& ends, const Result<engine::Path>& path) {
  Way& way = ways_.at(ends);
  const std::vector<cm::Mad> waiting = std::exchange(way.waiting, {});
  const std::map<std::uint32_t, Done> resolving = std::exchange(way.resolving, {});
  for (const auto& [id, done] : resolving) resolving_.erase(id);
  if (path) {
    way = {*path, now() + kWayLife, false, {}, {}};
    for (const cm::Mad& mad : waiting) outgoing_.emplace_back(*path, mad);
  } else {
    counters_.dropped_without_way += waiting.size();
    ways_.erase(ends);
  }
  for (const auto& [id, done] : resolving) done(path ? 0 : path.error().code);
}

void NodeNetwork::send(std::uint32_t device, const cm::OutgoingMad& outgoing) {
  const Ends ends{device, outgoing.ends.local, outgoing.ends.remote, outgoing.ends.traffic_class};
  Way* way = reserve_way(ends);
  if (way == nullptr || (way->is_asking && way->waiting.size() >= kMostWaiting)) {
    ++counters_.dropped_no_room;
  } else if (!way->is_asking && way->until > now()) {
    outgoing_.emplace_back(way->path, outgoing.mad);
  } else {
    way->waiting.push_back(outgoing.mad);
    if (!way->is_asking) ask_way(ends);
  }
}

bool NodeNetwork::is_in_use(Qpn qpn) const {
  return std::any_of(managers_.begin(), managers_.end(),
                     [qpn](const auto& manager) { return manager->is_in_use(qpn); });
}

void NodeNetwork::take_received() {
  while (const auto datagram = node_.engine.next_management()) {
    if (datagram->port >= managers_.size()) continue;
    const cm::Ends ends{datagram->dest_gid, datagram->source_gid, datagram->traffic_class,
                        datagram->hop_limit, 0};
    managers_[datagram->port]->on_mad(ends, datagram->bytes, now());
  }
}

void NodeNetwork::pump(const OnEvent& on_event) {
  bool is_anything = true;
  cm::OutgoingMad outgoing;
  cm::Event event;
  while (std::exchange(is_anything, false)) {
    for (std::uint32_t device = 0; device < managers_.size(); ++device) {
      cm::Manager& manager = *managers_[device];
      while (manager.poll_event(event)) {
        on_event(device, event);
        is_anything = true;
      }
      while (manager.poll_transmit(outgoing)) send(device, outgoing);
    }
  }
  flush();
}

// Meanwhile no engine does anything else.
void NodeNetwork::flush() {
  if (outgoing_.empty()) return;
  const auto end = outgoing_.begin() + static_cast<std::ptrdiff_t>(std::min(outgoing_.size(), kMostAtOnce));
  node_.engine.run([&] {
    for (auto each = outgoing_.begin(); each != end; ++each)
      node_.engine.send_management(each->first, each->second);
  });
  outgoing_.erase(outgoing_.begin(), end);
}

Instant NodeNetwork::tend(Instant now) {
  Instant next = outgoing_.empty() ? Instant::never() : now;
  for (const auto& manager : managers_) {
    if (manager->next_deadline() <= now) manager->on_deadline(now);
    next = earlier(next, manager->next_deadline());
  }
  return next;
}

}  // namespace urdma::control::rdma_cm
