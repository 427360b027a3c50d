// Two engines: QPs are spread, those of one pair inside the node meet, and what several engines share holds.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/unit/engine/engine_fixture.hpp"

namespace urdma::engine {
namespace {

class SeveralEnginesTest : public EngineTest {
 protected:
  SeveralEnginesTest() : EngineTest(IdlePolicy::kAdaptive, 2) {}

  Endpoint& on_engine(std::uint32_t engine, Client& client) {
    Endpoint* last = &add_endpoint(client);
    while (last->qp->engine() != engine) last = &add_endpoint(client);
    return *last;
  }
  // A further QP of `client` that completes into the CQ of `other`.
  Endpoint& add_sharing(Endpoint& other) {
    auto endpoint = std::make_unique<Endpoint>();
    endpoint->client = other.client;
    Qp::Config config = other.qp->config();
    config.transport.qpn = Qpn{++last_qpn_};
    config.doorbell = other.client->doorbells++;
    endpoint->qp = make_qp(config);
    endpoint->rings = std::make_unique<ClientRings>(*endpoint->qp);
    engine_->run([&] { engine_->add_qp(*endpoint->qp); });
    sharing_.push_back(std::move(endpoint));
    return *sharing_.back();
  }
  void remove_sharing() {
    for (const auto& endpoint : sharing_) {
      bool is_quiet = false;
      const std::uint64_t cookie = ++last_cookie_;
      engine_->run([&] {
        engine_->remove_qp(*endpoint->qp);
        is_quiet = engine_->quiesce(*endpoint->qp, cookie);
      });
      EXPECT_TRUE(is_quiet || wait_for_report(cookie));
    }
    sharing_.clear();
  }
  Counters counters(std::uint32_t engine) {
    Counters counters;
    engine_->run([&] { counters = engine_->counters(engine); });
    return counters;
  }
  void send_and_check(Endpoint& from, Endpoint& to, std::uint32_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) source_.here()[i] = std::byte(i * 7 + bytes);
    to.rings->receive(1, {{target_.address(), bytes, target_key_}});
    post(from, WrOpcode::kSend, 2, {{source_.address(), bytes, source_key_}});
    EXPECT_EQ(from.wait().status, WcStatus::kSuccess);
    EXPECT_EQ(to.wait().byte_len, bytes);
    EXPECT_EQ(std::memcmp(source_.data(), target_.data(), bytes), 0);
  }

