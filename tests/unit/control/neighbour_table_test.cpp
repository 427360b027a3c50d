// Tests of NeighbourTable: messages and a virtual clock in, messages and results out.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/neighbour_table.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/support/frame_text.hpp"

namespace urdma::control {
namespace {

using wire::gid;
using Kind = wire::Resolution::Kind;
using Answer = Result<wire::MacAddress>;

constexpr wire::MacAddress kOwnMac = {2, 0, 0, 0, 0, 1};
constexpr wire::MacAddress kPeerMac = {2, 0, 0, 0, 0, 2};
constexpr wire::MacAddress kOtherMac = {2, 0, 0, 0, 0, 3};
constexpr wire::MacAddress kEverybody = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};

const wire::Gid kOwn4 = gid("10.0.0.1");
const wire::Gid kPeer4 = gid("10.0.0.2");
const wire::Gid kOwn6 = gid("fd00::1");
const wire::Gid kPeer6 = gid("fd00::2");

class NeighbourTableTest : public testing::Test {
 protected:
  NeighbourTable table_{{kOwnMac, {{kOwn4, 96 + 24}, {kOwn6, 64}}, {}}};
  Instant now_{1'000'000'000'000};

  std::vector<NeighbourTable::Outgoing> sent() {
    std::vector<NeighbourTable::Outgoing> all;
    NeighbourTable::Outgoing one;
    while (table_.poll_transmit(one)) all.push_back(one);
    return all;
  }
  // Lets time pass, every deadline in it met.
  void pass(Duration duration) {
    const Instant end = now_ + duration;
    for (Instant next = table_.on_time(now_); next <= end; next = table_.on_time(now_)) now_ = next;
    now_ = end;
    table_.on_time(now_);
  }
  std::optional<Answer> answer_;
  int answers_ = 0;
  void resolve(const wire::Gid& dest) {
    answer_.reset();
    const wire::Gid source = wire::is_ipv4_mapped(dest) ? kOwn4 : kOwn6;
    table_.resolve(source, dest, now_, [this](const Answer& answer) {
      answer_ = answer;
      ++answers_;
    });
  }
  void hear_answer(const wire::Gid& subject, const wire::MacAddress& mac, bool is_solicited = true,
                   bool is_override = true) {
    const wire::Gid own = wire::is_ipv4_mapped(subject) ? kOwn4 : kOwn6;
    const wire::Gid peer = is_solicited ? own : wire::unspecified_like(subject);
    table_.on_message({Kind::kAnswer, is_solicited, is_override, subject, peer, mac}, now_);
  }
  void hear_question(const wire::Gid& subject, const wire::Gid& asker, const wire::MacAddress& mac) {
    table_.on_message({Kind::kQuestion, false, true, subject, asker, mac}, now_);
  }
  // A neighbour that is known and confirmed.
  void meet(const wire::Gid& neighbour, const wire::MacAddress& mac) {
    resolve(neighbour);
    hear_answer(neighbour, mac);
    ASSERT_TRUE(answer_ && *answer_);
    (void)sent();
    (void)table_.take_changed();
  }
};

TEST_F(NeighbourTableTest, Resolve_AsksEverybodyAndTakesTheAnswer) {
  for (const auto& [own, peer] : {std::pair{kOwn4, kPeer4}, std::pair{kOwn6, kPeer6}}) {
    resolve(peer);
    EXPECT_FALSE(answer_);
    const auto questions = sent();
    ASSERT_EQ(questions.size(), 1U);
    EXPECT_EQ(questions[0].message.kind, Kind::kQuestion);
    EXPECT_EQ(questions[0].message.subject, peer);
    EXPECT_EQ(questions[0].message.peer, own);
    EXPECT_EQ(questions[0].message.mac, kOwnMac);
    EXPECT_EQ(questions[0].dest, wire::question_mac(peer));
    hear_answer(peer, kPeerMac);
    ASSERT_TRUE(answer_ && *answer_);
    EXPECT_EQ(**answer_, kPeerMac);
    EXPECT_FALSE(table_.take_changed()) << "nothing was given out before";
  }
}

TEST_F(NeighbourTableTest, Resolve_KnownIsGivenAtOnceWithoutAQuestion) {
  meet(kPeer4, kPeerMac);
  pass(seconds(29));
  resolve(kPeer4);
  ASSERT_TRUE(answer_ && *answer_);
  EXPECT_TRUE(sent().empty());
}

TEST_F(NeighbourTableTest, Resolve_AsksAgainAndGivesUpInTime) {
  resolve(kPeer4);
  pass(milliseconds(2999));
  EXPECT_FALSE(answer_);
  EXPECT_EQ(sent().size(), NeighbourTable::kQuestions);
  pass(milliseconds(1));
  ASSERT_TRUE(answer_);
  ASSERT_FALSE(*answer_);
  EXPECT_EQ(answer_->error().code, ETIMEDOUT);
  EXPECT_EQ(table_.size(), 0U);
  pass(seconds(60));
  EXPECT_TRUE(sent().empty());
  EXPECT_EQ(answers_, 1);
}

TEST_F(NeighbourTableTest, Resolve_LateAnswerToARepeatedQuestion) {
  resolve(kPeer4);
  pass(milliseconds(2600));
  hear_answer(kPeer4, kPeerMac);
  ASSERT_TRUE(answer_ && *answer_);
  pass(seconds(5));
  EXPECT_EQ(answers_, 1);
}

TEST_F(NeighbourTableTest, Resolve_ManyWaitForOneQuestion) {
  for (int i = 0; i < 100; ++i) resolve(kPeer4);
  EXPECT_EQ(sent().size(), 1U);
  hear_answer(kPeer4, kPeerMac);
  EXPECT_EQ(answers_, 100);
}

TEST_F(NeighbourTableTest, Resolve_FromWithinAnAnswer) {
  int inner = 0;
  table_.resolve(kOwn4, kPeer4, now_, [&](const Answer&) {
    table_.resolve(kOwn4, kPeer4, now_, [&](const Answer& again) { inner += again ? 1 : 0; });
    for (unsigned host = 3; host < 200; ++host) {
      table_.resolve(kOwn4, wire::gid_from_ipv4(0x0A000000 + host), now_, [](const Answer&) {});
    }
  });
  hear_answer(kPeer4, kPeerMac);
  EXPECT_EQ(inner, 1);
}

TEST_F(NeighbourTableTest, Resolve_StaleIsUsedAndConfirmedDirectly) {
  meet(kPeer6, kPeerMac);
  pass(seconds(31));
  EXPECT_TRUE(sent().empty()) << "nobody wanted it";
  resolve(kPeer6);
  ASSERT_TRUE(answer_ && *answer_);
  const auto questions = sent();
  ASSERT_EQ(questions.size(), 1U);
  EXPECT_EQ(questions[0].dest, kPeerMac);
  hear_answer(kPeer6, {});  // what Linux answers to that: without its link address
  pass(seconds(5));
  EXPECT_TRUE(sent().empty()) << "it has been confirmed";
}

TEST_F(NeighbourTableTest, Resolve_SilentNeighbourIsForgottenAndAskedForAnew) {
  meet(kPeer4, kPeerMac);
  pass(seconds(31));
  resolve(kPeer4);
  pass(seconds(4));
  EXPECT_EQ(table_.size(), 0U);
  (void)sent();
  resolve(kPeer4);
  EXPECT_FALSE(answer_);
  const auto questions = sent();
  ASSERT_EQ(questions.size(), 1U);
  EXPECT_EQ(questions[0].dest, kEverybody);
}

TEST_F(NeighbourTableTest, OnTime_UnusedIsForgotten) {
  meet(kPeer4, kPeerMac);
  pass(seconds(31 + 601));
  EXPECT_EQ(table_.size(), 0U);
  EXPECT_TRUE(table_.on_time(now_).is_never());
}

TEST_F(NeighbourTableTest, Resolve_GroupsByRule) {
  resolve(gid("239.1.2.3"));
  ASSERT_TRUE(answer_ && *answer_);
  EXPECT_EQ(**answer_, (wire::MacAddress{0x01, 0x00, 0x5E, 1, 2, 3}));
  EXPECT_TRUE(sent().empty());
}

TEST_F(NeighbourTableTest, Resolve_OtherNetworkWithoutGateway) {
  for (const char* text : {"10.0.1.2", "fd00:1::2"}) {
    resolve(gid(text));
    ASSERT_TRUE(answer_);
    ASSERT_FALSE(*answer_);
    EXPECT_EQ(answer_->error().code, ENETUNREACH);
  }
  EXPECT_TRUE(sent().empty());
  resolve(gid("fe80::7"));  // is on every link
  EXPECT_FALSE(answer_);
}

TEST_F(NeighbourTableTest, Resolve_OtherNetworkByTheGatewayOfItsFamily) {
  table_ = NeighbourTable({kOwnMac, {{kOwn4, 96 + 24}, {kOwn6, 64}}, {gid("fd00::fe"), gid("10.0.0.254")}});
  resolve(gid("192.0.2.1"));
  auto questions = sent();
  ASSERT_EQ(questions.size(), 1U);
  EXPECT_EQ(questions[0].message.subject, gid("10.0.0.254"));
  hear_answer(gid("10.0.0.254"), kOtherMac);
  ASSERT_TRUE(answer_ && *answer_);
  EXPECT_EQ(**answer_, kOtherMac);
  resolve(gid("2001:db8::1"));
  questions = sent();
  ASSERT_EQ(questions.size(), 1U);
  EXPECT_EQ(questions[0].message.subject, gid("fd00::fe"));
}

TEST_F(NeighbourTableTest, OnMessage_QuestionForUsIsAnswered) {
  hear_question(kOwn4, kPeer4, kPeerMac);
  hear_question(kOwn6, kPeer6, kPeerMac);
  const auto answers = sent();
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].message.kind, Kind::kAnswer);
  EXPECT_EQ(answers[0].message.subject, kOwn4);
  EXPECT_EQ(answers[0].message.peer, kPeer4);
  EXPECT_EQ(answers[0].message.mac, kOwnMac);
  EXPECT_TRUE(answers[0].message.is_solicited);
  EXPECT_EQ(answers[0].dest, kPeerMac);
  EXPECT_EQ(answers[1].message.subject, kOwn6);
}

