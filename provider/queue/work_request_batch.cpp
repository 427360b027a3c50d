// The requests between ibv_wr_start and ibv_wr_complete.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/queue/work_request_batch.hpp"

#include <endian.h>

#include <cerrno>

namespace urdma::provider {

void WorkRequestBatch::start(int error) {
  first_ = queue_.head();
  error_ = error;
  current_ = nullptr;
  binds_.clear();
}

int WorkRequestBatch::complete() {
  if (error_ != 0) abort();
  return error_;
}

void WorkRequestBatch::abort() {
  queue_.take_back(first_);
  for (auto bind = binds_.rbegin(); bind != binds_.rend(); ++bind)
    bind->window->latest_key = bind->key_before;
}

abi::SendWqe* WorkRequestBatch::begin(const ibv_qp_ex& qp, WrOpcode opcode) {
  current_ = nullptr;
  if (error_ == 0) note(queue_.claim(static_cast<std::uint32_t>(opcode), qp.wr_id, qp.wr_flags, current_));
  return current_;
}

void WorkRequestBatch::send_with_immediate(const ibv_qp_ex& qp, __be32 immediate) {
  if (abi::SendWqe* wqe = begin(qp, WrOpcode::kSendWithImm)) wqe->immediate = be32toh(immediate);
}

void WorkRequestBatch::send_with_invalidate(const ibv_qp_ex& qp, std::uint32_t key) {
  if (abi::SendWqe* wqe = begin(qp, WrOpcode::kSendWithInv)) wqe->immediate = key;
}

void WorkRequestBatch::remote_access(const ibv_qp_ex& qp, WrOpcode opcode, std::uint32_t rkey,
                                     std::uint64_t address) {
  abi::SendWqe* wqe = begin(qp, opcode);
  if (wqe == nullptr) return;
  wqe->rkey = rkey;
  wqe->remote_address = address;
}

void WorkRequestBatch::write_with_immediate(const ibv_qp_ex& qp, std::uint32_t rkey, std::uint64_t address,
                                            __be32 immediate) {
  remote_access(qp, WrOpcode::kRdmaWriteWithImm, rkey, address);
  if (current_ != nullptr) current_->immediate = be32toh(immediate);
}

void WorkRequestBatch::atomic(const ibv_qp_ex& qp, WrOpcode opcode, std::uint32_t rkey, std::uint64_t address,
                              std::uint64_t compare_add, std::uint64_t swap) {
  remote_access(qp, opcode, rkey, address);
  if (current_ == nullptr) return;
  current_->compare_add = compare_add;
  current_->swap = swap;
}

void WorkRequestBatch::atomic_write(const ibv_qp_ex& qp, std::uint32_t rkey, std::uint64_t address,
                                    const void* operand) {
  remote_access(qp, WrOpcode::kAtomicWrite, rkey, address);
  if (current_ != nullptr) SendQueue::set_operand(*current_, operand);
}

void WorkRequestBatch::local_invalidate(const ibv_qp_ex& qp, std::uint32_t key) {
  if (abi::SendWqe* wqe = begin(qp, WrOpcode::kLocalInv)) wqe->immediate = key;
}

void WorkRequestBatch::bind(const ibv_qp_ex& qp, ibv_mw* mw, std::uint32_t new_key,
                            const ibv_mw_bind_info& info) {
  abi::SendWqe* wqe = begin(qp, WrOpcode::kBindMw);
  if (wqe == nullptr) return;
  if (mw == nullptr) return note(EINVAL);
  binds_.push_back({&window_of(mw), window_of(mw).latest_key});
  note(bind_window(*wqe, *mw, new_key, info));
}

void WorkRequestBatch::set_destination(const ibv_ah* ah, std::uint32_t remote_qpn,
                                       std::uint32_t remote_qkey) {
  if (current_ == nullptr) return;
  if (ah == nullptr) return note(EINVAL);
  current_->address_handle = ah->handle;
  current_->remote_qpn = remote_qpn;
  current_->remote_qkey = remote_qkey;
}

void WorkRequestBatch::set_shared_receive_queue(std::uint32_t number) {
  if (current_ != nullptr) current_->remote_qpn = number;
}

void WorkRequestBatch::set_elements(std::span<const ibv_sge> elements) {
  if (current_ != nullptr) note(queue_.set_elements(*current_, elements));
}

void WorkRequestBatch::set_inline(std::span<const ibv_data_buf> buffers) {
  if (current_ != nullptr) note(queue_.set_inline(*current_, buffers));
}

}  // namespace urdma::provider
