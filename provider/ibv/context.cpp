// The operations of a context: what the device and its port are, protection domains, async events.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "provider/ibv/objects.hpp"

namespace urdma::provider {

namespace {

// 4.096 us x 2^15, about 0.13 s: how long this device may take to answer, at most (IBTA 1, 11.2.1.2).
constexpr std::uint8_t kAckDelay = 15;

void copy_limits(const abi::DeviceInfo& device, ibv_device_attr& attributes) {
  attributes.max_mr_size = device.max_mr_size;
  attributes.page_size_cap = device.page_size_cap;
  attributes.max_qp = static_cast<int>(device.max_qp);
  attributes.max_qp_wr = static_cast<int>(device.max_qp_wr);
  attributes.max_sge = static_cast<int>(device.max_sge);
  attributes.max_sge_rd = static_cast<int>(device.max_sge_rd);
  attributes.max_cq = static_cast<int>(device.max_cq);
  attributes.max_cqe = static_cast<int>(device.max_cqe);
  attributes.max_mr = static_cast<int>(device.max_mr);
  attributes.max_mw = static_cast<int>(device.max_mw);
  attributes.max_pd = static_cast<int>(device.max_pd);
  attributes.max_srq = static_cast<int>(device.max_srq);
  attributes.max_srq_wr = static_cast<int>(device.max_srq_wr);
  attributes.max_srq_sge = static_cast<int>(device.max_srq_sge);
  attributes.max_ah = static_cast<int>(device.max_ah);
  attributes.max_mcast_grp = static_cast<int>(device.max_mcast_grp);
  attributes.max_mcast_qp_attach = static_cast<int>(device.max_mcast_qp_attach);
  attributes.max_total_mcast_qp_attach = static_cast<int>(device.max_total_mcast_qp_attach);
  attributes.max_qp_rd_atom = static_cast<int>(device.max_qp_rd_atomic);
  attributes.max_res_rd_atom = static_cast<int>(device.max_res_rd_atomic);
  attributes.max_qp_init_rd_atom = static_cast<int>(device.max_qp_rd_atomic);
}

ibv_device_attr attributes_of(const abi::DeviceInfo& device) {
  ibv_device_attr attributes{};
  std::snprintf(attributes.fw_ver, sizeof(attributes.fw_ver), "%.*s",
                static_cast<int>(::strnlen(device.firmware, sizeof(device.firmware))), device.firmware);
  attributes.node_guid = device.node_guid;
  attributes.sys_image_guid = device.system_image_guid;
  attributes.vendor_id = device.vendor_id;
  attributes.vendor_part_id = device.vendor_part_id;
  attributes.hw_ver = device.hardware_version;
  copy_limits(device, attributes);
  attributes.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID |
                                IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_XRC |
                                IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
                                IBV_DEVICE_MEM_MGT_EXTENSIONS;
  attributes.atomic_cap = IBV_ATOMIC_HCA;
  attributes.max_pkeys = 1;
  attributes.local_ca_ack_delay = kAckDelay;
  attributes.phys_port_cnt = static_cast<std::uint8_t>(device.ports);
  return attributes;
}

// A copier reaches any page that the program can, at any time: so all kinds of access, and all memory.
ibv_odp_caps on_demand_paging() {
  constexpr std::uint32_t kMessages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
  constexpr std::uint32_t kWrites = kMessages | IBV_ODP_SUPPORT_WRITE;
  constexpr std::uint32_t kAll = kWrites | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
  return {IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT, {kAll, kWrites, kMessages}};
}

}  // namespace

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attributes, std::size_t bytes) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  Session& session = session_of(context);
  abi::DeviceInfo device = session.device();
  // A forked child cannot ask, and the device is still what it was.
  const int error = session.is_inherited()
                        ? 0
                        : session.requests().call(abi::MessageType::kQueryDevice, abi::QueryDevice{}, device);
  if (error != 0) return error;
  ibv_device_attr_ex all{};
  all.orig_attr = attributes_of(device);
  all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
  all.odp_caps = on_demand_paging();
  all.xrc_odp_caps = all.odp_caps.per_transport_caps.rc_odp_caps;
  describe_extensions(device, all);
  all.phys_port_cnt_ex = all.orig_attr.phys_port_cnt;
  // An older program's structure is shorter, down to the plain attributes.
  std::memcpy(attributes, &all, std::min(bytes, sizeof(all)));
  return 0;
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
  abi::QueryPortReply reply{};
  const int error =
      session_of(context).requests().call(abi::MessageType::kQueryPort, abi::QueryPort{port}, reply);
  if (error != 0) return error;
  *attributes = {};
  attributes->state = static_cast<ibv_port_state>(reply.state);
  attributes->max_mtu = static_cast<ibv_mtu>(reply.max_mtu);
  attributes->active_mtu = static_cast<ibv_mtu>(reply.active_mtu);
  attributes->gid_tbl_len = static_cast<int>(reply.gid_table_length);
  attributes->port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  attributes->max_msg_sz = reply.max_message_bytes;
  attributes->pkey_tbl_len = static_cast<std::uint16_t>(reply.pkey_table_length);
  attributes->max_vl_num = 1;
  attributes->active_width = reply.active_width;
  attributes->active_speed = reply.active_speed;
  attributes->phys_state = reply.physical_state;
  attributes->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}

// libibverbs has read an event for the program: destroying its object waits until it is acknowledged.
void on_async_event(ibv_context*, ibv_async_event* event) {
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR: {
      ibv_cq* cq = event->element.cq;
      ::pthread_mutex_lock(&cq->mutex);
      ++cq_of(cq).async_events;
      ::pthread_mutex_unlock(&cq->mutex);
      break;
    }
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: {
      ibv_qp* qp = event->element.qp;
      ::pthread_mutex_lock(&qp->mutex);
      ++qp_of(qp).async_events;
      ::pthread_mutex_unlock(&qp->mutex);
      break;
    }
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: {
      ibv_srq* srq = event->element.srq;
      ::pthread_mutex_lock(&srq->mutex);
      ++srq_of(srq).async_events;
      ::pthread_mutex_unlock(&srq->mutex);
      break;
    }
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_WQ_FATAL:
      break;  // of the device or the port, or of objects that we do not have
  }
}

}  // namespace urdma::provider
