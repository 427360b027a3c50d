// The daemon's side of the rings, as a test plays it: shared memory, completions, and what was posted.
// One thread at a time, but for what the rings themselves allow.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <memory>

#include "provider/control/event_pipe.hpp"
#include "provider/control/liveness.hpp"
#include "provider/queue/completion_queue.hpp"
#include "provider/queue/qp_table.hpp"
#include "provider/queue/queue_pair.hpp"
#include "urdma/abi/queues.hpp"
#include "urdma/base/unique_fd.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::provider::testing {

inline UniqueFd make_memory(std::size_t bytes) {
  UniqueFd memory(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(memory.get(), static_cast<off_t>(bytes)), 0);
  return memory;
}

// Memory that both sides have mapped, each on its own.
struct SharedPair {
  explicit SharedPair(std::size_t bytes) : memory(make_memory(bytes)) {
    EXPECT_EQ(client.map(memory.get(), bytes, Mapping::Access::kReadWrite), 0);
    EXPECT_EQ(daemon.map(memory.get(), bytes, Mapping::Access::kReadWrite), 0);
  }
  UniqueFd memory;
  Mapping client;
  Mapping daemon;
};

// One engine: its pages, which the provider sees read-only in life.
class FakeEngine {
 public:
  FakeEngine() {
    panel.session = &session_page;
    panel.engines = &engine_page;
    panel.engine_count = 1;
    panel.eventfds[0] = eventfd_.get();
    liveness.watch(&engine_page);
  }
  // How often it was woken since the last call.
  std::uint64_t take_wakes() {
    std::uint64_t count = 0;
    return ::read(eventfd_.get(), &count, sizeof(count)) == sizeof(count) ? count : 0;
  }
  // The doorbells rung since the last call, for numbers below 64.
  std::uint64_t take_doorbells() {
    session_page.boards[0].summary[0].exchange(0, std::memory_order_acquire);
    return session_page.boards[0].leaf[0].exchange(0, std::memory_order_acquire);
  }

  abi::EnginePage engine_page{};
  abi::SessionPage session_page{};
  DoorbellPanel panel;
  Liveness liveness;
  QpTable table;

 private:
  UniqueFd eventfd_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

// A completion queue and the engine's side of it.
class FakeCq {
 public:
  FakeCq(FakeEngine& engine, std::uint32_t depth, int channel_fd = -1, std::uint64_t user_pointer = 0,
         bool yields_when_idle = false)
      : memory_(abi::kCqRingOffset + depth * sizeof(abi::Cqe)),
        depth_(depth),
        queue({depth, user_pointer, channel_fd, yields_when_idle, false}, std::move(memory_.client),
              engine.table, engine.liveness) {}

  abi::CqPage& page() { return *reinterpret_cast<abi::CqPage*>(memory_.daemon.data()); }
  static constexpr std::uint64_t kTimestampNs = 123'456;

  // For the client: as the daemon passes it.
  UniqueFd descriptor() { return std::move(memory_.memory); }

  // As the engine does it; false when there is no room.
  bool push(const QueuePair& qp, std::uint64_t wr_id, bool is_receive, std::uint32_t wqe_index,
            WcStatus status = WcStatus::kSuccess) {
    return push(qp, wr_id, is_receive, wqe_index, status, qp.cookie(), abi::kNoCookie);
  }
  bool push(const QueuePair& qp, std::uint64_t wr_id, bool is_receive, std::uint32_t wqe_index,
            WcStatus status, std::uint32_t qp_cookie, std::uint32_t srq_cookie) {
    if (producer_ - page().consumer.load(std::memory_order_acquire) >= depth_) return false;
    auto* ring = reinterpret_cast<abi::Cqe*>(memory_.daemon.data() + abi::kCqRingOffset);
    abi::Cqe& cqe = ring[producer_ & (depth_ - 1)];
    cqe.wr_id = wr_id;
    cqe.timestamp_ns = kTimestampNs;
    cqe.byte_len = 7;
    cqe.immediate = 0x01020304;
    cqe.flags = is_receive ? kWcWithImm : 0;
    cqe.qpn = qp.qpn();
    cqe.status = static_cast<std::uint8_t>(status);
    cqe.opcode = static_cast<std::uint8_t>(is_receive ? WcOpcode::kRecv : WcOpcode::kSend);
    cqe.is_receive = is_receive ? 1 : 0;
    cqe.wqe_index = wqe_index;
    cqe.qp_cookie = qp_cookie;
    cqe.srq_cookie = srq_cookie;
    cqe.sequence.store(++producer_, std::memory_order_release);
    return true;
  }
  // Whether the engine would send an event now; marks it as sent.
  bool fire(bool is_solicited) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const std::uint32_t arm = page().arm.load(std::memory_order_acquire);
    const auto kind = static_cast<abi::ArmKind>(arm & 3);
    if (arm == page().fired.load(std::memory_order_relaxed)) return false;
    if (kind == abi::ArmKind::kSolicited && !is_solicited) return false;
    page().fired.store(arm, std::memory_order_release);
    return true;
  }

