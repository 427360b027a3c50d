// Management datagrams (IBTA 1, 13.4): 256 bytes behind the DETH of a packet of QP 0 or QP 1, of which the
// first 24 are the same for every class. Here are those of the class of communication management.
// Pure: usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "urdma/wire/be.hpp"

namespace urdma::wire {

inline constexpr std::size_t kMadBytes = 256;
inline constexpr std::size_t kMadHeaderBytes = 24;
inline constexpr std::size_t kMadDataBytes = kMadBytes - kMadHeaderBytes;
using MadBytes = std::array<std::uint8_t, kMadBytes>;

// The Q_Key of QP 1, which is well known (IBTA 1, 10.2.5).
inline constexpr std::uint32_t kManagementQkey = 0x80010000;

inline constexpr std::uint8_t kMadBaseVersion = 1;
inline constexpr std::uint8_t kCommunicationClass = 0x07;  // ComMgt (IBTA 1, 16.7)
inline constexpr std::uint8_t kCommunicationClassVersion = 2;
inline constexpr std::uint8_t kMadMethodSend = 0x03;

struct MadWire {
  std::uint8_t base_version;
  std::uint8_t management_class;
  std::uint8_t class_version;
  std::uint8_t method;  // answer 0x80
  be16 status;
  be16 class_specific;
  be64 transaction_id;
  be16 attribute_id;
  be16 reserved;
  be32 attribute_modifier;
};
static_assert(sizeof(MadWire) == kMadHeaderBytes && alignof(MadWire) == 1);
static_assert(offsetof(MadWire, transaction_id) == 8 && offsetof(MadWire, attribute_id) == 16);

// A datagram whose data is one message.
template <typename Body>
struct MadOf {
  MadWire header;
  Body body;
};

// The messages of communication management (IBTA 1, 16.7.1) that are spoken here.
enum class CmAttribute : std::uint16_t {
  kReq = 0x10,
  kMra = 0x11,
  kRej = 0x12,
  kRep = 0x13,
  kRtu = 0x14,
  kDreq = 0x15,
  kDrep = 0x16,
  kSidrReq = 0x17,
  kSidrRep = 0x18,
};

struct CmHeader {
  CmAttribute attribute{};
  std::uint64_t transaction_id = 0;
};

// The header of a message of communication management. Nothing where size, versions, class, method or
// attribute are others. Status, class specific and reserved fields, and the attribute modifier mean nothing.
[[nodiscard]] std::optional<CmHeader> parse_cm_header(std::span<const std::uint8_t> mad);
[[nodiscard]] MadWire make_cm_header(const CmHeader& header);

}  // namespace urdma::wire
