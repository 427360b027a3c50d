// Tests of what the control thread does to an engine's ports, and of what it hears from them.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "datapath/engine/loop.hpp"
#include "engine_fixture.hpp"

namespace urdma::engine {
namespace {

using Kind = wire::Resolution::Kind;

const wire::Gid kStranger = wire::gid_from_ipv4(0x0A000001);
constexpr wire::MacAddress kStrangerMac = {2, 0, 0, 0, 0, 9};

// A general query, IGMPv2, as a Linux bridge sends it.
constexpr std::array<std::uint8_t, 46> kMembershipQuery = {
    0x01, 0x00, 0x5E, 0x00, 0x00, 0x01, 0x02, 0x00, 0x00, 0x00, 0x00, 0x0A, 0x08, 0x00, 0x46, 0xC0,
    0x00, 0x20, 0x00, 0x00, 0x40, 0x00, 0x01, 0x02, 0x04, 0x17, 0x00, 0x00, 0x00, 0x00, 0xE0, 0x00,
    0x00, 0x01, 0x94, 0x04, 0x00, 0x00, 0x11, 0x64, 0xEE, 0x9B, 0x00, 0x00, 0x00, 0x00};

class EnginePortsTest : public EngineTest {
 protected:
  EnginePortsTest() { set_link(UINT32_MAX, true); }

