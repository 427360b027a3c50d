// The vocabulary of verbs that all four parts share. The numeric values equal those of
// <infiniband/verbs.h>, so that the provider converts by a cast; provider/ibv asserts each of them.
// Values only. Nothing here includes a verbs header.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

namespace urdma {

enum class QpState : std::uint8_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kErr };
enum class QpType : std::uint8_t { kRc = 2, kUc = 3, kUd = 4, kXrcSend = 9, kXrcRecv = 10 };

enum class WrOpcode : std::uint8_t {
  kRdmaWrite = 0,
  kRdmaWriteWithImm = 1,
  kSend = 2,
  kSendWithImm = 3,
  kRdmaRead = 4,
  kCompareSwap = 5,
  kFetchAdd = 6,
  kLocalInv = 7,
  kBindMw = 8,
  kSendWithInv = 9,
  kAtomicWrite = 15,
};

// Whether the request stays on this node, and sends nothing.
constexpr bool is_local(WrOpcode opcode) {
  return opcode == WrOpcode::kLocalInv || opcode == WrOpcode::kBindMw;
}

// Which opcodes a kind of QP carries (IBTA 1, 9.2, table 38; 10.6.7 for windows). What receives only has no
// send queue.
constexpr bool carries(QpType type, WrOpcode opcode) {
  const bool is_message = opcode == WrOpcode::kSend || opcode == WrOpcode::kSendWithImm;
  switch (type) {
    case QpType::kRc:
      return true;
    case QpType::kXrcSend:
      return opcode != WrOpcode::kAtomicWrite;
    case QpType::kUc:
      return is_message || opcode == WrOpcode::kRdmaWrite || opcode == WrOpcode::kRdmaWriteWithImm ||
             is_local(opcode);
    case QpType::kUd:
      return is_message;
    case QpType::kXrcRecv:
      return false;
  }
  return false;
}

// Flags of a send request.
inline constexpr std::uint8_t kSendFence = 1U << 0;
inline constexpr std::uint8_t kSendSignaled = 1U << 1;
inline constexpr std::uint8_t kSendSolicited = 1U << 2;
inline constexpr std::uint8_t kSendInline = 1U << 3;

enum class WcStatus : std::uint8_t {
  kSuccess = 0,
  kLocLenErr = 1,
  kLocQpOpErr = 2,
  kLocProtErr = 4,
  kWrFlushErr = 5,
  kMwBindErr = 6,
  kBadRespErr = 7,
  kLocAccessErr = 8,
  kRemInvReqErr = 9,
  kRemAccessErr = 10,
  kRemOpErr = 11,
  kRetryExcErr = 12,
  kRnrRetryExcErr = 13,
  kFatalErr = 19,
  kGeneralErr = 21,
};

enum class WcOpcode : std::uint8_t {
  kSend = 0,
  kRdmaWrite = 1,
  kRdmaRead = 2,
  kCompSwap = 3,
  kFetchAdd = 4,
  kBindMw = 5,
  kLocalInv = 6,
  kAtomicWrite = 9,
  kRecv = 128,
  kRecvRdmaWithImm = 129,
};

// The opcode of a send request's completion.
constexpr WcOpcode completion_opcode(WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::kSend:
    case WrOpcode::kSendWithImm:
    case WrOpcode::kSendWithInv:
      return WcOpcode::kSend;
    case WrOpcode::kRdmaWrite:
    case WrOpcode::kRdmaWriteWithImm:
      return WcOpcode::kRdmaWrite;
    case WrOpcode::kRdmaRead:
      return WcOpcode::kRdmaRead;
    case WrOpcode::kCompareSwap:
      return WcOpcode::kCompSwap;
    case WrOpcode::kFetchAdd:
      return WcOpcode::kFetchAdd;
    case WrOpcode::kLocalInv:
      return WcOpcode::kLocalInv;
    case WrOpcode::kBindMw:
      return WcOpcode::kBindMw;
    case WrOpcode::kAtomicWrite:
      return WcOpcode::kAtomicWrite;
  }
  return WcOpcode::kSend;
}

