// Tests of datapath/cm/refusal.cpp: REJ.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>

#include "tests/unit/cm/fixture.hpp"

namespace urdma::cm {
namespace {

using RefusalTest = CmTest;

TEST_F(RefusalTest, Reject_CarriesReasonInfoAndData) {
  be_requested();
  const std::vector<std::uint8_t> info = {1, 2, 3};
  ASSERT_EQ(manager_.reject(id_, RejectReason::kInvalidServiceId, info, data_of("no").view(), now_), 0);
  ASSERT_EQ(drained(), "REJ(8)");
  const auto& rej = body_of<wire::CmRejWire>(mads_[0].mad);
  EXPECT_EQ(rej.local_comm_id.get(), id_.value);
  EXPECT_EQ(rej.remote_comm_id.get(), kPeerId);
  EXPECT_EQ(wire::kRejectInfoLength.of(rej.info_length), 3);
  EXPECT_EQ(rej.info[2], 3);
  EXPECT_EQ(text_of(private_data_of(rej.private_data)), "no");
}

TEST_F(RefusalTest, Reject_OfRepNamesIt) {
  be_replied();
  ASSERT_EQ(manager_.reject(id_, RejectReason::kConsumer, {}, {}, now_), 0);
  ASSERT_EQ(drained(), "REJ(28)");
  EXPECT_EQ(wire::kSubject.of(body_of<wire::CmRejWire>(mads_[0].mad).subject), 1);
}

TEST_F(RefusalTest, Reject_RefusesWhatCannotBe) {
  be_requested();
  const std::vector<std::uint8_t> much(kRejectPrivateBytes + 1);
  EXPECT_EQ(manager_.reject(id_, RejectReason::kConsumer, {}, much, now_), EINVAL);
  EXPECT_EQ(manager_.reject(id_, RejectReason::kConsumer, Bytes(much).first(kRejectInfoBytes + 1), {}, now_),
            EINVAL);
  ASSERT_EQ(manager_.accept(id_, reply(kOurQpn), now_), 0);
  ASSERT_EQ(given(rtu()), "REP | Established");
  EXPECT_EQ(manager_.reject(id_, RejectReason::kConsumer, {}, {}, now_), EINVAL);
}

TEST_F(RefusalTest, Reject_OfWhatNobodyHasAnsweredYet) {
  be_request_sent();
  ASSERT_EQ(manager_.reject(id_, RejectReason::kConsumer, {}, {}, now_), 0);
  EXPECT_EQ(drained(), "REJ(28)");
  EXPECT_EQ(given(rep()), "REJ(28)");
  EXPECT_EQ(manager_.reject(id_, RejectReason::kConsumer, {}, {}, now_), EINVAL) << "once";
}

TEST_F(RefusalTest, Reject_AfterRep) {
  be_reply_sent();
  ASSERT_EQ(manager_.reject(id_, RejectReason::kConsumer, {}, {}, now_), 0);
  EXPECT_EQ(drained(), "REJ(28)");
  EXPECT_EQ(given(rtu()), "REJ(28)") << "nothing is established any more";
}

TEST_F(RefusalTest, Reject_IsRepeatedForAPeerThatIsPatient) {
  be_requested();
  manager_.delay(id_, now_);
  EXPECT_EQ(given(req()), "MRA");
  ASSERT_EQ(manager_.reject(id_, RejectReason::kConsumer, {}, {}, now_), 0);
  EXPECT_EQ(drained(), "REJ(28)");
  pass_deadline();
  EXPECT_EQ(drained(), "REJ(28)");
}

TEST_F(RefusalTest, Reject_IsNotRepeatedForAPeerThatAsksAgain) {
  be_requested();
  ASSERT_EQ(manager_.reject(id_, RejectReason::kConsumer, {}, {}, now_), 0);
  EXPECT_EQ(drained(), "REJ(28)");
  EXPECT_EQ(given(req()), "REJ(28)");
  pass_deadline();
  EXPECT_EQ(drained(), "");
  manager_.forget(id_, now_);
  EXPECT_EQ(manager_.connections(), 0U);
}

TEST_F(RefusalTest, Reject_KeepsNothingWhereTheTableIsCrowded) {
  for (std::uint32_t i = 0; i < config_.most_connections; ++i) {
    peer_.id = {0x100 + i};
    Request asked = request(Qpn{0x100 + i}, ends_there());
    ASSERT_EQ(given(make_req(peer_, asked, config_)), "| Requested");
    manager_.forget(events_[0].connection, now_);
    ASSERT_EQ(drained(), "REJ(28)");
  }
  EXPECT_EQ(manager_.connections(), config_.most_connections / 2);
}

TEST_F(RefusalTest, OnRej_TellsReasonInfoAndData) {
  be_request_sent();
  const std::vector<std::uint8_t> info = {9, 8};
  const PrivateData data = data_of("no");
  const Mad mad = make_rej({0, id_.value, 1}, {RejectReason::kInvalidServiceId, {}, info, data.view()});
  ASSERT_EQ(given(mad), "| Rejected(8)");
  EXPECT_EQ(events_[0].info.size, 2);
  EXPECT_EQ(events_[0].info.bytes[0], 9);
  EXPECT_EQ(events_[0].data.size, kRejectPrivateBytes);
  EXPECT_EQ(text_of(events_[0].data), "no");
  EXPECT_FALSE(manager_.is_in_use(kOurQpn));
  EXPECT_TRUE(manager_.next_deadline().is_never());
}

TEST_F(RefusalTest, OnRej_InfoLongerThanItsRoom) {
  be_request_sent();
  Mad mad = rej();
  const_cast<wire::CmRejWire&>(body_of<wire::CmRejWire>(mad)).info_length = 0xFF;
  ASSERT_EQ(given(mad), "| Rejected(28)");
  EXPECT_EQ(events_[0].info.size, kRejectInfoBytes);
}

TEST_F(RefusalTest, OnRej_StaleKeepsTheQpInTimeWait) {
  be_request_sent();
  ASSERT_EQ(given(rej(RejectReason::kStaleConnection)), "| Rejected(10)");
  manager_.forget(id_, now_);
  EXPECT_TRUE(manager_.is_in_use(kOurQpn));
  pass(config_.time_wait);
  EXPECT_FALSE(manager_.is_in_use(kOurQpn));
  EXPECT_EQ(drained(), "");
}

TEST_F(RefusalTest, OnRej_AfterItsReplyIsFollowedByTimeWait) {
  be_replied();
  ASSERT_EQ(given(rej()), "| Rejected(28)");
  manager_.forget(id_, now_);
  EXPECT_EQ(manager_.connections(), 1U) << "the peer knows our QP";
  pass(config_.time_wait);
  EXPECT_EQ(manager_.connections(), 0U);
  EXPECT_EQ(drained(), "");
}

TEST_F(RefusalTest, OnRej_OfAPeerThatNeverKnewOurId) {
  be_reply_sent();
  peer_.remote_id = 0;
  EXPECT_EQ(given(rej(RejectReason::kConsumer)), "");
  EXPECT_EQ(given(rej(RejectReason::kTimeout)), "| Rejected(4)");
  EXPECT_EQ(given(req()), "");  // late: it is over
}

TEST_F(RefusalTest, OnRej_WhileTheProgramDecides) {
  be_requested();
  EXPECT_EQ(given(rej(RejectReason::kTimeout)), "| Rejected(4)");
  EXPECT_EQ(manager_.accept(id_, reply(kOurQpn), now_), EINVAL);
}

TEST_F(RefusalTest, OnRej_AfterRtuEndsTheConnection) {
  be_established_active();
  EXPECT_EQ(given(rej(RejectReason::kTimeout)), "| Disconnecting");
  pass_deadline();
  EXPECT_EQ(drained(), "| TimeWaitOver");
}

TEST_F(RefusalTest, OnRej_OfAnotherPeerIsNotMeant) {
  be_request_sent();
  give(rej(), {kHere, kElsewhere});
  EXPECT_EQ(drained(), "");
  ASSERT_EQ(given(rep()), "| Replied");
  peer_.id = {kPeerId + 1};
  EXPECT_EQ(given(rej()), "");
  EXPECT_EQ(manager_.counters().unmatched, 2U);
}

}  // namespace
}  // namespace urdma::cm
