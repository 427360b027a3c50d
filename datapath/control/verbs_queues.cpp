// Completion queues and queue pairs (see requests.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "datapath/control/device.hpp"
#include "datapath/control/qp_attributes.hpp"
#include "datapath/control/queue_memory.hpp"
#include "datapath/control/requests.hpp"
#include "datapath/control/retirement.hpp"
#include "datapath/control/shares.hpp"
#include "urdma/abi/queues.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::control {
namespace {

Status check_depth(const Limits& limits, std::uint32_t depth) {
  if (depth != 0 && depth <= limits.max_cqe) return {};
  return fail(EINVAL, fmt::format("a completion queue has between 1 and {} entries", limits.max_cqe));
}

// Queues of one channel share the daemon's descriptor of it.
Result<std::shared_ptr<engine::EventPipe>> pipe_of(const Node& node, ClientSession& session, int descriptor) {
  const auto identity = identify_file(descriptor);
  if (!identity) return fail(EINVAL, "the event channel of the client is not a pipe");
  EventPipes& pipes = session.objects.event_pipes;
  if (auto known = pipes.find(*identity)) return known;
  if (auto room = check_descriptors(node, session); !room) return tl::make_unexpected(room.error());
  auto pipe = engine::EventPipe::open(descriptor);
  if (pipe) pipes.add(*identity, *pipe);
  return pipe;
}

Result<engine::EventChannel> open_channel(const Node& node, ClientSession& session,
                                          const abi::CreateCq& wanted, const std::vector<UniqueFd>& fds) {
  const bool has_channel = wanted.has_channel != 0;
  if (has_channel != (fds.size() == 1))
    return fail(EINVAL, "a channel comes with its pipe, and nothing else does");
  if (!has_channel) return engine::EventChannel();
  auto pipe = pipe_of(node, session, fds.front().get());
  if (!pipe) return tl::make_unexpected(pipe.error());
  engine::EventChannel channel(std::move(*pipe));
  channel.carry_by(session.process->space->copier());
  return channel;
}

QpType type_of(const abi::CreateQp& wanted) { return static_cast<QpType>(wanted.type); }

// What the caller gets for what it asks for: at least as much, or EINVAL. Without a receive queue of its own,
// nothing for receives.
Result<abi::QpCapabilities> grant(const Limits& limits, const abi::CreateQp& wanted) {
  abi::QpCapabilities asked = wanted.cap;
  const bool has_receives = wanted.srq == 0 && type_of(wanted) != QpType::kXrcSend;
  if (!has_receives) asked.max_recv_wr = asked.max_recv_sge = 0;
  if (asked.max_send_wr > limits.max_qp_wr || asked.max_recv_wr > limits.max_qp_wr) {
    return fail(EINVAL, fmt::format("a queue holds at most {} requests", limits.max_qp_wr));
  }
  if (asked.max_send_sge > limits.max_sge || asked.max_recv_sge > limits.max_sge) {
    return fail(EINVAL, fmt::format("a request has at most {} elements", limits.max_sge));
  }
  if (asked.max_inline_data > limits.max_inline_bytes) {
    return fail(EINVAL, fmt::format("at most {} bytes go inline", limits.max_inline_bytes));
  }
  abi::QpCapabilities granted{};
  granted.max_send_wr = std::bit_ceil(std::max(asked.max_send_wr, 1U));
  granted.max_recv_wr = has_receives ? std::bit_ceil(std::max(asked.max_recv_wr, 1U)) : 0;
  granted.max_send_sge = std::max(asked.max_send_sge, 1U);
  granted.max_recv_sge = has_receives ? std::max(asked.max_recv_sge, 1U) : 0;
  // What the elements' place in a slot holds costs nothing, and programs reckon with it (rdma_xclient).
  const auto beside = static_cast<std::uint32_t>(granted.max_send_sge * sizeof(abi::Sge));
  granted.max_inline_data = std::max(asked.max_inline_data, std::min(beside, limits.max_inline_bytes));
  return granted;
}

// What a QP is made of, by its type.
Status check_parts(const Objects& objects, const abi::CreateQp& wanted) {
  const QpType type = type_of(wanted);
  if (type == QpType::kXrcRecv) {
    if (objects.xrcds.find(wanted.xrcd) == nullptr) return fail(EINVAL, "there is no such XRC domain");
    return {};
  }
  if (objects.pds.find(wanted.pd) == nullptr) return fail(EINVAL, "there is no such protection domain");
  const bool has_cqs = objects.cqs.find(wanted.send_cq) != nullptr &&
                       (type == QpType::kXrcSend || objects.cqs.find(wanted.recv_cq) != nullptr);
  if (!has_cqs) return fail(EINVAL, "there is no such completion queue");
  if (wanted.srq == 0) return {};
  if (type == QpType::kXrcSend) return fail(EINVAL, "an XRC send queue pair has no shared receive queue");
  const SrqEntry* srq = objects.srqs.find(wanted.srq);
  if (srq == nullptr || srq->xrcd != 0) return fail(EINVAL, "there is no such shared receive queue");
  return {};
}

bool is_offered(QpType type) {
  return type == QpType::kRc || type == QpType::kUc || type == QpType::kUd || type == QpType::kXrcSend ||
         type == QpType::kXrcRecv;
}

Status check_room_for_qp(const Node& node, const ClientSession& session, const abi::CreateQp& wanted) {
  if (!is_offered(type_of(wanted))) {
    return fail(EOPNOTSUPP, "this version has no such type of queue pair");
  }
  const Objects& objects = session.objects;
  if (auto good = check_parts(objects, wanted); !good) return good;
  // Those that are being taken apart count, since their memory is still there.
  return check_room(node, session, kQueuePairs, objects.qps.size() + session.retiring_qps.size());
}

// What an XRC receive QP has of its domain.
void use_domain(const Node& node, const XrcDomain& domain, engine::Qp::Config& config) {
  config.session = domain.session.get();
  config.domain = domain.id;
  config.doorbell = engine::kNoDoorbell;
  config.transport.has_srq = true;
  config.transport.max_recv_sge = node.limits.max_sge;  // of any SRQ of the domain
}

engine::Qp::Config qp_config(const Node& node, ClientSession& session, const abi::CreateQp& wanted,
                             const abi::QpCapabilities& cap) {
  engine::Qp::Config config;
  config.geometry = engine::QpGeometry::of(cap);
  config.transport.type = type_of(wanted);
  config.transport.signal_all = wanted.signal_all != 0;
  config.transport.send_slots = config.geometry.send_slots;
  config.transport.max_send_sge = cap.max_send_sge;
  config.transport.max_recv_sge = cap.max_recv_sge;
  config.transport.max_rd_atomic = node.limits.max_rd_atomic;
  config.transport.max_dest_rd_atomic = node.limits.max_dest_rd_atomic;
  if (config.transport.type == QpType::kXrcRecv) {
    use_domain(node, *session.objects.xrcds.find(wanted.xrcd)->domain, config);
    return config;
  }
  const bool has_receives = config.transport.type != QpType::kXrcSend;
  config.session = session.engine_session.get();
  config.send_cq = session.objects.cqs.find(wanted.send_cq)->cq.get();
  config.recv_cq = has_receives ? session.objects.cqs.find(wanted.recv_cq)->cq.get() : nullptr;
  if (const SrqEntry* srq = session.objects.srqs.find(wanted.srq)) {
    config.srq = srq->srq.get();
    config.transport.has_srq = true;
    config.transport.max_recv_sge = config.srq->config().max_sge;
  }
  config.pd = session.objects.pds.find(wanted.pd)->id;
  config.handle = session.objects.qps.next_handle();
  config.cookie = wanted.cookie;
  config.user_pointer = wanted.user_pointer;
  config.cap = cap;
  config.port = session.device;
  config.most_datagram_bytes = mtu_bytes(node.devices.at(session.device).active_mtu_code);
  return config;
}

abi::CreateQpReply describe(const engine::Qp::Config& config) {
  abi::CreateQpReply reply{};
  reply.handle = config.handle;
  reply.qpn = config.transport.qpn.value;
  reply.doorbell = config.doorbell;
  reply.cap = config.cap;
  reply.send_slots = config.geometry.send_slots;
  reply.send_stride = config.geometry.send_stride;
  reply.receive_slots = config.geometry.receive_slots;
  reply.receive_stride = config.geometry.receive_stride;
  reply.send_offset = config.geometry.send_offset;
  reply.receive_offset = config.geometry.receive_offset;
  reply.memory_bytes = config.geometry.memory_bytes;
  return reply;
}

// Puts the QP into the engine and the session's tables. Numbers and memory have been found.
QpEntry& install_qp(Node& node, ClientSession& session, const abi::CreateQp& wanted,
                    const engine::Qp::Config& config, memory::SharedMemory memory) {
  auto entry = std::make_shared<QpEntry>();
  entry->qp = std::make_unique<engine::Qp>(config, std::move(memory));
  entry->pd = wanted.pd;
  entry->send_cq = wanted.send_cq;
  entry->recv_cq = wanted.recv_cq;
  ++config.send_cq->users;
  if (config.recv_cq != nullptr) ++config.recv_cq->users;
  if (config.srq != nullptr) ++config.srq->users;
  ++session.objects.pds.find(wanted.pd)->users;
  session.objects.queue_bytes += config.geometry.memory_bytes;
  ++node.usage.qps;
  QpEntry& installed = *entry;
  session.objects.qps.insert(std::move(entry));
  node.engine.run([&] { node.engine.add_qp(*installed.qp); });
  return installed;
}

// An XRC receive QP has rings that nobody writes, and no doorbell.
Outcome create_xrc_receive(Node& node, ClientSession& session, const abi::CreateQp& wanted) {
  engine::Qp::Config config = qp_config(node, session, wanted, abi::QpCapabilities{});
  auto memory = make_queue_memory(node, session, "urdma-qp", config.geometry.memory_bytes);
  if (!memory) return tl::make_unexpected(memory.error());
  memory->close_descriptor();
  const auto qpn = node.qpns.allocate();
  if (!qpn.has_value()) return fail(ENOMEM, "there are no more queue pair numbers");
  config.transport.qpn = *qpn;
  auto entry = std::make_shared<QpEntry>();
  entry->qp = std::make_unique<engine::Qp>(config, std::move(*memory));
  entry->domain = session.objects.xrcds.find(wanted.xrcd)->domain;
  entry->domain->qps.insert_or_assign(qpn->value, entry);
  ++node.usage.qps;
  node.engine.run([&] { node.engine.add_qp(*entry->qp); });
  abi::CreateQpReply reply{};
  reply.qpn = qpn->value;
  reply.doorbell = config.doorbell;
  reply.handle = share_xrc_qp(node, session, wanted.xrcd, std::move(entry), wanted.user_pointer);
  return reply_with(reply);
}

Outcome resize_now(Node& node, ClientSession& session, const abi::ResizeCq& wanted) {
  CqEntry* entry = session.objects.cqs.find(wanted.handle);
  if (entry == nullptr) return fail(EINVAL, "there is no such completion queue");
  const std::uint32_t depth = std::bit_ceil(wanted.depth);
  const abi::CreateCqReply reply{wanted.handle, depth, engine::CompletionQueue::memory_bytes(depth)};
  auto memory = make_queue_memory(node, session, "urdma-cq", reply.memory_bytes);
  if (!memory) return tl::make_unexpected(memory.error());
  bool is_done = false;
  node.engine.run([&] { is_done = entry->cq->resize(depth, *memory); });
  if (!is_done) return fail(EINVAL, "more completions wait to be polled than the new queue would hold");
  session.objects.queue_bytes += reply.memory_bytes - entry->memory_bytes;
  entry->memory_bytes = reply.memory_bytes;
  return with_memory(bytes_of(reply), entry->cq->memory());
}

}  // namespace