  Buffer& source_ = add_buffer(1 << 18);
  Buffer& target_ = add_buffer(1 << 18);
  Client& left_ = add_client();
  Client& right_ = add_client();
  std::uint32_t source_key_ = add_region(left_, source_, true);
  std::uint32_t target_key_ = add_region(right_, target_, true);
  std::vector<std::unique_ptr<Endpoint>> sharing_;
};

TEST_F(SeveralEnginesTest, AddQp_GoesWhereThereAreFewest) {
  for (int i = 0; i < 6; ++i) add_endpoint(left_);
  engine_->run([&] {
    EXPECT_EQ(engine_->qp_count(0), 3U);
    EXPECT_EQ(engine_->qp_count(1), 3U);
  });
  for (const auto& endpoint : endpoints_) EXPECT_EQ(endpoint->rings->page().engine, endpoint->qp->engine());
}

TEST_F(SeveralEnginesTest, ModifyQp_APairInsideTheNodeMeets) {
  Endpoint& a = on_engine(0, left_);
  Endpoint& b = on_engine(1, right_);
  connect(a, b, true);
  EXPECT_EQ(a.qp->engine(), 1U) << "the first that goes to RTR moves";
  EXPECT_EQ(b.qp->engine(), 1U);
  EXPECT_EQ(a.rings->page().engine, 1U);
  for (const std::uint32_t bytes : {1U, 4096U, 200'000U}) send_and_check(a, b, bytes);
  EXPECT_EQ(counters(0).local_packets, 0U);
  EXPECT_GT(counters(1).local_packets, 0U);
}

TEST_F(SeveralEnginesTest, TakeDoorbells_ABitOnTheFormerBoardIsPassedOn) {
  Endpoint& a = on_engine(0, left_);
  Endpoint& b = on_engine(1, right_);
  connect(a, b, true);
  for (int i = 0; i < 50; ++i) {
    b.rings->receive(1, {{target_.address(), 64, target_key_}});
    abi::SendWqe wqe{};
    wqe.opcode = static_cast<std::uint8_t>(WrOpcode::kSend);
    wqe.flags = kSendSignaled;
    a.rings->send(wqe, {{source_.address(), 64, source_key_}});
    ring(a, 0);
    EXPECT_EQ(a.wait().status, WcStatus::kSuccess);
    EXPECT_EQ(b.wait().status, WcStatus::kSuccess);
    if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // both sleep
  }
}

TEST_F(SeveralEnginesTest, HandToOwner_FramesReachTheQpsEngine) {
  Endpoint& a = on_engine(0, left_);
  Endpoint& b = on_engine(1, right_);
  connect(a, b, false);
  EXPECT_NE(a.qp->engine(), b.qp->engine());
  for (const std::uint32_t bytes : {1U, 1025U, 200'000U}) send_and_check(a, b, bytes);
  EXPECT_GT(counters(0).handed_over, 0U) << "engine 0 has the port";
  EXPECT_EQ(counters(1).handed_over, 0U);
}

// Each engine counts upwards by a QP of its own; the CQ is one.
TEST_F(SeveralEnginesTest, Push_ACqOfTwoEnginesKeepsTheOrderOfEach) {
  Endpoint& first = on_engine(0, left_);
  Endpoint& second = add_sharing(first);
  if (second.qp->engine() == 0) add_sharing(first);
  Endpoint& other = sharing_.back()->qp->engine() == 1 ? *sharing_.back() : second;
  ASSERT_EQ(other.qp->engine(), 1U);
  Endpoint& right0 = on_engine(0, right_);
  Endpoint& right1 = on_engine(1, right_);
  connect(first, right0, true);
  connect(other, right1, true);
  ASSERT_EQ(first.qp->engine(), 0U);
  ASSERT_EQ(other.qp->engine(), 1U);
  constexpr std::uint64_t kEach = 2000;
  std::uint64_t posted[2] = {0, 0};
  std::uint64_t done[2] = {0, 0};
  while (done[0] + done[1] < 2 * kEach) {
    for (const std::uint64_t k : {0U, 1U}) {
      if (posted[k] == kEach || posted[k] - done[k] >= 32) continue;
      const std::uint64_t id = posted[k]++ | k << 32;
      post(k == 0 ? first : other, WrOpcode::kRdmaWrite, id, {{source_.address(), 32, source_key_}},
           target_.address() + k * 64, target_key_);
    }
    Done seen;
    while (first.poll(seen)) {
      ASSERT_EQ(seen.status, WcStatus::kSuccess);
      const std::uint64_t k = seen.wr_id >> 32;
      ASSERT_EQ(seen.wr_id & 0xFFFFFFFF, done[k]) << "of engine " << k;
      ++done[k];
    }
  }
  remove_sharing();
}

TEST_F(SeveralEnginesTest, Overrun_QpsOfAllEnginesFail) {
  Endpoint& first = add_endpoint(left_, 4);
  Endpoint& second = add_sharing(first);
  ASSERT_NE(first.qp->engine(), second.qp->engine());
  Endpoint& peer = add_endpoint(right_);
  connect(first, peer, true);
  for (int i = 0; i < 8; ++i) {
    post(first, WrOpcode::kRdmaWrite, 1, {{source_.address(), 8, source_key_}}, target_.address(),
         target_key_);
  }
  const auto deadline = Clock::now() + kPatience;
  std::uint32_t overruns = 0;
  for (; overruns == 0 && Clock::now() < deadline; std::this_thread::yield()) {
    take_reports();
    for (const Report& report : seen_) overruns += report.kind == Report::Kind::kCqOverrun ? 1 : 0;
  }
  EXPECT_EQ(overruns, 1U);
  engine_->run([&] {
    EXPECT_EQ(first.qp->transport().state(), QpState::kErr);
    EXPECT_EQ(second.qp->last_failure, transport::FailureReason::kCqOverrun);
  });
  remove_sharing();
}

// One copier, two engines: adds to one number, through the copier and through two wires, are all counted.
TEST_F(SeveralEnginesTest, Copier_AtomicsOfTwoEnginesAreOneAtATime) {
  Buffer& shared = add_buffer(4096);
  Buffer& answers = add_buffer(4096);
  const std::uint32_t shared_key = add_region(right_, shared, false);
  const std::uint32_t answer_key = add_region(left_, answers, true);
  Endpoint& a = on_engine(0, left_);
  Endpoint& b = on_engine(1, left_);
  Endpoint& to_a = on_engine(0, right_);
  Endpoint& to_b = on_engine(1, right_);
  connect(a, to_a, false);
  connect(b, to_b, false);
  constexpr std::uint64_t kEach = 200;
  for (std::uint64_t i = 0; i < kEach; ++i) {
    for (Endpoint* from : {&a, &b}) {
      post(*from, WrOpcode::kFetchAdd, i, {{answers.address(), 8, answer_key}}, shared.address(), shared_key,
           1);
    }
    EXPECT_EQ(a.wait().status, WcStatus::kSuccess);
    EXPECT_EQ(b.wait().status, WcStatus::kSuccess);
  }
  std::uint64_t sum = 0;
  std::memcpy(&sum, shared.data(), sizeof sum);
  EXPECT_EQ(sum, 2 * kEach);
}

TEST_F(SeveralEnginesTest, Run_NoEngineWorksMeanwhile) {
  Endpoint& a = on_engine(0, left_);
  Endpoint& b = on_engine(1, right_);
  connect(a, b, false);
  for (int i = 0; i < 500; ++i) {
    b.rings->receive(1, {{target_.address(), 64, target_key_}});
    post(a, WrOpcode::kSend, 2, {{source_.address(), 64, source_key_}});
    engine_->run([&] {
      const Counters before = engine_->counters();
      for (int look = 0; look < 20; ++look) std::this_thread::yield();
      const Counters after = engine_->counters();
      EXPECT_EQ(before.loops, after.loops);
      EXPECT_EQ(before.frames_received, after.frames_received);
    });
    EXPECT_EQ(a.wait().status, WcStatus::kSuccess);
    EXPECT_EQ(b.wait().status, WcStatus::kSuccess);
  }
}

}  // namespace
}  // namespace urdma::engine
