// IDs: made, bound, listening, moved, destroyed; and their events (see commands.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>

#include "datapath/control/rdma_cm/commands.hpp"
#include "urdma/abi/rdma_cm.hpp"

namespace urdma::control::rdma_cm {
namespace {

constexpr std::uint64_t kPortMask = 0xFFFF;

// What IDs of a port space are for; nothing for one that is unknown.
std::optional<QpType> type_of(std::uint16_t space, std::uint8_t wanted) {
  switch (static_cast<PortSpace>(space)) {
    case PortSpace::kTcp:
      return QpType::kRc;
    case PortSpace::kUdp:
    case PortSpace::kIpoib:
      return QpType::kUd;
    case PortSpace::kIb:
      return static_cast<QpType>(wanted);
  }
  return std::nullopt;
}

bool is_known(QpType type) {
  switch (type) {
    case QpType::kRc:
    case QpType::kUc:
    case QpType::kUd:
    case QpType::kXrcSend:
    case QpType::kXrcRecv:
      return true;
  }
  return false;
}

// The port space that a service ID of AF_IB names; nothing where it is none of the ID's.
std::optional<PortSpace> space_of_service(const Id& id, SocketAddress& address) {
  const std::uint64_t service = address.service_id & address.service_mask;
  for (const PortSpace space : {PortSpace::kIb, PortSpace::kTcp, PortSpace::kUdp}) {
    const std::uint64_t prefix = static_cast<std::uint64_t>(space) << 16;
    const bool is_allowed = id.created_space == PortSpace::kIb || id.created_space == space;
    if (is_allowed && (service & ~kPortMask) == (prefix & address.service_mask)) return space;
  }
  return std::nullopt;
}

bool is_link_local(const SocketAddress& address) {
  return address.family == Family::kIpv6 && address.gid[0] == 0xFE && (address.gid[1] & 0xC0) == 0x80;
}

// The device that has the address, where it is one in particular.
int find_device(Context& context, Id& id, const SocketAddress& address) {
  if (address.is_of_all_devices()) return 0;
  if (!address.is_ip()) return ENODEV;
  if (is_link_local(address) && address.scope == 0) return EINVAL;
  const auto local = context.network.find_local(address);
  if (!local) return local.error().code;
  id.local = *local;
  return 0;
}

int take_port(Context& context, Id& id, SocketAddress& address) {
  PortSpace space = id.created_space;
  if (address.family == Family::kIb) {
    const auto named = space_of_service(id, address);
    if (!named) return EPROTONOSUPPORT;
    space = *named;
  }
  PortUser user{id.number, address, id.reuses_address, id.family_only.value_or(false)};
  if (const int error = context.ports.take(space, user); error != 0) return error;
  id.space = space;
  id.has_port = true;
  address.port = user.address.port;
  if (address.family == Family::kIb) {
    address.service_id = static_cast<std::uint64_t>(space) << 16 | address.port;
    address.service_mask = ~std::uint64_t{0};
  }
  return 0;
}

Reply bind_to(Context& context, Channel& channel, std::uint32_t number,
              const std::optional<SocketAddress>& address) {
  int error = 0;
  Id* id = context.find(channel, number, error);
  if (id == nullptr) return refuse(error);
  if (!address || address->family == Family::kNone) return refuse(EAFNOSUPPORT);
  return refuse(bind_id(context, *id, *address));
}

}  // namespace

int bind_id(Context& context, Id& id, const SocketAddress& address) {
  if (address.family == Family::kIb && !context.options.supports_af_ib) return EAFNOSUPPORT;
  if (id.state != IdState::kIdle) return EINVAL;
  SocketAddress wanted = address;
  if (const int error = find_device(context, id, wanted); error != 0) return error;
  const std::optional<bool> told = id.family_only;
  if (!told) id.family_only = address.family == Family::kIpv4;
  if (const int error = take_port(context, id, wanted); error != 0) {
    id.local.reset();
    id.family_only = told;  // the next address may be of the other family
    return error;
  }
  id.is_bound_to_device = id.local.has_value();
  id.source = wanted;
  id.dest = any_address(address.family);
  id.state = IdState::kBound;
  return 0;
}

Reply create_id(Context& context, Channel& channel, const Request& request) {
  const auto body = request.read<rdma_ucm_create_id>();
  const auto type = type_of(body.ps, body.qp_type);
  if (!type || !is_known(*type)) return refuse(EINVAL);
  Id* id = context.add_id(channel);
  if (id == nullptr) return refuse(ENOMEM);
  id->uid = body.uid;
  id->type = *type;
  id->created_space = id->space = static_cast<PortSpace>(body.ps);
  return reply_of(rdma_ucm_create_id_resp{id->number});
}

Reply destroy_id(Context& context, Channel& channel, const Request& request) {
  int error = 0;
  Id* id = context.find(channel, request.read<rdma_ucm_destroy_id>().id, error);
  if (id == nullptr) return refuse(error);
  const rdma_ucm_destroy_id_resp response{id->events_reported};
  context.destroy(*id);
  return reply_of(response);
}

Reply bind_ip(Context& context, Channel& channel, const Request& request) {
  const auto body = request.read<rdma_ucm_bind_ip>();
  const auto address = read_address(std::as_bytes(std::span(&body.addr, 1)));
  if (!address || !address->is_ip()) return refuse(EINVAL);
  return bind_to(context, channel, body.id, address);
}

Reply bind(Context& context, Channel& channel, const Request& request) {
  const auto body = request.read<rdma_ucm_bind>();
  const auto address = read_address(std::as_bytes(std::span(&body.addr, 1)));
  if (body.reserved != 0 || !address || body.addr_size == 0 ||
      body.addr_size != address_bytes(address->family))
    return refuse(EINVAL);
  return bind_to(context, channel, body.id, address);
}

Reply listen(Context& context, Channel& channel, const Request& request) {
  int error = 0;
  Id* id = context.find(channel, request.read<rdma_ucm_listen>().id, error);
  if (id == nullptr) return refuse(error);
  if (id->state == IdState::kIdle) error = bind_id(context, *id, any_address(Family::kIpv4));
  if (error == 0 && id->state != IdState::kBound) error = EINVAL;
  const PortUser user{id->number, id->source, false, id->family_only.value_or(false)};
  if (error == 0) error = context.ports.check_listen(id->space, user);
  if (error != 0) return refuse(error);
  id->state = IdState::kListening;
  context.ports.note_listener(id->space, id->source.port, id->number);
  return {};
}

Reply get_event(Context& context, Channel& channel, const Request&) {
  auto event = context.take_event(channel);
  context.sign_events(channel);
  if (!event) return refuse(EAGAIN);
  if (event->child != 0) event->body.id = event->child;
  return reply_of(event->body);
}

Reply return_tokens(Context& context, Channel& channel, const Request& request) {
  context.put_back_tokens(channel, request.read<abi::rdma_cm::ReturnTokens>().count);
  return {};
}

Reply offer_id(Context& context, Channel& channel, const Request& request) {
  int error = 0;
  Id* id = context.find(channel, request.read<abi::rdma_cm::OfferId>().id, error);
  if (id == nullptr) return refuse(error);
  context.withdraw_offer(*id);
  do {
    id->ticket = context.random();
  } while (id->ticket == 0 || context.offers.contains(id->ticket));
  context.offers[id->ticket] = id->number;
  const abi::rdma_cm::OfferIdResponse response{id->ticket};
  return reply_of(response);
}

Reply migrate_id(Context& context, Channel& channel, const Request& request) {
  const auto body = request.read<rdma_ucm_migrate_id>();
  std::uint64_t ticket = 0;
  if (request.extra.size() != sizeof(ticket)) return refuse(EINVAL);
  std::memcpy(&ticket, request.extra.data(), sizeof(ticket));
  const auto offer = context.offers.find(ticket);
  Id* id = offer != context.offers.end() && offer->second == body.id ? context.find(body.id) : nullptr;
  if (id == nullptr || id->user != channel.peer.uid) return refuse(EINVAL);
  context.withdraw_offer(*id);
  context.move_to_channel(*id, channel);
  return reply_of(rdma_ucm_migrate_resp{id->events_reported});
}

}  // namespace urdma::control::rdma_cm
