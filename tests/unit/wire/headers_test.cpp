// Tests of include/urdma/wire/headers.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/headers.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace urdma::wire {
namespace {

using Bytes = std::vector<std::uint8_t>;

// BTH, extended headers, payload and pad of `headers`, as decode() takes them.
Bytes encoded(const Headers& headers) {
  const std::size_t rest = headers.payload_bytes + pad_bytes(headers.payload_bytes);
  Bytes bytes(headers.info().header_bytes + rest, 0xC3);
  EXPECT_EQ(encode(headers, bytes.data()), headers.info().header_bytes);
  return bytes;
}

ParseError decode_error(const Bytes& bytes) {
  Headers headers;
  return decode(bytes, headers);
}

std::vector<Opcode> valid_opcodes() {
  std::vector<Opcode> opcodes;
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    if (kOpcodeTable[opcode].is_valid()) opcodes.push_back(static_cast<Opcode>(opcode));
  }
  return opcodes;
}

// Random values in the fields that the opcode carries, and the initial ones in all others.
Headers random_headers(Opcode opcode, std::mt19937_64& random) {
  Headers headers;
  const OpcodeInfo& info = opcode_info(opcode);
  const auto number = [&] { return static_cast<std::uint32_t>(random()); };
  const auto flag = [&] { return random() % 2 == 0; };
  headers.opcode = opcode;
  headers.solicited = flag();
  headers.ack_request = flag();
  headers.mig_req = flag();
  headers.fecn = flag();
  headers.becn = flag();
  headers.pkey = static_cast<std::uint16_t>(number());
  headers.dest_qp = Qpn{number() & kQpnMask};
  headers.psn = Psn(number());
  if (info.has_reth || info.has_atomic_eth) headers.address = random();
  if (info.has_reth || info.has_atomic_eth) headers.rkey = MemoryKey{number()};
  if (info.has_reth) headers.dma_length = number();
  if (info.has_atomic_eth) headers.swap_or_add = random();
  if (info.has_atomic_eth) headers.compare = random();
  if (info.has_aeth) headers.aeth_kind = static_cast<AethKind>(number() % 4);
  if (info.has_aeth) headers.aeth_value = static_cast<std::uint8_t>(number() % 32);
  if (info.has_aeth) headers.msn = number() & Psn::kMask;
  if (info.has_atomic_ack_eth) headers.atomic_original = random();
  if (info.has_immediate) headers.immediate = number();
  if (info.has_ieth) headers.invalidate_rkey = MemoryKey{number()};
  if (info.has_xrceth) headers.srqn = Qpn{number() & kQpnMask};
  if (info.has_deth) headers.qkey = number();
  if (info.has_deth) headers.source_qp = Qpn{number() & kQpnMask};
  if (info.has_payload) headers.payload_bytes = number() % 300;
  return headers;
}

void expect_equal_bth(const Headers& actual, const Headers& expected) {
  EXPECT_EQ(actual.opcode, expected.opcode);
  EXPECT_EQ(actual.solicited, expected.solicited);
  EXPECT_EQ(actual.ack_request, expected.ack_request);
  EXPECT_EQ(actual.mig_req, expected.mig_req);
  EXPECT_EQ(actual.fecn, expected.fecn);
  EXPECT_EQ(actual.becn, expected.becn);
  EXPECT_EQ(actual.pkey, expected.pkey);
  EXPECT_EQ(actual.dest_qp, expected.dest_qp);
  EXPECT_EQ(actual.psn, expected.psn);
  EXPECT_EQ(actual.payload_bytes, expected.payload_bytes);
}

void expect_equal(const Headers& actual, const Headers& expected) {
  expect_equal_bth(actual, expected);
  EXPECT_EQ(actual.address, expected.address);
  EXPECT_EQ(actual.rkey, expected.rkey);
  EXPECT_EQ(actual.dma_length, expected.dma_length);
  EXPECT_EQ(actual.swap_or_add, expected.swap_or_add);
  EXPECT_EQ(actual.compare, expected.compare);
  EXPECT_EQ(actual.aeth_kind, expected.aeth_kind);
  EXPECT_EQ(actual.aeth_value, expected.aeth_value);
  EXPECT_EQ(actual.msn, expected.msn);
  EXPECT_EQ(actual.atomic_original, expected.atomic_original);
  EXPECT_EQ(actual.immediate, expected.immediate);
  EXPECT_EQ(actual.invalidate_rkey, expected.invalidate_rkey);
  EXPECT_EQ(actual.qkey, expected.qkey);
  EXPECT_EQ(actual.source_qp, expected.source_qp);
}

TEST(Decode, GivesBackWhatWasEncoded) {
  std::mt19937_64 random(1);
  for (const Opcode opcode : valid_opcodes()) {
    SCOPED_TRACE("opcode " + std::to_string(static_cast<int>(opcode)));
    for (int round = 0; round < 50; ++round) {
      const Headers sent = random_headers(opcode, random);
      // A view that was used before: nothing of it may be left.
      Headers received = random_headers(Opcode::kRcCompareSwap, random);
      received.msn = received.qkey = received.immediate = 0xDEAD;
      ASSERT_EQ(decode(encoded(sent), received), ParseError::kNone);
      expect_equal(received, sent);
    }
  }
}

