// Every transition of the state machine, legal or not, and the range of each attribute.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/state_machine.hpp"

#include <cerrno>
#include <map>
#include <utility>

#include "fixture.hpp"

namespace urdma::transport {
namespace {

constexpr QpState kStates[] = {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts,
                               QpState::kSqd,   QpState::kSqe,  QpState::kErr};

struct Masks {
  std::uint32_t required = 0;
  std::uint32_t optional = 0;
};

using Moves = std::map<std::pair<QpState, QpState>, Masks>;

// Written down from IBTA 11.2.5.2 and the manual page of ibv_modify_qp, apart from the code. What all
// connected services have, then what each of them asks for besides.
Moves connected_moves(std::uint32_t usual) {
  using enum QpState;
  const std::uint32_t anew = kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;
  Moves legal;
  legal[{kReset, kInit}] = {anew, 0};
  legal[{kInit, kInit}] = {0, anew};
  legal[{kInit, kRtr}] = {kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn,
                          kAttrAltPath | kAttrAccessFlags | kAttrPkeyIndex};
  legal[{kRtr, kRts}] = {kAttrSqPsn, usual};
  legal[{kRts, kRts}] = {0, usual};
  legal[{kRts, kSqd}] = {0, kAttrSqdNotify};
  legal[{kSqd, kRts}] = {0, usual};
  legal[{kSqd, kSqd}] = {0, kAttrAv | kAttrAltPath | kAttrAccessFlags | kAttrPkeyIndex | kAttrPathMigState};
  legal[{kSqe, kRts}] = {};
  return legal;
}

Moves datagram_moves() {
  using enum QpState;
  const std::uint32_t anew = kAttrPkeyIndex | kAttrPort | kAttrQkey;
  Moves legal;
  legal[{kReset, kInit}] = {anew, 0};
  legal[{kInit, kInit}] = {0, anew};
  legal[{kInit, kRtr}] = {0, kAttrPkeyIndex | kAttrQkey};
  legal[{kRtr, kRts}] = {kAttrSqPsn, kAttrCurState | kAttrQkey};
  legal[{kRts, kRts}] = legal[{kSqd, kRts}] = legal[{kSqe, kRts}] = {0, kAttrCurState | kAttrQkey};
  legal[{kRts, kSqd}] = {0, kAttrSqdNotify};
  legal[{kSqd, kSqd}] = {0, kAttrPkeyIndex | kAttrQkey};
  return legal;
}

Moves moves_of_service(QpType type) {
  using enum QpState;
  const std::uint32_t shared = kAttrAccessFlags | kAttrAltPath | kAttrPathMigState | kAttrCurState;
  const std::uint32_t answers = kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
  const std::uint32_t repeats = kAttrRetryCnt | kAttrRnrRetry | kAttrMaxQpRdAtomic;
  if (type == QpType::kUd) return datagram_moves();
  const bool has_requester = type == QpType::kRc || type == QpType::kXrcSend;
  const bool has_responder = type == QpType::kRc || type == QpType::kXrcRecv;
  Moves legal = connected_moves(shared | (has_responder ? kAttrMinRnrTimer : 0));
  if (type == QpType::kUc) {
    legal[{kSqe, kRts}].optional = kAttrCurState | kAttrAccessFlags;
    return legal;
  }
  legal[{kRtr, kRts}].required |= kAttrTimeout;
  legal[{kSqd, kSqd}].optional |= kAttrPort | kAttrTimeout;
  if (has_requester) {
    legal[{kRtr, kRts}].required |= repeats;
    legal[{kSqd, kSqd}].optional |= repeats;
  }
  if (has_responder) {
    legal[{kInit, kRtr}].required |= answers;
    legal[{kSqd, kSqd}].optional |= answers;
  }
  return legal;
}

Moves legal_moves(QpType type) {
  Moves legal = moves_of_service(type);
  for (const QpState from : kStates) {
    legal[{from, QpState::kReset}] = {};
    if (from != QpState::kReset) legal[{from, QpState::kErr}] = {};
  }
  return legal;
}

constexpr QpType kTypes[] = {QpType::kRc, QpType::kUc, QpType::kUd, QpType::kXrcSend, QpType::kXrcRecv};

int check(QpType type, QpState from, QpState to, std::uint32_t mask) {
  QpAttributes attributes = usual_attributes();
  attributes.state = to;
  attributes.current_state = from;
  QpConfig config = small_config();
  config.type = type;
  return check_modify(config, from, mask | kAttrState, attributes);
}

TEST(StateMachineTest, CheckModify_EveryPairOfStates) {
  for (const QpType type : kTypes) {
    const Moves legal = legal_moves(type);
    for (const QpState from : kStates) {
      for (const QpState to : kStates) {
        SCOPED_TRACE(testing::Message() << "type " << int(type) << ": " << int(from) << " to " << int(to));
        const auto move = legal.find({from, to});
        if (move == legal.end()) {
          EXPECT_EQ(check(type, from, to, 0), EINVAL);
          EXPECT_EQ(check(type, from, to, kToRtr), EINVAL);
          EXPECT_EQ(check(type, from, to, kToRts), EINVAL);
          continue;
        }
        EXPECT_EQ(check(type, from, to, move->second.required), 0);
        EXPECT_EQ(check(type, from, to, move->second.required | move->second.optional), 0);
      }
    }
  }
}

TEST(StateMachineTest, CheckModify_EveryAttributeOfEveryLegalMove) {
  for (const QpType type : kTypes) {
    for (const auto& [move, masks] : legal_moves(type)) {
      for (std::uint32_t bit = kAttrCurState; bit <= kAttrRateLimit; bit <<= 1) {
        SCOPED_TRACE(testing::Message() << "type " << int(type) << ": " << int(move.first) << " to "
                                        << int(move.second) << " attribute " << bit);
        std::uint32_t mask = masks.required | bit;
        if ((masks.required & bit) != 0) mask = masks.required & ~bit;
        const bool is_legal = (masks.optional & bit) != 0;
        EXPECT_EQ(check(type, move.first, move.second, mask), is_legal ? 0 : EINVAL);
      }
    }
  }
}

TEST(StateMachineTest, CheckModify_WithoutStateItStaysAsItIs) {
  const QpAttributes attributes = usual_attributes();
  EXPECT_EQ(check_modify(small_config(), QpState::kRts, kAttrMinRnrTimer, attributes), 0);
  EXPECT_EQ(check_modify(small_config(), QpState::kRtr, kAttrMinRnrTimer, attributes), EINVAL);
}

TEST(StateMachineTest, CheckModify_CurrentStateHasToBeTrue) {
  QpAttributes attributes = usual_attributes();
  attributes.state = QpState::kRts;
  attributes.current_state = QpState::kRtr;
  EXPECT_EQ(check_modify(small_config(), QpState::kRts, kAttrState | kAttrCurState, attributes), EINVAL);
}

struct Range {
  const char* name;
  std::uint32_t attribute;
  std::uint32_t last_good;
  void (*set)(QpAttributes&, std::uint32_t);
};

TEST(StateMachineTest, CheckModify_RangeOfEachValue) {
  const Range ranges[] = {
      {"mtu", kAttrPathMtu, 5, [](QpAttributes& a, std::uint32_t v) { a.path_mtu_code = std::uint8_t(v); }},
      {"dest rd atomic", kAttrMaxDestRdAtomic, 16,
       [](QpAttributes& a, std::uint32_t v) { a.max_dest_rd_atomic = std::uint8_t(v); }},
      {"rnr timer", kAttrMinRnrTimer, 31,
       [](QpAttributes& a, std::uint32_t v) { a.min_rnr_timer = std::uint8_t(v); }},
      {"dest qpn", kAttrDestQpn, 0xFFFFFF, [](QpAttributes& a, std::uint32_t v) { a.dest_qpn = Qpn{v}; }},
      {"rd atomic", kAttrMaxQpRdAtomic, 16,
       [](QpAttributes& a, std::uint32_t v) { a.max_rd_atomic = std::uint8_t(v); }},
      {"timeout", kAttrTimeout, 31, [](QpAttributes& a, std::uint32_t v) { a.timeout = std::uint8_t(v); }},
      {"retry", kAttrRetryCnt, 7, [](QpAttributes& a, std::uint32_t v) { a.retry_count = std::uint8_t(v); }},
      {"rnr retry", kAttrRnrRetry, 7,
       [](QpAttributes& a, std::uint32_t v) { a.rnr_retry = std::uint8_t(v); }},
  };
  for (const Range& range : ranges) {
    SCOPED_TRACE(range.name);
    const bool is_to_rtr = (kToRtr & range.attribute) != 0;
    const QpState from = is_to_rtr ? QpState::kInit : QpState::kRtr;
    QpAttributes attributes = usual_attributes();
    attributes.state = is_to_rtr ? QpState::kRtr : QpState::kRts;
    const std::uint32_t mask = is_to_rtr ? kToRtr : kToRts;
    range.set(attributes, range.last_good);
    EXPECT_EQ(check_modify(small_config(), from, mask, attributes), 0);
    range.set(attributes, range.last_good + 1);
    EXPECT_EQ(check_modify(small_config(), from, mask, attributes), EINVAL);
  }
  QpAttributes attributes = usual_attributes();
  attributes.state = QpState::kRtr;
  attributes.path_mtu_code = 0;
  EXPECT_EQ(check_modify(small_config(), QpState::kInit, kToRtr, attributes), EINVAL);
}

}  // namespace
}  // namespace urdma::transport