Result<memory::SharedMemory> make_queue_memory(const Node& node, const ClientSession& session,
                                               const char* name, std::uint64_t bytes) {
  if (bytes > node.limits.max_queue_bytes_of_session - session.objects.queue_bytes) {
    return fail(ENOMEM, fmt::format("the queues of one client may have {} bytes",
                                    node.limits.max_queue_bytes_of_session));
  }
  const auto share = check_share(node, session.peer.uid, "bytes of queues", &Holdings::queue_bytes,
                                 node.limits.max_queue_bytes, bytes);
  if (!share) return tl::make_unexpected(share.error());
  return memory::SharedMemory::create(name, bytes, memory::ClientAccess::kReadWrite);
}

Outcome create_cq(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::CreateCq>();
  if (auto good = check_depth(node.limits, wanted.depth); !good) return tl::make_unexpected(good.error());
  const auto room = check_room(node, session, kCompletionQueues, session.objects.cqs.size());
  if (!room) return tl::make_unexpected(room.error());
  auto channel = open_channel(node, session, wanted, request.fds);
  if (!channel) return tl::make_unexpected(channel.error());
  engine::CompletionQueue::Config config;
  config.session = session.engine_session.get();
  config.handle = session.objects.cqs.next_handle();
  config.depth = std::bit_ceil(wanted.depth);
  config.user_pointer = wanted.user_pointer;
  config.channel = std::move(*channel);
  const abi::CreateCqReply reply{config.handle, config.depth,
                                 engine::CompletionQueue::memory_bytes(config.depth)};
  auto memory = make_queue_memory(node, session, "urdma-cq", reply.memory_bytes);
  if (!memory) return tl::make_unexpected(memory.error());
  auto entry = std::make_unique<CqEntry>();
  entry->cq = std::make_unique<engine::CompletionQueue>(std::move(config), std::move(*memory));
  entry->memory_bytes = reply.memory_bytes;
  engine::CompletionQueue& cq = *entry->cq;
  session.objects.cqs.insert(std::move(entry));
  session.objects.queue_bytes += reply.memory_bytes;
  ++node.usage.cqs;
  node.engine.run([&] { node.engine.add_cq(cq); });
  return with_memory(bytes_of(reply), cq.memory());
}

