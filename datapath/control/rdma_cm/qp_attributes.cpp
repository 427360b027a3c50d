// The attributes that a QP of a connection is to get, state by state (see commands.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <cerrno>

#include "datapath/control/rdma_cm/commands.hpp"
#include "datapath/control/rdma_cm/messages.hpp"
#include "datapath/control/rdma_cm/path_constants.hpp"

namespace urdma::control::rdma_cm {
namespace {

bool is_reliable_receiver(QpType type) { return type == QpType::kRc || type == QpType::kXrcRecv; }
bool is_reliable_sender(QpType type) { return type == QpType::kRc || type == QpType::kXrcSend; }

// Before there is a connection, and for datagrams.
void set_initial(const Id& id, ib_uverbs_qp_attr& attributes) {
  attributes.qp_attr_mask = kAttrState | kAttrPkeyIndex | kAttrPort;
  attributes.port_num = kPort;
  if (id.is_datagram()) {
    attributes.qp_attr_mask |= kAttrQkey;
    attributes.qkey = id.qkey != 0 ? id.qkey : kUdpQkey;
    return;
  }
  attributes.qp_attr_mask |= kAttrAccessFlags;
  if (id.connection == cm::ConnectionId{}) return;
  attributes.qp_access_flags = kAccessRemoteWrite;
  if (id.parameters.responder_resources != 0)
    attributes.qp_access_flags |= kAccessRemoteRead | kAccessRemoteAtomic;
}

void set_ready_to_receive(const Context& context, const Id& id, ib_uverbs_qp_attr& attributes) {
  const ConnectionParameters& parameters = id.parameters;
  attributes.qp_attr_mask = kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
  attributes.ah_attr = address_attributes(context, id, id.remote_gid);
  attributes.path_mtu = parameters.path_mtu;
  attributes.dest_qp_num = parameters.peer_qpn.value;
  attributes.rq_psn = parameters.own_psn.value();
  if (!is_reliable_receiver(id.type)) return;
  attributes.qp_attr_mask |= kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
  attributes.max_dest_rd_atomic = parameters.responder_resources;
}

void set_ready_to_send(const Id& id, ib_uverbs_qp_attr& attributes) {
  const ConnectionParameters& parameters = id.parameters;
  attributes.qp_attr_mask = kAttrState | kAttrSqPsn;
  attributes.sq_psn = parameters.peer_psn.value();
  if (id.type == QpType::kXrcRecv) {
    attributes.qp_attr_mask |= kAttrTimeout;
    attributes.timeout = id.ack_timeout.value_or(parameters.ack_timeout);
  }
  if (!is_reliable_sender(id.type)) return;
  attributes.qp_attr_mask |= kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrMaxQpRdAtomic;
  attributes.timeout = id.ack_timeout.value_or(parameters.ack_timeout);
  attributes.retry_cnt = parameters.retry_count;
  attributes.rnr_retry = parameters.rnr_retry_count;
  attributes.max_rd_atomic = parameters.initiator_depth;
}

}  // namespace

Reply init_qp_attributes(Context& context, Channel& channel, const Request& request) {
  const auto body = request.read<rdma_ucm_init_qp_attr>();
  int error = 0;
  const Id* id = context.find(channel, body.id, error);
  if (id == nullptr) return refuse(error);
  if (!id->local || body.qp_state > static_cast<std::uint32_t>(QpState::kErr)) return refuse(EINVAL);
  ib_uverbs_qp_attr attributes{};
  attributes.qp_state = body.qp_state;
  const bool is_connected = id->connection != cm::ConnectionId{} && !id->is_datagram();
  if (!is_connected) {  // whatever the state, as Linux has it: the program knows the rest
    set_initial(*id, attributes);
    return reply_of(attributes);
  }
  switch (static_cast<QpState>(body.qp_state)) {
    case QpState::kInit:
      set_initial(*id, attributes);
      break;
    case QpState::kRtr:
      if (id->parameters.peer_qpn == Qpn{}) return refuse(EINVAL);
      set_ready_to_receive(context, *id, attributes);
      break;
    case QpState::kRts:
      if (id->parameters.peer_qpn == Qpn{}) return refuse(EINVAL);
      set_ready_to_send(*id, attributes);
      break;
    case QpState::kReset:
    case QpState::kSqd:
    case QpState::kSqe:
    case QpState::kErr:
      return refuse(EINVAL);
  }
  return reply_of(attributes);
}

}  // namespace urdma::control::rdma_cm