TEST_F(NeighbourTableTest, OnMessage_QuestionForOthersIsNot) {
  hear_question(gid("10.0.0.9"), kPeer4, kPeerMac);
  hear_question(kOwn4, kPeer4, kOwnMac);  // our own, come back
  EXPECT_TRUE(sent().empty());
  EXPECT_EQ(table_.size(), 0U);
}

TEST_F(NeighbourTableTest, OnMessage_ProbeForDuplicatesIsAnswered) {
  hear_question(kOwn4, gid("0.0.0.0"), kPeerMac);
  hear_question(kOwn6, gid("::"), {});
  const auto answers = sent();
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].dest, kPeerMac);
  // Who has no address yet can only be told together with all others.
  EXPECT_EQ(answers[1].dest, (wire::MacAddress{0x33, 0x33, 0, 0, 0, 1}));
  EXPECT_FALSE(answers[1].message.is_solicited);
}

TEST_F(NeighbourTableTest, OnMessage_StrangersAreNotRemembered) {
  for (unsigned host = 2; host < 5000; ++host) {
    hear_question(kOwn4, wire::gid_from_ipv4(0x0A000000 + host), kPeerMac);
    hear_answer(wire::gid_from_ipv4(0x0A000000 + host), kPeerMac, false);
  }
  EXPECT_EQ(table_.size(), 0U);
  EXPECT_LE(sent().size(), 2 * NeighbourTable::kMostNeighbours) << "what waits to be sent is bounded";
}

