// Tests of include/urdma/wire/opcode.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/opcode.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "urdma/wire/headers.hpp"

namespace urdma::wire {
namespace {

std::string parts_of(const OpcodeInfo& info) {
  std::string parts;
  if (info.has_xrceth) parts += "xrc ";
  if (info.has_deth) parts += "deth ";
  if (info.has_reth) parts += "reth ";
  if (info.has_atomic_eth) parts += "atomic ";
  if (info.has_aeth) parts += "aeth ";
  if (info.has_atomic_ack_eth) parts += "atomicack ";
  if (info.has_immediate) parts += "imm ";
  if (info.has_ieth) parts += "ieth ";
  if (info.has_payload) parts += "payload ";
  return parts;
}

std::set<int> opcodes_where(bool OpcodeInfo::*fact) {
  std::set<int> opcodes;
  for (int opcode = 0; opcode < 256; ++opcode) {
    if (kOpcodeTable[static_cast<std::size_t>(opcode)].*fact) opcodes.insert(opcode);
  }
  return opcodes;
}

// XRC has the operations of RC at 0xA0 (IBTA annex A14).
std::set<int> with_xrc(std::set<int> opcodes) {
  std::set<int> all = opcodes;
  for (const int opcode : opcodes) {
    if (opcode < 0x18) all.insert(opcode + 0xA0);
  }
  return all;
}

// IBTA 1, table 38, written down once more and independently, as numbers. 0x1D is ATOMIC WRITE.
TEST(OpcodeTable, ExtendedHeadersAreThoseOfTheSpecification) {
  EXPECT_EQ(opcodes_where(&OpcodeInfo::has_reth), with_xrc({6, 10, 11, 12, 0x1D, 0x26, 0x2A, 0x2B}));
  EXPECT_EQ(opcodes_where(&OpcodeInfo::has_atomic_eth), with_xrc({19, 20}));
  EXPECT_EQ(opcodes_where(&OpcodeInfo::has_aeth), with_xrc({13, 15, 16, 17, 18}));
  EXPECT_EQ(opcodes_where(&OpcodeInfo::has_atomic_ack_eth), with_xrc({18}));
  EXPECT_EQ(opcodes_where(&OpcodeInfo::has_immediate), with_xrc({3, 5, 9, 11, 0x23, 0x25, 0x29, 0x2B, 0x65}));
  EXPECT_EQ(opcodes_where(&OpcodeInfo::has_ieth), with_xrc({22, 23}));
  EXPECT_EQ(opcodes_where(&OpcodeInfo::has_deth), (std::set<int>{0x64, 0x65}));
}

TEST(OpcodeTable, RequestsOfXrcHaveAnXrcEth) {
  std::set<int> expected;
  for (int opcode = 0xA0; opcode <= 0xB7; ++opcode) {
    if (opcode <= 0xAC || opcode == 0xB3 || opcode == 0xB4 || opcode >= 0xB6) expected.insert(opcode);
  }
  EXPECT_EQ(opcodes_where(&OpcodeInfo::has_xrceth), expected);
}

TEST(OpcodeTable, ExactlyTheKnownOpcodesAreValid) {
  std::set<int> valid;
  for (int opcode = 0; opcode < 256; ++opcode) {
    if (kOpcodeTable[static_cast<std::size_t>(opcode)].is_valid()) valid.insert(opcode);
  }
  std::set<int> expected{0x16, 0x17, 0x1D, 0x64, 0x65, 0x81};
  for (int opcode = 0x00; opcode <= 0x14; ++opcode) expected.insert(opcode);
  for (int opcode = 0x20; opcode <= 0x2B; ++opcode) expected.insert(opcode);
  EXPECT_EQ(valid, with_xrc(expected));
}

TEST(OpcodeTable, OnlyDataCarriesPayload) {
  for (const OpcodeInfo& info : kOpcodeTable) {
    const bool is_data = info.op_class == OpClass::kSend || info.op_class == OpClass::kWrite ||
                         info.op_class == OpClass::kReadResponse || info.op_class == OpClass::kAtomicWrite;
    EXPECT_EQ(info.has_payload, is_data) << parts_of(info);
  }
}

TEST(OpcodeTable, HeaderBytesAreTheSumOfTheHeaders) {
  const std::map<std::string, int> expected{
      {"payload ", 12}, {"imm payload ", 16},  {"reth payload ", 28}, {"reth imm payload ", 32},
      {"reth ", 28},    {"aeth payload ", 16}, {"aeth ", 16},         {"aeth atomicack ", 24},
      {"atomic ", 40},  {"ieth payload ", 16}, {"deth payload ", 20}, {"deth imm payload ", 24},
  };
  for (int opcode = 0; opcode < 256; ++opcode) {
    const OpcodeInfo& info = kOpcodeTable[static_cast<std::size_t>(opcode)];
    if (!info.is_valid() || info.op_class == OpClass::kCnp) continue;
    const std::string parts = parts_of(info);
    const bool is_xrc = parts.starts_with("xrc ");
    const auto row = expected.find(is_xrc ? parts.substr(4) : parts);
    ASSERT_NE(row, expected.end()) << opcode << ": " << parts;
    EXPECT_EQ(info.header_bytes, row->second + (is_xrc ? 4 : 0)) << opcode;
  }
  EXPECT_EQ(opcode_info(Opcode::kCnp).header_bytes, 12 + 16);
}

TEST(OpcodeTable, FirstMiddleLastOnly) {
  EXPECT_EQ(opcodes_where(&OpcodeInfo::is_first),
            with_xrc({0,  4,  5,    6,    10,   11,   12,   13,   16,   17,   18,   19,
                      20, 23, 0x1D, 0x20, 0x24, 0x25, 0x26, 0x2A, 0x2B, 0x64, 0x65, 0x81}));
  EXPECT_EQ(opcodes_where(&OpcodeInfo::is_last),
            with_xrc({2,  3,  4,    5,    8,    9,    10,   11,   12,   15,   16,   17,   18,   19,  20,
                      22, 23, 0x1D, 0x22, 0x23, 0x24, 0x25, 0x28, 0x29, 0x2A, 0x2B, 0x64, 0x65, 0x81}));
  EXPECT_TRUE(opcode_info(Opcode::kRcSendOnly).is_only());
  EXPECT_FALSE(opcode_info(Opcode::kRcSendFirst).is_only());
  EXPECT_FALSE(opcode_info(Opcode::kRcSendMiddle).is_first);
}

TEST(OpcodeInfo, IsRequest_RequestsAndResponses) {
  EXPECT_TRUE(opcode_info(Opcode::kRcSendMiddle).is_request());
  EXPECT_TRUE(opcode_info(Opcode::kRcReadRequest).is_request());
  EXPECT_TRUE(opcode_info(Opcode::kRcFetchAdd).is_request());
  EXPECT_FALSE(opcode_info(Opcode::kRcReadResponseMiddle).is_request());
  EXPECT_FALSE(opcode_info(Opcode::kRcAck).is_request());
  EXPECT_FALSE(opcode_info(Opcode::kRcAtomicAck).is_request());
  EXPECT_FALSE(opcode_info(Opcode::kCnp).is_request());
  EXPECT_FALSE(kOpcodeTable[0x15].is_request());
}

TEST(ServiceOf, UpperThreeBits) {
  EXPECT_EQ(service_of(Opcode::kRcSendOnlyInv), kServiceRc);
  EXPECT_EQ(service_of(Opcode::kUcWriteOnly), kServiceUc);
  EXPECT_EQ(service_of(Opcode::kUdSendOnlyImm), kServiceUd);
  EXPECT_EQ(service_of(with_service(Opcode::kRcAck, kServiceXrc)), kServiceXrc);
}

TEST(WithService, TheSameOperation) {
  EXPECT_EQ(with_service(Opcode::kRcWriteOnlyImm, kServiceUc), Opcode::kUcWriteOnlyImm);
  EXPECT_EQ(with_service(Opcode::kRcSendOnlyImm, kServiceUd), Opcode::kUdSendOnlyImm);
  EXPECT_EQ(static_cast<int>(with_service(Opcode::kRcSendOnlyInv, kServiceXrc)), 0xB7);
  EXPECT_EQ(with_service(Opcode::kUcSendLast, kServiceRc), Opcode::kRcSendLast);
}

}  // namespace
}  // namespace urdma::wire
