// Connections and datagram services, as their program asks for them (see commands.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <algorithm>
#include <cerrno>

#include "datapath/control/rdma_cm/commands.hpp"
#include "datapath/control/rdma_cm/messages.hpp"
#include "datapath/control/rdma_cm/path_constants.hpp"

namespace urdma::control::rdma_cm {
namespace {

constexpr std::uint8_t kMostRetries = 7;
// As Linux's software devices say: an acknowledgement takes at most 0.5 ms of our time (4.096 us << 7).
constexpr std::uint8_t kAckDelay = 7;

std::uint8_t retries(std::uint8_t wanted) { return std::min(wanted, kMostRetries); }

// What the program gives, cut to what a QP may have here.
cm::QpParameters qp_of(const Context& context, const Id& id, const rdma_ucm_conn_param& given) {
  cm::QpParameters qp;
  qp.qpn = Qpn{given.qp_num & kQpnMask};
  qp.starting_psn = id.parameters.own_psn;
  qp.responder_resources = cut(given.responder_resources, context.limits.max_dest_rd_atomic);
  qp.initiator_depth = cut(given.initiator_depth, context.limits.max_rd_atomic);
  qp.rnr_retry_count = retries(given.rnr_retry_count);
  qp.has_srq = given.srq != 0;
  qp.has_end_to_end_flow_control = given.flow_control != 0;
  return qp;
}

int connect_qp(Context& context, Id& id, const rdma_ucm_conn_param& given) {
  const auto data = with_header(id, data_of(given), cm::kRequestPrivateBytes);
  if (!data) return EINVAL;
  ConnectionParameters& parameters = id.parameters;
  parameters.retry_count = retries(given.retry_count);
  parameters.rnr_retry_count = retries(given.rnr_retry_count);
  parameters.path_mtu = context.network.facts(id.local->device).path_mtu;
  parameters.ack_timeout = id.ack_timeout.value_or(kAckTimeout);
  cm::Request request;
  request.ends = ends_of(id);
  request.service = service_of(id.space, id.dest.port);
  request.qp = qp_of(context, id, given);
  parameters.responder_resources = request.qp.responder_resources;
  parameters.initiator_depth = request.qp.initiator_depth;
  request.type = id.type;
  request.path_mtu = parameters.path_mtu;
  request.retry_count = parameters.retry_count;
  request.ack_timeout = parameters.ack_timeout;
  request.data = *data;
  return send_request(context, id, request);
}

int resolve_service(Context& context, Id& id, const rdma_ucm_conn_param& given) {
  const auto data = with_header(id, data_of(given), cm::kResolvePrivateBytes);
  if (!data) return EINVAL;
  const cm::Resolve request{ends_of(id), service_of(id.space, id.dest.port), *data};
  cm::ConnectionId connection;
  const int error =
      context.network.manager(id.local->device).resolve(request, context.network.now(), connection);
  if (error == 0) context.attach(id, connection);
  return error;
}

int accept_qp(Context& context, Id& id, const rdma_ucm_conn_param& given) {
  const auto data = data_of(given);
  if (data.size() > cm::kReplyPrivateBytes) return EINVAL;
  cm::Reply reply;
  reply.qp = qp_of(context, id, given);
  reply.target_ack_delay = kAckDelay;
  std::copy(data.begin(), data.end(), reply.data.bytes.begin());
  reply.data.size = static_cast<std::uint8_t>(data.size());
  const int error =
      context.network.manager(id.local->device).accept(id.connection, reply, context.network.now());
  if (error != 0) return error;
  id.parameters.responder_resources = reply.qp.responder_resources;
  id.parameters.initiator_depth = reply.qp.initiator_depth;
  id.state = IdState::kConnecting;
  return 0;
}

int answer_service(Context& context, Id& id, const rdma_ucm_conn_param& given) {
  const auto data = data_of(given);
  if (data.size() > cm::kResolvedPrivateBytes) return EINVAL;
  cm::Resolved resolved;
  resolved.qpn = Qpn{given.qp_num & kQpnMask};
  id.qkey = id.source.family == Family::kIb && given.qkey != 0 ? given.qkey : kUdpQkey;
  resolved.qkey = id.qkey;
  std::copy(data.begin(), data.end(), resolved.data.bytes.begin());
  resolved.data.size = static_cast<std::uint8_t>(data.size());
  const int error =
      context.network.manager(id.local->device).answer(id.connection, resolved, context.network.now());
  if (error == 0) id.state = IdState::kConnected;
  return error;
}

// The active side of a connection whose program has set up its QP.
int confirm(Context& context, Id& id) {
  if (id.state != IdState::kConnecting) return EINVAL;
  const int error =
      context.network.manager(id.local->device).confirm(id.connection, {}, context.network.now());
  if (error == 0) id.state = IdState::kConnected;
  return error;
}

int refuse_service(Context& context, Id& id, std::span<const std::uint8_t> data) {
  if (data.size() > cm::kResolvedPrivateBytes) return EINVAL;
  cm::Resolved resolved;
  resolved.status = cm::ResolveStatus::kRejected;
  std::copy(data.begin(), data.end(), resolved.data.bytes.begin());
  resolved.data.size = static_cast<std::uint8_t>(data.size());
  return context.network.manager(id.local->device).answer(id.connection, resolved, context.network.now());
}

// Those that a program may name; 0, which older libraries say, is the first of them.
std::optional<cm::RejectReason> reason_of(std::uint8_t given) {
  const auto reason = given == 0 ? cm::RejectReason::kConsumer : static_cast<cm::RejectReason>(given);
  const bool is_allowed =
      reason == cm::RejectReason::kConsumer || reason == cm::RejectReason::kVendorOptionNotSupported;
  return is_allowed ? std::optional(reason) : std::nullopt;
}

}  // namespace

int send_request(Context& context, Id& id, const cm::Request& request) {
  cm::ConnectionId connection;
  const int error =
      context.network.manager(id.local->device).connect(request, context.network.now(), connection);
  if (error != 0) return error;
  context.attach(id, connection);
  id.asked = request;
  return 0;
}

Reply connect(Context& context, Channel& channel, const Request& request) {
  const auto body = request.read<rdma_ucm_connect>();
  if (body.conn_param.valid == 0) return refuse(EINVAL);
  int error = 0;
  Id* id = context.find(channel, body.id, error);
  if (id == nullptr) return refuse(error);
  if (id->state != IdState::kRouteResolved || !id->local) return refuse(EINVAL);
  id->traffic_class = id->type_of_service;
  error = id->is_datagram() ? resolve_service(context, *id, body.conn_param)
                            : connect_qp(context, *id, body.conn_param);
  if (error == 0) id->state = IdState::kConnecting;
  return refuse(error);
}

Reply accept(Context& context, Channel& channel, const Request& request) {
  const auto body = request.read<rdma_ucm_accept>();
  int error = 0;
  Id* id = context.find(channel, body.id, error);
  if (id == nullptr) return refuse(error);
  if (id->connection == cm::ConnectionId{}) return refuse(EINVAL);
  if (body.conn_param.valid == 0) return refuse(confirm(context, *id));
  if (id->state != IdState::kRequested) return refuse(EINVAL);
  // What comes of it has to find the program.
  const std::uint64_t uid = std::exchange(id->uid, body.uid);
  error = id->is_datagram() ? answer_service(context, *id, body.conn_param)
                            : accept_qp(context, *id, body.conn_param);
  if (error != 0) id->uid = uid;
  return refuse(error);
}

Reply reject(Context& context, Channel& channel, const Request& request) {
  const auto body = request.read<rdma_ucm_reject>();
  const auto reason = reason_of(body.reason);
  if (!reason) return refuse(EINVAL);
  int error = 0;
  Id* id = context.find(channel, body.id, error);
  if (id == nullptr) return refuse(error);
  if (id->connection == cm::ConnectionId{}) return refuse(EINVAL);
  if (id->is_datagram()) {
    error = refuse_service(context, *id, data_of(body));
  } else {
    constexpr auto kMost = cm::kRejectPrivateBytes;
    if (body.private_data_len > kMost) return refuse(EINVAL);
    error = context.network.manager(id->local->device)
                .reject(id->connection, *reason, {}, data_of(body), context.network.now());
  }
  if (error == 0) id->state = IdState::kOver;
  return refuse(error);
}

// As Linux: 0 for whatever has become of the connection. Where it does not stand (yet, or any more), nothing
// changes: what was waited for still comes.
Reply disconnect(Context& context, Channel& channel, const Request& request) {
  int error = 0;
  Id* id = context.find(channel, request.read<rdma_ucm_disconnect>().id, error);
  if (id == nullptr) return refuse(error);
  if (id->connection == cm::ConnectionId{}) return refuse(EINVAL);
  if (!id->is_datagram())
    (void)context.network.manager(id->local->device).disconnect(id->connection, {}, context.network.now());
  return {};
}

Reply notify(Context& context, Channel& channel, const Request& request) {
  const auto body = request.read<rdma_ucm_notify>();
  int error = 0;
  Id* id = context.find(channel, body.id, error);
  if (id == nullptr) return refuse(error);
  const bool is_established = body.event == static_cast<std::uint32_t>(AsyncEvent::kCommEst);
  if (id->connection == cm::ConnectionId{} || id->is_datagram() || !is_established) return refuse(EINVAL);
  return refuse(context.network.manager(id->local->device).on_traffic(id->connection, context.network.now()));
}

}  // namespace urdma::control::rdma_cm
