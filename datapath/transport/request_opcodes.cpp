// The table of opcodes by request; see the header.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/request_opcodes.hpp"

namespace urdma::transport {

namespace {

using wire::Opcode;

constexpr MessageOpcodes kSendOpcodes = {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLast,
                                         Opcode::kRcSendOnly};
constexpr MessageOpcodes kSendImmOpcodes = {Opcode::kRcSendFirst, Opcode::kRcSendMiddle,
                                            Opcode::kRcSendLastImm, Opcode::kRcSendOnlyImm};
constexpr MessageOpcodes kSendInvOpcodes = {Opcode::kRcSendFirst, Opcode::kRcSendMiddle,
                                            Opcode::kRcSendLastInv, Opcode::kRcSendOnlyInv};
constexpr MessageOpcodes kWriteOpcodes = {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLast,
                                          Opcode::kRcWriteOnly};
constexpr MessageOpcodes kWriteImmOpcodes = {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle,
                                             Opcode::kRcWriteLastImm, Opcode::kRcWriteOnlyImm};
constexpr MessageOpcodes kReadOpcodes = {Opcode::kRcReadRequest, Opcode::kRcReadRequest,
                                         Opcode::kRcReadRequest, Opcode::kRcReadRequest};
constexpr MessageOpcodes kSwapOpcodes = {Opcode::kRcCompareSwap, Opcode::kRcCompareSwap,
                                         Opcode::kRcCompareSwap, Opcode::kRcCompareSwap};
constexpr MessageOpcodes kAddOpcodes = {Opcode::kRcFetchAdd, Opcode::kRcFetchAdd, Opcode::kRcFetchAdd,
                                        Opcode::kRcFetchAdd};
constexpr MessageOpcodes kAtomicWriteOpcodes = {Opcode::kRcAtomicWrite, Opcode::kRcAtomicWrite,
                                                Opcode::kRcAtomicWrite, Opcode::kRcAtomicWrite};

}  // namespace

const MessageOpcodes* opcodes_of(WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::kSend:
      return &kSendOpcodes;
    case WrOpcode::kSendWithImm:
      return &kSendImmOpcodes;
    case WrOpcode::kSendWithInv:
      return &kSendInvOpcodes;
    case WrOpcode::kRdmaWrite:
      return &kWriteOpcodes;
    case WrOpcode::kRdmaWriteWithImm:
      return &kWriteImmOpcodes;
    case WrOpcode::kRdmaRead:
      return &kReadOpcodes;
    case WrOpcode::kCompareSwap:
      return &kSwapOpcodes;
    case WrOpcode::kFetchAdd:
      return &kAddOpcodes;
    case WrOpcode::kAtomicWrite:
      return &kAtomicWriteOpcodes;
    case WrOpcode::kLocalInv:
    case WrOpcode::kBindMw:
      return nullptr;
  }
  return nullptr;
}

}  // namespace urdma::transport
