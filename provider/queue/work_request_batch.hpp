// The requests between ibv_wr_start and ibv_wr_complete: written into the send ring as the calls come, and
// seen by the engine together, or not at all. The first error sticks until the end of the batch.
//
// Owned by a QueuePair, which holds its send lock from start() to complete() or abort(): everything in
// between is one thread's.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>
#include <vector>

#include "provider/queue/memory_window.hpp"
#include "provider/queue/send_queue.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::provider {

class WorkRequestBatch {
 public:
  explicit WorkRequestBatch(SendQueue& queue) : queue_(queue) {}

  // `error` is what the QP's state has against posting: 0 or EINVAL.
  void start(int error);
  // 0, and all of the batch may be published; or the first error, and none of it is left in the ring.
  [[nodiscard]] int complete();
  void abort();
  [[nodiscard]] bool is_empty() const { return queue_.head() == first_; }

  // ---- A request: one of these, then its setters ----
  void send(const ibv_qp_ex& qp) { begin(qp, WrOpcode::kSend); }
  void send_with_immediate(const ibv_qp_ex& qp, __be32 immediate);
  void send_with_invalidate(const ibv_qp_ex& qp, std::uint32_t key);
  void remote_access(const ibv_qp_ex& qp, WrOpcode opcode, std::uint32_t rkey, std::uint64_t address);
  void write_with_immediate(const ibv_qp_ex& qp, std::uint32_t rkey, std::uint64_t address, __be32 immediate);
  void atomic(const ibv_qp_ex& qp, WrOpcode opcode, std::uint32_t rkey, std::uint64_t address,
              std::uint64_t compare_add, std::uint64_t swap);
  void atomic_write(const ibv_qp_ex& qp, std::uint32_t rkey, std::uint64_t address, const void* operand);
  void local_invalidate(const ibv_qp_ex& qp, std::uint32_t key);
  void bind(const ibv_qp_ex& qp, ibv_mw* mw, std::uint32_t new_key, const ibv_mw_bind_info& info);

  void set_destination(const ibv_ah* ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey);
  void set_shared_receive_queue(std::uint32_t number);
  void set_elements(std::span<const ibv_sge> elements);
  void set_inline(std::span<const ibv_data_buf> buffers);

 private:
  // The new request's entry, which setters refer to as well; null after an error.
  abi::SendWqe* begin(const ibv_qp_ex& qp, WrOpcode opcode);
  void note(int error) {
    if (error_ == 0) error_ = error;
  }

  struct Bind {
    MemoryWindow* window;
    std::uint32_t key_before;
  };

  SendQueue& queue_;
  std::uint32_t first_ = 0;  // the ring's head at start()
  int error_ = 0;
  abi::SendWqe* current_ = nullptr;
  std::vector<Bind> binds_;  // what is undone when the batch is
};

}  // namespace urdma::provider
