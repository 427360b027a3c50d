// A peer that sends anything: damaged and random datagrams into every state. Nothing is asserted but that
// tables stay bounded and end empty; ASan and UBSan see the rest.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <random>

#include "tests/unit/cm/fixture.hpp"

namespace urdma::cm {
namespace {

class HostileTest : public CmTest {
 protected:
  // A message of the peer, or of nobody, with some of its bytes changed.
  Mad nonsense(std::mt19937& random) {
    const Mad messages[] = {
        req(), rep(), rtu(), rej(), dreq(), drep(), sidr_req(), sidr_rep(), mra(wire::CmSubject::kReq)};
    Mad mad = messages[random() % std::size(messages)];
    const unsigned changes = random() % 4;
    for (unsigned i = 0; i < changes; ++i) {
      const std::size_t at = random() % 2 == 0 ? 16 + random() % 60 : random() % mad.size();
      mad[at] = static_cast<std::uint8_t>(random());
    }
    return mad;
  }

  // What a program might do with any connection at any time.
  void act(std::mt19937& random, ConnectionId id) {
    switch (random() % 8) {
      case 0:
        return (void)manager_.accept(id, reply(kOurQpn), now_);
      case 1:
        return (void)manager_.confirm(id, {}, now_);
      case 2:
        return (void)manager_.reject(id, RejectReason::kConsumer, {}, {}, now_);
      case 3:
        return (void)manager_.disconnect(id, {}, now_);
      case 4:
        return (void)manager_.answer(id, {ResolveStatus::kValid, kOurQpn, 0, {}}, now_);
      case 5:
        return manager_.delay(id, now_);
      case 6:
        return (void)manager_.on_traffic(id, now_);
      default:
        return manager_.forget(id, now_);
    }
  }
};

TEST_F(HostileTest, OnMad_AnythingInAnyState) {
  std::mt19937 random(1);
  std::vector<ConnectionId> known;
  for (int i = 0; i < 100'000; ++i) {
    if (random() % 16 == 0 && manager_.connect(request(kOurQpn, ends_here()), now_, id_) == 0)
      known.push_back(id_);
    if (random() % 16 == 0 && manager_.resolve({ends_here(), kService, {}}, now_, id_) == 0)
      known.push_back(id_);
    if (!known.empty()) peer_.remote_id = known[random() % known.size()].value;
    give(nonsense(random));
    (void)drained();
    for (const Event& event : events_) known.push_back(event.connection);
    if (!known.empty() && random() % 2 == 0) act(random, known[random() % known.size()]);
    if (known.size() > 64) known.erase(known.begin(), known.begin() + 32);
    if (random() % 4 == 0) pass(milliseconds(random() % 3000));
    ASSERT_LE(manager_.connections(), config_.most_connections);
    if (manager_.connections() == config_.most_connections)
      for (const ConnectionId id : known) manager_.forget(id, now_);
  }
  EXPECT_GT(manager_.counters().malformed, 100U);
  EXPECT_GT(manager_.counters().unmatched, 100U);
}

TEST_F(HostileTest, OnMad_RandomBytesLeaveNoState) {
  std::mt19937 random(2);
  for (int i = 0; i < 100'000; ++i) {
    std::vector<std::uint8_t> bytes(random() % 8 == 0 ? random() % 300 : kMadBytes);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    if (bytes.size() >= 18 && random() % 2 == 0) {  // the header of a message whose body is none
      const Mad good = req();
      std::copy_n(good.begin(), 18, bytes.begin());
      bytes[17] = static_cast<std::uint8_t>(0x10 + random() % 9);
      if (bytes[17] == 0x17) continue;  // any SIDR_REQ is well formed
    }
    manager_.on_mad(ends_here(), bytes, now_);
    (void)drained();
  }
  EXPECT_EQ(manager_.connections(), 0U);
}

}  // namespace
}  // namespace urdma::cm