  void set_link(std::uint32_t frame_bytes, bool finds_neighbours) {
    engine_->run([&] { engine_->set_port_link(0, frame_bytes, finds_neighbours); });
  }
  // The loopback port: what is sent is heard.
  void send_frame(std::span<const std::uint8_t> bytes) {
    engine_->run([&] { engine_->send_frame(0, bytes); });
  }
  void send(const wire::Resolution& message, int times = 1) {
    std::array<std::uint8_t, wire::kMaxResolutionBytes> frame;
    const std::size_t size =
        wire::write_resolution(message, message.mac, wire::question_mac(message.subject), frame);
    for (int i = 0; i < times; ++i) send_frame(std::span(frame).first(size));
  }
  [[nodiscard]] wire::Resolution question(const wire::Gid& subject) const {
    return {Kind::kQuestion, false, true, subject, kStranger, kStrangerMac};
  }
  std::optional<Heard> wait_for_heard() {
    const auto deadline = Clock::now() + kPatience;
    while (Clock::now() < deadline) {
      if (auto heard = engine_->next_heard()) return heard;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return std::nullopt;
  }
  Counters counters() {
    Counters counters;
    engine_->run([&] { counters = engine_->counters(); });
    return counters;
  }
};

TEST_F(EnginePortsTest, NextHeard_MembershipQueries) {
  send_frame(kMembershipQuery);
  const auto heard = wait_for_heard();
  ASSERT_TRUE(heard);
  EXPECT_TRUE(wire::is_unspecified(std::get<wire::MembershipQuery>(heard->message).group));
}

TEST_F(EnginePortsTest, NextHeard_QuestionsAboutOwnAddresses) {
  send(question(gid_));
  const auto heard = wait_for_heard();
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->port, 0U);
  const auto& message = std::get<wire::Resolution>(heard->message);
  EXPECT_EQ(message.kind, Kind::kQuestion);
  EXPECT_EQ(message.subject, gid_);
  EXPECT_EQ(message.mac, kStrangerMac);
}

TEST_F(EnginePortsTest, NextHeard_OnlyWhatConcernsThePort) {
  send(question(wire::gid_from_ipv4(0x0A000002)));
  send({Kind::kAnswer, true, true, kStranger, wire::gid_from_ipv4(0x0A000002), kStrangerMac});
  send({Kind::kAnswer, true, true, kStranger, gid_, kStrangerMac});
  const auto heard = wait_for_heard();
  ASSERT_TRUE(heard);
  const auto& message = std::get<wire::Resolution>(heard->message);
  EXPECT_EQ(message.kind, Kind::kAnswer);
  EXPECT_EQ(message.peer, gid_) << "what was sent before is not for this port";
  EXPECT_FALSE(engine_->next_heard());
}

TEST_F(EnginePortsTest, NextHeard_NothingWhereTheKernelResolves) {
  set_link(UINT32_MAX, false);
  const std::size_t not_roce = static_cast<std::size_t>(wire::ParseError::kNotRoce);
  const std::uint64_t before = counters().dropped_by_parse[not_roce];
  send(question(gid_));
  const auto deadline = Clock::now() + kPatience;
  while (counters().dropped_by_parse[not_roce] == before && Clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(counters().dropped_by_parse[not_roce], before + 1);
  EXPECT_FALSE(engine_->next_heard());
}

// However much comes in: the control thread gets what it can bear, and traffic goes on.
TEST_F(EnginePortsTest, NextHeard_FloodIsHeldBack) {
  constexpr int kFlood = 20'000;
  const auto started = Clock::now();
  send(question(gid_), kFlood);
  Client& client = add_client();
  Endpoint& a = add_endpoint(client);
  Endpoint& b = add_endpoint(client);
  connect(a, b, false);
  const Buffer& buffer = add_buffer(4096);
  const std::uint32_t key = add_region(client, buffer, true);
  b.rings->receive(1, {{buffer.address(), 64, key}});
  post(a, WrOpcode::kSend, 2, {{buffer.address(), 64, key}});
  EXPECT_EQ(a.wait().status, WcStatus::kSuccess);
  EXPECT_EQ(b.wait().status, WcStatus::kSuccess);
  const std::chrono::duration<double> took = Clock::now() - started;
  const Counters after = counters();
  const double most = kMostHeardAtOnce + took.count() * kMostHeardPerSecond + 1;
  EXPECT_GE(after.resolution_heard, kMostHeardAtOnce);
  EXPECT_LE(static_cast<double>(after.resolution_heard), most);
  EXPECT_EQ(after.resolution_heard + after.dropped_resolution, static_cast<std::uint64_t>(kFlood));
}

TEST_F(EnginePortsTest, SetPortLink_LongerFramesAreNotSent) {
  set_link(60, true);
  wire::Gid ipv6{0xFD};
  send(question(ipv6));  // 86 bytes
  send(question(gid_));  // 60 bytes
  EXPECT_TRUE(wait_for_heard());
  EXPECT_EQ(counters().unsent_too_long, 1U);
}

TEST_F(EnginePortsTest, DetachPort_NothingLeavesUntilItIsBack) {
  engine_->run([&] {
    engine_->detach_port(0);
    engine_->detach_port(0);
  });
  send(question(gid_));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(engine_->next_heard());
  EXPECT_EQ(counters().unsent_no_port, 1U);
  engine_->run([&] {
    EXPECT_TRUE(engine_->attach_port(0));
    EXPECT_TRUE(engine_->attach_port(0));
  });
  send(question(gid_));
  EXPECT_TRUE(wait_for_heard());
}

// A port that has lost the source address: nothing is sent from it, and once it is back all goes on.
TEST_F(EnginePortsTest, SilentPath_GoesOnWhenTheAddressIsBack) {
  Client& client = add_client();
  Endpoint& a = add_endpoint(client);
  Endpoint& b = add_endpoint(client);
  connect(a, b, false);
  const Buffer& buffer = add_buffer(4096);
  const std::uint32_t key = add_region(client, buffer, true);
  b.rings->receive(1, {{buffer.address(), 64, key}});
  engine_->run([&] { a.qp->path().is_silent = true; });
  post(a, WrOpcode::kSend, 2, {{buffer.address(), 64, key}});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  Done done;
  EXPECT_FALSE(b.poll(done));
  EXPECT_GE(counters().unsent_no_source, 1U);
  engine_->run([&] { a.qp->path().is_silent = false; });
  EXPECT_EQ(a.wait().status, WcStatus::kSuccess);
  EXPECT_EQ(b.wait().status, WcStatus::kSuccess);
}

}  // namespace
}  // namespace urdma::engine
