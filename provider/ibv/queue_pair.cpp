// The operations of queue pairs.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "provider/control/event_pipe.hpp"
#include "provider/ibv/objects.hpp"
#include "provider/ibv/qp_attributes.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::provider {

namespace {

constexpr std::uint32_t kKnownMask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
                                     IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

// 0, or why there is no such QP here: what the extended structure asks for beside the plain one.
int check_extensions(const ibv_qp_init_attr_ex& attributes) {
  const std::uint32_t mask = attributes.comp_mask;
  if ((mask & ~kKnownMask) != 0) return EOPNOTSUPP;
  if ((mask & IBV_QP_INIT_ATTR_PD) == 0 || attributes.pd == nullptr) return EINVAL;
  if ((mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attributes.create_flags != 0) return EOPNOTSUPP;
  if ((mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER) != 0 && attributes.max_tso_header != 0) return EOPNOTSUPP;
  if ((mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) == 0) return 0;
  const std::uint64_t offered = send_operations(static_cast<QpType>(attributes.qp_type));
  return (attributes.send_ops_flags & ~offered) != 0 ? EOPNOTSUPP : 0;
}

int check_creation(const ibv_qp_init_attr_ex& attributes, const abi::DeviceInfo& device) {
  if (const int error = check_extensions(attributes); error != 0) return error;
  if (attributes.send_cq == nullptr) return EINVAL;
  const bool only_sends = attributes.qp_type == IBV_QPT_XRC_SEND;
  if (!only_sends && attributes.recv_cq == nullptr) return EINVAL;
  if (attributes.srq != nullptr && (only_sends || srq_of(attributes.srq).srq_type != IBV_SRQT_BASIC))
    return EINVAL;
  const ibv_qp_cap& cap = attributes.cap;
  // What is said of receives does not matter where the QP has no ring for them.
  const bool has_ring = !only_sends && attributes.srq == nullptr;
  const bool fits =
      cap.max_send_wr <= device.max_qp_wr && cap.max_send_sge <= device.max_sge &&
      cap.max_inline_data <= device.max_inline &&
      (!has_ring || (cap.max_recv_wr <= device.max_qp_wr && cap.max_recv_sge <= device.max_sge));
  return fits ? 0 : EINVAL;
}

abi::CreateQp request_of(const ibv_qp_init_attr_ex& attributes, const Qp& qp, std::uint32_t cookie) {
  abi::CreateQp request{};
  request.user_pointer = reinterpret_cast<std::uintptr_t>(&qp.qp);
  request.pd = attributes.pd->handle;
  request.send_cq = attributes.send_cq->handle;
  request.recv_cq = attributes.recv_cq != nullptr ? attributes.recv_cq->handle : 0;
  request.srq = attributes.srq != nullptr ? attributes.srq->handle : 0;
  request.type = static_cast<std::uint32_t>(attributes.qp_type);
  request.signal_all = attributes.sq_sig_all != 0 ? 1 : 0;
  request.cookie = cookie;
  request.cap = to_contract(attributes.cap);
  return request;
}

// The public fields, which libibverbs leaves to the provider.
void fill_public(ibv_qp& qp, ibv_context* context, const ibv_qp_init_attr_ex& attributes,
                 const abi::CreateQpReply& reply) {
  qp.context = context;
  qp.qp_context = attributes.qp_context;
  qp.pd = attributes.pd;
  qp.send_cq = attributes.send_cq;
  qp.recv_cq = attributes.recv_cq;
  qp.srq = attributes.srq;
  qp.handle = reply.handle;
  qp.qp_num = reply.qpn;
  qp.state = IBV_QPS_RESET;
  qp.qp_type = attributes.qp_type;
  qp.events_completed = 0;
  ::pthread_mutex_init(&qp.mutex, nullptr);
  ::pthread_cond_init(&qp.cond, nullptr);
}

void attach(QueuePair& qp) {
  const bool is_same = &qp.send_cq() == &qp.receive_cq();
  qp.send_cq().attach(qp, true, is_same);
  if (!is_same) qp.receive_cq().attach(qp, false, true);
}

void purge(const QueuePair& qp) {
  qp.send_cq().purge(qp.cookie());
  if (&qp.send_cq() != &qp.receive_cq()) qp.receive_cq().purge(qp.cookie());
}

int place_queue(Device& device, const ibv_qp_init_attr_ex& attributes, const abi::CreateQp& request,
                const abi::CreateQpReply& reply, Mapping memory, Placed<QueuePair>& queue) {
  const QueuePair::Config config{request.cookie, static_cast<QpType>(request.type)};
  // A QP that only sends has no other CQ.
  ibv_cq* receive_cq = attributes.qp_type == IBV_QPT_XRC_SEND ? attributes.send_cq : attributes.recv_cq;
  queue = place<QueuePair>(attributes.pd, ResourceType::kQueuePair, std::move(memory), reply, config,
                           device.session->doorbells(), device.session->liveness(),
                           *cq_of(attributes.send_cq).queue, *cq_of(receive_cq).queue);
  return queue != nullptr ? 0 : ENOMEM;
}

// Asks the daemon for the QP and maps it. 0 or a positive errno; nothing is left behind in that case.
int create_queue(Device& device, const ibv_qp_init_attr_ex& attributes, const abi::CreateQp& request,
                 abi::CreateQpReply& reply, Placed<QueuePair>& queue) {
  RequestChannel& requests = device.session->requests();
  std::vector<UniqueFd> received;
  int error = requests.call(abi::MessageType::kCreateQp, request, reply, {}, &received);
  if (error != 0) return error;
  Mapping memory;
  error = received.size() == 1 && QueuePair::is_sound(reply)
              ? memory.map(received[0].get(), reply.memory_bytes, Mapping::Access::kReadWrite)
              : EPROTO;
  if (error == 0) error = place_queue(device, attributes, request, reply, std::move(memory), queue);
  if (error != 0) (void)requests.call(abi::MessageType::kDestroyQp, abi::Handle{reply.handle, 0});
  return error;
}

// As for a CQ: unread events are taken back, read ones are waited for.
void retire_events(Qp& qp) {
  const auto object = reinterpret_cast<std::uintptr_t>(&qp.qp);
  remove_events(qp.qp.context->async_fd, kAsyncEventBytes, object);
  await_acknowledged(qp.qp, [&qp] { return qp.qp.events_completed == qp.async_events; });
}

}  // namespace

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  ibv_qp_init_attr_ex extended{};
  static_assert(offsetof(ibv_qp_init_attr_ex, sq_sig_all) == offsetof(ibv_qp_init_attr, sq_sig_all));
  std::memcpy(&extended, attributes, offsetof(ibv_qp_init_attr_ex, comp_mask));
  extended.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended.pd = pd;
  ibv_qp* qp = create_qp_ex(pd->context, &extended);
  if (qp != nullptr) attributes->cap = extended.cap;
  return qp;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
  if (attributes->qp_type == IBV_QPT_XRC_RECV) return create_xrc_receive(context, *attributes);
  Device& device = device_of(context);
  int error = check_creation(*attributes, device.session->device());
  if (error != 0) return refuse(error);
  std::unique_ptr<Qp> qp(new (std::nothrow) Qp{});
  const auto cookie = device.qps.reserve();
  if (qp == nullptr || !cookie) return refuse(ENOMEM);
  abi::CreateQpReply reply{};
  error = create_queue(device, *attributes, request_of(*attributes, *qp, *cookie), reply, qp->queue);
  if (error != 0) {
    device.qps.release(*cookie);
    return refuse(error);
  }
  fill_public(qp->qp, context, *attributes, reply);
  if ((attributes->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) {
    qp->comp_mask |= abi34::kVerbsQpEx;
    install_work_requests(qp->qp_ex);
  }
  attributes->cap = from_contract(reply.cap);
  device.qps.bind(*cookie, qp->queue.get());
  attach(*qp->queue);
  return &qp.release()->qp;
}

int modify_qp(ibv_qp* ibv, ibv_qp_attr* attributes, int flags) {
  auto mask = static_cast<std::uint32_t>(flags);
  if (const int error = check_modification(*attributes, mask); error != 0) return error;
  const abi::ModifyQp request{ibv->handle, mask, to_contract(*attributes)};
  if (qp_of(ibv).queue == nullptr)  // XRC receive: nothing of it is here
    return session_of(ibv->context).requests().call(abi::MessageType::kModifyQp, request);
  QueuePair& queue = *qp_of(ibv).queue;
  const bool changes_state = (mask & kAttrState) != 0;
  const QpState before = queue.state();
  const auto after = static_cast<QpState>(request.attributes.state);
  // The daemon begins with empty rings from the moment it resets the QP: nothing may be posted meanwhile.
  const bool resets = changes_state && after == QpState::kReset;
  if (resets) queue.set_state(QpState::kReset);
  const int error = session_of(ibv->context).requests().call(abi::MessageType::kModifyQp, request);
  if (error != 0) {
    if (resets) queue.set_state(before);
    return error;
  }
  if (resets) {
    purge(queue);
    queue.reset();
  }
  if (changes_state) queue.set_state(after);
  return 0;
}

int query_qp(ibv_qp* ibv, ibv_qp_attr* attributes, int, ibv_qp_init_attr* initial) {
  abi::QueryQpReply reply{};
  const abi::Handle request{ibv->handle, 0};
  const int error = session_of(ibv->context).requests().call(abi::MessageType::kQueryQp, request, reply);
  if (error != 0) return error;
  *attributes = from_contract(reply);
  *initial = {};
  initial->qp_context = ibv->qp_context;
  initial->send_cq = ibv->send_cq;
  initial->recv_cq = ibv->recv_cq;
  initial->srq = ibv->srq;
  initial->cap = attributes->cap;
  initial->qp_type = ibv->qp_type;
  initial->sq_sig_all = static_cast<int>(reply.signal_all);
  return 0;
}

int destroy_qp(ibv_qp* ibv) {
  Qp& qp = qp_of(ibv);
  Device& device = device_of(ibv->context);
  const int error =
      device.session->requests().call(abi::MessageType::kDestroyQp, abi::Handle{ibv->handle, 0});
  if (const int result = destroyed(*device.session, error); result != 0) return result;
  // In a forked child the rings and the events belong to the parent.
  const bool is_ours = !device.session->is_inherited();
  if (qp.queue != nullptr) {
    QueuePair& queue = *qp.queue;
    device.qps.release(queue.cookie());
    if (is_ours) purge(queue);
    queue.send_cq().detach(queue);
    queue.receive_cq().detach(queue);
  }
  if (is_ours) retire_events(qp);
  ::pthread_cond_destroy(&ibv->cond);
  ::pthread_mutex_destroy(&ibv->mutex);
  delete &qp;
  return 0;
}

int post_send(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad) {
  if (qp->qp_type == IBV_QPT_XRC_RECV) [[unlikely]] {
    *bad = list;
    return EINVAL;
  }
  return qp_of(qp).queue->post_send(list, bad);
}

int post_recv(ibv_qp* qp, ibv_recv_wr* list, ibv_recv_wr** bad) {
  if (qp->srq != nullptr || qp->qp_type == IBV_QPT_XRC_RECV || qp->qp_type == IBV_QPT_XRC_SEND) [[unlikely]] {
    *bad = list;
    return EINVAL;
  }
  return qp_of(qp).queue->post_receive(list, bad);
}

}  // namespace urdma::provider
