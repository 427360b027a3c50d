// Holds the values of base/verbs.hpp against <infiniband/verbs.h>, since the provider converts by casts.
// Nothing but assertions.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <infiniband/verbs.h>

#include "urdma/base/verbs.hpp"

namespace urdma {

#define URDMA_SAME(ours, theirs) \
  static_assert(static_cast<unsigned long>(ours) == static_cast<unsigned long>(theirs))

URDMA_SAME(QpState::kReset, IBV_QPS_RESET);
URDMA_SAME(QpState::kInit, IBV_QPS_INIT);
URDMA_SAME(QpState::kRtr, IBV_QPS_RTR);
URDMA_SAME(QpState::kRts, IBV_QPS_RTS);
URDMA_SAME(QpState::kSqd, IBV_QPS_SQD);
URDMA_SAME(QpState::kSqe, IBV_QPS_SQE);
URDMA_SAME(QpState::kErr, IBV_QPS_ERR);

URDMA_SAME(QpType::kRc, IBV_QPT_RC);
URDMA_SAME(QpType::kUc, IBV_QPT_UC);
URDMA_SAME(QpType::kUd, IBV_QPT_UD);
URDMA_SAME(QpType::kXrcSend, IBV_QPT_XRC_SEND);
URDMA_SAME(QpType::kXrcRecv, IBV_QPT_XRC_RECV);

URDMA_SAME(WrOpcode::kRdmaWrite, IBV_WR_RDMA_WRITE);
URDMA_SAME(WrOpcode::kRdmaWriteWithImm, IBV_WR_RDMA_WRITE_WITH_IMM);
URDMA_SAME(WrOpcode::kSend, IBV_WR_SEND);
URDMA_SAME(WrOpcode::kSendWithImm, IBV_WR_SEND_WITH_IMM);
URDMA_SAME(WrOpcode::kRdmaRead, IBV_WR_RDMA_READ);
URDMA_SAME(WrOpcode::kCompareSwap, IBV_WR_ATOMIC_CMP_AND_SWP);
URDMA_SAME(WrOpcode::kFetchAdd, IBV_WR_ATOMIC_FETCH_AND_ADD);
URDMA_SAME(WrOpcode::kLocalInv, IBV_WR_LOCAL_INV);
URDMA_SAME(WrOpcode::kBindMw, IBV_WR_BIND_MW);
URDMA_SAME(WrOpcode::kSendWithInv, IBV_WR_SEND_WITH_INV);
URDMA_SAME(WrOpcode::kAtomicWrite, IBV_WR_ATOMIC_WRITE);

URDMA_SAME(kSendFence, IBV_SEND_FENCE);
URDMA_SAME(kSendSignaled, IBV_SEND_SIGNALED);
URDMA_SAME(kSendSolicited, IBV_SEND_SOLICITED);
URDMA_SAME(kSendInline, IBV_SEND_INLINE);

URDMA_SAME(WcStatus::kSuccess, IBV_WC_SUCCESS);
URDMA_SAME(WcStatus::kLocLenErr, IBV_WC_LOC_LEN_ERR);
URDMA_SAME(WcStatus::kLocQpOpErr, IBV_WC_LOC_QP_OP_ERR);
URDMA_SAME(WcStatus::kLocProtErr, IBV_WC_LOC_PROT_ERR);
URDMA_SAME(WcStatus::kWrFlushErr, IBV_WC_WR_FLUSH_ERR);
URDMA_SAME(WcStatus::kMwBindErr, IBV_WC_MW_BIND_ERR);
URDMA_SAME(WcStatus::kBadRespErr, IBV_WC_BAD_RESP_ERR);
URDMA_SAME(WcStatus::kLocAccessErr, IBV_WC_LOC_ACCESS_ERR);
URDMA_SAME(WcStatus::kRemInvReqErr, IBV_WC_REM_INV_REQ_ERR);
URDMA_SAME(WcStatus::kRemAccessErr, IBV_WC_REM_ACCESS_ERR);
URDMA_SAME(WcStatus::kRemOpErr, IBV_WC_REM_OP_ERR);
URDMA_SAME(WcStatus::kRetryExcErr, IBV_WC_RETRY_EXC_ERR);
URDMA_SAME(WcStatus::kRnrRetryExcErr, IBV_WC_RNR_RETRY_EXC_ERR);
URDMA_SAME(WcStatus::kFatalErr, IBV_WC_FATAL_ERR);
URDMA_SAME(WcStatus::kGeneralErr, IBV_WC_GENERAL_ERR);

URDMA_SAME(WcOpcode::kSend, IBV_WC_SEND);
URDMA_SAME(WcOpcode::kRdmaWrite, IBV_WC_RDMA_WRITE);
URDMA_SAME(WcOpcode::kRdmaRead, IBV_WC_RDMA_READ);
URDMA_SAME(WcOpcode::kCompSwap, IBV_WC_COMP_SWAP);
URDMA_SAME(WcOpcode::kFetchAdd, IBV_WC_FETCH_ADD);
URDMA_SAME(WcOpcode::kBindMw, IBV_WC_BIND_MW);
URDMA_SAME(WcOpcode::kLocalInv, IBV_WC_LOCAL_INV);
URDMA_SAME(WcOpcode::kAtomicWrite, IBV_WC_ATOMIC_WRITE);
URDMA_SAME(WcOpcode::kRecv, IBV_WC_RECV);
URDMA_SAME(WcOpcode::kRecvRdmaWithImm, IBV_WC_RECV_RDMA_WITH_IMM);

URDMA_SAME(kWcGrh, IBV_WC_GRH);
URDMA_SAME(kWcWithImm, IBV_WC_WITH_IMM);
URDMA_SAME(kWcWithInv, IBV_WC_WITH_INV);

URDMA_SAME(kAccessLocalWrite, IBV_ACCESS_LOCAL_WRITE);
URDMA_SAME(kAccessRemoteWrite, IBV_ACCESS_REMOTE_WRITE);
URDMA_SAME(kAccessRemoteRead, IBV_ACCESS_REMOTE_READ);
URDMA_SAME(kAccessRemoteAtomic, IBV_ACCESS_REMOTE_ATOMIC);
URDMA_SAME(kAccessMwBind, IBV_ACCESS_MW_BIND);
URDMA_SAME(kAccessZeroBased, IBV_ACCESS_ZERO_BASED);
URDMA_SAME(kAccessOnDemand, IBV_ACCESS_ON_DEMAND);
URDMA_SAME(kAccessHugetlb, IBV_ACCESS_HUGETLB);
URDMA_SAME(kAccessOptionalMask, IBV_ACCESS_OPTIONAL_RANGE);

URDMA_SAME(kAttrState, IBV_QP_STATE);
URDMA_SAME(kAttrCurState, IBV_QP_CUR_STATE);
URDMA_SAME(kAttrSqdNotify, IBV_QP_EN_SQD_ASYNC_NOTIFY);
URDMA_SAME(kAttrAccessFlags, IBV_QP_ACCESS_FLAGS);
URDMA_SAME(kAttrPkeyIndex, IBV_QP_PKEY_INDEX);
URDMA_SAME(kAttrPort, IBV_QP_PORT);
URDMA_SAME(kAttrQkey, IBV_QP_QKEY);
URDMA_SAME(kAttrAv, IBV_QP_AV);
URDMA_SAME(kAttrPathMtu, IBV_QP_PATH_MTU);
URDMA_SAME(kAttrTimeout, IBV_QP_TIMEOUT);
URDMA_SAME(kAttrRetryCnt, IBV_QP_RETRY_CNT);
URDMA_SAME(kAttrRnrRetry, IBV_QP_RNR_RETRY);
URDMA_SAME(kAttrRqPsn, IBV_QP_RQ_PSN);
URDMA_SAME(kAttrMaxQpRdAtomic, IBV_QP_MAX_QP_RD_ATOMIC);
URDMA_SAME(kAttrAltPath, IBV_QP_ALT_PATH);
URDMA_SAME(kAttrMinRnrTimer, IBV_QP_MIN_RNR_TIMER);
URDMA_SAME(kAttrSqPsn, IBV_QP_SQ_PSN);
URDMA_SAME(kAttrMaxDestRdAtomic, IBV_QP_MAX_DEST_RD_ATOMIC);
URDMA_SAME(kAttrPathMigState, IBV_QP_PATH_MIG_STATE);
URDMA_SAME(kAttrCap, IBV_QP_CAP);
URDMA_SAME(kAttrDestQpn, IBV_QP_DEST_QPN);
URDMA_SAME(kAttrRateLimit, IBV_QP_RATE_LIMIT);

URDMA_SAME(AsyncEvent::kCqErr, IBV_EVENT_CQ_ERR);
URDMA_SAME(AsyncEvent::kQpFatal, IBV_EVENT_QP_FATAL);
URDMA_SAME(AsyncEvent::kQpReqErr, IBV_EVENT_QP_REQ_ERR);
URDMA_SAME(AsyncEvent::kQpAccessErr, IBV_EVENT_QP_ACCESS_ERR);
URDMA_SAME(AsyncEvent::kCommEst, IBV_EVENT_COMM_EST);
URDMA_SAME(AsyncEvent::kSqDrained, IBV_EVENT_SQ_DRAINED);
URDMA_SAME(AsyncEvent::kDeviceFatal, IBV_EVENT_DEVICE_FATAL);
URDMA_SAME(AsyncEvent::kPortActive, IBV_EVENT_PORT_ACTIVE);
URDMA_SAME(AsyncEvent::kPortErr, IBV_EVENT_PORT_ERR);
URDMA_SAME(AsyncEvent::kSrqErr, IBV_EVENT_SRQ_ERR);
URDMA_SAME(AsyncEvent::kSrqLimitReached, IBV_EVENT_SRQ_LIMIT_REACHED);
URDMA_SAME(AsyncEvent::kQpLastWqeReached, IBV_EVENT_QP_LAST_WQE_REACHED);
URDMA_SAME(AsyncEvent::kGidChange, IBV_EVENT_GID_CHANGE);

static_assert(mtu_bytes(IBV_MTU_256) == 256 && mtu_bytes(IBV_MTU_4096) == 4096);

}  // namespace urdma
