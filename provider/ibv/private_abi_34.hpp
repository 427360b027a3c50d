// The private part of the verbs ABI between libibverbs and its providers, version IBVERBS_PRIVATE_34:
// rdma-core 34 to 56. Debian installs no header for it, so it is declared here, as far as this provider needs
// it. private_abi_34_layout.hpp holds every size and offset against what was measured.
//
// Included by provider/ibv alone. What libibverbs exports is found by symbol version at link time.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <ctime>

namespace urdma::provider::abi34 {

struct verbs_device_ops;
struct verbs_match_ent;
struct verbs_xrcd;

struct list_node {
  list_node* next;
  list_node* prev;
};

// A device as libibverbs found it in sysfs.
struct verbs_sysfs_dev {
  list_node entry;
  void* provider_data;
  const verbs_match_ent* match;
  unsigned int flags;
  char sysfs_name[IBV_SYSFS_NAME_MAX];
  dev_t sysfs_cdev;
  char ibdev_name[IBV_SYSFS_NAME_MAX];
  char ibdev_path[IBV_SYSFS_PATH_MAX];
  char modalias[512];
  uint64_t node_guid;
  uint32_t driver_id;
  ibv_node_type node_type;
  int ibdev_idx;
  uint32_t num_ports;
  uint32_t abi_ver;
  timespec time_created;
};

struct verbs_match_ent {
  const void* driver_data;
  union {
    const char* modalias;
    uint64_t driver_id;
  } u;
  uint16_t vendor;
  uint16_t device;
  uint8_t kind;
};

struct verbs_device {
  ibv_device device;
  const verbs_device_ops* ops;
  int refcount;  // libibverbs', atomic there
  list_node entry;
  verbs_sysfs_dev* sysfs;
  uint64_t core_support;
};

struct verbs_device_ops {
  const char* name;
  uint32_t match_min_abi_version;
  uint32_t match_max_abi_version;
  const verbs_match_ent* match_table;
  const verbs_device_ops** static_providers;
  bool (*match_device)(verbs_sysfs_dev*);
  verbs_context* (*alloc_context)(ibv_device*, int cmd_fd, void* private_data);
  verbs_context* (*import_context)(ibv_device*, int cmd_fd);
  verbs_device* (*alloc_device)(verbs_sysfs_dev*);
  void (*uninit_device)(verbs_device*);
};

struct verbs_mr {
  ::ibv_mr ibv_mr;
  int mr_type;  // 0: of ibv_reg_mr; 1: null; 2: imported
  int access;
};

struct verbs_xrcd {
  ibv_xrcd xrcd;
  uint32_t comp_mask;
  uint32_t handle;
};

// verbs_qp::comp_mask: what of the structure is in use.
inline constexpr uint32_t kVerbsQpXrcd = 1U << 0;
inline constexpr uint32_t kVerbsQpEx = 1U << 1;

struct verbs_qp {
  union {
    ibv_qp qp;
    ibv_qp_ex qp_ex;
  };
  uint32_t comp_mask;
  verbs_xrcd* xrcd;
};

struct verbs_cq {
  union {
    ibv_cq cq;
    ibv_cq_ex cq_ex;
  };
};

struct verbs_srq {
  ibv_srq srq;
  ibv_srq_type srq_type;
  verbs_xrcd* xrcd;
  ibv_cq* cq;
  uint32_t srq_num;
};

// An operation that this provider does not have: null, which libibverbs answers with EOPNOTSUPP.
using Unused = void (*)();

struct verbs_context_ops {
  int (*advise_mr)(ibv_pd*, ibv_advise_mr_advice, uint32_t, ibv_sge*, uint32_t);
  ibv_dm* (*alloc_dm)(ibv_context*, ibv_alloc_dm_attr*);
  ibv_mw* (*alloc_mw)(ibv_pd*, ibv_mw_type);
  ibv_mr* (*alloc_null_mr)(ibv_pd*);
  ibv_pd* (*alloc_parent_domain)(ibv_context*, ibv_parent_domain_init_attr*);
  ibv_pd* (*alloc_pd)(ibv_context*);
  ibv_td* (*alloc_td)(ibv_context*, ibv_td_init_attr*);
  void (*async_event)(ibv_context*, ibv_async_event*);
  Unused attach_counters_point_flow;
  int (*attach_mcast)(ibv_qp*, const ibv_gid*, uint16_t);
  int (*bind_mw)(ibv_qp*, ibv_mw*, ibv_mw_bind*);
  int (*close_xrcd)(ibv_xrcd*);
  void (*cq_event)(ibv_cq*);
  ibv_ah* (*create_ah)(ibv_pd*, ibv_ah_attr*);
  Unused create_counters;
  ibv_cq* (*create_cq)(ibv_context*, int, ibv_comp_channel*, int);
  ibv_cq_ex* (*create_cq_ex)(ibv_context*, ibv_cq_init_attr_ex*);
  Unused create_flow;
  Unused create_flow_action_esp;
  ibv_qp* (*create_qp)(ibv_pd*, ibv_qp_init_attr*);
  ibv_qp* (*create_qp_ex)(ibv_context*, ibv_qp_init_attr_ex*);
  Unused create_rwq_ind_table;
  ibv_srq* (*create_srq)(ibv_pd*, ibv_srq_init_attr*);
  ibv_srq* (*create_srq_ex)(ibv_context*, ibv_srq_init_attr_ex*);
  Unused create_wq;
  int (*dealloc_mw)(ibv_mw*);
  int (*dealloc_pd)(ibv_pd*);
  int (*dealloc_td)(ibv_td*);
  int (*dereg_mr)(verbs_mr*);
  int (*destroy_ah)(ibv_ah*);
  Unused destroy_counters;
  int (*destroy_cq)(ibv_cq*);
  Unused destroy_flow;
  Unused destroy_flow_action;
  int (*destroy_qp)(ibv_qp*);
  Unused destroy_rwq_ind_table;
  int (*destroy_srq)(ibv_srq*);
  Unused destroy_wq;
  int (*detach_mcast)(ibv_qp*, const ibv_gid*, uint16_t);
  void (*free_context)(ibv_context*);
  int (*free_dm)(ibv_dm*);
  int (*get_srq_num)(ibv_srq*, uint32_t*);
  ibv_dm* (*import_dm)(ibv_context*, uint32_t);
  ibv_mr* (*import_mr)(ibv_pd*, uint32_t);
  ibv_pd* (*import_pd)(ibv_context*, uint32_t);
  Unused modify_cq;
  Unused modify_flow_action_esp;
  int (*modify_qp)(ibv_qp*, ibv_qp_attr*, int);
  Unused modify_qp_rate_limit;
  int (*modify_srq)(ibv_srq*, ibv_srq_attr*, int);
  Unused modify_wq;
  ibv_qp* (*open_qp)(ibv_context*, ibv_qp_open_attr*);
  ibv_xrcd* (*open_xrcd)(ibv_context*, ibv_xrcd_init_attr*);
  int (*poll_cq)(ibv_cq*, int, ibv_wc*);
  int (*post_recv)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**);
  int (*post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr**);
  Unused post_srq_ops;
  int (*post_srq_recv)(ibv_srq*, ibv_recv_wr*, ibv_recv_wr**);
  int (*query_device_ex)(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex*, size_t);
  int (*query_ece)(ibv_qp*, ibv_ece*);
  int (*query_port)(ibv_context*, uint8_t, ibv_port_attr*);
  int (*query_qp)(ibv_qp*, ibv_qp_attr*, int, ibv_qp_init_attr*);
  int (*query_qp_data_in_order)(ibv_qp*, ibv_wr_opcode, uint32_t);
  int (*query_rt_values)(ibv_context*, ibv_values_ex*);
  int (*query_srq)(ibv_srq*, ibv_srq_attr*);
  Unused read_counters;
  ibv_mr* (*reg_dm_mr)(ibv_pd*, ibv_dm*, uint64_t, size_t, unsigned int);
  Unused reg_dmabuf_mr;
  ibv_mr* (*reg_mr)(ibv_pd*, void*, size_t, uint64_t, int);
  int (*req_notify_cq)(ibv_cq*, int);
  int (*rereg_mr)(verbs_mr*, int, ibv_pd*, void*, size_t, int);
  int (*resize_cq)(ibv_cq*, int);
  int (*set_ece)(ibv_qp*, ibv_ece*);
  void (*unimport_dm)(ibv_dm*);
  void (*unimport_mr)(ibv_mr*);
  void (*unimport_pd)(ibv_pd*);
};

extern "C" {
void verbs_register_driver_34(const verbs_device_ops* ops);
// Allocates `bytes` zero bytes, with the verbs_context at `offset` in them. Takes `cmd_fd`, also on failure.
void* _verbs_init_and_alloc_context(ibv_device* device, int cmd_fd, size_t bytes, verbs_context* offset,
                                    uint32_t driver_id);
void verbs_set_ops(verbs_context* context, const verbs_context_ops* ops);
// Closes cmd_fd and async_fd, and frees what libibverbs holds; not the allocation itself.
void verbs_uninit_context(verbs_context* context);
int ibv_read_ibdev_sysfs_file(char* buffer, size_t bytes, verbs_sysfs_dev* device, const char* format, ...);
}

}  // namespace urdma::provider::abi34

#include "provider/ibv/private_abi_34_layout.hpp"
