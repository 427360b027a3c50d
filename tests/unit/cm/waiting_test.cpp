// Tests of datapath/cm/waiting.cpp: repeats, MRA, and giving up.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/unit/cm/fixture.hpp"

namespace urdma::cm {
namespace {

class WaitingTest : public CmTest {
 protected:
  // 500 ms, rounded up to 4.096 us << 17.
  static constexpr Duration kPeriod = nanoseconds(std::int64_t{4096} << 17);

  // Lets all deadlines pass; what came out, deadline by deadline.
  std::string until_over() {
    std::string words;
    while (!manager_.next_deadline().is_never()) {
      pass_deadline();
      words += "[" + drained() + "]";
    }
    return words;
  }
};

TEST_F(WaitingTest, OnDue_RequestIsRepeatedToTheByteAndGivenUp) {
  ASSERT_EQ(manager_.connect(request(kOurQpn, ends_here()), now_, id_), 0);
  ASSERT_EQ(drained(), "REQ");
  const Mad first = mads_[0].mad;
  for (std::uint32_t i = 0; i < config_.most_retries; ++i) {
    EXPECT_EQ(manager_.next_deadline(), now_ + kPeriod);
    pass(kPeriod);
    ASSERT_EQ(drained(), "REQ");
    EXPECT_EQ(mads_[0].mad, first);
  }
  pass(kPeriod);
  EXPECT_EQ(drained(), "REJ(4) | Unreachable");
  EXPECT_EQ(manager_.counters().repeated, config_.most_retries);
  EXPECT_EQ(manager_.counters().given_up, 1U);
  EXPECT_TRUE(manager_.is_in_use(kOurQpn));
  EXPECT_EQ(until_over(), "[]");
  EXPECT_FALSE(manager_.is_in_use(kOurQpn));
}

TEST_F(WaitingTest, OnDue_ReplyIsGivenUp) {
  be_reply_sent();
  EXPECT_EQ(until_over(), "[REP][REP][REP][REJ(4) | Unreachable][REJ(4)][REJ(4)][REJ(4)][]");
}

TEST_F(WaitingTest, OnDue_DisconnectionIsGivenUpAndOver) {
  be_disconnect_sent();
  for (std::uint32_t i = 0; i <= config_.most_retries; ++i) pass_deadline();
  EXPECT_EQ(drained(), "DREQ DREQ DREQ | Disconnected");
  EXPECT_TRUE(events_[0].is_timed_out);
  EXPECT_EQ(until_over(), "[| TimeWaitOver]");
}

TEST_F(WaitingTest, OnDue_DisconnectionThatIsAnsweredIsNotTimedOut) {
  be_disconnect_sent();
  ASSERT_EQ(given(drep()), "| Disconnected");
  EXPECT_FALSE(events_[0].is_timed_out);
}

TEST_F(WaitingTest, OnDue_ResolutionIsGivenUp) {
  be_resolve_sent();
  EXPECT_EQ(until_over(), "[SIDR_REQ][SIDR_REQ][SIDR_REQ][| Unreachable]");
  manager_.forget(id_, now_);
  EXPECT_EQ(manager_.connections(), 0U);
}

TEST_F(WaitingTest, OnDeadline_EarlyDoesNothing) {
  be_request_sent();
  pass(nanoseconds(kPeriod.ns - 1));
  EXPECT_EQ(drained(), "");
}

TEST_F(WaitingTest, OnDeadline_LateSendsOnce) {
  be_request_sent();
  pass(kPeriod * 10);
  EXPECT_EQ(drained(), "REQ");
}

TEST_F(WaitingTest, Delay_SaysHowLong) {
  be_requested();
  manager_.delay(id_, now_);
  ASSERT_EQ(drained(), "");
  ASSERT_EQ(given(req()), "MRA");
  const auto& mra = body_of<wire::CmMraWire>(mads_[0].mad);
  EXPECT_EQ(mra.local_comm_id.get(), id_.value);
  EXPECT_EQ(mra.remote_comm_id.get(), kPeerId);
  EXPECT_EQ(wire::kSubject.of(mra.subject), 0);
  EXPECT_EQ(wire::kFiveBits.of(mra.service_timeout), 24);  // 68.7 s, for 60 s
}

TEST_F(WaitingTest, Delay_OfRep) {
  be_replied();
  manager_.delay(id_, now_);
  ASSERT_EQ(given(rep()), "MRA");
  EXPECT_EQ(wire::kSubject.of(body_of<wire::CmMraWire>(mads_[0].mad).subject), 1);
}

TEST_F(WaitingTest, Delay_OfWhoIsNotSlowSaysNothing) {
  be_requested();
  EXPECT_EQ(given(req()), "");
  ASSERT_EQ(manager_.accept(id_, reply(kOurQpn), now_), 0);
  manager_.delay(id_, now_);
  EXPECT_EQ(drained(), "REP");
  EXPECT_EQ(given(req()), "REP");
}

// The peer waits for so long that it would not soon ask for an RTU that is lost.
TEST_F(WaitingTest, OnDue_RtuAfterMraIsRepeatedUnasked) {
  be_replied();
  manager_.delay(id_, now_);
  ASSERT_EQ(given(rep()), "MRA");
  ASSERT_EQ(manager_.confirm(id_, {}, now_), 0);
  EXPECT_EQ(drained(), "RTU");
  EXPECT_EQ(until_over(), "[RTU][RTU][RTU]");
}

TEST_F(WaitingTest, OnDue_RtuIsNotRepeatedOnceTheConnectionEnds) {
  be_replied();
  manager_.delay(id_, now_);
  ASSERT_EQ(given(rep()), "MRA");
  ASSERT_EQ(manager_.confirm(id_, {}, now_), 0);
  EXPECT_EQ(drained(), "RTU");
  EXPECT_EQ(given(dreq()), "DREP | Disconnecting");
  EXPECT_EQ(until_over(), "[| TimeWaitOver]");
}

TEST_F(WaitingTest, OnMra_MovesTheDeadlineAndKeepsTheRetries) {
  be_request_sent();
  ASSERT_EQ(given(mra(wire::CmSubject::kReq)), "");
  const Duration served = timeout_of(timeout_code(seconds(1)));
  EXPECT_EQ(manager_.next_deadline(), now_ + served + kPeriod);
  EXPECT_EQ(until_over(), "[REQ][REQ][REQ][REJ(4) | Unreachable][]");
}

TEST_F(WaitingTest, OnMra_OfRep) {
  be_reply_sent();
  ASSERT_EQ(given(mra(wire::CmSubject::kRep)), "");
  EXPECT_GT(manager_.next_deadline(), now_ + seconds(1));
}

TEST_F(WaitingTest, OnMra_HasALimit) {
  be_request_sent();
  ASSERT_EQ(given(mra(wire::CmSubject::kReq, seconds(8000))), "");
  EXPECT_EQ(manager_.next_deadline(), now_ + seconds(300) + kPeriod);
}

TEST_F(WaitingTest, OnMra_LateOrForAnotherMessageChangesNothing) {
  be_reply_sent();
  const Instant deadline = manager_.next_deadline();
  give(mra(wire::CmSubject::kReq));
  give(mra(wire::CmSubject::kOther));
  EXPECT_EQ(manager_.next_deadline(), deadline);
  give(rtu());
  give(mra(wire::CmSubject::kRep));
  EXPECT_TRUE(manager_.next_deadline().is_never());
  peer_.id = {kPeerId + 1};
  give(mra(wire::CmSubject::kRep));
  EXPECT_EQ(manager_.counters().unmatched, 1U);
}

}  // namespace
}  // namespace urdma::cm
