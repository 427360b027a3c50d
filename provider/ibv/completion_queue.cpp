// The operations of completion queues.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>
#include <new>
#include <vector>

#include "provider/control/event_pipe.hpp"
#include "provider/ibv/objects.hpp"

namespace urdma::provider {

namespace {

// Takes the CQ's unread events back, then waits until the program has acknowledged those it has read.
void retire_events(Cq& cq) {
  const auto object = reinterpret_cast<std::uintptr_t>(&cq.cq);
  if (cq.cq.channel != nullptr) remove_events(cq.cq.channel->fd, kCompletionEventBytes, object);
  remove_events(cq.cq.context->async_fd, kAsyncEventBytes, object);
  await_acknowledged(cq.cq, [&cq] {
    return cq.cq.comp_events_completed == cq.completion_events &&
           cq.cq.async_events_completed == cq.async_events;
  });
}

struct Wanted {
  std::uint32_t entries;
  ibv_comp_channel* channel;
  std::uint32_t vector;
  bool is_single_threaded;
  ibv_pd* parent_domain;  // or null
};

// Asks the daemon for the queue and maps it. 0 or a positive errno; nothing is left behind in that case.
int create_queue(Session& session, const Wanted& wanted, const ibv_cq& cq, abi::CreateCqReply& reply,
                 Mapping& memory) {
  abi::CreateCq request{};
  request.user_pointer = reinterpret_cast<std::uintptr_t>(&cq);
  request.depth = wanted.entries;
  request.has_channel = wanted.channel != nullptr ? 1 : 0;
  request.completion_vector = wanted.vector;
  const int channel_fd = wanted.channel != nullptr ? wanted.channel->fd : -1;
  const std::span<const int> fds(&channel_fd, wanted.channel != nullptr ? 1 : 0);
  std::vector<UniqueFd> received;
  int error = session.requests().call(abi::MessageType::kCreateCq, request, reply, fds, &received);
  if (error != 0) return error;
  error = CompletionQueue::map(reply, received, memory);
  if (error != 0) (void)session.requests().call(abi::MessageType::kDestroyCq, abi::Handle{reply.handle, 0});
  return error;
}

Cq* make_cq(ibv_context* context, const Wanted& wanted) {
  Device& device = device_of(context);
  Session& session = *device.session;
  if (wanted.entries < 1 || wanted.entries > session.device().max_cqe) return refuse(EINVAL);
  if (wanted.vector >= static_cast<std::uint32_t>(context->num_comp_vectors)) return refuse(EINVAL);
  std::unique_ptr<Cq> cq(new (std::nothrow) Cq{});
  if (cq == nullptr) return refuse(ENOMEM);
  abi::CreateCqReply reply{};
  Mapping memory;
  if (const int error = create_queue(session, wanted, cq->cq, reply, memory); error != 0)
    return refuse(error);
  CompletionQueue::Config config;
  config.depth = reply.depth;
  config.user_pointer = reinterpret_cast<std::uintptr_t>(&cq->cq);
  config.channel_fd = wanted.channel != nullptr ? wanted.channel->fd : -1;
  config.yields_when_idle = session.yields_when_idle();
  config.is_single_threaded = wanted.is_single_threaded;
  cq->queue = place<CompletionQueue>(wanted.parent_domain, ResourceType::kCompletionQueue, config,
                                     std::move(memory), device.qps, session.liveness());
  if (cq->queue == nullptr) {
    (void)session.requests().call(abi::MessageType::kDestroyCq, abi::Handle{reply.handle, 0});
    return refuse(ENOMEM);
  }
  cq->cq.handle = reply.handle;
  cq->cq.cqe = static_cast<int>(reply.depth);
  const std::lock_guard lock(device.cqs_mutex);
  device.cqs.push_back(cq->queue.get());
  return cq.release();
}

bool has(const ibv_cq_init_attr_ex& attributes, ibv_cq_init_attr_mask member) {
  return (attributes.comp_mask & member) != 0;
}

// 0, or why there is no such CQ here.
int check_extensions(const ibv_cq_init_attr_ex& attributes) {
  constexpr std::uint32_t kKnownMask =
      std::uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS} | std::uint32_t{IBV_CQ_INIT_ATTR_MASK_PD};
  if ((attributes.comp_mask & ~kKnownMask) != 0) return EOPNOTSUPP;
  if ((attributes.wc_flags & ~kReadableFields) != 0) return EOPNOTSUPP;
  if (has(attributes, IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
      (attributes.flags & ~std::uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED}) != 0)
    return EOPNOTSUPP;
  if (!has(attributes, IBV_CQ_INIT_ATTR_MASK_PD)) return 0;
  const ibv_pd* parent = attributes.parent_domain;
  return parent == nullptr || domain_of(attributes.parent_domain).original == nullptr ? EINVAL : 0;
}

}  // namespace

ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel, int vector) {
  // What is negative becomes too large.
  Cq* cq = make_cq(context, {static_cast<std::uint32_t>(entries), channel, static_cast<std::uint32_t>(vector),
                             false, nullptr});
  return cq != nullptr ? &cq->cq : nullptr;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
  if (const int error = check_extensions(*attributes); error != 0) return refuse(error);
  const auto flags = has(*attributes, IBV_CQ_INIT_ATTR_MASK_FLAGS) ? attributes->flags : 0;
  ibv_pd* parent = has(*attributes, IBV_CQ_INIT_ATTR_MASK_PD) ? attributes->parent_domain : nullptr;
  Cq* cq = make_cq(context, {attributes->cqe, attributes->channel, attributes->comp_vector,
                             (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0, parent});
  if (cq == nullptr) return nullptr;
  install_poll(cq->cq_ex);
  return &cq->cq_ex;
}

int resize_cq(ibv_cq* ibv, int entries) {
  Session& session = session_of(ibv->context);
  if (entries < 1 || static_cast<std::uint32_t>(entries) > session.device().max_cqe) return EINVAL;
  const abi::ResizeCq request{ibv->handle, static_cast<std::uint32_t>(entries)};
  return cq_of(ibv).queue->resize([&](abi::CreateCqReply& reply, std::vector<UniqueFd>& fds) {
    const int error = session.requests().call(abi::MessageType::kResizeCq, request, reply, {}, &fds);
    if (error == 0) ibv->cqe = static_cast<int>(reply.depth);
    return error;
  });
}

int destroy_cq(ibv_cq* ibv) {
  Cq& cq = cq_of(ibv);
  Device& device = device_of(ibv->context);
  if (cq.queue->has_users()) return EBUSY;
  const int error =
      device.session->requests().call(abi::MessageType::kDestroyCq, abi::Handle{ibv->handle, 0});
  if (const int result = destroyed(*device.session, error); result != 0) return result;
  {
    const std::lock_guard lock(device.cqs_mutex);
    std::erase(device.cqs, cq.queue.get());
  }
  // In a forked child the events belong to the parent.
  if (!device.session->is_inherited()) retire_events(cq);
  delete &cq;
  return 0;
}

int poll_cq(ibv_cq* cq, int most, ibv_wc* completions) { return cq_of(cq).queue->poll(most, completions); }

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  cq_of(cq).queue->arm(solicited_only != 0);
  return 0;
}

// libibverbs has read an event of the channel for the program.
void on_cq_event(ibv_cq* cq) {
  ::pthread_mutex_lock(&cq->mutex);
  ++cq_of(cq).completion_events;
  ::pthread_mutex_unlock(&cq->mutex);
}

}  // namespace urdma::provider