TEST(Encode, EveryHeaderIsWhereTheSpecificationPutsIt) {
  Headers write;
  write.opcode = Opcode::kRcWriteOnlyImm;
  write.solicited = true;
  write.ack_request = true;
  write.fecn = true;
  write.dest_qp = Qpn{0x010203};
  write.psn = Psn(0x040506);
  write.address = 0x1112131415161718;
  write.rkey = MemoryKey{0x21222324};
  write.dma_length = 0x31323334;
  write.immediate = 0x41424344;
  write.payload_bytes = 1;
  Bytes bytes = encoded(write);
  bytes.resize(32);
  EXPECT_EQ(bytes, (Bytes{0x0B, 0xF0, 0xFF, 0xFF, 0x80, 1,    2,    3,    0x80, 4,    5,
                          6,    0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22,
                          0x23, 0x24, 0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44}));
}

TEST(Encode, AethSyndrome) {
  Headers nak;
  nak.opcode = Opcode::kRcAck;
  nak.aeth_kind = AethKind::kNak;
  nak.aeth_value = static_cast<std::uint8_t>(NakCode::kRemoteAccessError);
  nak.msn = 0x010203;
  const Bytes bytes = encoded(nak);
  EXPECT_EQ(Bytes(bytes.begin() + 12, bytes.end()), (Bytes{0x62, 1, 2, 3}));
}

TEST(Encode, CnpHasZeroReservedBytes) {
  Headers cnp;
  cnp.opcode = Opcode::kCnp;
  cnp.becn = true;
  const Bytes bytes = encoded(cnp);
  EXPECT_EQ(bytes.size(), 28U);
  EXPECT_EQ(Bytes(bytes.begin() + 12, bytes.end()), Bytes(16, 0));
  EXPECT_EQ(bytes[4], 0x40);
}

TEST(MakeSyndrome, KindAndValue) {
  EXPECT_EQ(make_syndrome(AethKind::kAck, kNoCredits), 0x1F);
  EXPECT_EQ(make_syndrome(AethKind::kRnrNak, 14), 0x2E);
  EXPECT_EQ(make_syndrome(AethKind::kNak, 4), 0x64);
}

// Each prefix is a heap block of its exact size, so that ASan sees the first byte read beyond it.
TEST(Decode, EveryTruncatedHeaderIsRefused) {
  std::mt19937_64 random(2);
  for (const Opcode opcode : valid_opcodes()) {
    const Bytes whole = encoded(random_headers(opcode, random));
    for (std::size_t bytes = 0; bytes < opcode_info(opcode).header_bytes; ++bytes) {
      const Bytes prefix(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
      ASSERT_EQ(decode_error(prefix), ParseError::kTruncated) << static_cast<int>(opcode) << " " << bytes;
    }
  }
}

Bytes send_only(std::uint32_t payload_bytes) {
  Headers headers;
  headers.opcode = Opcode::kRcSendOnly;
  headers.payload_bytes = payload_bytes;
  return encoded(headers);
}

TEST(Decode, UnknownOpcodesAreRefused) {
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    if (kOpcodeTable[opcode].is_valid()) continue;
    Bytes bytes(64, 0);
    bytes[0] = static_cast<std::uint8_t>(opcode);
    EXPECT_EQ(decode_error(bytes), ParseError::kBadOpcode) << opcode;
  }
}

TEST(Decode, HeaderVersionMustBeZero) {
  for (std::uint8_t version = 1; version < 16; ++version) {
    Bytes bytes = send_only(8);
    bytes[1] |= version;
    EXPECT_EQ(decode_error(bytes), ParseError::kBadVersion);
  }
}

TEST(Decode, PadBeyondThePayloadIsRefused) {
  for (unsigned pad = 1; pad <= 3; ++pad) {
    Bytes empty = send_only(0);
    empty[1] |= static_cast<std::uint8_t>(pad << kPadShift);
    EXPECT_EQ(decode_error(empty), ParseError::kBadPad) << pad;
  }
}

TEST(Decode, PadOfAWholeWordGivesThePayload) {
  for (std::uint32_t payload_bytes = 1; payload_bytes <= 9; ++payload_bytes) {
    Headers headers;
    ASSERT_EQ(decode(send_only(payload_bytes), headers), ParseError::kNone);
    EXPECT_EQ(headers.payload_bytes, payload_bytes);
  }
}

TEST(Decode, PacketOfBrokenWordsIsRefused) {
  for (std::size_t excess = 1; excess <= 3; ++excess) {
    Bytes bytes = send_only(8);
    bytes.resize(bytes.size() + excess);
    EXPECT_EQ(decode_error(bytes), ParseError::kBadPad) << excess;
  }
}

TEST(Decode, PayloadWhereThereIsNoneIsRefused) {
  std::mt19937_64 random(3);
  for (const Opcode opcode : valid_opcodes()) {
    if (opcode_info(opcode).has_payload) continue;
    Bytes bytes = encoded(random_headers(opcode, random));
    bytes.resize(bytes.size() + 4);
    EXPECT_EQ(decode_error(bytes), ParseError::kBadPad) << static_cast<int>(opcode);
  }
}

TEST(Decode, ReservedBitsAreIgnored) {
  Bytes bytes = send_only(8);
  bytes[4] |= 0x3F;
  bytes[8] |= 0x7F;
  Headers headers;
  ASSERT_EQ(decode(bytes, headers), ParseError::kNone);
  EXPECT_FALSE(headers.fecn || headers.becn || headers.ack_request);
}

TEST(PadBytes, FillsTheWord) {
  EXPECT_EQ(pad_bytes(0), 0U);
  EXPECT_EQ(pad_bytes(1), 3U);
  EXPECT_EQ(pad_bytes(2), 2U);
  EXPECT_EQ(pad_bytes(3), 1U);
  EXPECT_EQ(pad_bytes(4), 0U);
}

}  // namespace
}  // namespace urdma::wire