Outcome destroy_cq(Node& node, ClientSession& session, Request& request) {
  const std::uint32_t handle = request.as<abi::Handle>().handle;
  const CqEntry* entry = session.objects.cqs.find(handle);
  if (entry == nullptr) return fail(EINVAL, "there is no such completion queue");
  if (entry->cq->users != 0) return fail(EBUSY, "the completion queue still has queue pairs");
  bool is_notifying = false;
  node.engine.run([&] {
    node.engine.remove_cq(*entry->cq);
    is_notifying = entry->cq->is_notifying();
  });
  remove_cq(node, session, handle);
  if (!is_notifying) return empty_reply();
  // The program looks for events of a dead queue after the reply: none may come later.
  await_copies(node, session, [&node, to = request.to] { node.sender.reply(to, empty_reply()); });
  return reply_later();
}

Outcome resize_cq(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::ResizeCq>();
  const CqEntry* entry = session.objects.cqs.find(wanted.handle);
  if (entry == nullptr) return fail(EINVAL, "there is no such completion queue");
  if (auto good = check_depth(node.limits, wanted.depth); !good) return tl::make_unexpected(good.error());
  if (std::bit_ceil(wanted.depth) >= entry->cq->depth()) return resize_now(node, session, wanted);
  // Whether a smaller ring will do depends on what the program has posted before it asked: the engine sees
  // those doorbells in a round that begins after this one, and what it has given to the copier then is waited
  // for.
  node.engine.run([] {});
  await_copies(node, session, [&node, id = session.id, wanted, to = request.to] {
    ClientSession* owner = node.sessions.find(id);
    if (owner != nullptr) node.sender.reply(to, resize_now(node, *owner, wanted));
  });
  return reply_later();
}

