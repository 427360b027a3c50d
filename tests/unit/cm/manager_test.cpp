// Tests of datapath/cm/manager.hpp: two managers with each other, and one with itself.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/cm/manager.hpp"

#include <set>

#include "tests/unit/cm/fixture.hpp"

namespace urdma::cm {
namespace {

// A wire that loses nothing. Both ends may be one manager.
class Duo {
 public:
  Duo(Manager& active, Manager& passive) : active_(active), passive_(passive) {}

  // Carries datagrams until there are none.
  void settle() {
    bool has_moved = true;
    while (has_moved)
      has_moved = carry(active_, passive_) || (&active_ != &passive_ && carry(passive_, active_));
  }

  Instant now = Instant{} + seconds(5);

 private:
  bool carry(Manager& from, Manager& to) {
    OutgoingMad out;
    if (!from.poll_transmit(out)) return false;
    to.on_mad({out.ends.remote, out.ends.local}, out.mad, now);
    return true;
  }

  Manager& active_;
  Manager& passive_;
};

Request request_to(const wire::Gid& local, const wire::Gid& remote, Qpn qpn) {
  Request request;
  request.ends = {local, remote};
  request.service = kService;
  request.qp.qpn = qpn;
  request.path_mtu = 3;
  return request;
}

Event next_event(Manager& manager, EventKind kind) {
  Event event;
  EXPECT_TRUE(manager.poll_event(event));
  EXPECT_EQ(event.kind, kind) << words_of(event);
  return event;
}

void connect_and_disconnect(Manager& active, Manager& passive, const wire::Gid& local,
                            const wire::Gid& remote) {
  Duo duo(active, passive);
  ConnectionId asking;
  ASSERT_EQ(active.connect(request_to(local, remote, Qpn{0x10}), duo.now, asking), 0);
  duo.settle();
  const ConnectionId asked = next_event(passive, EventKind::kRequested).connection;
  EXPECT_NE(asked, asking);
  Reply reply;
  reply.qp.qpn = Qpn{0x20};
  ASSERT_EQ(passive.accept(asked, reply, duo.now), 0);
  duo.settle();
  EXPECT_EQ(next_event(active, EventKind::kReplied).reply.qp.qpn, (Qpn{0x20}));
  ASSERT_EQ(active.confirm(asking, {}, duo.now), 0);
  duo.settle();
  EXPECT_EQ(next_event(passive, EventKind::kEstablished).connection, asked);
  EXPECT_TRUE(active.is_in_use(Qpn{0x10}));
  EXPECT_TRUE(passive.is_in_use(Qpn{0x20}));
  ASSERT_EQ(passive.disconnect(asked, {}, duo.now), 0);
  duo.settle();
  EXPECT_EQ(next_event(active, EventKind::kDisconnecting).connection, asking);
  EXPECT_EQ(next_event(passive, EventKind::kDisconnected).connection, asked);
  for (Manager* manager : {&active, &passive}) manager->on_deadline(duo.now + config_here().time_wait);
  active.forget(asking, duo.now);
  passive.forget(asked, duo.now);
  EXPECT_EQ(active.connections() + passive.connections(), 0U);
}

TEST(ManagerTest, TwoManagers) {
  Config other = config_here();
  other.secret = {8, 8};
  Manager active(config_here());
  Manager passive(other);
  connect_and_disconnect(active, passive, kHere, kThere);
  EXPECT_EQ(active.counters().sent[0], 1U);      // REQ
  EXPECT_EQ(active.counters().received[3], 1U);  // REP
  EXPECT_EQ(active.counters().sent[4], 1U);      // RTU
  EXPECT_EQ(passive.counters().sent[5], 1U);     // DREQ
  EXPECT_EQ(active.counters().sent[6], 1U);      // DREP
  EXPECT_EQ(active.counters().unmatched + passive.counters().unmatched, 0U);
}

TEST(ManagerTest, OneManagerWithItself) {
  Manager manager(config_here());
  connect_and_disconnect(manager, manager, kHere, kHere);
}

TEST(ManagerTest, OneManagerResolvesItself) {
  Manager manager(config_here());
  Duo duo(manager, manager);
  ConnectionId asking;
  ASSERT_EQ(manager.resolve({{kHere, kHere}, kService, {}}, duo.now, asking), 0);
  duo.settle();
  const ConnectionId asked = next_event(manager, EventKind::kResolveRequested).connection;
  ASSERT_EQ(manager.answer(asked, {ResolveStatus::kValid, Qpn{0x30}, 1, {}}, duo.now), 0);
  duo.settle();
  const Event resolved = next_event(manager, EventKind::kResolved);
  EXPECT_EQ(resolved.connection, asking);
  EXPECT_EQ(resolved.resolved.qpn, (Qpn{0x30}));
}

TEST(ManagerTest, Ids_DependOnTheSecret) {
  std::set<std::uint32_t> ids;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Config config = config_here();
    config.secret = {0, seed};
    Manager manager(config);
    ConnectionId id;
    ASSERT_EQ(manager.connect(request_to(kHere, kThere, Qpn{9}), {}, id), 0);
    ids.insert(id.value);
  }
  EXPECT_EQ(ids.size(), 20U);
}

// What goes out on the wire must not tell what was drawn before and after it: the keys of the tables, and the
// IDs and transactions to come. A generator whose output is its state in disguise (splitmix64, say) would.
TEST(ManagerTest, Ids_AreNotFoundFromOnesThatWereSeen) {
  constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15ULL;
  constexpr std::uint64_t kFirst = 0xBF58476D1CE4E5B9ULL;
  constexpr std::uint64_t kSecond = 0x94D049BB133111EBULL;
  const auto unshifted = [](std::uint64_t value, int by) {
    std::uint64_t whole = value;
    for (int i = by; i < 64; i += by) whole = value ^ (whole >> by);
    return whole;
  };
  const auto inverse = [](std::uint64_t odd) {
    std::uint64_t found = odd;
    for (int i = 0; i < 6; ++i) found *= 2 - odd * found;
    return found;
  };
  const auto scrambled = [](std::uint64_t value) {
    value = (value ^ (value >> 30)) * kFirst;
    value = (value ^ (value >> 27)) * kSecond;
    return value ^ (value >> 31);
  };
  const auto state_of = [&](std::uint64_t value) {
    value = unshifted(value, 31) * inverse(kSecond);
    value = unshifted(value, 27) * inverse(kFirst);
    return unshifted(value, 30);
  };
  ASSERT_EQ(state_of(scrambled(12345)), 12345U);
  Manager manager(config_here());
  std::vector<std::uint64_t> seen;  // the ID and the transaction of two requests
  for (const std::uint32_t qpn : {9U, 10U}) {
    ConnectionId id;
    ASSERT_EQ(manager.connect(request_to(kHere, kThere, Qpn{qpn}), {}, id), 0);
    OutgoingMad out;
    ASSERT_TRUE(manager.poll_transmit(out));
    seen.push_back(id.value);
    seen.push_back(wire::parse_cm_header(out.mad)->transaction_id);
  }
  const std::uint64_t state = state_of(seen[1]);
  for (std::uint64_t steps = 1; steps < 8; ++steps) {
    const std::uint64_t guess = scrambled(state + steps * kStep);
    EXPECT_NE(guess, seen[3]);
    EXPECT_NE(guess & 0xFFFFFFFF, seen[2]);
    EXPECT_NE(scrambled(state - steps * kStep) & 0xFFFFFFFF, seen[0]);
  }
}

TEST(ManagerTest, PollTransmit_WhatNobodyTakesIsLost) {
  Manager manager(config_here());
  ConnectionId id;
  ASSERT_EQ(manager.connect(request_to(kHere, kThere, Qpn{9}), {}, id), 0);
  Connection stranger;
  stranger.id = {1};
  stranger.remote_id = 2;
  for (int i = 0; i < 1000; ++i) manager.on_mad(ends_here(), make_dreq(stranger, {}), {});
  EXPECT_GT(manager.counters().not_sent, 0U);
  std::uint64_t sent = 0;
  for (OutgoingMad out; manager.poll_transmit(out);) ++sent;
  EXPECT_EQ(sent + manager.counters().not_sent, 1001U);
}

TEST(ManagerTest, Commands_OnIdsThatAreNotKnown) {
  Manager manager(config_here());
  const ConnectionId nobody{77};
  EXPECT_NE(manager.confirm(nobody, {}, {}), 0);
  EXPECT_NE(manager.accept(nobody, {}, {}), 0);
  EXPECT_NE(manager.reject(nobody, RejectReason::kConsumer, {}, {}, {}), 0);
  EXPECT_NE(manager.disconnect(nobody, {}, {}), 0);
  EXPECT_NE(manager.answer(nobody, {}, {}), 0);
  EXPECT_NE(manager.on_traffic(nobody, {}), 0);
  manager.delay(nobody, {});
  manager.forget(nobody, {});
  EXPECT_EQ(manager.connections(), 0U);
}

}  // namespace
}  // namespace urdma::cm
