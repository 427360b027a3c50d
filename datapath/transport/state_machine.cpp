// The table of legal transitions; see the header.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/state_machine.hpp"

#include <array>
#include <cerrno>
#include <span>

#include "datapath/transport/retransmission.hpp"

namespace urdma::transport {

namespace {

struct Transition {
  QpState from;
  QpState to;
  std::uint32_t required;
  std::uint32_t optional;
};

// Moves to RESET are legal from everywhere, those to ERR from everywhere but RESET, both without attributes;
// they are not listed. The tables are those of IBTA 11.2.5.2 as Linux has them, one for each QP type.
constexpr std::uint32_t kAddressing = kAttrPkeyIndex | kAttrPort;
constexpr std::uint32_t kAlternate = kAttrAltPath | kAttrAccessFlags | kAttrPathMigState;
constexpr std::uint32_t kConnect = kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
constexpr std::uint32_t kRetries = kAttrRetryCnt | kAttrRnrRetry | kAttrMaxQpRdAtomic;
constexpr std::uint32_t kAnswering = kAttrMaxDestRdAtomic | kAttrMinRnrTimer;

constexpr std::array kReliable = {
    Transition{QpState::kReset, QpState::kInit, kAddressing | kAttrAccessFlags, 0},
    Transition{QpState::kInit, QpState::kInit, 0, kAddressing | kAttrAccessFlags},
    Transition{QpState::kInit, QpState::kRtr, kConnect | kAnswering,
               kAttrAltPath | kAttrAccessFlags | kAttrPkeyIndex},
    Transition{QpState::kRtr, QpState::kRts, kAttrTimeout | kAttrSqPsn | kRetries,
               kAttrCurState | kAlternate | kAttrMinRnrTimer},
    Transition{QpState::kRts, QpState::kRts, 0, kAttrCurState | kAlternate | kAttrMinRnrTimer},
    Transition{QpState::kRts, QpState::kSqd, 0, kAttrSqdNotify},
    Transition{QpState::kSqd, QpState::kRts, 0, kAttrCurState | kAlternate | kAttrMinRnrTimer},
    Transition{QpState::kSqe, QpState::kRts, 0, 0},
    Transition{QpState::kSqd, QpState::kSqd, 0,
               kAddressing | kAttrAv | kAttrTimeout | kRetries | kAnswering | kAlternate},
};

constexpr std::array kUnreliable = {
    Transition{QpState::kReset, QpState::kInit, kAddressing | kAttrAccessFlags, 0},
    Transition{QpState::kInit, QpState::kInit, 0, kAddressing | kAttrAccessFlags},
    Transition{QpState::kInit, QpState::kRtr, kConnect, kAttrAltPath | kAttrAccessFlags | kAttrPkeyIndex},
    Transition{QpState::kRtr, QpState::kRts, kAttrSqPsn, kAttrCurState | kAlternate},
    Transition{QpState::kRts, QpState::kRts, 0, kAttrCurState | kAlternate},
    Transition{QpState::kRts, QpState::kSqd, 0, kAttrSqdNotify},
    Transition{QpState::kSqd, QpState::kRts, 0, kAttrCurState | kAlternate},
    Transition{QpState::kSqe, QpState::kRts, 0, kAttrCurState | kAttrAccessFlags},
    Transition{QpState::kSqd, QpState::kSqd, 0, kAttrAv | kAttrPkeyIndex | kAlternate},
};

constexpr std::array kDatagram = {
    Transition{QpState::kReset, QpState::kInit, kAddressing | kAttrQkey, 0},
    Transition{QpState::kInit, QpState::kInit, 0, kAddressing | kAttrQkey},
    Transition{QpState::kInit, QpState::kRtr, 0, kAttrPkeyIndex | kAttrQkey},
    Transition{QpState::kRtr, QpState::kRts, kAttrSqPsn, kAttrCurState | kAttrQkey},
    Transition{QpState::kRts, QpState::kRts, 0, kAttrCurState | kAttrQkey},
    Transition{QpState::kRts, QpState::kSqd, 0, kAttrSqdNotify},
    Transition{QpState::kSqd, QpState::kRts, 0, kAttrCurState | kAttrQkey},
    Transition{QpState::kSqe, QpState::kRts, 0, kAttrCurState | kAttrQkey},
    Transition{QpState::kSqd, QpState::kSqd, 0, kAttrPkeyIndex | kAttrQkey},
};

constexpr std::array kXrcSending = {
    Transition{QpState::kReset, QpState::kInit, kAddressing | kAttrAccessFlags, 0},
    Transition{QpState::kInit, QpState::kInit, 0, kAddressing | kAttrAccessFlags},
    Transition{QpState::kInit, QpState::kRtr, kConnect, kAttrAltPath | kAttrAccessFlags | kAttrPkeyIndex},
    Transition{QpState::kRtr, QpState::kRts, kAttrTimeout | kAttrSqPsn | kRetries,
               kAttrCurState | kAlternate},
    Transition{QpState::kRts, QpState::kRts, 0, kAttrCurState | kAlternate},
    Transition{QpState::kRts, QpState::kSqd, 0, kAttrSqdNotify},
    Transition{QpState::kSqd, QpState::kRts, 0, kAttrCurState | kAlternate},
    Transition{QpState::kSqe, QpState::kRts, 0, 0},
    Transition{QpState::kSqd, QpState::kSqd, 0, kAddressing | kAttrAv | kAttrTimeout | kRetries | kAlternate},
};

constexpr std::array kXrcReceiving = {
    Transition{QpState::kReset, QpState::kInit, kAddressing | kAttrAccessFlags, 0},
    Transition{QpState::kInit, QpState::kInit, 0, kAddressing | kAttrAccessFlags},
    Transition{QpState::kInit, QpState::kRtr, kConnect | kAnswering,
               kAttrAltPath | kAttrAccessFlags | kAttrPkeyIndex},
    Transition{QpState::kRtr, QpState::kRts, kAttrTimeout | kAttrSqPsn,
               kAttrCurState | kAlternate | kAttrMinRnrTimer},
    Transition{QpState::kRts, QpState::kRts, 0, kAttrCurState | kAlternate | kAttrMinRnrTimer},
    Transition{QpState::kRts, QpState::kSqd, 0, kAttrSqdNotify},
    Transition{QpState::kSqd, QpState::kRts, 0, kAttrCurState | kAlternate | kAttrMinRnrTimer},
    Transition{QpState::kSqe, QpState::kRts, 0, 0},
    Transition{QpState::kSqd, QpState::kSqd, 0,
               kAddressing | kAttrAv | kAttrTimeout | kAnswering | kAlternate},
};

std::span<const Transition> transitions_of(QpType type) {
  switch (type) {
    case QpType::kRc:
      break;
    case QpType::kUc:
      return kUnreliable;
    case QpType::kUd:
      return kDatagram;
    case QpType::kXrcSend:
      return kXrcSending;
    case QpType::kXrcRecv:
      return kXrcReceiving;
  }
  return kReliable;
}

bool is_legal(QpType type, QpState from, QpState to, std::uint32_t attributes) {
  if (to == QpState::kReset) return attributes == 0;
  if (to == QpState::kErr) return from != QpState::kReset && attributes == 0;
  for (const Transition& transition : transitions_of(type)) {
    if (transition.from != from || transition.to != to) continue;
    const bool has_required = (attributes & transition.required) == transition.required;
    return has_required && (attributes & ~(transition.required | transition.optional)) == 0;
  }
  return false;
}

bool are_in_range(const QpConfig& config, std::uint32_t mask, const QpAttributes& attributes) {
  const auto ok = [mask](std::uint32_t attribute, bool condition) {
    return (mask & attribute) == 0 || condition;
  };
  return ok(kAttrPathMtu, is_mtu_code(attributes.path_mtu_code)) &&
         ok(kAttrMaxQpRdAtomic, attributes.max_rd_atomic <= config.max_rd_atomic) &&
         ok(kAttrMaxDestRdAtomic, attributes.max_dest_rd_atomic <= config.max_dest_rd_atomic) &&
         ok(kAttrMinRnrTimer, attributes.min_rnr_timer <= kMaxTimerCode) &&
         ok(kAttrTimeout, attributes.timeout <= kMaxTimerCode) &&
         ok(kAttrRetryCnt, attributes.retry_count <= kMaxRetryCount) &&
         ok(kAttrRnrRetry, attributes.rnr_retry <= kMaxRetryCount) &&
         ok(kAttrDestQpn, attributes.dest_qpn.value <= kQpnMask);
}

}  // namespace

int check_modify(const QpConfig& config, QpState current, std::uint32_t mask,
                 const QpAttributes& attributes) {
  if ((mask & kAttrCurState) != 0 && attributes.current_state != current) return EINVAL;
  const QpState next = (mask & kAttrState) != 0 ? attributes.state : current;
  if (!is_legal(config.type, current, next, mask & ~kAttrState)) return EINVAL;
  return are_in_range(config, mask, attributes) ? 0 : EINVAL;
}

}  // namespace urdma::transport
