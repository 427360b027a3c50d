// The BTH opcodes of RoCEv2 and one table of what each carries (IBTA 1, 9.2, table 38).
// Pure: usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstdint>

namespace urdma::wire {

// The upper three bits of an opcode name the transport service, the lower five the operation.
enum class Opcode : std::uint8_t {
  kRcSendFirst = 0x00,
  kRcSendMiddle = 0x01,
  kRcSendLast = 0x02,
  kRcSendLastImm = 0x03,
  kRcSendOnly = 0x04,
  kRcSendOnlyImm = 0x05,
  kRcWriteFirst = 0x06,
  kRcWriteMiddle = 0x07,
  kRcWriteLast = 0x08,
  kRcWriteLastImm = 0x09,
  kRcWriteOnly = 0x0A,
  kRcWriteOnlyImm = 0x0B,
  kRcReadRequest = 0x0C,
  kRcReadResponseFirst = 0x0D,
  kRcReadResponseMiddle = 0x0E,
  kRcReadResponseLast = 0x0F,
  kRcReadResponseOnly = 0x10,
  kRcAck = 0x11,
  kRcAtomicAck = 0x12,
  kRcCompareSwap = 0x13,
  kRcFetchAdd = 0x14,
  kRcSendLastInv = 0x16,
  kRcSendOnlyInv = 0x17,
  kRcAtomicWrite = 0x1D,
  kUcSendFirst = 0x20,
  kUcSendMiddle = 0x21,
  kUcSendLast = 0x22,
  kUcSendLastImm = 0x23,
  kUcSendOnly = 0x24,
  kUcSendOnlyImm = 0x25,
  kUcWriteFirst = 0x26,
  kUcWriteMiddle = 0x27,
  kUcWriteLast = 0x28,
  kUcWriteLastImm = 0x29,
  kUcWriteOnly = 0x2A,
  kUcWriteOnlyImm = 0x2B,
  kUdSendOnly = 0x64,
  kUdSendOnlyImm = 0x65,
  kCnp = 0x81,
};

// What an operation is, whatever its transport service.
enum class OpClass : std::uint8_t {
  kInvalid,
  kSend,
  kWrite,
  kReadRequest,
  kReadResponse,
  kAck,
  kAtomicAck,
  kAtomic,
  kAtomicWrite,
  kCnp,
};

// Facts about one opcode. `is_first` and `is_last` are both set for an "only" packet.
struct OpcodeInfo {
  OpClass op_class = OpClass::kInvalid;
  bool is_first = false;
  bool is_last = false;
  bool has_deth = false;
  bool has_xrceth = false;
  bool has_reth = false;
  bool has_atomic_eth = false;
  bool has_aeth = false;
  bool has_atomic_ack_eth = false;
  bool has_immediate = false;
  bool has_ieth = false;
  bool has_payload = false;
  std::uint8_t header_bytes = 0;  // BTH and extended headers together

  [[nodiscard]] constexpr bool is_valid() const { return op_class != OpClass::kInvalid; }
  [[nodiscard]] constexpr bool is_only() const { return is_first && is_last; }
  // Requests go to a responder; READ responses, ACKs and atomic ACKs to a requester.
  [[nodiscard]] constexpr bool is_request() const {
    return op_class == OpClass::kSend || op_class == OpClass::kWrite || op_class == OpClass::kReadRequest ||
           op_class == OpClass::kAtomic || op_class == OpClass::kAtomicWrite;
  }
};

// The table, indexed by the opcode byte. An unknown opcode has OpClass::kInvalid.
extern const std::array<OpcodeInfo, 256> kOpcodeTable;

inline const OpcodeInfo& opcode_info(Opcode opcode) {
  return kOpcodeTable[static_cast<std::uint8_t>(opcode)];
}

// The transport service of an opcode: its upper three bits.
inline constexpr std::uint8_t kServiceRc = 0;
inline constexpr std::uint8_t kServiceUc = 1;
inline constexpr std::uint8_t kServiceUd = 3;
inline constexpr std::uint8_t kServiceXrc = 5;  // the operations of RC, requests with an XRCETH
constexpr std::uint8_t service_of(Opcode opcode) { return static_cast<std::uint8_t>(opcode) >> 5; }
// The same operation of another transport service.
constexpr Opcode with_service(Opcode opcode, std::uint8_t service) {
  return static_cast<Opcode>((static_cast<unsigned>(opcode) & 0x1FU) | static_cast<unsigned>(service) << 5);
}

}  // namespace urdma::wire
