// Shared receive queues (see requests.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "datapath/control/queue_memory.hpp"
#include "datapath/control/requests.hpp"
#include "datapath/control/retirement.hpp"
#include "datapath/control/shares.hpp"
#include "urdma/abi/queues.hpp"

namespace urdma::control {
namespace {

constexpr std::uint32_t kBasic = 0;  // ibv_srq_type
constexpr std::uint32_t kXrc = 1;
// ibv_srq_attr_mask
constexpr std::uint32_t kMaskMaxWr = 1;
constexpr std::uint32_t kMaskLimit = 2;

Status check_sizes(const Limits& limits, std::uint32_t max_wr, std::uint32_t max_sge) {
  if (max_wr == 0 || max_wr > limits.max_srq_wr) {
    return fail(EINVAL, fmt::format("a shared receive queue holds 1 to {} requests", limits.max_srq_wr));
  }
  if (max_sge > limits.max_sge) {
    return fail(EINVAL, fmt::format("a request has at most {} elements", limits.max_sge));
  }
  return {};
}

Status check_creation(const Node& node, const ClientSession& session, const abi::CreateSrq& wanted) {
  const Objects& objects = session.objects;
  if (wanted.type != kBasic && wanted.type != kXrc) return fail(EINVAL, "there is no such type of SRQ");
  if (auto good = check_sizes(node.limits, wanted.max_wr, wanted.max_sge); !good) return good;
  if (objects.pds.find(wanted.pd) == nullptr) return fail(EINVAL, "there is no such protection domain");
  if (wanted.type == kXrc) {
    if (objects.xrcds.find(wanted.xrcd) == nullptr) return fail(EINVAL, "there is no such XRC domain");
    if (objects.cqs.find(wanted.cq) == nullptr) return fail(EINVAL, "there is no such completion queue");
  }
  return check_room(node, session, kSharedReceiveQueues, objects.srqs.size());
}

engine::SharedReceiveQueue::Config srq_config(ClientSession& session, const abi::CreateSrq& wanted) {
  const Objects& objects = session.objects;
  engine::SharedReceiveQueue::Config config;
  config.session = session.engine_session.get();
  config.pd = objects.pds.find(wanted.pd)->id;
  if (wanted.type == kXrc) {
    config.cq = objects.cqs.find(wanted.cq)->cq.get();
    config.domain = objects.xrcds.find(wanted.xrcd)->domain->id;
  }
  config.handle = session.objects.srqs.next_handle();
  config.cookie = wanted.cookie;
  config.user_pointer = wanted.user_pointer;
  config.max_sge = std::max(wanted.max_sge, 1U);
  return config;
}

abi::CreateSrqReply describe(const engine::SharedReceiveQueue& srq) {
  const engine::SrqGeometry& geometry = srq.geometry();
  return {srq.config().handle, srq.config().number, srq.max_wr(),          srq.config().max_sge,
          geometry.slots,      geometry.stride,     geometry.slots_offset, geometry.memory_bytes};
}

engine::SharedReceiveQueue& install(Node& node, ClientSession& session, const abi::CreateSrq& wanted,
                                    std::unique_ptr<engine::SharedReceiveQueue> srq) {
  auto entry = std::make_unique<SrqEntry>();
  entry->pd = wanted.pd;
  ++session.objects.pds.find(wanted.pd)->users;
  if (wanted.type == kXrc) {
    entry->cq = wanted.cq;
    entry->xrcd = wanted.xrcd;
    ++session.objects.cqs.find(wanted.cq)->cq->users;
    ++session.objects.xrcds.find(wanted.xrcd)->users;
  }
  session.objects.queue_bytes += srq->geometry().memory_bytes;
  ++node.usage.srqs;
  engine::SharedReceiveQueue& installed = *srq;
  entry->srq = std::move(srq);
  session.objects.srqs.insert(std::move(entry));
  node.engine.run([&] {
    installed.arm_limit(wanted.limit);
    node.engine.add_srq(installed);
  });
  return installed;
}

// A new ring for `srq`. ENOMEM, EINVAL: nothing has changed.
Status resize(Node& node, ClientSession& session, engine::SharedReceiveQueue& srq, std::uint32_t asked) {
  if (auto good = check_sizes(node.limits, asked, srq.config().max_sge); !good) return good;
  const std::uint32_t max_wr = std::bit_ceil(asked);
  const std::uint64_t bytes = engine::SrqGeometry::of(max_wr, srq.config().max_sge).memory_bytes;
  auto memory = make_queue_memory(node, session, "urdma-srq", bytes);
  if (!memory) return tl::make_unexpected(memory.error());
  const std::uint64_t before = srq.geometry().memory_bytes;
  bool is_done = false;
  node.engine.run([&] { is_done = srq.resize(max_wr, *memory); });
  if (!is_done) return fail(EINVAL, "more requests are posted than the new queue would hold");
  session.objects.queue_bytes += bytes - before;
  return {};
}

}  // namespace

Outcome create_srq(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::CreateSrq>();
  if (auto good = check_creation(node, session, wanted); !good) return tl::make_unexpected(good.error());
  engine::SharedReceiveQueue::Config config = srq_config(session, wanted);
  const std::uint32_t max_wr = std::bit_ceil(wanted.max_wr);
  const std::uint64_t bytes = engine::SrqGeometry::of(max_wr, config.max_sge).memory_bytes;
  auto memory = make_queue_memory(node, session, "urdma-srq", bytes);
  if (!memory) return tl::make_unexpected(memory.error());
  const auto number = node.srqns.allocate();
  if (!number.has_value()) return fail(ENOMEM, "there are no more numbers for shared receive queues");
  config.number = number->value;
  auto made = std::make_unique<engine::SharedReceiveQueue>(config, max_wr, std::move(*memory));
  engine::SharedReceiveQueue& srq = install(node, session, wanted, std::move(made));
  const abi::CreateSrqReply reply = describe(srq);
  return with_memory(bytes_of(reply), srq.memory());
}

Outcome modify_srq(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::ModifySrq>();
  const SrqEntry* entry = session.objects.srqs.find(wanted.handle);
  if (entry == nullptr) return fail(EINVAL, "there is no such shared receive queue");
  if ((wanted.mask & ~(kMaskMaxWr | kMaskLimit)) != 0) return fail(EINVAL, "unknown attributes of an SRQ");
  engine::SharedReceiveQueue& srq = *entry->srq;
  const bool resizes = (wanted.mask & kMaskMaxWr) != 0;
  const std::uint32_t holds =
      resizes ? std::bit_ceil(std::min(wanted.max_wr, node.limits.max_srq_wr)) : srq.max_wr();
  const bool arms = (wanted.mask & kMaskLimit) != 0;
  if (arms && wanted.limit > holds) return fail(EINVAL, "the limit is above what the queue holds");
  if (resizes) {
    if (auto done = resize(node, session, srq, wanted.max_wr); !done)
      return tl::make_unexpected(done.error());
  }
  if (arms) node.engine.run([&] { srq.arm_limit(wanted.limit); });
  const abi::CreateSrqReply reply = describe(srq);
  return resizes ? with_memory(bytes_of(reply), srq.memory()) : reply_with(reply);
}

Outcome query_srq(Node& node, ClientSession& session, Request& request) {
  const SrqEntry* entry = session.objects.srqs.find(request.as<abi::Handle>().handle);
  if (entry == nullptr) return fail(EINVAL, "there is no such shared receive queue");
  abi::QuerySrqReply reply{entry->srq->max_wr(), entry->srq->config().max_sge, 0, 0};
  node.engine.run([&] { reply.limit = entry->srq->limit(); });
  return reply_with(reply);
}

Outcome destroy_srq(Node& node, ClientSession& session, Request& request) {
  const std::uint32_t handle = request.as<abi::Handle>().handle;
  const SrqEntry* entry = session.objects.srqs.find(handle);
  if (entry == nullptr) return fail(EINVAL, "there is no such shared receive queue");
  if (entry->srq->users != 0) return fail(EBUSY, "the shared receive queue still has queue pairs");
  remove_srq(node, session, handle);
  // The program may use the buffers for something else after the reply, and looks for events of the dead
  // queue: what copiers have in hand comes first.
  await_copies(node, session, [&node, to = request.to] { node.sender.reply(to, empty_reply()); });
  return reply_later();
}

}  // namespace urdma::control
