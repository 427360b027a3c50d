// The opcode table, made at compile time from one line for each opcode. Owned by wire; constant.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/opcode.hpp"

#include "urdma/wire/headers.hpp"

namespace urdma::wire {
namespace {

// What follows the BTH, as flags, so that a row of the table fits one line.
enum : unsigned {
  kFirst = 1U << 0,
  kLast = 1U << 1,
  kOnly = kFirst | kLast,
  kDeth = 1U << 2,
  kReth = 1U << 3,
  kAtomicEth = 1U << 4,
  kAeth = 1U << 5,
  kAtomicAckEth = 1U << 6,
  kImm = 1U << 7,
  kIeth = 1U << 8,
  kPayload = 1U << 9,
  kXrcEth = 1U << 10,
};

constexpr std::size_t extended_bytes(OpClass op_class, unsigned parts) {
  std::size_t bytes = 0;
  if (parts & kXrcEth) bytes += sizeof(XrcEthWire);
  if (parts & kDeth) bytes += sizeof(DethWire);
  if (parts & kReth) bytes += sizeof(RethWire);
  if (parts & kAtomicEth) bytes += sizeof(AtomicEthWire);
  if (parts & kAeth) bytes += sizeof(AethWire);
  if (parts & kAtomicAckEth) bytes += sizeof(be64);
  if (parts & (kImm | kIeth)) bytes += sizeof(be32);
  if (op_class == OpClass::kCnp) bytes += kCnpReservedBytes;
  return bytes;
}

constexpr OpcodeInfo make_info(OpClass op_class, unsigned parts) {
  OpcodeInfo info;
  info.op_class = op_class;
  info.is_first = (parts & kFirst) != 0;
  info.is_last = (parts & kLast) != 0;
  info.has_deth = (parts & kDeth) != 0;
  info.has_xrceth = (parts & kXrcEth) != 0;
  info.has_reth = (parts & kReth) != 0;
  info.has_atomic_eth = (parts & kAtomicEth) != 0;
  info.has_aeth = (parts & kAeth) != 0;
  info.has_atomic_ack_eth = (parts & kAtomicAckEth) != 0;
  info.has_immediate = (parts & kImm) != 0;
  info.has_ieth = (parts & kIeth) != 0;
  info.has_payload = (parts & kPayload) != 0;
  info.header_bytes = static_cast<std::uint8_t>(sizeof(BthWire) + extended_bytes(op_class, parts));
  return info;
}

using Table = std::array<OpcodeInfo, 256>;

constexpr void set(Table& table, Opcode opcode, OpClass op_class, unsigned parts) {
  table[static_cast<std::uint8_t>(opcode)] = make_info(op_class, parts);
}

// Of RC or XRC; `extra` is what all requests of the service carry besides.
constexpr void set_requests(Table& table, std::uint8_t service, unsigned extra) {
  const auto set_one = [&](Opcode opcode, OpClass op_class, unsigned parts) {
    set(table, with_service(opcode, service), op_class, parts | extra);
  };
  set_one(Opcode::kRcSendFirst, OpClass::kSend, kFirst | kPayload);
  set_one(Opcode::kRcSendMiddle, OpClass::kSend, kPayload);
  set_one(Opcode::kRcSendLast, OpClass::kSend, kLast | kPayload);
  set_one(Opcode::kRcSendLastImm, OpClass::kSend, kLast | kImm | kPayload);
  set_one(Opcode::kRcSendOnly, OpClass::kSend, kOnly | kPayload);
  set_one(Opcode::kRcSendOnlyImm, OpClass::kSend, kOnly | kImm | kPayload);
  set_one(Opcode::kRcSendLastInv, OpClass::kSend, kLast | kIeth | kPayload);
  set_one(Opcode::kRcSendOnlyInv, OpClass::kSend, kOnly | kIeth | kPayload);
  set_one(Opcode::kRcWriteFirst, OpClass::kWrite, kFirst | kReth | kPayload);
  set_one(Opcode::kRcWriteMiddle, OpClass::kWrite, kPayload);
  set_one(Opcode::kRcWriteLast, OpClass::kWrite, kLast | kPayload);
  set_one(Opcode::kRcWriteLastImm, OpClass::kWrite, kLast | kImm | kPayload);
  set_one(Opcode::kRcWriteOnly, OpClass::kWrite, kOnly | kReth | kPayload);
  set_one(Opcode::kRcWriteOnlyImm, OpClass::kWrite, kOnly | kReth | kImm | kPayload);
  set_one(Opcode::kRcReadRequest, OpClass::kReadRequest, kOnly | kReth);
  set_one(Opcode::kRcCompareSwap, OpClass::kAtomic, kOnly | kAtomicEth);
  set_one(Opcode::kRcFetchAdd, OpClass::kAtomic, kOnly | kAtomicEth);
}

constexpr void set_responses(Table& table, std::uint8_t service) {
  const auto set_one = [&](Opcode opcode, OpClass op_class, unsigned parts) {
    set(table, with_service(opcode, service), op_class, parts);
  };
  set_one(Opcode::kRcReadResponseFirst, OpClass::kReadResponse, kFirst | kAeth | kPayload);
  set_one(Opcode::kRcReadResponseMiddle, OpClass::kReadResponse, kPayload);
  set_one(Opcode::kRcReadResponseLast, OpClass::kReadResponse, kLast | kAeth | kPayload);
  set_one(Opcode::kRcReadResponseOnly, OpClass::kReadResponse, kOnly | kAeth | kPayload);
  set_one(Opcode::kRcAck, OpClass::kAck, kOnly | kAeth);
  set_one(Opcode::kRcAtomicAck, OpClass::kAtomicAck, kOnly | kAeth | kAtomicAckEth);
}

constexpr void set_unreliable(Table& table) {
  set(table, Opcode::kUcSendFirst, OpClass::kSend, kFirst | kPayload);
  set(table, Opcode::kUcSendMiddle, OpClass::kSend, kPayload);
  set(table, Opcode::kUcSendLast, OpClass::kSend, kLast | kPayload);
  set(table, Opcode::kUcSendLastImm, OpClass::kSend, kLast | kImm | kPayload);
  set(table, Opcode::kUcSendOnly, OpClass::kSend, kOnly | kPayload);
  set(table, Opcode::kUcSendOnlyImm, OpClass::kSend, kOnly | kImm | kPayload);
  set(table, Opcode::kUcWriteFirst, OpClass::kWrite, kFirst | kReth | kPayload);
  set(table, Opcode::kUcWriteMiddle, OpClass::kWrite, kPayload);
  set(table, Opcode::kUcWriteLast, OpClass::kWrite, kLast | kPayload);
  set(table, Opcode::kUcWriteLastImm, OpClass::kWrite, kLast | kImm | kPayload);
  set(table, Opcode::kUcWriteOnly, OpClass::kWrite, kOnly | kReth | kPayload);
  set(table, Opcode::kUcWriteOnlyImm, OpClass::kWrite, kOnly | kReth | kImm | kPayload);
  set(table, Opcode::kUdSendOnly, OpClass::kSend, kOnly | kDeth | kPayload);
  set(table, Opcode::kUdSendOnlyImm, OpClass::kSend, kOnly | kDeth | kImm | kPayload);
  set(table, Opcode::kCnp, OpClass::kCnp, kOnly);
}

constexpr Table make_table() {
  Table table{};
  for (const std::uint8_t service : {kServiceRc, kServiceXrc}) {
    set_requests(table, service, service == kServiceXrc ? unsigned{kXrcEth} : 0U);
    set_responses(table, service);
  }
  set(table, Opcode::kRcAtomicWrite, OpClass::kAtomicWrite, kOnly | kReth | kPayload);
  set_unreliable(table);
  return table;
}

constexpr bool headers_fit(const Table& table) {
  for (const OpcodeInfo& info : table) {
    if (info.header_bytes > kMaxHeaderBytes) return false;
  }
  return true;
}

}  // namespace

constexpr std::array<OpcodeInfo, 256> kOpcodeTable = make_table();
static_assert(headers_fit(kOpcodeTable));

}  // namespace urdma::wire