TEST_F(NeighbourTableTest, OnMessage_NeighbourThatMovedIsNoticed) {
  meet(kPeer4, kPeerMac);
  hear_answer(kPeer4, kOtherMac, false);  // an announcement
  EXPECT_TRUE(table_.take_changed());
  EXPECT_FALSE(table_.take_changed());
  resolve(kPeer4);
  ASSERT_TRUE(answer_ && *answer_);
  EXPECT_EQ(**answer_, kOtherMac);
  EXPECT_EQ(sent().size(), 1U) << "an announcement is no proof: it is asked at once";
}

TEST_F(NeighbourTableTest, OnMessage_QuestionOfANeighbourThatMoved) {
  meet(kPeer6, kPeerMac);
  hear_question(kOwn6, kPeer6, kOtherMac);
  EXPECT_TRUE(table_.take_changed());
  const auto answers = sent();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].dest, kOtherMac);
}

TEST_F(NeighbourTableTest, OnMessage_AnswerThatDoesNotOverride) {
  meet(kPeer6, kPeerMac);
  hear_answer(kPeer6, kOtherMac, false, false);
  EXPECT_FALSE(table_.take_changed());
  resolve(kPeer6);
  ASSERT_TRUE(answer_ && *answer_);
  EXPECT_EQ(**answer_, kPeerMac);
  EXPECT_EQ(sent().size(), 1U) << "there is doubt";
}

