// Events of managers (see manager_events.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/rdma_cm/manager_events.hpp"

#include <algorithm>
#include <cerrno>

#include "datapath/control/rdma_cm/commands.hpp"
#include "datapath/control/rdma_cm/messages.hpp"
#include "datapath/control/rdma_cm/path_constants.hpp"

namespace urdma::control::rdma_cm {
namespace {

constexpr std::uint64_t kPortMask = 0xFFFF;

// What both kinds of requests bring.
struct Incoming {
  std::uint32_t device = 0;
  cm::ConnectionId connection;
  const cm::Ends& ends;
  cm::ServiceId service;
  std::span<const std::uint8_t> data;
  QpType type = QpType::kRc;
};

bool accepts(const Id& listener, const Incoming& incoming, const wire::IpCmHeader& header) {
  if (listener.state != IdState::kListening || listener.type != incoming.type) return false;
  if (listener.local && listener.local->device != incoming.device) return false;
  const Family family = header.is_ipv6 ? Family::kIpv6 : Family::kIpv4;
  const bool is_for_all = listener.source.is_of_all_devices();
  switch (listener.source.family) {
    case Family::kNone:
      return false;
    case Family::kIb:
      return is_for_all;
    case Family::kIpv4:
      return family == Family::kIpv4 && (is_for_all || listener.source.gid == header.dest);
    case Family::kIpv6:
      if (is_for_all) return family == Family::kIpv6 || !listener.family_only.value_or(false);
      return family == Family::kIpv6 && listener.source.gid == header.dest;
  }
  return false;
}

// Who listens for one address in particular comes before who listens for all.
Id* find_listener(const Context& context, const Incoming& incoming, const wire::IpCmHeader& header) {
  const auto space = static_cast<PortSpace>(incoming.service.value >> 16);
  const auto port = static_cast<std::uint16_t>(incoming.service.value & kPortMask);
  Id* general = nullptr;
  if (incoming.service.value >> 32 != 0) return nullptr;
  for (const std::uint32_t number : context.ports.listeners(space, port)) {
    Id* listener = context.find(number);
    if (listener == nullptr || !accepts(*listener, incoming, header)) continue;
    if (!listener->source.is_of_all_devices()) return listener;
    if (general == nullptr) general = listener;
  }
  return general;
}

// The ID of a connection to be; null where there is no room.
Id* make_child(Context& context, const Id& listener, const Incoming& incoming,
               const wire::IpCmHeader& header) {
  Channel* channel = context.find_channel(listener.channel);
  Id* child = channel != nullptr ? context.add_id(*channel) : nullptr;
  if (child == nullptr) return nullptr;
  child->created_space = child->space = listener.space;
  child->type = listener.type;
  child->state = IdState::kRequested;
  child->source = address_of(header.dest, static_cast<std::uint16_t>(incoming.service.value & kPortMask));
  child->dest = address_of(header.source, header.source_port);
  child->local = LocalEnd{incoming.device, incoming.ends.local};
  child->remote_gid = incoming.ends.remote;
  child->traffic_class = incoming.ends.traffic_class;
  child->ack_timeout = listener.ack_timeout;
  context.attach(*child, incoming.connection);
  return child;
}

void refuse_request(Context& context, const Incoming& incoming, cm::RejectReason reason,
                    std::span<const std::uint8_t> info = {}) {
  cm::Manager& manager = context.network.manager(incoming.device);
  const Instant now = context.network.now();
  if (incoming.type == QpType::kUd) {
    cm::Resolved resolved;
    resolved.status = reason == cm::RejectReason::kInvalidServiceId ? cm::ResolveStatus::kUnsupportedService
                                                                    : cm::ResolveStatus::kRejected;
    (void)manager.answer(incoming.connection, resolved, now);
  } else {
    (void)manager.reject(incoming.connection, reason, info, {}, now);
  }
  manager.forget(incoming.connection, now);
}

// The child of the listener that the request is for; null, and it is refused, where there is none.
Id* welcome(Context& context, const Incoming& incoming, Id*& listener) {
  const auto header = wire::parse_ip_cm(incoming.data);
  listener = header ? find_listener(context, incoming, *header) : nullptr;
  if (listener == nullptr) {
    refuse_request(context, incoming,
                   header ? cm::RejectReason::kInvalidServiceId : cm::RejectReason::kConsumer);
    return nullptr;
  }
  Id* child = make_child(context, *listener, incoming, *header);
  if (child == nullptr) refuse_request(context, incoming, cm::RejectReason::kNoResources);
  return child;
}

// Hands a request to the listener's program, for which the peer has to wait.
void hand_over(Context& context, Id& listener, Id& child, rdma_ucm_event_resp& event) {
  event.uid = listener.uid;
  cm::Manager& manager = context.network.manager(child.local->device);
  const cm::ConnectionId connection = child.connection;
  if (context.post_request(listener, child, event)) {
    if (!child.is_datagram()) manager.delay(connection, context.network.now());
    return;
  }
  if (!child.is_datagram())
    (void)manager.reject(connection, cm::RejectReason::kNoResources, {}, {}, context.network.now());
  context.destroy(child);
}

void on_request(Context& context, std::uint32_t device, const cm::Event& event) {
  const cm::Request& request = event.request;
  // What sends from an XRC send QP arrives at a receive QP.
  const QpType type = request.type == QpType::kXrcSend ? QpType::kXrcRecv : request.type;
  const Incoming incoming{device, event.connection, request.ends, request.service, request.data.view(), type};
  const std::uint8_t own_mtu = context.network.facts(device).path_mtu;
  // The peer is told ours, and may ask for that.
  if (request.path_mtu > own_mtu)
    return refuse_request(context, incoming, cm::RejectReason::kInvalidPathMtu, std::span(&own_mtu, 1));
  Id* listener = nullptr;
  Id* child = welcome(context, incoming, listener);
  if (child == nullptr) return;
  ConnectionParameters& parameters = child->parameters;
  parameters.peer_qpn = request.qp.qpn;
  parameters.peer_psn = request.qp.starting_psn;
  parameters.responder_resources = request.qp.initiator_depth;
  parameters.initiator_depth = cut(request.qp.responder_resources, context.limits.max_rd_atomic);
  parameters.path_mtu = request.path_mtu;
  parameters.ack_timeout = request.ack_timeout;
  parameters.retry_count = request.retry_count;
  parameters.rnr_retry_count = request.qp.rnr_retry_count;
  rdma_ucm_event_resp body = Context::event_of(*child, EventType::kConnectRequest, 0);
  set_peer(body.param.conn, request.qp);
  body.param.conn.retry_count = request.retry_count;
  set_data(body.param.conn, request.data.view().subspan(wire::kIpCmHeaderBytes),
           cm::kRequestPrivateBytes - wire::kIpCmHeaderBytes);
  hand_over(context, *listener, *child, body);
}

void on_resolve_request(Context& context, std::uint32_t device, const cm::Event& event) {
  const cm::Resolve& request = event.resolve;
  const Incoming incoming{device,          event.connection,    request.ends,
                          request.service, request.data.view(), QpType::kUd};
  Id* listener = nullptr;
  Id* child = welcome(context, incoming, listener);
  if (child == nullptr) return;
  rdma_ucm_event_resp body = Context::event_of(*child, EventType::kConnectRequest, 0);
  set_data(body.param.ud, request.data.view().subspan(wire::kIpCmHeaderBytes),
           cm::kResolvePrivateBytes - wire::kIpCmHeaderBytes);
  hand_over(context, *listener, *child, body);
}

void on_replied(Context& context, Id& id, const cm::Event& event) {
  id.asked.reset();
  const cm::QpParameters& peer = event.reply.qp;
  id.parameters.peer_qpn = peer.qpn;
  id.parameters.peer_psn = peer.starting_psn;
  id.parameters.responder_resources = peer.initiator_depth;
  id.parameters.initiator_depth = cut(peer.responder_resources, context.limits.max_rd_atomic);
  id.parameters.rnr_retry_count = peer.rnr_retry_count;
  rdma_ucm_event_resp body = Context::event_of(id, EventType::kConnectResponse, 0);
  set_peer(body.param.conn, peer);
  set_data(body.param.conn, event.reply.data.view(), cm::kReplyPrivateBytes);
  context.post(id, body);
  context.network.manager(id.local->device).delay(id.connection, context.network.now());
}

void on_resolved(Context& context, Id& id, const cm::Resolved& resolved) {
  const bool is_there = resolved.status == cm::ResolveStatus::kValid;
  id.state = is_there ? IdState::kConnected : IdState::kOver;
  rdma_ucm_event_resp body =
      Context::event_of(id, is_there ? EventType::kEstablished : EventType::kUnreachable,
                        is_there ? 0 : static_cast<int>(resolved.status));
  set_data(body.param.ud, resolved.data.view(), cm::kResolvedPrivateBytes);
  if (is_there) {
    id.qkey = resolved.qkey;
    body.param.ud.ah_attr = address_attributes(context, id, id.remote_gid);
    body.param.ud.qp_num = resolved.qpn.value;
    body.param.ud.qkey = resolved.qkey;
  }
  context.post(id, body);
}

void end_with(Context& context, Id& id, EventType type, int status, IdState state,
              std::span<const std::uint8_t> data = {}, std::size_t data_bytes = 0) {
  id.state = state;
  rdma_ucm_event_resp body = Context::event_of(id, type, status);
  if (data_bytes != 0) set_data(body.param.conn, data, data_bytes);
  context.post(id, body);
}

// The peer has a smaller path MTU, and says which: asks again with that. False: it is no such refusal.
bool ask_with_smaller_mtu(Context& context, Id& id, const cm::Event& event) {
  const bool is_of_mtu = event.reason == cm::RejectReason::kInvalidPathMtu && event.info.size != 0;
  const std::uint8_t mtu = event.info.bytes[0];
  if (!is_of_mtu || !id.asked || mtu == 0 || mtu >= id.asked->path_mtu) return false;
  cm::Request request = *id.asked;
  request.path_mtu = mtu;
  context.detach(id);
  id.parameters.path_mtu = mtu;
  return send_request(context, id, request) == 0;
}

void on_connection_event(Context& context, Id& id, const cm::Event& event) {
  switch (event.kind) {
    case cm::EventKind::kRequested:
    case cm::EventKind::kResolveRequested:
      return;  // of no ID yet
    case cm::EventKind::kReplied:
      return on_replied(context, id, event);
    case cm::EventKind::kEstablished:
      return end_with(context, id, EventType::kEstablished, 0, IdState::kConnected);
    case cm::EventKind::kRejected:
      if (ask_with_smaller_mtu(context, id, event)) return;
      return end_with(context, id, EventType::kRejected, static_cast<int>(event.reason), IdState::kOver,
                      event.data.view(), cm::kRejectPrivateBytes);
    case cm::EventKind::kUnreachable:
      return end_with(context, id, EventType::kUnreachable, -ETIMEDOUT, IdState::kOver);
    case cm::EventKind::kDisconnecting:
    case cm::EventKind::kDisconnected:
      // Once, whoever began.
      if (id.state == IdState::kDisconnected) return;
      return end_with(context, id, EventType::kDisconnected, event.is_timed_out ? -ETIMEDOUT : 0,
                      IdState::kDisconnected);
    case cm::EventKind::kTimeWaitOver:
      return context.post(id, Context::event_of(id, EventType::kTimeWaitExit, 0));
    case cm::EventKind::kResolved:
      return on_resolved(context, id, event.resolved);
  }
}

}  // namespace

void on_manager_event(Context& context, std::uint32_t device, const cm::Event& event) {
  if (event.kind == cm::EventKind::kRequested) return on_request(context, device, event);
  if (event.kind == cm::EventKind::kResolveRequested) return on_resolve_request(context, device, event);
  if (Id* id = context.find_connection(device, event.connection)) on_connection_event(context, *id, event);
}

}  // namespace urdma::control::rdma_cm