// Flags of a completion.
inline constexpr std::uint8_t kWcGrh = 1U << 0;
inline constexpr std::uint8_t kWcWithImm = 1U << 1;
inline constexpr std::uint8_t kWcWithInv = 1U << 3;

// What a received datagram's GRH was made of (A17.4.5.1 wants that told). Verbs have no field for it: mlx5
// tells it in the service level, with these numbers, and UCX looks for it there.
enum class NetworkHeader : std::uint8_t { kNone = 0, kIpv6 = 1, kIpv4 = 2 };

// Access flags of a region and of a QP.
inline constexpr std::uint32_t kAccessLocalWrite = 1U << 0;
inline constexpr std::uint32_t kAccessRemoteWrite = 1U << 1;
inline constexpr std::uint32_t kAccessRemoteRead = 1U << 2;
inline constexpr std::uint32_t kAccessRemoteAtomic = 1U << 3;
inline constexpr std::uint32_t kAccessMwBind = 1U << 4;
inline constexpr std::uint32_t kAccessZeroBased = 1U << 5;
inline constexpr std::uint32_t kAccessOnDemand = 1U << 6;
inline constexpr std::uint32_t kAccessHugetlb = 1U << 7;
// What a peer does.
inline constexpr std::uint32_t kAccessRemoteMask =
    kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;
inline constexpr std::uint32_t kAccessOptionalMask = 0x3FF00000;  // flags that a device may ignore

// Which attributes a modify call carries.
inline constexpr std::uint32_t kAttrState = 1U << 0;
inline constexpr std::uint32_t kAttrCurState = 1U << 1;
inline constexpr std::uint32_t kAttrSqdNotify = 1U << 2;
inline constexpr std::uint32_t kAttrAccessFlags = 1U << 3;
inline constexpr std::uint32_t kAttrPkeyIndex = 1U << 4;
inline constexpr std::uint32_t kAttrPort = 1U << 5;
inline constexpr std::uint32_t kAttrQkey = 1U << 6;
inline constexpr std::uint32_t kAttrAv = 1U << 7;
inline constexpr std::uint32_t kAttrPathMtu = 1U << 8;
inline constexpr std::uint32_t kAttrTimeout = 1U << 9;
inline constexpr std::uint32_t kAttrRetryCnt = 1U << 10;
inline constexpr std::uint32_t kAttrRnrRetry = 1U << 11;
inline constexpr std::uint32_t kAttrRqPsn = 1U << 12;
inline constexpr std::uint32_t kAttrMaxQpRdAtomic = 1U << 13;
inline constexpr std::uint32_t kAttrAltPath = 1U << 14;
inline constexpr std::uint32_t kAttrMinRnrTimer = 1U << 15;
inline constexpr std::uint32_t kAttrSqPsn = 1U << 16;
inline constexpr std::uint32_t kAttrMaxDestRdAtomic = 1U << 17;
inline constexpr std::uint32_t kAttrPathMigState = 1U << 18;
inline constexpr std::uint32_t kAttrCap = 1U << 19;
inline constexpr std::uint32_t kAttrDestQpn = 1U << 20;
inline constexpr std::uint32_t kAttrRateLimit = 1U << 25;

enum class AsyncEvent : std::uint32_t {
  kCqErr = 0,
  kQpFatal = 1,
  kQpReqErr = 2,
  kQpAccessErr = 3,
  kCommEst = 4,
  kSqDrained = 5,
  kDeviceFatal = 8,
  kPortActive = 9,
  kPortErr = 10,
  kSrqErr = 14,
  kSrqLimitReached = 15,
  kQpLastWqeReached = 16,
  kGidChange = 18,
};

// Path MTU codes 1 to 5 stand for 256 to 4096 bytes (IBTA 1, 9.2).
constexpr std::uint32_t mtu_bytes(std::uint8_t code) { return 128U << code; }
constexpr bool is_mtu_code(std::uint8_t code) { return code >= 1 && code <= 5; }

}  // namespace urdma