Outcome create_qp(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::CreateQp>();
  if (auto good = check_room_for_qp(node, session, wanted); !good) return tl::make_unexpected(good.error());
  if (type_of(wanted) == QpType::kXrcRecv) return create_xrc_receive(node, session, wanted);
  const auto cap = grant(node.limits, wanted);
  if (!cap) return tl::make_unexpected(cap.error());
  engine::Qp::Config config = qp_config(node, session, wanted, *cap);
  auto memory = make_queue_memory(node, session, "urdma-qp", config.geometry.memory_bytes);
  if (!memory) return tl::make_unexpected(memory.error());
  const auto doorbell = session.objects.doorbells.take();
  if (!doorbell.has_value()) return fail(ENOMEM, "there are no more doorbells");
  const auto qpn = node.qpns.allocate();
  if (!qpn.has_value()) {
    session.objects.doorbells.give_back(*doorbell);
    return fail(ENOMEM, "there are no more queue pair numbers");
  }
  config.doorbell = *doorbell;
  config.transport.qpn = *qpn;
  QpEntry& entry = install_qp(node, session, wanted, config, std::move(*memory));
  return with_memory(bytes_of(describe(config)), entry.qp->memory());
}

Outcome query_qp(Node& node, ClientSession& session, Request& request) {
  const QpEntry* entry = session.objects.qps.find(request.as<abi::Handle>().handle);
  if (entry == nullptr) return fail(EINVAL, "there is no such queue pair");
  transport::QpAttributes attributes;
  bool is_draining = false;
  node.engine.run([&] {
    attributes = entry->qp->transport().attributes();
    is_draining = entry->qp->transport().is_sq_draining();
  });
  abi::QueryQpReply reply{};
  reply.attributes = to_abi(attributes);
  reply.attributes.sq_draining = is_draining ? 1 : 0;
  reply.attributes.address = entry->address;
  reply.cap = entry->qp->config().cap;
  reply.signal_all = entry->qp->config().transport.signal_all ? 1 : 0;
  return reply_with(reply);
}

Outcome destroy_qp(Node& node, ClientSession& session, Request& request) {
  const std::uint32_t handle = request.as<abi::Handle>().handle;
  if (session.objects.qps.find(handle) == nullptr) return fail(EINVAL, "there is no such queue pair");
  const auto reply = [&node, to = request.to] { node.sender.reply(to, empty_reply()); };
  retire_qp(node, session, handle, [&node, id = session.id, reply] {
    ClientSession* owner = node.sessions.find(id);
    bool is_sending = false;
    if (owner != nullptr) node.engine.run([&] { is_sending = owner->engine_session->is_sending_async(); });
    // As for a completion queue: none of its events may come later.
    if (!is_sending) return reply();
    await_copies(node, *owner, reply);
  });
  return reply_later();
}

}  // namespace urdma::control