 private:
  SharedPair memory_;
  std::uint32_t depth_;
  std::uint32_t producer_ = 0;

 public:
  CompletionQueue queue;
};

struct QpSizes {
  std::uint32_t send_wr = 4;
  std::uint32_t receive_wr = 4;
  std::uint32_t sge = 2;
  std::uint32_t max_inline = 64;
  QpType type = QpType::kRc;
};

// A QP, in RTS, in the table and attached to its queues.
class FakeQp {
 public:
  FakeQp(FakeEngine& engine, FakeCq& send_cq, FakeCq& receive_cq, QpSizes sizes = {},
         std::uint32_t doorbell = 3)
      : reply(reply_of(sizes, doorbell)), engine_(engine), memory_(reply.memory_bytes) {
    const std::uint32_t cookie = engine.table.reserve().value();
    queue =
        std::make_unique<QueuePair>(std::move(memory_.client), reply, QueuePair::Config{cookie, sizes.type},
                                    engine.panel, engine.liveness, send_cq.queue, receive_cq.queue);
    engine.table.bind(cookie, queue.get());
    const bool is_same = &send_cq == &receive_cq;
    send_cq.queue.attach(*queue, true, is_same);
    if (!is_same) receive_cq.queue.attach(*queue, false, true);
    queue->set_state(QpState::kRts);
  }
  // As destroy_qp does it, once the daemon has answered.
  void destroy() {
    engine_.table.release(queue->cookie());
    for (CompletionQueue* cq : {&queue->send_cq(), &queue->receive_cq()}) {
      cq->purge(queue->cookie());
      cq->detach(*queue);
    }
    queue.reset();
  }

  abi::QpPage& page() { return *reinterpret_cast<abi::QpPage*>(memory_.daemon.data()); }
  abi::SendWqe send_wqe(std::uint32_t index) const {
    abi::SendWqe wqe;
    std::memcpy(&wqe, send_slot(index), sizeof(wqe));
    return wqe;
  }
  const std::byte* send_payload(std::uint32_t index) const { return send_slot(index) + sizeof(abi::SendWqe); }
  const std::byte* receive_slot(std::uint32_t index) const {
    return memory_.daemon.data() + reply.receive_offset +
           std::size_t{index & (reply.receive_slots - 1)} * reply.receive_stride;
  }

  const abi::CreateQpReply reply;
  std::unique_ptr<QueuePair> queue;

 private:
  static abi::CreateQpReply reply_of(QpSizes sizes, std::uint32_t doorbell) {
    abi::CreateQpReply reply{};
    reply.qpn = 0x100 + doorbell;
    reply.doorbell = doorbell;
    reply.cap = {sizes.send_wr, sizes.receive_wr, sizes.sge, sizes.sge, sizes.max_inline};
    reply.send_slots = std::bit_ceil(sizes.send_wr);
    reply.receive_slots = std::bit_ceil(sizes.receive_wr);
    const std::uint32_t elements = sizes.sge * static_cast<std::uint32_t>(sizeof(abi::Sge));
    reply.send_stride = (64 + std::max(elements, sizes.max_inline) + 63) / 64 * 64;
    reply.receive_stride = (16 + elements + 63) / 64 * 64;
    reply.send_offset = sizeof(abi::QpPage);
    reply.receive_offset = reply.send_offset + std::uint64_t{reply.send_slots} * reply.send_stride;
    reply.memory_bytes = reply.receive_offset + std::uint64_t{reply.receive_slots} * reply.receive_stride;
    return reply;
  }
  const std::byte* send_slot(std::uint32_t index) const {
    return memory_.daemon.data() + reply.send_offset +
           std::size_t{index & (reply.send_slots - 1)} * reply.send_stride;
  }

  FakeEngine& engine_;
  SharedPair memory_;
};

// A signalled SEND of nothing.
inline ibv_send_wr send_request(std::uint64_t wr_id) {
  ibv_send_wr request{};
  request.wr_id = wr_id;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  return request;
}
inline int post(QueuePair& qp, ibv_send_wr request) {
  ibv_send_wr* bad = nullptr;
  return qp.post_send(&request, &bad);
}
inline ibv_recv_wr receive_request(std::uint64_t wr_id) {
  ibv_recv_wr request{};
  request.wr_id = wr_id;
  return request;
}
inline int post(QueuePair& qp, ibv_recv_wr request) {
  ibv_recv_wr* bad = nullptr;
  return qp.post_receive(&request, &bad);
}

// One completion, or none.
inline bool poll_one(FakeCq& cq, ibv_wc& completion) { return cq.queue.poll(1, &completion) == 1; }

}  // namespace urdma::provider::testing
