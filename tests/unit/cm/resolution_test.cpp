// Tests of datapath/cm/resolution.cpp: datagram services.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>

#include "tests/unit/cm/fixture.hpp"

namespace urdma::cm {
namespace {

using ResolutionTest = CmTest;

TEST_F(ResolutionTest, Resolve_AsksAndIsAnswered) {
  ASSERT_EQ(manager_.resolve({ends_here(), kService, data_of("who")}, now_, id_), 0);
  ASSERT_EQ(drained(), "SIDR_REQ");
  const auto& req = body_of<wire::CmSidrReqWire>(mads_[0].mad);
  EXPECT_EQ(req.request_id.get(), id_.value);
  EXPECT_EQ(req.service_id.get(), kService.value);
  EXPECT_EQ(req.pkey.get(), 0xFFFF);
  EXPECT_EQ(text_of(private_data_of(req.private_data)), "who");
  peer_.remote_id = id_.value;
  const Mad answer = make_sidr_rep(peer_, {ResolveStatus::kValid, kPeerQpn, 0x1357, data_of("me")});
  ASSERT_EQ(given(answer), "| Resolved");
  EXPECT_EQ(events_[0].resolved.qpn, kPeerQpn);
  EXPECT_EQ(events_[0].resolved.qkey, 0x1357U);
  EXPECT_EQ(text_of(events_[0].resolved.data), "me");
  EXPECT_EQ(given(answer), "");
  EXPECT_TRUE(manager_.next_deadline().is_never());
}

TEST_F(ResolutionTest, Resolve_Refused) {
  be_resolve_sent();
  ASSERT_EQ(given(make_sidr_rep(peer_, {ResolveStatus::kUnsupportedService, {}, 0, {}})), "| Resolved");
  EXPECT_EQ(events_[0].resolved.status, ResolveStatus::kUnsupportedService);
}

TEST_F(ResolutionTest, Resolve_UnknownStatusIsARefusal) {
  be_resolve_sent();
  ASSERT_EQ(given(make_sidr_rep(peer_, {static_cast<ResolveStatus>(77), {}, 0, {}})), "| Resolved");
  EXPECT_EQ(events_[0].resolved.status, ResolveStatus::kRejected);
}

TEST_F(ResolutionTest, Resolve_TooMuchDataAndNoRoom) {
  Resolve asked{ends_here(), kService, {}};
  asked.data.size = kResolvePrivateBytes + 1;
  EXPECT_EQ(manager_.resolve(asked, now_, id_), EINVAL);
  asked.data.size = kResolvePrivateBytes;
  for (std::uint32_t i = 0; i < config_.most_connections; ++i) {
    EXPECT_EQ(manager_.resolve(asked, now_, id_), 0);
  }
  EXPECT_EQ(manager_.resolve(asked, now_, id_), ENOMEM);
}

TEST_F(ResolutionTest, OnSidrRep_OfAnotherPeerOrWithoutQpIsDropped) {
  be_resolve_sent();
  give(sidr_rep(), {kHere, kElsewhere});
  EXPECT_EQ(drained(), "");
  EXPECT_EQ(given(make_sidr_rep(peer_, {ResolveStatus::kValid, Qpn{1}, 0, {}})), "");
  EXPECT_EQ(manager_.counters().unmatched, 1U);
  EXPECT_EQ(manager_.counters().malformed, 1U);
  EXPECT_EQ(given(sidr_rep()), "| Resolved");
}

TEST_F(ResolutionTest, OnSidrReq_TellsWhatIsAskedFor) {
  ASSERT_EQ(given(make_sidr_req(peer_, {ends_there(), kService, data_of("who")})), "| ResolveRequested");
  EXPECT_EQ(events_[0].resolve.service, kService);
  EXPECT_EQ(events_[0].resolve.ends.remote, kThere);
  EXPECT_EQ(events_[0].resolve.data.size, kResolvePrivateBytes);
  EXPECT_EQ(text_of(events_[0].resolve.data), "who");
}

TEST_F(ResolutionTest, Answer_IsRepeatedToTheByte) {
  be_resolve_requested();
  EXPECT_EQ(given(sidr_req()), "");  // the program is still thinking
  ASSERT_EQ(manager_.answer(id_, {ResolveStatus::kValid, kOurQpn, 0x1357, data_of("me")}, now_), 0);
  ASSERT_EQ(drained(), "SIDR_REP");
  const Mad first = mads_[0].mad;
  const auto& rep = body_of<wire::CmSidrRepWire>(first);
  EXPECT_EQ(rep.request_id.get(), kPeerId);
  EXPECT_EQ(rep.service_id.get(), kService.value);
  EXPECT_EQ(rep.qpn.get(), kOurQpn.value);
  ASSERT_EQ(given(sidr_req()), "SIDR_REP");
  EXPECT_EQ(mads_[0].mad, first);
  EXPECT_EQ(manager_.answer(id_, {ResolveStatus::kValid, kOurQpn, 0, {}}, now_), EINVAL);
}

TEST_F(ResolutionTest, Answer_RefusesWhatCannotBe) {
  be_resolve_requested();
  EXPECT_EQ(manager_.answer(id_, {ResolveStatus::kValid, Qpn{0}, 0, {}}, now_), EINVAL);
  Resolved much{ResolveStatus::kValid, kOurQpn, 0, {}};
  much.data.size = kResolvedPrivateBytes + 1;
  EXPECT_EQ(manager_.answer(id_, much, now_), EINVAL);
  EXPECT_EQ(manager_.answer(id_, {ResolveStatus::kUnsupportedService, {}, 0, {}}, now_), 0);
  ASSERT_EQ(drained(), "SIDR_REP");
  EXPECT_EQ(body_of<wire::CmSidrRepWire>(mads_[0].mad).status, 1);
}

TEST_F(ResolutionTest, Answer_IsKeptForATime) {
  be_resolve_answered();
  manager_.forget(id_, now_);
  EXPECT_EQ(given(sidr_req()), "SIDR_REP");
  pass(config_.time_wait);
  EXPECT_EQ(manager_.connections(), 0U);
  EXPECT_EQ(given(sidr_req()), "| ResolveRequested");
}

TEST_F(ResolutionTest, Answer_IsRepeatedAlsoWhereTheTableIsCrowded) {
  be_resolve_requested();
  const ConnectionId asked = id_;
  for (std::uint32_t i = 0; i < config_.most_connections / 2; ++i)
    ASSERT_EQ(manager_.connect(request(Qpn{0x100 + i}, ends_here()), now_, id_), 0);
  (void)drained();
  ASSERT_EQ(manager_.answer(asked, {ResolveStatus::kValid, kOurQpn, 1, {}}, now_), 0);
  EXPECT_EQ(drained(), "SIDR_REP");
  EXPECT_EQ(given(sidr_req()), "SIDR_REP") << "the first may be lost";
  manager_.forget(asked, now_);
  EXPECT_EQ(manager_.connections(), config_.most_connections / 2) << "it is not kept for that";
}

TEST_F(ResolutionTest, Forget_Unanswered) {
  be_resolve_requested();
  manager_.forget(id_, now_);
  ASSERT_EQ(drained(), "SIDR_REP");
  EXPECT_EQ(body_of<wire::CmSidrRepWire>(mads_[0].mad).status, 2);
}

TEST_F(ResolutionTest, Forget_WhileAsking) {
  be_resolve_sent();
  manager_.forget(id_, now_);
  EXPECT_EQ(manager_.connections(), 0U);
  EXPECT_EQ(given(sidr_rep()), "");
}

TEST_F(ResolutionTest, OnSidrReq_FullTable) {
  for (std::uint32_t i = 0; i <= config_.most_connections; ++i) {
    peer_.id = {0x100 + i};
    give(sidr_req());
  }
  std::string words = drained();
  EXPECT_EQ(words.substr(0, 10), "SIDR_REP |");
  EXPECT_EQ(body_of<wire::CmSidrRepWire>(mads_[0].mad).status, 3);
  EXPECT_EQ(events_.size(), config_.most_connections);
  EXPECT_EQ(manager_.counters().no_room, 1U);
}

TEST_F(ResolutionTest, OnSidrReq_IdThatIsUsedAgain) {
  be_resolve_requested();
  Resolve other{ends_there(), {kService.value + 1}, {}};
  EXPECT_EQ(given(make_sidr_req(peer_, other)), "| ResolveRequested");
  EXPECT_EQ(manager_.connections(), 2U);
}

}  // namespace
}  // namespace urdma::cm
