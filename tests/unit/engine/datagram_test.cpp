// Tests of datagrams on an engine: inside the node and in frames, what is dropped, and multicast.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <thread>
#include <vector>

#include "datapath/engine/loop.hpp"
#include "engine_fixture.hpp"

namespace urdma::engine {
namespace {

constexpr std::uint32_t kQkey = 0x1234;
constexpr std::uint32_t kHandle = 9;
const wire::Gid kGroup = wire::gid_from_ipv4(0xEF010203);

class EngineDatagramTest : public EngineTest, public ::testing::WithParamInterface<bool> {
 protected:
  explicit EngineDatagramTest(IdlePolicy idle = IdlePolicy::kAdaptive)
      : EngineTest(idle),
        client(add_client()),
        buffer(add_buffer(65536)),
        key(add_region(client, buffer, true)) {
    client.session->set_address_table(std::make_unique<Session::AddressTable>(16));
    add_handle(kHandle, gid_);
  }
  ~EngineDatagramTest() override {
    for (const AddressHandle& handle : handles_) {
      engine_->run([&] { engine_->remove_address_handle(*client.session, handle.handle); });
    }
  }

  // Inside the node, or on the loopback port as by --force-wire.
  [[nodiscard]] static bool is_local() { return GetParam(); }
  void add_handle(std::uint32_t number, const wire::Gid& dest) {
    Path to = path(is_local());
    to.dest_gid = dest;
    to.is_multicast = wire::is_multicast_gid(dest);
    to.flow = wire::make_flow({{}, {}, gid_, dest, 0xC000, 0, 33, 0});
    handles_.push_back({number, client.pd, to});
    engine_->run([&] { engine_->add_address_handle(*client.session, handles_.back()); });
  }
  Endpoint& add_datagram_qp(std::uint32_t qkey = kQkey) {
    Endpoint& endpoint = add_endpoint(client, 1024, QpType::kUd);
    transport::QpAttributes attributes;
    attributes.qkey = qkey;
    attributes.packet_bytes = 1024;
    EXPECT_EQ(modify(endpoint, QpState::kInit, kAttrPkeyIndex | kAttrPort | kAttrQkey, attributes), 0);
    EXPECT_EQ(modify(endpoint, QpState::kRtr, 0, attributes), 0);
    EXPECT_EQ(modify(endpoint, QpState::kRts, kAttrSqPsn, attributes), 0);
    return endpoint;
  }
  void receive(Endpoint& endpoint, std::uint32_t place) {
    endpoint.rings->receive(place, {{buffer.address() + place, 1100, key}});
  }
  void send(Endpoint& from, Qpn to, std::uint32_t bytes, std::uint32_t handle = kHandle) {
    abi::SendWqe wqe{};
    wqe.opcode = static_cast<std::uint8_t>(WrOpcode::kSend);
    wqe.flags = kSendSignaled;
    wqe.remote_qpn = to.value;
    wqe.remote_qkey = kQkey;
    wqe.address_handle = handle;
    from.rings->send(wqe, {{buffer.address(), bytes, key}});
    ring(from);
  }
  Counters counters() {
    Counters counters;
    engine_->run([&] { counters = engine_->counters(); });
    return counters;
  }
  // How often the control thread was told of something since the last call.
  [[nodiscard]] std::uint64_t told() const {
    pollfd waiting{reports_, POLLIN, 0};
    std::uint64_t count = 0;
    if (::poll(&waiting, 1, 0) != 1) return 0;
    EXPECT_EQ(::read(reports_, &count, sizeof count), static_cast<ssize_t>(sizeof count));
    return count;
  }
  template <typename Condition>
  bool wait_until(Condition condition) {
    for (const auto deadline = Clock::now() + kPatience; Clock::now() < deadline;) {
      if (condition(counters())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  // The payload stands behind the GRH at `place`, and that ends with the addresses.
  void expect_datagram(std::uint32_t place, std::uint32_t bytes, const wire::Gid& dest) {
    const std::byte* grh = buffer.data() + place;
    EXPECT_TRUE(std::all_of(grh, grh + 20, [](std::byte byte) { return byte == std::byte{0}; }));
    EXPECT_EQ(grh[20], std::byte{0x45});
    EXPECT_EQ(grh[28], std::byte{33}) << "the hop limit";
    EXPECT_EQ(std::memcmp(grh + 32, gid_.data() + 12, 4), 0);
    EXPECT_EQ(std::memcmp(grh + 36, dest.data() + 12, 4), 0);
    EXPECT_EQ(std::memcmp(grh + wire::kGrhBytes, buffer.data(), bytes), 0);
  }

  Client& client;
  Buffer& buffer;
  std::uint32_t key;
  std::list<AddressHandle> handles_;
};

TEST_P(EngineDatagramTest, Send_ArrivesBehindItsGrh) {
  Endpoint& from = add_datagram_qp();
  Endpoint& to = add_datagram_qp();
  for (const std::uint32_t bytes : {1U, 700U, 1024U}) {
    std::memset(buffer.data(), static_cast<int>(bytes % 251), bytes);
    receive(to, 8192);
    send(from, to.qp->qpn(), bytes);
    EXPECT_EQ(from.wait().status, WcStatus::kSuccess);
    EXPECT_EQ(to.wait().byte_len, wire::kGrhBytes + bytes);
    expect_datagram(8192, bytes, gid_);
  }
}

TEST_P(EngineDatagramTest, Receive_PostedALittleLateGetsWhatWaits) {
  Endpoint& from = add_datagram_qp();
  Endpoint& to = add_datagram_qp();
  send(from, to.qp->qpn(), 10);
  EXPECT_EQ(from.wait().status, WcStatus::kSuccess);
  receive(to, 8192);
  Done done{};
  const bool came = wait_until([&](const Counters& seen) {
    return to.poll(done) || seen.dropped_no_receive > 0;  // a busy machine may be too slow for it
  });
  EXPECT_TRUE(came);
  if (counters().dropped_no_receive == 0) {
    EXPECT_EQ(done.byte_len, wire::kGrhBytes + 10);
  }
}

TEST_P(EngineDatagramTest, NoReceive_IsDroppedInTime) {
  Endpoint& from = add_datagram_qp();
  Endpoint& to = add_datagram_qp();
  send(from, to.qp->qpn(), 10);
  EXPECT_EQ(from.wait().status, WcStatus::kSuccess);
  EXPECT_TRUE(wait_until([](const Counters& seen) { return seen.dropped_no_receive == 1; }));
  receive(to, 8192);
  send(from, to.qp->qpn(), 20);
  EXPECT_EQ(to.wait().byte_len, wire::kGrhBytes + 20);
}

TEST_P(EngineDatagramTest, Strangers_AreDropped) {
  Endpoint& from = add_datagram_qp();
  Endpoint& connected = add_endpoint(client);
  send(from, Qpn{0x7777}, 10);
  send(from, connected.qp->qpn(), 10);
  EXPECT_TRUE(wait_until([](const Counters& seen) { return seen.dropped_unknown_qp == 2; }));
}

TEST_P(EngineDatagramTest, Management_ReachesTheControlThread) {
  std::array<std::uint8_t, kManagementBytes> bytes{};
  bytes.front() = 1;
  bytes.back() = 2;
  Path to = path(is_local());
  to.flow = wire::make_flow({{}, {}, gid_, gid_, 0xC000, 8, 33, 0});
  engine_->run([&] { engine_->send_management(to, bytes); });
  EXPECT_TRUE(wait_until([](const Counters& seen) { return seen.management_received == 1; }));
  const auto datagram = engine_->next_management();
  ASSERT_TRUE(datagram);
  EXPECT_EQ(datagram->port, 0U);
  EXPECT_EQ(datagram->source_gid, gid_);
  EXPECT_EQ(datagram->dest_gid, gid_);
  EXPECT_EQ(datagram->traffic_class, 8);
  EXPECT_EQ(datagram->hop_limit, 33);
  EXPECT_EQ(datagram->bytes, bytes);
  EXPECT_FALSE(engine_->next_management());
}

TEST_P(EngineDatagramTest, Management_OfAProgramIsDropped) {
  send(add_datagram_qp(), kManagementQpn, kManagementBytes);
  EXPECT_TRUE(wait_until([](const Counters& seen) { return seen.dropped_bad_management == 1; }));
  EXPECT_FALSE(engine_->next_management());
}

TEST_P(EngineDatagramTest, Management_FloodIsCutOff) {
  const std::array<std::uint8_t, kManagementBytes> bytes{};
  constexpr std::uint64_t kFlood = 3 * kMostManagementAtOnce;
  for (std::uint64_t i = 0; i < kFlood; ++i)
    engine_->run([&] { engine_->send_management(path(is_local()), bytes); });
  EXPECT_TRUE(wait_until([](const Counters& seen) {
    return seen.management_received + seen.dropped_management == kFlood && seen.dropped_management > 0;
  }));
}

// What a program leaves behind that had 10,000 connections on this node is no flood.
TEST_P(EngineDatagramTest, Management_OfThisNodeIsHeardWhateverItIs) {
  const std::array<std::uint8_t, kManagementBytes> bytes{};
  constexpr std::uint64_t kRounds = 3 * kMostManagementAtOnce / 64;
  std::uint64_t heard = 0;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    engine_->run([&] {
      for (int i = 0; i < 64; ++i) engine_->send_management(path(true), bytes);
    });
    while (engine_->next_management()) ++heard;
  }
  EXPECT_EQ(heard, kRounds * 64);
  EXPECT_EQ(counters().dropped_management, 0U);
}

TEST_P(EngineDatagramTest, Management_IsToldOfOnceUntilItIsTaken) {
  const std::array<std::uint8_t, kManagementBytes> bytes{};
  (void)told();
  for (int round = 0; round < 3; ++round) {
    engine_->run([&] {
      for (int i = 0; i < 64; ++i) engine_->send_management(path(true), bytes);
    });
    EXPECT_EQ(told(), 1U);
    while (engine_->next_management()) continue;
  }
}

TEST_P(EngineDatagramTest, Handle_OfNobodyOrAnotherDomainFailsTheRequest) {
  Endpoint& from = add_datagram_qp();
  send(from, from.qp->qpn(), 10, kHandle + 1);
  EXPECT_EQ(from.wait().status, WcStatus::kLocQpOpErr);
  handles_.push_back({kHandle + 1, PdId{77}, path(true)});
  engine_->run([&] { engine_->add_address_handle(*client.session, handles_.back()); });
  Endpoint& other = add_datagram_qp();
  send(other, other.qp->qpn(), 10, kHandle + 1);
  EXPECT_EQ(other.wait().status, WcStatus::kLocQpOpErr);
}

TEST_P(EngineDatagramTest, LongerThanThePortCarries_FailsTheRequest) {
  Endpoint& from = add_datagram_qp();
  send(from, from.qp->qpn(), 1025);
  EXPECT_EQ(from.wait().status, WcStatus::kLocLenErr);
}

TEST_P(EngineDatagramTest, Multicast_GivesEachMemberACopy) {
  Endpoint& from = add_datagram_qp();
  Endpoint& second = add_datagram_qp();
  Endpoint& outside = add_datagram_qp();
  add_handle(kHandle + 1, kGroup);
  engine_->run([&] {
    engine_->attach_mcast(*from.qp, kGroup);
    engine_->attach_mcast(*second.qp, kGroup);
    engine_->attach_mcast(*outside.qp, kGroup);
    engine_->detach_mcast(*outside.qp, kGroup);
  });
  std::memset(buffer.data(), 5, 300);
  receive(from, 8192);
  receive(second, 16384);
  receive(outside, 24576);
  send(from, kMulticastQpn, 300, kHandle + 1);
  EXPECT_EQ(second.wait().byte_len, wire::kGrhBytes + 300);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(from.wait().status, WcStatus::kSuccess);  // sent, and received
  expect_datagram(8192, 300, kGroup);
  expect_datagram(16384, 300, kGroup);
  Done done{};
  EXPECT_FALSE(outside.poll(done));
  destroy(second);
  receive(from, 8192);
  send(from, kMulticastQpn, 300, kHandle + 1);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(from.wait().status, WcStatus::kSuccess);
}

TEST_P(EngineDatagramTest, Multicast_WithoutMembersIsDropped) {
  Endpoint& from = add_datagram_qp();
  add_handle(kHandle + 1, kGroup);
  send(from, kMulticastQpn, 10, kHandle + 1);
  EXPECT_TRUE(wait_until([](const Counters& seen) { return seen.dropped_no_group == 1; }));
}

INSTANTIATE_TEST_SUITE_P(InsideAndInFrames, EngineDatagramTest, ::testing::Bool(),
                         [](const auto& instance) { return instance.param ? "Inside" : "InFrames"; });

// It never sleeps, so that nothing but time makes it look again for a receive.
class PollingEngineDatagramTest : public EngineDatagramTest {
 protected:
  PollingEngineDatagramTest() : EngineDatagramTest(IdlePolicy::kPoll) {}
};
INSTANTIATE_TEST_SUITE_P(Ways, PollingEngineDatagramTest, ::testing::Bool());

TEST_P(PollingEngineDatagramTest, Receive_PostedAfterTheDatagramHasCome) {
  Endpoint& from = add_datagram_qp();
  Endpoint& to = add_datagram_qp();
  send(from, to.qp->qpn(), 100);
  EXPECT_EQ(from.wait().status, WcStatus::kSuccess);
  receive(to, 4096);
  const Done done = to.wait(std::chrono::seconds(1));
  EXPECT_TRUE(done.is_receive);
  EXPECT_EQ(done.byte_len, 100 + wire::kGrhBytes);
}

}  // namespace
}  // namespace urdma::engine
