// Commands of rdma_cm by number (see commands.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/rdma_cm/commands.hpp"

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include <array>
#include <cerrno>

#include "urdma/abi/rdma_cm.hpp"

namespace urdma::control::rdma_cm {
namespace {

struct Rule {
  std::uint32_t command = 0;
  std::size_t body_bytes = 0;      // at least
  std::size_t response_bytes = 0;  // room for at least so many: ENOSPC
  Reply (*handle)(Context&, Channel&, const Request&) = nullptr;
};

// Later kernels have longer structures than the first; programs may be older than either.
constexpr std::size_t kFirstEventBytes = offsetof(rdma_ucm_event_resp, reserved);
constexpr std::size_t kFirstRouteBytes = offsetof(rdma_ucm_query_route_resp, ibdev_index);

constexpr std::array kRules = {
    Rule{RDMA_USER_CM_CMD_CREATE_ID, sizeof(rdma_ucm_create_id), sizeof(rdma_ucm_create_id_resp), create_id},
    Rule{RDMA_USER_CM_CMD_DESTROY_ID, sizeof(rdma_ucm_destroy_id), sizeof(rdma_ucm_destroy_id_resp),
         destroy_id},
    Rule{RDMA_USER_CM_CMD_BIND_IP, offsetof(rdma_ucm_bind_ip, id) + sizeof(std::uint32_t), 0, bind_ip},
    Rule{RDMA_USER_CM_CMD_RESOLVE_IP, sizeof(rdma_ucm_resolve_ip), 0, resolve_ip},
    Rule{RDMA_USER_CM_CMD_RESOLVE_ROUTE, sizeof(rdma_ucm_resolve_route), 0, resolve_route},
    Rule{RDMA_USER_CM_CMD_QUERY_ROUTE, sizeof(rdma_ucm_query), kFirstRouteBytes, query_route},
    Rule{RDMA_USER_CM_CMD_CONNECT, offsetof(rdma_ucm_connect, ece), 0, connect},
    Rule{RDMA_USER_CM_CMD_LISTEN, sizeof(rdma_ucm_listen), 0, listen},
    Rule{RDMA_USER_CM_CMD_ACCEPT, offsetof(rdma_ucm_accept, ece), 0, accept},
    Rule{RDMA_USER_CM_CMD_REJECT, sizeof(rdma_ucm_reject), 0, reject},
    Rule{RDMA_USER_CM_CMD_DISCONNECT, sizeof(rdma_ucm_disconnect), 0, disconnect},
    Rule{RDMA_USER_CM_CMD_INIT_QP_ATTR, sizeof(rdma_ucm_init_qp_attr), sizeof(ib_uverbs_qp_attr),
         init_qp_attributes},
    Rule{RDMA_USER_CM_CMD_GET_EVENT, sizeof(rdma_ucm_get_event), kFirstEventBytes, get_event},
    Rule{RDMA_USER_CM_CMD_SET_OPTION, sizeof(rdma_ucm_set_option), 0, set_option},
    Rule{RDMA_USER_CM_CMD_NOTIFY, sizeof(rdma_ucm_notify), 0, notify},
    Rule{RDMA_USER_CM_CMD_JOIN_IP_MCAST, offsetof(rdma_ucm_join_ip_mcast, id) + sizeof(std::uint32_t),
         sizeof(rdma_ucm_create_id_resp), join_ip},
    Rule{RDMA_USER_CM_CMD_LEAVE_MCAST, sizeof(rdma_ucm_destroy_id), sizeof(rdma_ucm_destroy_id_resp), leave},
    Rule{RDMA_USER_CM_CMD_MIGRATE_ID, sizeof(rdma_ucm_migrate_id), sizeof(rdma_ucm_migrate_resp), migrate_id},
    Rule{RDMA_USER_CM_CMD_QUERY, sizeof(rdma_ucm_query), 0, query},
    Rule{RDMA_USER_CM_CMD_BIND, sizeof(rdma_ucm_bind), 0, bind},
    Rule{RDMA_USER_CM_CMD_RESOLVE_ADDR, sizeof(rdma_ucm_resolve_addr), 0, resolve_address},
    Rule{RDMA_USER_CM_CMD_JOIN_MCAST, sizeof(rdma_ucm_join_mcast), sizeof(rdma_ucm_create_id_resp), join},
    Rule{abi::rdma_cm::kOfferId, sizeof(abi::rdma_cm::OfferId), sizeof(abi::rdma_cm::OfferIdResponse),
         offer_id},
    Rule{abi::rdma_cm::kReturnTokens, sizeof(abi::rdma_cm::ReturnTokens), 0, return_tokens},
};

}  // namespace

std::optional<Request> parse_request(std::span<const std::byte> message) {
  abi::rdma_cm::Command header;
  if (message.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, message.data(), sizeof(header));
  if (header.protocol != abi::rdma_cm::kProtocol)
    return Request{header.command, {}, {}, header.response_bytes, header.protocol};
  const std::span<const std::byte> rest = message.subspan(sizeof(header));
  if (header.body_bytes > rest.size() || header.extra_bytes != rest.size() - header.body_bytes)
    return std::nullopt;
  return Request{header.command, rest.first(header.body_bytes), rest.subspan(header.body_bytes),
                 header.response_bytes, header.protocol};
}

Reply execute(Context& context, Channel& channel, const Request& request) {
  if (request.protocol != abi::rdma_cm::kProtocol) return refuse(EPROTO);
  const auto rule = std::find_if(kRules.begin(), kRules.end(),
                                 [&](const Rule& each) { return each.command == request.command; });
  if (rule == kRules.end()) return refuse(request.command == RDMA_USER_CM_CMD_GET_OPTION ? ENOSYS : EINVAL);
  const bool is_long_enough = request.body.size() >= rule->body_bytes;
  if (!is_long_enough || request.response_bytes < rule->response_bytes) {
    if (rule->handle == get_event) context.put_back_tokens(channel, 1);
    return refuse(is_long_enough ? ENOSPC : EINVAL);
  }
  Reply reply = rule->handle(context, channel, request);
  if (reply.bytes.size() > request.response_bytes) reply.bytes.resize(request.response_bytes);
  return reply;
}

}  // namespace urdma::control::rdma_cm
