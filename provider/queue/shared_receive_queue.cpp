// A shared receive queue, the client's side.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/queue/shared_receive_queue.hpp"

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace urdma::provider {

bool SharedReceiveQueue::is_sound(const abi::CreateSrqReply& reply) {
  if (!std::has_single_bit(reply.slots) || reply.stride % 16 != 0 || reply.slots_offset % 16 != 0)
    return false;
  if (reply.slots_offset < sizeof(abi::SrqPage) || reply.slots_offset > reply.memory_bytes) return false;
  const std::uint64_t slot_bytes = sizeof(abi::ReceiveWqe) + std::uint64_t{reply.max_sge} * sizeof(abi::Sge);
  return reply.max_wr <= reply.slots && slot_bytes <= reply.stride &&
         std::uint64_t{reply.slots} * reply.stride <= reply.memory_bytes - reply.slots_offset;
}

SharedReceiveQueue::SharedReceiveQueue(Mapping memory, const abi::CreateSrqReply& reply, std::uint32_t cookie)
    : cookie_(cookie), memory_(std::move(memory)), shape_(reply) {}

int SharedReceiveQueue::post_one(const ibv_recv_wr& request) {
  static_assert(sizeof(ibv_sge) == sizeof(abi::Sge) && offsetof(ibv_sge, lkey) == offsetof(abi::Sge, lkey));
  if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > shape_.max_sge) return EINVAL;
  if (head_ - consumer_ >= shape_.max_wr) {
    // Pairs with the engine's release: it has read the slots that it counts.
    consumer_ = page().consumer.load(std::memory_order_acquire);
    if (head_ - consumer_ >= shape_.max_wr) return ENOMEM;
  }
  std::byte* const where =
      memory_.data() + shape_.slots_offset + std::size_t{head_ & (shape_.slots - 1)} * shape_.stride;
  const abi::ReceiveWqe wqe{request.wr_id, static_cast<std::uint32_t>(request.num_sge), 0};
  std::memcpy(where, &wqe, sizeof(wqe));
  if (request.num_sge > 0)
    std::memcpy(where + sizeof(wqe), request.sg_list,
                static_cast<std::size_t>(request.num_sge) * sizeof(abi::Sge));
  ++head_;
  return 0;
}

int SharedReceiveQueue::post(ibv_recv_wr* list, ibv_recv_wr** bad) {
  const std::lock_guard lock(mutex_);
  int error = 0;
  ibv_recv_wr* request = list;
  for (; request != nullptr && error == 0; request = error == 0 ? request->next : request)
    error = post_one(*request);
  // No doorbell: a request is looked for when a packet needs one.
  page().producer.store(head_, std::memory_order_release);
  if (error != 0) *bad = request;
  return error;
}

int SharedReceiveQueue::take_over(const abi::CreateSrqReply& reply, const std::vector<UniqueFd>& fds) {
  if (fds.size() != 1 || !is_sound(reply)) return EPROTO;
  Mapping memory;
  const int error = memory.map(fds[0].get(), reply.memory_bytes, Mapping::Access::kReadWrite);
  if (error != 0) return error;
  memory_ = std::move(memory);
  shape_ = reply;
  // The daemon has moved what it had not taken to slots 0, 1, ..., and says how many that are.
  head_ = page().producer.load(std::memory_order_acquire);
  consumer_ = page().consumer.load(std::memory_order_acquire);
  return 0;
}

}  // namespace urdma::provider
