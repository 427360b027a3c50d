// The transport headers of a RoCEv2 packet: their layout in bytes, and the decoded form in which
// the rest of urdma passes them around. Parse once, at the edge; nobody else looks at the bytes.
// Pure: usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "urdma/base/ids.hpp"
#include "urdma/base/verbs.hpp"
#include "urdma/wire/be.hpp"
#include "urdma/wire/opcode.hpp"

namespace urdma::wire {

inline constexpr std::uint16_t kDefaultPkey = 0xFFFF;
inline constexpr std::size_t kIcrcBytes = 4;
inline constexpr std::size_t kMaxHeaderBytes = 12 + 4 + 28;  // BTH, XRCETH, AtomicETH
inline constexpr std::size_t kCnpReservedBytes = 16;         // behind the BTH of a CNP (annex A17.9.3)
// The pad count in BthWire::flags.
inline constexpr unsigned kPadShift = 4;
inline constexpr unsigned kPadMask = 3;

// ---- Layout on the wire (IBTA 1, 9.2 to 9.4) ----

struct BthWire {
  std::uint8_t opcode;
  std::uint8_t flags;  // solicited 0x80, MigReq 0x40, pad 0x30, header version 0x0F
  be16 pkey;
  std::uint8_t congestion;  // FECN 0x80, BECN 0x40, reserved 0x3F
  be24 dest_qp;
  std::uint8_t ack;  // ack request 0x80, reserved 0x7F
  be24 psn;
};
static_assert(sizeof(BthWire) == 12 && alignof(BthWire) == 1);
static_assert(offsetof(BthWire, congestion) == 4 && offsetof(BthWire, psn) == 9);

struct DethWire {
  be32 qkey;
  std::uint8_t reserved;
  be24 source_qp;
};
static_assert(sizeof(DethWire) == 8);

struct XrcEthWire {
  std::uint8_t reserved;
  be24 srqn;
};
static_assert(sizeof(XrcEthWire) == 4);

struct RethWire {
  be64 address;
  be32 rkey;
  be32 length;
};
static_assert(sizeof(RethWire) == 16);

struct AtomicEthWire {
  be64 address;
  be32 rkey;
  be64 swap_or_add;
  be64 compare;
};
static_assert(sizeof(AtomicEthWire) == 28);

struct AethWire {
  std::uint8_t syndrome;
  be24 msn;
};
static_assert(sizeof(AethWire) == 4);

// ---- AETH syndromes (IBTA 1, 9.7.5.1) ----

enum class AethKind : std::uint8_t { kAck = 0, kRnrNak = 1, kReserved = 2, kNak = 3 };

enum class NakCode : std::uint8_t {
  kPsnSequenceError = 0,
  kInvalidRequest = 1,
  kRemoteAccessError = 2,
  kRemoteOperationalError = 3,
  kInvalidRdRequest = 4,
};

inline constexpr std::uint8_t kNoCredits = 31;

constexpr std::uint8_t make_syndrome(AethKind kind, std::uint8_t value) {
  return static_cast<std::uint8_t>((static_cast<unsigned>(kind) << 5) | (value & 0x1FU));
}

// ---- Decoded form ----

// The headers of one packet. Which of the extended fields mean something follows from the opcode.
struct Headers {
  Opcode opcode = Opcode::kRcAck;
  bool solicited = false;
  bool ack_request = false;
  bool mig_req = true;
  bool fecn = false;
  bool becn = false;
  std::uint16_t pkey = kDefaultPkey;
  Qpn dest_qp;
  Psn psn;
  // RETH or AtomicETH
  std::uint64_t address = 0;
  MemoryKey rkey;
  std::uint32_t dma_length = 0;  // RETH only, bytes
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
  // AETH
  AethKind aeth_kind = AethKind::kAck;
  std::uint8_t aeth_value = kNoCredits;  // credits, RNR timer code, or NakCode
  std::uint32_t msn = 0;                 // 24 bits
  std::uint64_t atomic_original = 0;
  std::uint32_t immediate = 0;  // host order of the number that is big-endian on the wire
  MemoryKey invalidate_rkey;
  Qpn srqn;  // XRCETH: of the peer's SRQ, 24 bits
  // DETH
  std::uint32_t qkey = 0;
  Qpn source_qp;
  NetworkHeader network = NetworkHeader::kNone;  // of a received datagram
  // Bytes of payload behind the headers, without pad.
  std::uint32_t payload_bytes = 0;

  [[nodiscard]] const OpcodeInfo& info() const { return opcode_info(opcode); }
};

constexpr std::uint32_t pad_bytes(std::uint32_t payload_bytes) { return (4 - (payload_bytes & 3)) & 3; }

// Why a packet was not taken. Each has a counter of its own in telemetry.
enum class ParseError : std::uint8_t {
  kNone,
  kNotRoce,     // another protocol or port: not ours, not a fault
  kTruncated,   // a length field that the bytes do not bear out
  kBadVersion,  // IP, or BTH header version
  kBadOpcode,   // not in the table
  kBadPad,      // pad count larger than the payload, or payload where there is none
  kBadIcrc,
  kBadPkey,
};

// Decodes BTH and extended headers from `transport`, which starts at the BTH and ends before the
// ICRC. On kNone `headers` is complete and the payload starts at headers.info().header_bytes.
[[nodiscard]] ParseError decode(std::span<const std::uint8_t> transport, Headers& headers);

// Writes BTH and extended headers to `out` and returns how many bytes they are (at most
// kMaxHeaderBytes). The pad count is that of headers.payload_bytes.
std::size_t encode(const Headers& headers, std::uint8_t* out);

}  // namespace urdma::wire
