// ibv_wr_*: the functions that an extended QP points to.
//
// One thread is between wr_start and wr_complete or wr_abort of a QP at a time: the send lock is held. None
// of them allocates but for binds, and none throws.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/ibv/objects.hpp"
#include "provider/queue/send_opcodes.hpp"

namespace urdma::provider {

namespace {

QueuePair& queue_of(ibv_qp_ex* qp) { return *qp_of(&qp->qp_base).queue; }
WorkRequestBatch& batch_of(ibv_qp_ex* qp) { return queue_of(qp).batch(); }

void start(ibv_qp_ex* qp) { queue_of(qp).start_batch(); }
int complete(ibv_qp_ex* qp) { return queue_of(qp).complete_batch(); }
void abort_requests(ibv_qp_ex* qp) { queue_of(qp).abort_batch(); }

void send(ibv_qp_ex* qp) { batch_of(qp).send(*qp); }
void send_imm(ibv_qp_ex* qp, __be32 immediate) { batch_of(qp).send_with_immediate(*qp, immediate); }
void send_inv(ibv_qp_ex* qp, uint32_t key) { batch_of(qp).send_with_invalidate(*qp, key); }

void rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  batch_of(qp).remote_access(*qp, WrOpcode::kRdmaWrite, rkey, address);
}
void rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, __be32 immediate) {
  batch_of(qp).write_with_immediate(*qp, rkey, address, immediate);
}
void rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  batch_of(qp).remote_access(*qp, WrOpcode::kRdmaRead, rkey, address);
}
void compare_swap(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap) {
  batch_of(qp).atomic(*qp, WrOpcode::kCompareSwap, rkey, address, compare, swap);
}
void fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t add) {
  batch_of(qp).atomic(*qp, WrOpcode::kFetchAdd, rkey, address, add, 0);
}
void atomic_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, const void* operand) {
  batch_of(qp).atomic_write(*qp, rkey, address, operand);
}
void local_inv(ibv_qp_ex* qp, uint32_t key) { batch_of(qp).local_invalidate(*qp, key); }
void bind_mw(ibv_qp_ex* qp, ibv_mw* mw, uint32_t key, const ibv_mw_bind_info* info) {
  batch_of(qp).bind(*qp, mw, key, *info);
}

void set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, uint32_t remote_qpn, uint32_t remote_qkey) {
  batch_of(qp).set_destination(ah, remote_qpn, remote_qkey);
}
void set_xrc_srqn(ibv_qp_ex* qp, uint32_t number) { batch_of(qp).set_shared_receive_queue(number); }

void set_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
  const ibv_sge element{address, length, lkey};
  batch_of(qp).set_elements({&element, 1});
}
void set_sge_list(ibv_qp_ex* qp, size_t count, const ibv_sge* elements) {
  batch_of(qp).set_elements({elements, count});
}
void set_inline_data(ibv_qp_ex* qp, void* address, size_t length) {
  const ibv_data_buf buffer{address, length};
  batch_of(qp).set_inline({&buffer, 1});
}
void set_inline_data_list(ibv_qp_ex* qp, size_t count, const ibv_data_buf* buffers) {
  batch_of(qp).set_inline({buffers, count});
}

constexpr std::uint64_t flag_of(WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::kRdmaWrite:
      return IBV_QP_EX_WITH_RDMA_WRITE;
    case WrOpcode::kRdmaWriteWithImm:
      return IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    case WrOpcode::kSend:
      return IBV_QP_EX_WITH_SEND;
    case WrOpcode::kSendWithImm:
      return IBV_QP_EX_WITH_SEND_WITH_IMM;
    case WrOpcode::kRdmaRead:
      return IBV_QP_EX_WITH_RDMA_READ;
    case WrOpcode::kCompareSwap:
      return IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;
    case WrOpcode::kFetchAdd:
      return IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    case WrOpcode::kLocalInv:
      return IBV_QP_EX_WITH_LOCAL_INV;
    case WrOpcode::kBindMw:
      return IBV_QP_EX_WITH_BIND_MW;
    case WrOpcode::kSendWithInv:
      return IBV_QP_EX_WITH_SEND_WITH_INV;
    case WrOpcode::kAtomicWrite:
      return IBV_QP_EX_WITH_ATOMIC_WRITE;
  }
  return 0;
}

}  // namespace

std::uint64_t send_operations(QpType type) {
  std::uint64_t flags = 0;
  for (const WrOpcode opcode :
       {WrOpcode::kRdmaWrite, WrOpcode::kRdmaWriteWithImm, WrOpcode::kSend, WrOpcode::kSendWithImm,
        WrOpcode::kRdmaRead, WrOpcode::kCompareSwap, WrOpcode::kFetchAdd, WrOpcode::kLocalInv,
        WrOpcode::kBindMw, WrOpcode::kSendWithInv, WrOpcode::kAtomicWrite}) {
    if (carries(type, opcode)) flags |= flag_of(opcode);
  }
  return flags;
}

void install_work_requests(ibv_qp_ex& qp) {
  qp.wr_start = start;
  qp.wr_complete = complete;
  qp.wr_abort = abort_requests;
  qp.wr_send = send;
  qp.wr_send_imm = send_imm;
  qp.wr_send_inv = send_inv;
  qp.wr_rdma_write = rdma_write;
  qp.wr_rdma_write_imm = rdma_write_imm;
  qp.wr_rdma_read = rdma_read;
  qp.wr_atomic_cmp_swp = compare_swap;
  qp.wr_atomic_fetch_add = fetch_add;
  qp.wr_atomic_write = atomic_write;
  qp.wr_local_inv = local_inv;
  qp.wr_bind_mw = bind_mw;
  qp.wr_set_ud_addr = set_ud_addr;
  qp.wr_set_xrc_srqn = set_xrc_srqn;
  qp.wr_set_sge = set_sge;
  qp.wr_set_sge_list = set_sge_list;
  qp.wr_set_inline_data = set_inline_data;
  qp.wr_set_inline_data_list = set_inline_data_list;
}

}  // namespace urdma::provider
