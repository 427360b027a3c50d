// Membership reports: changes told twice, answers within the time, routers of the old kind.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/group_reports.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace urdma::control {
namespace {

using Kind = wire::MembershipReport::Kind;

const wire::Gid kAll = wire::gid_from_ipv4(0);
const wire::Gid kGroup = wire::gid_from_ipv4(0xEF4D0102);
const wire::Gid kOther = wire::gid_from_ipv4(0xEF4D0103);
const wire::Gid kOwn = wire::gid_from_ipv4(0xC0000201);
constexpr wire::Gid kGroup6 = {0xFF, 0x0E, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x4D, 0x01};

struct Sent {
  Instant at;
  wire::MembershipReport report;
};

class GroupReportsTest : public testing::Test {
 protected:
  // Everything that is sent until `end`.
  std::vector<Sent> run_until(Instant end) {
    std::vector<Sent> sent;
    for (;;) {
      const Instant next = reports_.on_time(now_);
      wire::MembershipReport report;
      while (reports_.poll_transmit(report)) sent.push_back({now_, report});
      if (next > end) break;
      EXPECT_GT(next, now_) << "what is due was not done";
      now_ = next;
    }
    now_ = end;
    return sent;
  }
  std::vector<Sent> run_for(Duration time) { return run_until(now_ + time); }

  GroupReports reports_{{kOwn, {}}, 7};
  Instant now_{1'000'000'000};
};

TEST_F(GroupReportsTest, Join_IsToldAtOnceAndOnceMore) {
  const Instant joined = now_;
  reports_.join(kGroup, now_);
  const auto sent = run_for(seconds(60));
  ASSERT_EQ(sent.size(), GroupReports::kRobustness);
  EXPECT_EQ(sent[0].at, joined);
  EXPECT_LE(sent[1].at, joined + GroupReports::kRepeat);
  for (const Sent& each : sent) {
    EXPECT_EQ(each.report.kind, Kind::kJoined);
    EXPECT_EQ(each.report.group, kGroup);
    EXPECT_EQ(each.report.source, kOwn);
    EXPECT_FALSE(each.report.is_legacy);
  }
}

TEST_F(GroupReportsTest, Leave_IsToldAsOftenAndForgotten) {
  reports_.join(kGroup, now_);
  (void)run_for(seconds(5));
  reports_.leave(kGroup, now_);
  const auto sent = run_for(seconds(5));
  ASSERT_EQ(sent.size(), GroupReports::kRobustness);
  EXPECT_EQ(sent[1].report.kind, Kind::kLeft);
  reports_.on_query({kAll, false, 1000}, now_);
  EXPECT_TRUE(run_for(seconds(5)).empty());
}

TEST_F(GroupReportsTest, Leave_OvertakesTheJoin) {
  reports_.join(kGroup, now_);
  reports_.leave(kGroup, now_);
  const auto sent = run_for(seconds(5));
  ASSERT_EQ(sent.size(), 1 + GroupReports::kRobustness);
  EXPECT_EQ(sent[1].report.kind, Kind::kLeft);
  EXPECT_EQ(sent[2].report.kind, Kind::kLeft);
}

TEST_F(GroupReportsTest, Join_AgainWhileItLeaves) {
  reports_.join(kGroup, now_);
  reports_.leave(kGroup, now_);
  reports_.join(kGroup, now_);
  (void)run_for(seconds(5));
  reports_.on_query({kGroup, false, 1000}, now_);
  EXPECT_EQ(run_for(seconds(5)).size(), 1U);
}

TEST_F(GroupReportsTest, Query_OfAllIsAnsweredForEachGroupOfItsFamily) {
  for (const wire::Gid& group : {kGroup, kOther, kGroup6}) reports_.join(group, now_);
  (void)run_for(seconds(5));
  const Instant asked = now_;
  reports_.on_query({kAll, false, 2000}, now_);
  const auto sent = run_for(seconds(60));
  ASSERT_EQ(sent.size(), 2U);
  for (const Sent& each : sent) {
    EXPECT_EQ(each.report.kind, Kind::kMember);
    EXPECT_LE(each.at, asked + milliseconds(2000));
  }
  EXPECT_NE(sent[0].report.group, sent[1].report.group);
  reports_.on_query({{}, false, 2000}, now_);
  const auto sent6 = run_for(seconds(60));
  ASSERT_EQ(sent6.size(), 1U);
  EXPECT_EQ(sent6[0].report.group, kGroup6);
}

TEST_F(GroupReportsTest, Query_OfOneGroup) {
  reports_.join(kGroup, now_);
  reports_.join(kOther, now_);
  (void)run_for(seconds(5));
  reports_.on_query({kOther, false, 1000}, now_);
  const auto sent = run_for(seconds(5));
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].report.group, kOther);
}

TEST_F(GroupReportsTest, Query_AgainDoesNotPutTheAnswerOff) {
  reports_.join(kGroup, now_);
  (void)run_for(seconds(5));
  const Instant asked = now_;
  for (int i = 0; i < 100; ++i) reports_.on_query({kAll, false, i == 0 ? 100U : 10'000U}, now_);
  const auto sent = run_for(seconds(60));
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_LE(sent[0].at, asked + milliseconds(100));
}

TEST_F(GroupReportsTest, Query_OfTheOldKindMakesReportsOldForAWhile) {
  reports_.join(kGroup, now_);
  (void)run_for(seconds(5));
  reports_.on_query({kAll, true, 1000}, now_);
  EXPECT_TRUE(run_for(seconds(5)).at(0).report.is_legacy);
  reports_.join(kOther, now_);
  reports_.join(kGroup6, now_);
  for (const Sent& each : run_for(seconds(5))) {
    EXPECT_EQ(each.report.is_legacy, each.report.group == kOther) << "of the other family it says nothing";
  }
  (void)run_for(GroupReports::kLegacyRouter);
  reports_.leave(kOther, now_);
  EXPECT_FALSE(run_for(seconds(5)).at(0).report.is_legacy);
}

TEST_F(GroupReportsTest, OnLinkUp_TellsOfMembersAgain) {
  reports_.join(kGroup, now_);
  reports_.join(kOther, now_);
  (void)run_for(seconds(5));
  reports_.leave(kOther, now_);
  (void)run_for(seconds(5));
  reports_.on_link_up(now_);
  const auto sent = run_for(seconds(5));
  ASSERT_EQ(sent.size(), GroupReports::kRobustness);
  EXPECT_EQ(sent[0].report.group, kGroup);
}

TEST_F(GroupReportsTest, Join_OfAllHostsIsNotTold) {
  reports_.join(wire::gid_from_ipv4(0xE0000001), now_);
  EXPECT_TRUE(run_for(seconds(5)).empty());
}

}  // namespace
}  // namespace urdma::control
