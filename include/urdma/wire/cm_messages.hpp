// The messages of communication management as they stand in the data of a management datagram (IBTA 1, 12.6
// to 12.11): connections (REQ, MRA, REJ, REP, RTU, DREQ, DREP) and datagram services (SIDR_REQ, SIDR_REP).
// Layout only, and the fields that are smaller than a byte: what the values mean is datapath/cm's business.
// Values only: usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "urdma/wire/frame.hpp"
#include "urdma/wire/mad.hpp"

namespace urdma::wire {

// Some bits of a byte.
struct Bits {
  unsigned shift = 0;
  unsigned width = 0;

  [[nodiscard]] constexpr unsigned mask() const { return (1U << width) - 1; }
  [[nodiscard]] constexpr std::uint8_t of(std::uint8_t byte) const {
    return static_cast<std::uint8_t>((byte >> shift) & mask());
  }
  // The bits alone, with `value`; what does not fit in them is cut off.
  [[nodiscard]] constexpr std::uint8_t with(unsigned value) const {
    return static_cast<std::uint8_t>((value & mask()) << shift);
  }
};

template <std::size_t kBytes>
using ByteArray = std::array<std::uint8_t, kBytes>;

// The LID of RoCE's paths, which have none: permissive (annex A16; as Linux sends it).
inline constexpr std::uint16_t kPermissiveLid = 0xFFFF;

// ---- REQ (12.6.5) ----

// A path. The fields behind the GIDs have the rate's six bits at the end of the flow label's word.
struct CmPathWire {
  be16 local_lid;
  be16 remote_lid;
  Gid local_gid;
  Gid remote_gid;
  be32 flow_label_and_rate;  // flow label 0xFFFFF000, reserved, packet rate 0x3F
  std::uint8_t traffic_class;
  std::uint8_t hop_limit;
  std::uint8_t service_level;  // kServiceLevel, kSubnetLocal
  std::uint8_t ack_timeout;    // kFiveBits
};
static_assert(sizeof(CmPathWire) == 44 && alignof(CmPathWire) == 1);
static_assert(offsetof(CmPathWire, flow_label_and_rate) == 36);

inline constexpr unsigned kCmFlowLabelShift = 12;
inline constexpr Bits kServiceLevel{4, 4};
inline constexpr Bits kSubnetLocal{3, 1};

struct CmReqWire {
  be32 local_comm_id;
  be32 reserved1;
  be64 service_id;
  be64 local_ca_guid;
  be32 reserved2;
  be32 local_qkey;
  be24 local_qpn;
  std::uint8_t responder_resources;
  be24 local_eecn;
  std::uint8_t initiator_depth;
  be24 remote_eecn;
  std::uint8_t
      remote_timeout_and_service;  // kFiveBits (remote CM response timeout), kTransport, kFlowControl
  be24 starting_psn;
  std::uint8_t local_timeout_and_retries;  // kFiveBits (local CM response timeout), kRetryCount
  be16 pkey;
  std::uint8_t mtu_and_rnr;      // kPathMtu, kRdcExists, kReqRnrRetryCount
  std::uint8_t retries_and_srq;  // kMaxCmRetries, kReqHasSrq, kExtendedTransport
  CmPathWire primary;
  CmPathWire alternate;
  ByteArray<92> private_data;
};
static_assert(sizeof(CmReqWire) == kMadDataBytes && alignof(CmReqWire) == 1);
static_assert(offsetof(CmReqWire, local_qpn) == 32 && offsetof(CmReqWire, starting_psn) == 44);
static_assert(offsetof(CmReqWire, primary) == 52 && offsetof(CmReqWire, private_data) == 140);

// Timeouts (4.096 us << code) and the target ACK delay stand in the upper five bits of their bytes.
inline constexpr Bits kFiveBits{3, 5};
inline constexpr Bits kTransport{1, 2};
inline constexpr Bits kFlowControl{0, 1};
inline constexpr Bits kRetryCount{0, 3};
inline constexpr Bits kPathMtu{4, 4};
inline constexpr Bits kRdcExists{3, 1};
inline constexpr Bits kReqRnrRetryCount{0, 3};
inline constexpr Bits kMaxCmRetries{4, 4};
inline constexpr Bits kReqHasSrq{3, 1};
inline constexpr Bits kExtendedTransport{0, 3};

// kTransport: services; the fourth stands for those of kExtendedTransport (annex A14).
inline constexpr std::uint8_t kTransportRc = 0;
inline constexpr std::uint8_t kTransportUc = 1;
inline constexpr std::uint8_t kTransportExtended = 3;
inline constexpr std::uint8_t kExtendedTransportXrc = 1;

// ---- MRA (12.6.6) ----

// Which message MRA answers, or REJ refuses, in the upper two bits of a byte.
enum class CmSubject : std::uint8_t { kReq = 0, kRep = 1, kOther = 2 };
inline constexpr Bits kSubject{6, 2};

struct CmMraWire {
  be32 local_comm_id;
  be32 remote_comm_id;
  std::uint8_t subject;          // kSubject
  std::uint8_t service_timeout;  // kFiveBits
  ByteArray<222> private_data;
};
static_assert(sizeof(CmMraWire) == kMadDataBytes && alignof(CmMraWire) == 1);

// ---- REJ (12.6.7) ----

struct CmRejWire {
  be32 local_comm_id;
  be32 remote_comm_id;
  std::uint8_t subject;      // kSubject
  std::uint8_t info_length;  // kRejectInfoLength, bytes
  be16 reason;
  ByteArray<72> info;  // additional rejection information
  ByteArray<148> private_data;
};
static_assert(sizeof(CmRejWire) == kMadDataBytes && alignof(CmRejWire) == 1);
static_assert(offsetof(CmRejWire, info) == 12);
inline constexpr Bits kRejectInfoLength{1, 7};

// ---- REP (12.6.8) ----

struct CmRepWire {
  be32 local_comm_id;
  be32 remote_comm_id;
  be32 local_qkey;
  be24 local_qpn;
  std::uint8_t reserved1;
  be24 local_eecn;  // of XRC: the QP number
  std::uint8_t reserved2;
  be24 starting_psn;
  std::uint8_t reserved3;
  std::uint8_t responder_resources;
  std::uint8_t initiator_depth;
  std::uint8_t ack_delay_and_failover;  // kFiveBits (target ACK delay), kFailover, kFlowControl
  std::uint8_t rnr_and_srq;             // kRepRnrRetryCount, kRepHasSrq
  be64 local_ca_guid;
  ByteArray<196> private_data;
};
static_assert(sizeof(CmRepWire) == kMadDataBytes && alignof(CmRepWire) == 1);
static_assert(offsetof(CmRepWire, responder_resources) == 24 && offsetof(CmRepWire, private_data) == 36);
inline constexpr Bits kFailover{1, 2};
inline constexpr std::uint8_t kFailoverUnsupported = 1;
inline constexpr Bits kRepRnrRetryCount{5, 3};
inline constexpr Bits kRepHasSrq{4, 1};

// ---- RTU (12.6.9), DREQ (12.6.10), DREP (12.6.11) ----

struct CmRtuWire {
  be32 local_comm_id;
  be32 remote_comm_id;
  ByteArray<224> private_data;
};
static_assert(sizeof(CmRtuWire) == kMadDataBytes && alignof(CmRtuWire) == 1);

struct CmDreqWire {
  be32 local_comm_id;
  be32 remote_comm_id;
  be24 remote_qpn;  // of the QP that is to be disconnected
  std::uint8_t reserved;
  ByteArray<220> private_data;
};
static_assert(sizeof(CmDreqWire) == kMadDataBytes && alignof(CmDreqWire) == 1);

struct CmDrepWire {
  be32 local_comm_id;
  be32 remote_comm_id;
  ByteArray<224> private_data;
};
static_assert(sizeof(CmDrepWire) == kMadDataBytes && alignof(CmDrepWire) == 1);

// ---- SIDR_REQ (12.11.1), SIDR_REP (12.11.2) ----

struct CmSidrReqWire {
  be32 request_id;
  be16 pkey;
  be16 reserved;
  be64 service_id;
  ByteArray<216> private_data;
};
static_assert(sizeof(CmSidrReqWire) == kMadDataBytes && alignof(CmSidrReqWire) == 1);

struct CmSidrRepWire {
  be32 request_id;
  std::uint8_t status;
  std::uint8_t info_length;  // bytes
  be16 reserved1;
  be24 qpn;
  std::uint8_t reserved2;
  be64 service_id;
  be32 qkey;
  ByteArray<72> info;
  ByteArray<136> private_data;
};
static_assert(sizeof(CmSidrRepWire) == kMadDataBytes && alignof(CmSidrRepWire) == 1);
static_assert(offsetof(CmSidrRepWire, qkey) == 20 && offsetof(CmSidrRepWire, private_data) == 96);

}  // namespace urdma::wire
