// A QP's two rings with their locks, its state, and its doorbell.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/queue/queue_pair.hpp"

#include <bit>
#include <cerrno>
#include <utility>

#include "provider/queue/completion_queue.hpp"

namespace urdma::provider {

namespace {

bool is_ring(std::uint64_t offset, std::uint32_t slots, std::uint32_t stride, std::uint64_t memory_bytes) {
  if (!std::has_single_bit(slots) || stride % 16 != 0 || offset % 16 != 0) return false;
  if (offset < sizeof(abi::QpPage) || offset > memory_bytes) return false;
  return std::uint64_t{slots} * stride <= memory_bytes - offset;
}

SendQueue::Shape send_shape(std::byte* memory, const abi::CreateQpReply& reply, QpType type) {
  auto* page = reinterpret_cast<abi::QpPage*>(memory);
  return {memory + reply.send_offset, &page->send_producer,   reply.send_slots,          reply.send_stride,
          reply.cap.max_send_wr,      reply.cap.max_send_sge, reply.cap.max_inline_data, type};
}

ReceiveQueue::Shape receive_shape(std::byte* memory, const abi::CreateQpReply& reply) {
  auto* page = reinterpret_cast<abi::QpPage*>(memory);
  return {memory + reply.receive_offset, &page->receive_producer, reply.receive_slots,
          reply.receive_stride,          reply.cap.max_recv_wr,   reply.cap.max_recv_sge};
}

// Whether a send request is taken in this state: sent, kept (SQD), or flushed (SQE, ERR).
bool takes_sends(QpState state) {
  switch (state) {
    case QpState::kReset:
    case QpState::kInit:
    case QpState::kRtr:
      return false;
    case QpState::kRts:
    case QpState::kSqd:
    case QpState::kSqe:
    case QpState::kErr:
      return true;
  }
  return false;
}

}  // namespace

bool QueuePair::is_sound(const abi::CreateQpReply& reply) {
  if (!is_ring(reply.send_offset, reply.send_slots, reply.send_stride, reply.memory_bytes)) return false;
  if (!is_ring(reply.receive_offset, reply.receive_slots, reply.receive_stride, reply.memory_bytes))
    return false;
  const std::uint64_t elements = std::uint64_t{reply.cap.max_send_sge} * sizeof(abi::Sge);
  return reply.doorbell < abi::DoorbellBoard::kDoorbells && reply.cap.max_send_wr <= reply.send_slots &&
         reply.cap.max_recv_wr <= reply.receive_slots && reply.cap.max_send_sge <= UINT8_MAX &&
         sizeof(abi::SendWqe) + elements <= reply.send_stride &&
         sizeof(abi::SendWqe) + reply.cap.max_inline_data <= reply.send_stride &&
         sizeof(abi::ReceiveWqe) + std::uint64_t{reply.cap.max_recv_sge} * sizeof(abi::Sge) <=
             reply.receive_stride;
}

QueuePair::QueuePair(Mapping memory, const abi::CreateQpReply& reply, const Config& config,
                     const DoorbellPanel& panel, const Liveness& liveness, CompletionQueue& send_cq,
                     CompletionQueue& receive_cq)
    : memory_(std::move(memory)),
      config_(config),
      qpn_(reply.qpn),
      doorbell_(panel, reply.doorbell),
      liveness_(liveness),
      send_cq_(send_cq),
      receive_cq_(receive_cq),
      send_(send_shape(memory_.data(), reply, config.type)),
      batch_(send_),
      receive_(receive_shape(memory_.data(), reply)) {}

int QueuePair::post_send(ibv_send_wr* list, ibv_send_wr** bad) {
  int error = takes_sends(state()) ? 0 : EINVAL;
  bool posted_any = false;
  ibv_send_wr* request = list;
  if (error == 0) {
    const std::lock_guard lock(send_mutex_);
    for (; request != nullptr && error == 0; request = error == 0 ? request->next : request) {
      error = send_.post(*request);
      posted_any |= error == 0;
    }
    if (posted_any) {
      send_.publish();
      doorbell_.ring(page());
    }
  }
  if (error != 0) *bad = request;
  if (posted_any && liveness_.is_gone()) [[unlikely]]
    send_cq_.on_posted_after_death();
  return error;
}

WorkRequestBatch& QueuePair::start_batch() {
  send_mutex_.lock();
  batch_.start(takes_sends(state()) ? 0 : EINVAL);
  return batch_;
}

int QueuePair::complete_batch() {
  const int error = batch_.complete();
  const bool posted_any = !batch_.is_empty();
  if (posted_any) {
    send_.publish();
    doorbell_.ring(page());
  }
  send_mutex_.unlock();
  if (posted_any && liveness_.is_gone()) [[unlikely]]
    send_cq_.on_posted_after_death();
  return error;
}

void QueuePair::abort_batch() {
  batch_.abort();
  send_mutex_.unlock();
}

int QueuePair::post_receive(ibv_recv_wr* list, ibv_recv_wr** bad) {
  int error = state() == QpState::kReset ? EINVAL : 0;
  bool posted_any = false;
  ibv_recv_wr* request = list;
  if (error == 0) {
    const std::lock_guard lock(receive_mutex_);
    for (; request != nullptr && error == 0; request = error == 0 ? request->next : request) {
      error = receive_.post(*request);
      posted_any |= error == 0;
    }
    if (posted_any) {
      receive_.publish();
      // Pairs with the engine's fence behind flush_receives: either it sees the receive, or we its wish.
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (page().flush_receives.load(std::memory_order_relaxed) != 0) doorbell_.ring(page());
    }
  }
  if (error != 0) *bad = request;
  if (posted_any && liveness_.is_gone()) [[unlikely]]
    receive_cq_.on_posted_after_death();
  return error;
}

void QueuePair::reset() {
  const std::scoped_lock lock(send_mutex_, receive_mutex_);
  send_.reset();
  receive_.reset();
}

bool QueuePair::flush_send(ibv_wc& completion) {
  const std::lock_guard lock(send_mutex_);
  if (!send_.flush_one(completion)) return false;
  completion.qp_num = qpn_;
  return true;
}

bool QueuePair::flush_receive(ibv_wc& completion) {
  const std::lock_guard lock(receive_mutex_);
  if (!receive_.flush_one(completion)) return false;
  completion.qp_num = qpn_;
  return true;
}

bool QueuePair::has_outstanding_sends() {
  const std::lock_guard lock(send_mutex_);
  return send_.has_outstanding();
}

bool QueuePair::has_outstanding_receives() {
  const std::lock_guard lock(receive_mutex_);
  return receive_.has_outstanding();
}

}  // namespace urdma::provider
