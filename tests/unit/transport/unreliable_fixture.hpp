// Two queue pairs of the services without acknowledgements, over the link of function calls.
//
// Owner: one test. One thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include "fixture.hpp"

namespace urdma::transport {

inline constexpr std::uint32_t kQkey = 0x1234;

// Moves a QP of type UC or UD in RESET up to `state` (INIT, RTR or RTS).
inline void raise_unreliable(QueuePair& qp, QpType type, QpState state, QpAttributes attributes,
                             Instant now) {
  const bool is_datagram = type == QpType::kUd;
  attributes.qkey = kQkey;
  attributes.state = QpState::kInit;
  const std::uint32_t secret = is_datagram ? kAttrQkey : kAttrAccessFlags;
  ASSERT_EQ(qp.modify(kAttrState | kAttrPkeyIndex | kAttrPort | secret, attributes, now), 0);
  if (state == QpState::kInit) return;
  attributes.state = QpState::kRtr;
  const std::uint32_t connect = kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
  ASSERT_EQ(qp.modify(kAttrState | (is_datagram ? 0 : connect), attributes, now), 0);
  if (state == QpState::kRtr) return;
  attributes.state = QpState::kRts;
  ASSERT_EQ(qp.modify(kAttrState | kAttrSqPsn, attributes, now), 0);
}

class UnreliableTest : public ConnectedTest {
 protected:
  void SetUp() override { join(QpType::kUc); }
  void join(QpType type, bool has_srq = false) {
    QpConfig config = small_config();
    config.type = type;
    config.has_srq = has_srq;
    a.emplace(config);
    b.emplace(config);
    raise_unreliable(a->qp, type, QpState::kRts, usual_attributes(), now);
    raise_unreliable(b->qp, type, QpState::kRts, usual_attributes(), now);
  }
  // A datagram to the other node.
  static SendRequest datagram(std::uint64_t wr_id, std::uint32_t qkey = kQkey) {
    SendRequest made = request(WrOpcode::kSend, wr_id);
    made.remote_qpn = Qpn{0x22};
    made.remote_qkey = qkey;
    made.address_handle = 5;
    return made;
  }
  static std::vector<std::uint64_t> ids(const std::vector<Completion>& completions) {
    std::vector<std::uint64_t> all;
    for (const Completion& completion : completions) all.push_back(completion.wr_id);
    return all;
  }
};

}  // namespace urdma::transport
