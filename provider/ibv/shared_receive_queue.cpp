// The operations of shared receive queues, those of XRC domains among them.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>
#include <new>
#include <vector>

#include "provider/control/event_pipe.hpp"
#include "provider/ibv/objects.hpp"

namespace urdma::provider {

namespace {

int check_attributes(const ibv_srq_attr& attributes, const abi::DeviceInfo& device) {
  const bool fits = attributes.max_wr > 0 && attributes.max_wr <= device.max_srq_wr &&
                    attributes.max_sge <= device.max_srq_sge;
  return fits ? 0 : EINVAL;
}

// What the extended structure asks for.
int check_extended(const ibv_srq_init_attr_ex& attributes) {
  constexpr std::uint32_t kKnown =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  constexpr std::uint32_t kForXrc = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  const std::uint32_t mask = attributes.comp_mask;
  if ((mask & ~kKnown) != 0) return EOPNOTSUPP;
  const bool has_type = (mask & IBV_SRQ_INIT_ATTR_TYPE) != 0;
  const ibv_srq_type type = has_type ? attributes.srq_type : IBV_SRQT_BASIC;
  switch (type) {
    case IBV_SRQT_BASIC:
      return (mask & IBV_SRQ_INIT_ATTR_PD) != 0 && attributes.pd != nullptr ? 0 : EINVAL;
    case IBV_SRQT_XRC:
      return (mask & kForXrc) == kForXrc && attributes.pd != nullptr && attributes.xrcd != nullptr &&
                     attributes.cq != nullptr
                 ? 0
                 : EINVAL;
    case IBV_SRQT_TM:
      return EOPNOTSUPP;
  }
  return EINVAL;
}

// Asks the daemon for the SRQ and maps it. 0 or a positive errno; nothing is left behind in that case.
int create_queue(Session& session, const abi::CreateSrq& request, abi::CreateSrqReply& reply,
                 std::unique_ptr<SharedReceiveQueue>& queue) {
  std::vector<UniqueFd> received;
  int error = session.requests().call(abi::MessageType::kCreateSrq, request, reply, {}, &received);
  if (error != 0) return error;
  Mapping memory;
  error = received.size() == 1 && SharedReceiveQueue::is_sound(reply)
              ? memory.map(received[0].get(), reply.memory_bytes, Mapping::Access::kReadWrite)
              : EPROTO;
  if (error != 0) {
    (void)session.requests().call(abi::MessageType::kDestroySrq, abi::Handle{reply.handle, 0});
    return error;
  }
  queue = std::make_unique<SharedReceiveQueue>(std::move(memory), reply, request.cookie);
  return 0;
}

// The public fields, which libibverbs leaves to the provider.
void fill_public(ibv_srq& srq, ibv_context* context, const ibv_srq_init_attr_ex& attributes,
                 std::uint32_t handle) {
  srq.context = context;
  srq.srq_context = attributes.srq_context;
  srq.pd = attributes.pd;
  srq.handle = handle;
  srq.events_completed = 0;
  ::pthread_mutex_init(&srq.mutex, nullptr);
  ::pthread_cond_init(&srq.cond, nullptr);
}

ibv_srq* create(ibv_context* context, ibv_srq_init_attr_ex& attributes, ibv_srq_type type) {
  Device& device = device_of(context);
  Session& session = *device.session;
  if (const int error = check_attributes(attributes.attr, session.device()); error != 0) return refuse(error);
  std::unique_ptr<Srq> srq(new (std::nothrow) Srq{});
  if (srq == nullptr) return refuse(ENOMEM);
  abi::CreateSrq request{};
  request.user_pointer = reinterpret_cast<std::uintptr_t>(&srq->srq);
  request.pd = attributes.pd->handle;
  request.type = static_cast<std::uint32_t>(type);
  if (type == IBV_SRQT_XRC) {
    srq->xrcd = reinterpret_cast<abi34::verbs_xrcd*>(attributes.xrcd);
    srq->cq = attributes.cq;
    request.xrcd = srq->xrcd->handle;
    request.cq = attributes.cq->handle;
  }
  request.cookie = device.next_srq_cookie();
  request.max_wr = attributes.attr.max_wr;
  request.max_sge = attributes.attr.max_sge;
  // Like the kernel's: a limit is armed by ibv_modify_srq() alone.
  request.limit = 0;
  abi::CreateSrqReply reply{};
  if (const int error = create_queue(session, request, reply, srq->queue); error != 0) return refuse(error);
  srq->srq_type = type;
  srq->srq_num = reply.number;
  fill_public(srq->srq, context, attributes, reply.handle);
  attributes.attr.max_wr = reply.max_wr;
  attributes.attr.max_sge = reply.max_sge;
  return &srq.release()->srq;
}

// As for a QP: unread events are taken back, read ones are waited for.
void retire_events(Srq& srq) {
  remove_events(srq.srq.context->async_fd, kAsyncEventBytes, reinterpret_cast<std::uintptr_t>(&srq.srq));
  await_acknowledged(srq.srq, [&srq] { return srq.srq.events_completed == srq.async_events; });
}

}  // namespace

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  ibv_srq_init_attr_ex extended{};
  extended.srq_context = attributes->srq_context;
  extended.attr = attributes->attr;
  extended.pd = pd;
  ibv_srq* srq = create(pd->context, extended, IBV_SRQT_BASIC);
  if (srq != nullptr) attributes->attr = extended.attr;
  return srq;
}

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attributes) {
  if (const int error = check_extended(*attributes); error != 0) return refuse(error);
  const bool has_type = (attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0;
  return create(context, *attributes, has_type ? attributes->srq_type : IBV_SRQT_BASIC);
}

int modify_srq(ibv_srq* ibv, ibv_srq_attr* attributes, int mask) {
  Session& session = session_of(ibv->context);
  const abi::ModifySrq request{ibv->handle, static_cast<std::uint32_t>(mask), attributes->max_wr,
                               attributes->srq_limit};
  const auto ask = [&](abi::CreateSrqReply& reply, std::vector<UniqueFd>& fds) {
    return session.requests().call(abi::MessageType::kModifySrq, request, reply, {}, &fds);
  };
  if ((mask & IBV_SRQ_MAX_WR) != 0) return srq_of(ibv).queue->resize(ask);
  abi::CreateSrqReply reply{};
  std::vector<UniqueFd> none;
  return ask(reply, none);
}

int query_srq(ibv_srq* ibv, ibv_srq_attr* attributes) {
  abi::QuerySrqReply reply{};
  const abi::Handle request{ibv->handle, 0};
  const int error = session_of(ibv->context).requests().call(abi::MessageType::kQuerySrq, request, reply);
  if (error != 0) return error;
  attributes->max_wr = reply.max_wr;
  attributes->max_sge = reply.max_sge;
  attributes->srq_limit = reply.limit;
  return 0;
}

int destroy_srq(ibv_srq* ibv) {
  Srq& srq = srq_of(ibv);
  Session& session = session_of(ibv->context);
  const int error = session.requests().call(abi::MessageType::kDestroySrq, abi::Handle{ibv->handle, 0});
  if (const int result = destroyed(session, error); result != 0) return result;
  // In a forked child the rings and the events belong to the parent.
  if (!session.is_inherited()) {
    if (srq.cq != nullptr) cq_of(srq.cq).queue->purge_shared(srq.queue->cookie());
    retire_events(srq);
  }
  delete &srq;
  return 0;
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad) {
  return srq_of(srq).queue->post(list, bad);
}

int get_srq_num(ibv_srq* ibv, std::uint32_t* number) {
  const Srq& srq = srq_of(ibv);
  if (srq.srq_type != IBV_SRQT_XRC) return EINVAL;
  *number = srq.srq_num;
  return 0;
}

}  // namespace urdma::provider