TEST_F(NeighbourTableTest, OnMessage_AnswerWithoutLinkAddressToAFirstQuestion) {
  resolve(kPeer6);
  hear_answer(kPeer6, {});
  EXPECT_FALSE(answer_);
  hear_answer(kPeer6, kPeerMac);
  EXPECT_TRUE(answer_ && *answer_);
}

TEST_F(NeighbourTableTest, OnMessage_DuplicateOfOurAddressIsToldOffNowAndThen) {
  hear_answer(kOwn4, kOtherMac, false);
  const auto defence = sent();
  ASSERT_EQ(defence.size(), 1U);
  EXPECT_EQ(defence[0].message.subject, kOwn4);
  EXPECT_EQ(defence[0].message.mac, kOwnMac);
  EXPECT_EQ(defence[0].dest, kEverybody);
  for (int i = 0; i < 1000; ++i) hear_question(kPeer4, kOwn4, kOtherMac);
  EXPECT_TRUE(sent().empty());
  EXPECT_EQ(table_.counters().conflicts, 1001U);
  now_ = now_ + seconds(10);
  hear_answer(kOwn4, kOtherMac, false);
  EXPECT_EQ(sent().size(), 1U);
}

TEST_F(NeighbourTableTest, OnLinkUp_AnnouncesAndDoubts) {
  meet(kPeer4, kPeerMac);
  table_.on_link_up(now_);
  const auto announced = sent();
  ASSERT_EQ(announced.size(), 2U);
  EXPECT_EQ(announced[0].message.subject, kOwn4);
  EXPECT_EQ(announced[0].dest, kEverybody);
  EXPECT_EQ(announced[1].message.subject, kOwn6);
  EXPECT_EQ(announced[1].dest, (wire::MacAddress{0x33, 0x33, 0, 0, 0, 1}));
  resolve(kPeer4);
  EXPECT_EQ(sent().size(), 1U);
}

TEST_F(NeighbourTableTest, Resolve_FullTableMakesRoomForWhoIsWanted) {
  table_ = NeighbourTable({kOwnMac, {{kOwn4, 96 + 8}}, {}});
  const auto host = [](std::size_t number) {
    return wire::gid_from_ipv4(0x0A010000 + static_cast<std::uint32_t>(number));
  };
  for (std::size_t i = 0; i < NeighbourTable::kMostNeighbours; ++i) {
    resolve(host(i));
    hear_answer(host(i), kPeerMac);
    now_ = now_ + nanoseconds(1);
  }
  resolve(host(0));  // is used again: 1 is the one that nobody wants
  resolve(host(5000));
  EXPECT_EQ(table_.size(), NeighbourTable::kMostNeighbours);
  (void)sent();
  resolve(host(0));
  EXPECT_TRUE(answer_);
  resolve(host(1));
  EXPECT_FALSE(answer_) << "it was forgotten";
}

TEST_F(NeighbourTableTest, Resolve_TooManyAtOnceAreRefused) {
  table_ = NeighbourTable({kOwnMac, {{kOwn4, 96 + 8}}, {}});
  for (std::uint32_t i = 0; i < NeighbourTable::kMostNeighbours; ++i)
    resolve(wire::gid_from_ipv4(0x0A010000 + i));
  EXPECT_FALSE(answer_);
  resolve(kPeer4);
  ASSERT_TRUE(answer_);
  ASSERT_FALSE(*answer_);
  EXPECT_EQ(answer_->error().code, ENOBUFS);
  pass(seconds(4));
  EXPECT_EQ(answers_, static_cast<int>(NeighbourTable::kMostNeighbours) + 1) << "each is told once";
}

}  // namespace
}  // namespace urdma::control
