// Decoding and encoding of BTH and extended headers. Owned by wire; pure, any thread.
// The order of the extended headers is that of IBTA 1, 9.2 (table 38):
// XRCETH or DETH, RETH or AtomicETH or AETH, AtomicAckETH, ImmDt or IETH.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/headers.hpp"

#include <cstring>

namespace urdma::wire {
namespace {

constexpr std::uint8_t kSolicitedBit = 0x80;
constexpr std::uint8_t kMigReqBit = 0x40;
constexpr std::uint8_t kVersionMask = 0x0F;
constexpr std::uint8_t kFecnBit = 0x80;
constexpr std::uint8_t kBecnBit = 0x40;
constexpr std::uint8_t kAckRequestBit = 0x80;
constexpr std::uint8_t kAethValueMask = 0x1F;

// What each packet starts from. A constant is copied faster than a temporary is made.
constexpr Headers kBlank;

// Takes structures from bytes whose number was checked before.
class Reader {
 public:
  explicit Reader(const std::uint8_t* at) : at_(at) {}

  template <typename Wire>
  const Wire& take() {
    const Wire& wire = overlay<Wire>(at_);
    at_ += sizeof(Wire);
    return wire;
  }

 private:
  const std::uint8_t* at_;
};

class Writer {
 public:
  explicit Writer(std::uint8_t* at) : at_(at) {}

  template <typename Wire>
  void put(const Wire& wire) {
    std::memcpy(at_, &wire, sizeof(wire));
    at_ += sizeof(wire);
  }

 private:
  std::uint8_t* at_;
};

void read_bth(const BthWire& bth, Headers& headers) {
  headers.opcode = static_cast<Opcode>(bth.opcode);
  headers.solicited = (bth.flags & kSolicitedBit) != 0;
  headers.mig_req = (bth.flags & kMigReqBit) != 0;
  headers.fecn = (bth.congestion & kFecnBit) != 0;
  headers.becn = (bth.congestion & kBecnBit) != 0;
  headers.ack_request = (bth.ack & kAckRequestBit) != 0;
  headers.pkey = bth.pkey.get();
  headers.dest_qp = Qpn{bth.dest_qp.get()};
  headers.psn = Psn(bth.psn.get());
}

BthWire make_bth(const Headers& headers) {
  BthWire bth{};
  bth.opcode = static_cast<std::uint8_t>(headers.opcode);
  bth.flags =
      static_cast<std::uint8_t>((headers.solicited ? kSolicitedBit : 0) | (headers.mig_req ? kMigReqBit : 0) |
                                (pad_bytes(headers.payload_bytes) << kPadShift));
  bth.pkey = headers.pkey;
  bth.congestion = static_cast<std::uint8_t>((headers.fecn ? kFecnBit : 0) | (headers.becn ? kBecnBit : 0));
  bth.dest_qp = headers.dest_qp.value;
  bth.ack = headers.ack_request ? kAckRequestBit : 0;
  bth.psn = headers.psn.value();
  return bth;
}

void read_deth(const DethWire& deth, Headers& headers) {
  headers.qkey = deth.qkey.get();
  headers.source_qp = Qpn{deth.source_qp.get()};
}

void read_reth(const RethWire& reth, Headers& headers) {
  headers.address = reth.address.get();
  headers.rkey = MemoryKey{reth.rkey.get()};
  headers.dma_length = reth.length.get();
}

void read_atomic_eth(const AtomicEthWire& atomic, Headers& headers) {
  headers.address = atomic.address.get();
  headers.rkey = MemoryKey{atomic.rkey.get()};
  headers.swap_or_add = atomic.swap_or_add.get();
  headers.compare = atomic.compare.get();
}

void read_aeth(const AethWire& aeth, Headers& headers) {
  headers.aeth_kind = static_cast<AethKind>((aeth.syndrome >> 5) & 3);
  headers.aeth_value = aeth.syndrome & kAethValueMask;
  headers.msn = aeth.msn.get();
}

}  // namespace

ParseError decode(std::span<const std::uint8_t> transport, Headers& headers) {
  if (transport.size() < sizeof(BthWire)) return ParseError::kTruncated;
  Reader reader(transport.data());
  const auto& bth = reader.take<BthWire>();
  if ((bth.flags & kVersionMask) != 0) return ParseError::kBadVersion;
  const OpcodeInfo& info = kOpcodeTable[bth.opcode];
  if (!info.is_valid()) return ParseError::kBadOpcode;
  if (transport.size() < info.header_bytes) return ParseError::kTruncated;
  // Whole words follow the headers, of which the last may hold up to three bytes of pad.
  const std::size_t rest = transport.size() - info.header_bytes;
  const std::size_t pad = (bth.flags >> kPadShift) & kPadMask;
  if (rest % 4 != 0 || pad > rest || (rest != 0 && !info.has_payload)) return ParseError::kBadPad;

  headers = kBlank;
  read_bth(bth, headers);
  if (info.has_xrceth) headers.srqn = Qpn{reader.take<XrcEthWire>().srqn.get()};
  if (info.has_deth) read_deth(reader.take<DethWire>(), headers);
  if (info.has_reth) read_reth(reader.take<RethWire>(), headers);
  if (info.has_atomic_eth) read_atomic_eth(reader.take<AtomicEthWire>(), headers);
  if (info.has_aeth) read_aeth(reader.take<AethWire>(), headers);
  if (info.has_atomic_ack_eth) headers.atomic_original = reader.take<be64>().get();
  if (info.has_immediate) headers.immediate = reader.take<be32>().get();
  if (info.has_ieth) headers.invalidate_rkey = MemoryKey{reader.take<be32>().get()};
  headers.payload_bytes = static_cast<std::uint32_t>(rest - pad);
  return ParseError::kNone;
}

std::size_t encode(const Headers& headers, std::uint8_t* out) {
  const OpcodeInfo& info = headers.info();
  Writer writer(out);
  writer.put(make_bth(headers));
  if (info.has_xrceth) writer.put(XrcEthWire{0, headers.srqn.value});
  if (info.has_deth) writer.put(DethWire{headers.qkey, 0, headers.source_qp.value});
  if (info.has_reth) writer.put(RethWire{headers.address, headers.rkey.value, headers.dma_length});
  if (info.has_atomic_eth) {
    writer.put(AtomicEthWire{headers.address, headers.rkey.value, headers.swap_or_add, headers.compare});
  }
  if (info.has_aeth) writer.put(AethWire{make_syndrome(headers.aeth_kind, headers.aeth_value), headers.msn});
  if (info.has_atomic_ack_eth) writer.put(be64(headers.atomic_original));
  if (info.has_immediate) writer.put(be32(headers.immediate));
  if (info.has_ieth) writer.put(be32(headers.invalidate_rkey.value));
  if (info.op_class == OpClass::kCnp) writer.put(std::array<std::uint8_t, kCnpReservedBytes>{});
  return info.header_bytes;
}

}  // namespace urdma::wire
