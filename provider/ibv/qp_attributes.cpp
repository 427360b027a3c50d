// QP attributes between the program's structures and the contract's.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/ibv/qp_attributes.hpp"

#include <cerrno>
#include <cstring>

#include "urdma/base/verbs.hpp"

namespace urdma::provider {

namespace {

constexpr std::uint32_t kFlowLabelMask = 0xFFFFF;

ibv_ah_attr from_contract(const abi::AddressVector& vector) {
  ibv_ah_attr address{};
  std::memcpy(address.grh.dgid.raw, vector.dest_gid, sizeof(vector.dest_gid));
  address.grh.flow_label = vector.flow_label;
  address.grh.sgid_index = vector.source_gid_index;
  address.grh.hop_limit = vector.hop_limit;
  address.grh.traffic_class = vector.traffic_class;
  address.is_global = vector.is_global;
  address.sl = vector.service_level;
  address.port_num = vector.port;
  address.static_rate = vector.static_rate;
  return address;
}

}  // namespace

abi::AddressVector to_contract(const ibv_ah_attr& address) {
  abi::AddressVector vector{};
  std::memcpy(vector.dest_gid, address.grh.dgid.raw, sizeof(vector.dest_gid));
  // A packet has room for 20 bits, and nobody objects to more: UCX sets all 32.
  vector.flow_label = address.grh.flow_label & kFlowLabelMask;
  vector.source_gid_index = address.grh.sgid_index;
  vector.hop_limit = address.grh.hop_limit;
  vector.traffic_class = address.grh.traffic_class;
  vector.is_global = address.is_global;
  vector.service_level = address.sl;
  vector.port = address.port_num;
  vector.static_rate = address.static_rate;
  return vector;
}

int check_modification(const ibv_qp_attr& attributes, std::uint32_t& mask) {
  if ((mask & (kAttrAltPath | kAttrCap | kAttrRateLimit)) != 0) return EINVAL;
  if ((mask & kAttrPathMigState) != 0) {
    if (attributes.path_mig_state != IBV_MIG_MIGRATED) return EINVAL;
    mask &= ~kAttrPathMigState;
  }
  if ((mask & kAttrSqdNotify) != 0 && attributes.en_sqd_async_notify == 0) mask &= ~kAttrSqdNotify;
  // RoCE has no addresses but GIDs.
  if ((mask & kAttrAv) != 0 && attributes.ah_attr.is_global == 0) return EINVAL;
  return 0;
}

abi::QpAttributes to_contract(const ibv_qp_attr& attributes) {
  abi::QpAttributes result{};
  result.state = static_cast<std::uint8_t>(attributes.qp_state);
  result.current_state = static_cast<std::uint8_t>(attributes.cur_qp_state);
  result.path_mtu = static_cast<std::uint8_t>(attributes.path_mtu);
  result.max_rd_atomic = attributes.max_rd_atomic;
  result.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
  result.min_rnr_timer = attributes.min_rnr_timer;
  result.timeout = attributes.timeout;
  result.retry_count = attributes.retry_cnt;
  result.rnr_retry = attributes.rnr_retry;
  result.port = attributes.port_num;
  result.qkey = attributes.qkey;
  result.rq_psn = attributes.rq_psn;
  result.sq_psn = attributes.sq_psn;
  result.dest_qpn = attributes.dest_qp_num;
  result.access_flags = attributes.qp_access_flags;
  result.pkey_index = attributes.pkey_index;
  result.address = to_contract(attributes.ah_attr);
  return result;
}

ibv_qp_attr from_contract(const abi::QueryQpReply& reply) {
  const abi::QpAttributes& from = reply.attributes;
  ibv_qp_attr result{};
  result.qp_state = static_cast<ibv_qp_state>(from.state);
  result.cur_qp_state = static_cast<ibv_qp_state>(from.state);
  result.path_mtu = static_cast<ibv_mtu>(from.path_mtu);
  result.path_mig_state = IBV_MIG_MIGRATED;
  result.max_rd_atomic = from.max_rd_atomic;
  result.max_dest_rd_atomic = from.max_dest_rd_atomic;
  result.min_rnr_timer = from.min_rnr_timer;
  result.timeout = from.timeout;
  result.retry_cnt = from.retry_count;
  result.rnr_retry = from.rnr_retry;
  result.port_num = from.port;
  result.sq_draining = from.sq_draining;
  result.qkey = from.qkey;
  result.rq_psn = from.rq_psn;
  result.sq_psn = from.sq_psn;
  result.dest_qp_num = from.dest_qpn;
  result.qp_access_flags = from.access_flags;
  result.pkey_index = static_cast<std::uint16_t>(from.pkey_index);
  result.ah_attr = from_contract(from.address);
  result.cap = from_contract(reply.cap);
  return result;
}

abi::QpCapabilities to_contract(const ibv_qp_cap& cap) {
  return {cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data};
}

ibv_qp_cap from_contract(const abi::QpCapabilities& cap) {
  return {cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data};
}

}  // namespace urdma::provider
