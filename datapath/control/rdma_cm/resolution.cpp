// Addresses and routes (see commands.hpp). The route of RoCE is what has been found with the address.
// Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>

#include "datapath/control/rdma_cm/commands.hpp"

namespace urdma::control::rdma_cm {
namespace {

// "Here", where neither the destination nor the ID says which address.
SocketAddress loopback_of(Family family) {
  constexpr std::uint32_t kIpv4Loopback = 0x7F000001;
  SocketAddress address = any_address(family);
  if (family == Family::kIpv4)
    address.gid = wire::gid_from_ipv4(kIpv4Loopback);
  else
    address.gid.back() = 1;
  return address;
}

// The end that packets to `dest` are from, and where they go to.
Result<LocalEnd> find_ends(Context& context, const Id& id, const SocketAddress& dest, wire::Gid& remote) {
  remote = dest.gid;
  const bool is_here = dest.is_any() || dest.is_loopback();
  if (!is_here) return id.local ? Result<LocalEnd>(*id.local) : context.network.find_source(dest);
  SocketAddress loopback = dest;
  if (dest.is_any()) loopback = id.source.is_any() ? loopback_of(dest.family) : id.source;
  auto local = id.local ? Result<LocalEnd>(*id.local) : context.network.find_local(loopback);
  if (local) remote = local->gid;
  return local;
}

// Loopback addresses stay what the program knows them as.
void set_source(Id& id) {
  if (!id.source.is_any()) return;
  const std::uint16_t port = id.source.port;
  id.source = id.dest.is_loopback() ? id.dest : address_of(id.local->gid, port);
  id.source.port = port;
  id.source.scope = id.dest.scope;
}

void finish(Context& context, std::uint32_t number, std::uint32_t resolution, int error) {
  Id* id = context.find(number);
  const bool is_awaited =
      id != nullptr && id->resolution == resolution && id->state == IdState::kResolvingAddress;
  if (!is_awaited) return;
  context.end_resolution(*id);
  if (error == 0) {
    set_source(*id);
    id->state = IdState::kAddressResolved;
    return context.post(*id, Context::event_of(*id, EventType::kAddressResolved, 0));
  }
  id->state = IdState::kBound;
  if (!id->is_bound_to_device) id->local.reset();
  context.post(*id, Context::event_of(*id, EventType::kAddressError, -error));
}

int resolve(Context& context, Id& id, const SocketAddress& source, const SocketAddress& dest,
            std::uint32_t timeout_ms) {
  if (dest.family == Family::kIb) return ENODEV;  // of InfiniBand's own networks
  if (!dest.is_ip()) return EAFNOSUPPORT;
  if (id.state == IdState::kIdle) {
    const SocketAddress own = source.family == Family::kNone ? any_address(dest.family) : source;
    if (const int error = bind_id(context, id, own); error != 0) return error;
  }
  if (id.state != IdState::kBound || id.source.family != dest.family) return EINVAL;
  wire::Gid remote{};
  const auto local = find_ends(context, id, dest, remote);
  if (!local && local.error().code == ENETUNREACH) return ENETUNREACH;
  id.dest = dest;
  id.state = IdState::kResolvingAddress;
  id.deadline = context.network.now() + milliseconds(timeout_ms);
  context.resolving.insert({id.deadline, id.number});
  const auto done = [&context, number = id.number, count = ++id.resolution](int error) {
    finish(context, number, count, error);
  };
  if (!local) {
    done(local.error().code);
    return 0;
  }
  id.local = *local;
  id.remote_gid = remote;
  if (dest.is_any()) id.dest.gid = local->gid;
  if (dest.is_multicast()) {
    done(0);
  } else {
    context.network.resolve(id.number, *local, remote, done);
  }
  return 0;
}

}  // namespace

Reply resolve_ip(Context& context, Channel& channel, const Request& request) {
  const auto body = request.read<rdma_ucm_resolve_ip>();
  const auto source = read_address(std::as_bytes(std::span(&body.src_addr, 1)));
  const auto dest = read_address(std::as_bytes(std::span(&body.dst_addr, 1)));
  const bool is_sound =
      source && dest && dest->is_ip() && (source->family == Family::kNone || source->is_ip());
  if (!is_sound) return refuse(EINVAL);
  int error = 0;
  Id* id = context.find(channel, body.id, error);
  if (id == nullptr) return refuse(error);
  return refuse(resolve(context, *id, *source, *dest, body.timeout_ms));
}

Reply resolve_address(Context& context, Channel& channel, const Request& request) {
  const auto body = request.read<rdma_ucm_resolve_addr>();
  auto source = read_address(std::as_bytes(std::span(&body.src_addr, 1)));
  const auto dest = read_address(std::as_bytes(std::span(&body.dst_addr, 1)));
  if (body.src_size == 0) source = SocketAddress{};
  const bool is_sound = body.reserved == 0 && source && dest && body.dst_size != 0 &&
                        body.src_size == address_bytes(source->family) &&
                        body.dst_size == address_bytes(dest->family);
  if (!is_sound) return refuse(EINVAL);
  int error = 0;
  Id* id = context.find(channel, body.id, error);
  if (id == nullptr) return refuse(error);
  return refuse(resolve(context, *id, *source, *dest, body.timeout_ms));
}

Reply resolve_route(Context& context, Channel& channel, const Request& request) {
  int error = 0;
  Id* id = context.find(channel, request.read<rdma_ucm_resolve_route>().id, error);
  if (id == nullptr) return refuse(error);
  if (id->state != IdState::kAddressResolved) return refuse(EINVAL);
  id->state = IdState::kRouteResolved;
  context.post(*id, Context::event_of(*id, EventType::kRouteResolved, 0));
  return {};
}

Instant expire_resolutions(Context& context, Instant now) {
  while (!context.resolving.empty() && context.resolving.begin()->first <= now) {
    Id& id = *context.ids.at(context.resolving.begin()->second);
    finish(context, id.number, id.resolution, ETIMEDOUT);
    context.end_resolution(id);
  }
  return context.resolving.empty() ? Instant::never() : context.resolving.begin()->first;
}

}  // namespace urdma::control::rdma_cm
