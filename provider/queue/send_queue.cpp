// The send ring of a QP, the client's side.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/queue/send_queue.hpp"

#include <endian.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "provider/queue/memory_window.hpp"
#include "provider/queue/send_opcodes.hpp"

namespace urdma::provider {

namespace {

constexpr unsigned kKnownFlags = kSendFence | kSendSignaled | kSendSolicited | kSendInline;
constexpr std::uint32_t kOperandBytes = 8;

std::byte* payload_of(abi::SendWqe& wqe) { return reinterpret_cast<std::byte*>(&wqe + 1); }

const void* start_of(const ibv_sge& buffer) { return reinterpret_cast<const void*>(buffer.addr); }
const void* start_of(const ibv_data_buf& buffer) { return buffer.addr; }

int write_destination(const ibv_send_wr& request, abi::SendWqe& wqe) {
  if (request.wr.ud.ah == nullptr) return EINVAL;
  wqe.address_handle = request.wr.ud.ah->handle;
  wqe.remote_qpn = request.wr.ud.remote_qpn;
  wqe.remote_qkey = request.wr.ud.remote_qkey;
  return 0;
}

// Binding is local: the window's region, where it begins in it, and its new key. Length 0 unbinds.
int write_bind(const ibv_send_wr& request, abi::SendWqe& wqe) {
  if (request.bind_mw.mw == nullptr) return EINVAL;
  return bind_window(wqe, *request.bind_mw.mw, request.bind_mw.rkey, request.bind_mw.bind_info);
}

}  // namespace

int bind_window(abi::SendWqe& wqe, ibv_mw& mw, std::uint32_t new_key, const ibv_mw_bind_info& info) {
  if (info.length != 0 && info.mr == nullptr) return EINVAL;
  MemoryWindow& window = window_of(&mw);
  wqe.rkey = window.latest_key;
  wqe.immediate = new_key;
  wqe.remote_address = info.addr;
  wqe.compare_add = info.length;
  wqe.remote_qkey = info.mw_access_flags;
  if (info.length != 0) {
    const abi::Sge element{info.addr, 0, info.mr->lkey};
    std::memcpy(payload_of(wqe), &element, sizeof(element));
    wqe.num_sge = 1;
  }
  window.latest_key = new_key;
  return 0;
}

bool SendQueue::is_full() {
  if (head_ - known_tail_ < shape_.max_requests) [[likely]]
    return false;
  known_tail_ = tail_.load(std::memory_order_acquire);
  return head_ - known_tail_ >= shape_.max_requests;
}

template <typename Buffer>
int SendQueue::write_inline(abi::SendWqe& wqe, std::span<const Buffer> buffers) const {
  std::uint64_t total = 0;
  for (const Buffer& buffer : buffers) {
    if (buffer.length > shape_.max_inline) return EINVAL;
    total += buffer.length;
  }
  if (total > shape_.max_inline) return EINVAL;
  std::byte* where = payload_of(wqe);
  for (const Buffer& buffer : buffers) {
    if (buffer.length == 0) continue;
    std::memcpy(where, start_of(buffer), buffer.length);
    where += buffer.length;
  }
  wqe.flags |= kSendInline;
  wqe.inline_bytes = static_cast<std::uint32_t>(total);
  return 0;
}

int SendQueue::set_inline(abi::SendWqe& wqe, std::span<const ibv_data_buf> buffers) const {
  return write_inline(wqe, buffers);
}

void SendQueue::set_operand(abi::SendWqe& wqe, const void* operand) {
  std::memcpy(payload_of(wqe), operand, kOperandBytes);
  wqe.flags |= kSendInline;
  wqe.inline_bytes = kOperandBytes;
}

int SendQueue::set_elements(abi::SendWqe& wqe, std::span<const ibv_sge> elements) const {
  static_assert(sizeof(ibv_sge) == sizeof(abi::Sge) && offsetof(ibv_sge, lkey) == offsetof(abi::Sge, lkey));
  if (elements.size() > shape_.max_sge) return EINVAL;
  if (!elements.empty()) std::memcpy(payload_of(wqe), elements.data(), elements.size_bytes());
  wqe.num_sge = static_cast<std::uint8_t>(elements.size());
  return 0;
}

int SendQueue::claim(std::uint32_t opcode, std::uint64_t wr_id, unsigned flags, abi::SendWqe*& wqe) {
  if (!traits_of(shape_.type, opcode).is_supported || (flags & ~kKnownFlags) != 0) return EINVAL;
  if (is_full()) return ENOMEM;
  wqe = new (slot(head_)) abi::SendWqe{};
  wqe->opcode = static_cast<std::uint8_t>(opcode);
  wqe->flags = static_cast<std::uint8_t>(flags & ~kSendInline);
  wqe->wr_id = wr_id;
  ++head_;
  return 0;
}

// The fields that the opcode and the kind of QP give a meaning.
int SendQueue::write_request(const ibv_send_wr& request, abi::SendWqe& wqe) const {
  const OpcodeTraits traits = traits_of(shape_.type, request.opcode);
  if (traits.has_immediate) wqe.immediate = be32toh(request.imm_data);
  if (traits.has_invalidation) wqe.immediate = request.invalidate_rkey;
  switch (traits.shape) {
    case RequestShape::kMessage:
      if (shape_.type == QpType::kUd) {
        if (const int error = write_destination(request, wqe); error != 0) return error;
      }
      break;
    case RequestShape::kInvalidate:
      break;
    case RequestShape::kRemoteAccess:
      wqe.remote_address = request.wr.rdma.remote_addr;
      wqe.rkey = request.wr.rdma.rkey;
      break;
    case RequestShape::kAtomic:
      wqe.remote_address = request.wr.atomic.remote_addr;
      wqe.rkey = request.wr.atomic.rkey;
      wqe.compare_add = request.wr.atomic.compare_add;
      wqe.swap = request.wr.atomic.swap;
      break;
    case RequestShape::kBind:
      return write_bind(request, wqe);
  }
  if (shape_.type == QpType::kXrcSend) wqe.remote_qpn = request.qp_type.xrc.remote_srqn;
  if (traits.shape == RequestShape::kInvalidate) return 0;
  const std::span<const ibv_sge> elements(request.sg_list, static_cast<std::size_t>(request.num_sge));
  if ((request.send_flags & kSendInline) == 0) return set_elements(wqe, elements);
  return traits.may_be_inline ? write_inline(wqe, elements) : EINVAL;
}

int SendQueue::post(const ibv_send_wr& request) {
  if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > shape_.max_sge) return EINVAL;
  abi::SendWqe* wqe = nullptr;
  int error = claim(request.opcode, request.wr_id, request.send_flags, wqe);
  if (error != 0) return error;
  error = write_request(request, *wqe);
  if (error != 0) --head_;
  return error;
}

void SendQueue::release(std::uint32_t index) {
  // Compared with what was published, since head_ belongs to the posting thread.
  const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
  const std::uint32_t published = shape_.producer->load(std::memory_order_relaxed);
  if (index - tail <= published - tail) tail_.store(index, std::memory_order_release);
}

bool SendQueue::flush_one(ibv_wc& completion) {
  const std::uint32_t tail = tail_.load(std::memory_order_acquire);
  if (tail == head_) return false;
  abi::SendWqe wqe;
  std::memcpy(&wqe, slot(tail), sizeof(wqe));
  completion = {};
  completion.wr_id = wqe.wr_id;
  completion.status = IBV_WC_WR_FLUSH_ERR;
  completion.opcode = static_cast<ibv_wc_opcode>(completion_opcode(static_cast<WrOpcode>(wqe.opcode)));
  tail_.store(tail + 1, std::memory_order_release);
  return true;
}

void SendQueue::reset() {
  head_ = 0;
  known_tail_ = 0;
  tail_.store(0, std::memory_order_release);
  publish();
}

}  // namespace urdma::provider
