// From an address vector to a path (see addressing.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/addressing.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "datapath/control/event_loop.hpp"

namespace urdma::control {
namespace {

constexpr Duration kResolveTime = seconds(3);

wire::FlowAddress flow_address(const engine::Path& path, const abi::AddressVector& address, Qpn own, Qpn peer,
                               const wire::MacAddress& source_mac) {
  wire::FlowAddress flow;
  flow.source_mac = source_mac;
  flow.source_gid = path.source_gid;
  flow.dest_gid = path.dest_gid;
  flow.udp_source_port = flow_port(own, peer);
  flow.traffic_class = address.traffic_class;
  flow.hop_limit = address.hop_limit;
  flow.flow_label = address.flow_label;
  return flow;
}

}  // namespace

void Addressing::find_path(const Device& device, const abi::AddressVector& address, Qpn own, Qpn peer,
                           const Done& done) {
  const PortGid* source = device.gids.at(address.source_gid_index);
  if (source == nullptr) {
    return done(
        fail(EINVAL, fmt::format("entry {} of the GID table is not in use", address.source_gid_index)));
  }
  engine::Path path;
  path.is_set = true;
  path.port = device.index;
  path.source_gid = source->gid;
  std::copy(std::begin(address.dest_gid), std::end(address.dest_gid), path.dest_gid.begin());
  const std::string to = gid_text(path.dest_gid);
  path.is_multicast = wire::is_multicast_gid(path.dest_gid);
  const bool is_one_family = wire::is_ipv4_mapped(path.source_gid) == wire::is_ipv4_mapped(path.dest_gid);
  // Programs choose groups without regard to the source address, which receivers need not reach.
  if (!is_one_family && !path.is_multicast) {
    return done(
        fail(EINVAL, fmt::format("{} and {} are not of one address family", gid_text(source->gid), to)));
  }
  const bool is_loopback = device.port->is_loopback();
  const Device* owner = path.is_multicast && is_loopback ? &device : devices_.find_by_gid(path.dest_gid);
  const bool is_own = owner != nullptr;
  wire::FlowAddress flow = flow_address(path, address, own, peer, device.mac);
  if (is_own && !(force_wire_ && is_loopback)) {
    path.is_local = true;
    path.dest_port = owner->index;
    path.flow = wire::make_flow(flow);
    return done(path);
  }
  // As Linux: programs that were written for one subnet ask for one hop (ibv_rc_pingpong), and work over
  // routers all the same.
  const auto hops = netlink_.hop_limit(source->ifindex, path.source_gid, path.dest_gid);
  flow.hop_limit = hops.value_or(address.hop_limit);
  if (is_loopback && !is_own) {
    return done(
        fail(ENETUNREACH, fmt::format("{} is not on this node, and a loopback port reaches no other", to)));
  }
  find_link(device, *source, path.dest_gid, [path, flow, done, to](const Result<wire::MacAddress>& mac) {
    if (!mac) return done(fail(mac.error().code, fmt::format("no way to {}: {}", to, mac.error().message)));
    wire::FlowAddress whole = flow;
    whole.dest_mac = *mac;
    engine::Path found = path;
    found.flow = wire::make_flow(whole);
    done(found);
  });
}

void Addressing::find_link(const Device& device, const PortGid& source, const wire::Gid& dest,
                           const LinkDone& done) {
  const Instant now = monotonic_now();
  if (device.port->is_loopback()) return done(device.mac);
  if (device.neighbours != nullptr) return device.neighbours->resolve(source.gid, dest, now, done);
  if (source.ifindex == 0) {
    return done(fail(ENETUNREACH, fmt::format("the interface '{}' of the port is gone", device.interface)));
  }
  netlink_.resolve(source.ifindex, source.gid, dest, now + kResolveTime, done);
}

}  // namespace urdma::control
