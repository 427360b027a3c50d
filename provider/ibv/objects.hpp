// The verbs objects that the program holds pointers to, with what the provider keeps behind each.
//
// Each begins with the structure that libibverbs and the program know, so that the pointer converts.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "provider/control/session.hpp"
#include "provider/ibv/dm_regions.hpp"
#include "provider/ibv/private_abi_34.hpp"
#include "provider/ibv/protection_domain.hpp"
#include "provider/memory/region_index.hpp"
#include "provider/queue/completion_queue.hpp"
#include "provider/queue/qp_table.hpp"
#include "provider/queue/queue_pair.hpp"
#include "provider/queue/shared_receive_queue.hpp"

namespace urdma::provider {

// What a context has beside libibverbs' part of it.
struct Device {
  std::unique_ptr<Session> session;
  QpTable qps;
  RegionIndex regions;
  DmRegions dm_regions;
  std::mutex cqs_mutex;
  std::vector<CompletionQueue*> cqs;  // guarded: to be woken when the daemon is gone
  std::atomic<std::uint32_t> srq_cookies{0};

  // Tells an SRQ's completions from those of others, and of former ones.
  [[nodiscard]] std::uint32_t next_srq_cookie() {
    const std::uint32_t cookie = srq_cookies.fetch_add(1, std::memory_order_relaxed);
    return cookie != abi::kNoCookie ? cookie : next_srq_cookie();
  }
};

// libibverbs allocates and zeroes this one, and runs no constructor.
struct Context {
  verbs_context verbs;
  Device* device;
};

struct Cq : abi34::verbs_cq {
  Placed<CompletionQueue> queue;
  // Events that the program has received; both guarded by the mutex of the ibv_cq.
  std::uint32_t completion_events = 0;
  std::uint32_t async_events = 0;
};

struct Qp : abi34::verbs_qp {
  Placed<QueuePair> queue;         // null for an XRC receive QP, of which nothing is here
  std::uint32_t async_events = 0;  // that the program has received; guarded by the mutex of the ibv_qp
};

struct Srq : abi34::verbs_srq {
  std::unique_ptr<SharedReceiveQueue> queue;
  std::uint32_t async_events = 0;  // that the program has received; guarded by the mutex of the ibv_srq
};

inline Device& device_of(ibv_context* context) {
  static_assert(offsetof(Context, verbs) == 0);
  const auto address = reinterpret_cast<std::uintptr_t>(context) - offsetof(verbs_context, context);
  return *reinterpret_cast<Context*>(address)->device;
}
inline Session& session_of(ibv_context* context) { return *device_of(context).session; }
inline Cq& cq_of(ibv_cq* cq) { return static_cast<Cq&>(*reinterpret_cast<abi34::verbs_cq*>(cq)); }
inline Srq& srq_of(ibv_srq* srq) { return static_cast<Srq&>(*reinterpret_cast<abi34::verbs_srq*>(srq)); }
inline Qp& qp_of(ibv_qp* qp) { return static_cast<Qp&>(*reinterpret_cast<abi34::verbs_qp*>(qp)); }

// Waits until the program has acknowledged what it has read of an object's events: `done` says so, and is
// called with the mutex of the ibv_ object held.
template <typename Object, typename Done>
void await_acknowledged(Object& object, Done done) {
  ::pthread_mutex_lock(&object.mutex);
  while (!done()) ::pthread_cond_wait(&object.cond, &object.mutex);
  ::pthread_mutex_unlock(&object.mutex);
}

// For verbs that return an object: null, with errno set.
inline std::nullptr_t refuse(int error) {
  errno = error;
  return nullptr;
}

// What a request that takes an object apart comes to: when the daemon is gone the object is gone there, and
// only its local part is left, which always succeeds.
inline int destroyed(Session& session, int error) { return session.liveness().is_gone() ? 0 : error; }

// ---- The operations, by the file that has them ----
// context.cpp
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attributes, std::size_t bytes);
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes);
void on_async_event(ibv_context* context, ibv_async_event* event);
// device_values.cpp
void describe_extensions(const abi::DeviceInfo& device, ibv_device_attr_ex& attributes);
int query_rt_values(ibv_context* context, ibv_values_ex* values);
int query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode, std::uint32_t flags);
int query_ece(ibv_qp* qp, ibv_ece* ece);
int set_ece(ibv_qp* qp, ibv_ece* ece);
// protection_domain.cpp
ibv_pd* alloc_pd(ibv_context* context);
int dealloc_pd(ibv_pd* pd);
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attributes);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes);
// device_memory.cpp
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attributes);
int free_dm(ibv_dm* dm);
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length, unsigned int access);
ibv_dm* import_dm(ibv_context* context, std::uint32_t handle);
void unimport_dm(ibv_dm* dm);
// import.cpp
ibv_pd* import_pd(ibv_context* context, std::uint32_t handle);
void unimport_pd(ibv_pd* pd);
ibv_mr* import_mr(ibv_pd* pd, std::uint32_t handle);
void unimport_mr(ibv_mr* mr);
// memory_region.cpp
ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access);
// The same, and a region of nothing is one as well: of device memory there are such.
ibv_mr* reg_range(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access);
int dereg_mr(abi34::verbs_mr* mr);
int rereg_mr(abi34::verbs_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access);
ibv_mr* alloc_null_mr(ibv_pd* pd);
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* ranges,
              std::uint32_t count);
// memory_window.cpp
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* mw);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
// completion_queue.cpp
ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel, int vector);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes);
int resize_cq(ibv_cq* cq, int entries);
int destroy_cq(ibv_cq* cq);
int poll_cq(ibv_cq* cq, int most, ibv_wc* completions);
int req_notify_cq(ibv_cq* cq, int solicited_only);
void on_cq_event(ibv_cq* cq);
// extended_poll.cpp: ibv_start_poll and its kin on a CQ that was created for them, and what it can read
// (ibv_create_cq_wc_flags).
void install_poll(ibv_cq_ex& cq);
inline constexpr std::uint64_t kReadableFields = std::uint64_t{IBV_WC_STANDARD_FLAGS} |
                                                 std::uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP} |
                                                 std::uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
// shared_receive_queue.cpp
ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes);
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attributes);
int modify_srq(ibv_srq* srq, ibv_srq_attr* attributes, int mask);
int query_srq(ibv_srq* srq, ibv_srq_attr* attributes);
int destroy_srq(ibv_srq* srq);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad);
int get_srq_num(ibv_srq* srq, std::uint32_t* number);
// xrc.cpp
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attributes);
int close_xrcd(ibv_xrcd* xrcd);
ibv_qp* create_xrc_receive(ibv_context* context, const ibv_qp_init_attr_ex& attributes);
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attributes);
// datagram.cpp
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attributes);
int destroy_ah(ibv_ah* ah);
int attach_mcast(ibv_qp* qp, const ibv_gid* group, std::uint16_t lid);
int detach_mcast(ibv_qp* qp, const ibv_gid* group, std::uint16_t lid);
// queue_pair.cpp
ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes);
int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask);
int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* initial);
int destroy_qp(ibv_qp* qp);
int post_send(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad);
int post_recv(ibv_qp* qp, ibv_recv_wr* list, ibv_recv_wr** bad);
// work_requests.cpp: ibv_wr_* on a QP that was created for them, and which (ibv_qp_create_send_ops_flags)
// such a QP can have.
void install_work_requests(ibv_qp_ex& qp);
std::uint64_t send_operations(QpType type);

}  // namespace urdma::provider
