// What a send request's opcode means to the client's side: which QPs carry it, and which of its fields count.
//
// Pure; any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

#include "urdma/base/verbs.hpp"

namespace urdma::provider {

enum class RequestShape : std::uint8_t {
  kMessage,       // SEND of any kind
  kRemoteAccess,  // RDMA WRITE and READ, atomic write
  kAtomic,
  kInvalidate,
  kBind,
};

struct OpcodeTraits {
  bool is_supported = false;
  RequestShape shape = RequestShape::kMessage;
  bool has_immediate = false;
  bool has_invalidation = false;  // a key instead of the immediate
  bool may_be_inline = false;
};

constexpr OpcodeTraits traits_of(WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::kSend:
      return {true, RequestShape::kMessage, false, false, true};
    case WrOpcode::kSendWithImm:
      return {true, RequestShape::kMessage, true, false, true};
    case WrOpcode::kSendWithInv:
      return {true, RequestShape::kMessage, false, true, true};
    case WrOpcode::kRdmaWrite:
    case WrOpcode::kAtomicWrite:
      return {true, RequestShape::kRemoteAccess, false, false, true};
    case WrOpcode::kRdmaWriteWithImm:
      return {true, RequestShape::kRemoteAccess, true, false, true};
    case WrOpcode::kRdmaRead:
      return {true, RequestShape::kRemoteAccess, false, false, false};
    case WrOpcode::kCompareSwap:
    case WrOpcode::kFetchAdd:
      return {true, RequestShape::kAtomic, false, false, false};
    case WrOpcode::kLocalInv:
      return {true, RequestShape::kInvalidate, false, true, false};
    case WrOpcode::kBindMw:
      return {true, RequestShape::kBind, false, false, false};
  }
  return {};
}

// The answer for a program's number, which may be any.
constexpr OpcodeTraits traits_of(QpType type, std::uint32_t opcode) {
  const auto known = static_cast<WrOpcode>(opcode);
  return opcode <= UINT8_MAX && carries(type, known) ? traits_of(known) : OpcodeTraits{};
}

}  // namespace urdma::provider
