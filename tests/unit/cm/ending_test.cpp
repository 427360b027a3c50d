// Tests of datapath/cm/ending.cpp: DREQ and DREP, time-wait, and who is forgotten.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>

#include "tests/unit/cm/fixture.hpp"

namespace urdma::cm {
namespace {

using EndingTest = CmTest;

TEST_F(EndingTest, Disconnect_SaysWhichQpAndWaitsForTheAnswer) {
  be_established_active();
  ASSERT_EQ(manager_.disconnect(id_, data_of("bye").view(), now_), 0);
  ASSERT_EQ(drained(), "DREQ");
  const auto& dreq = body_of<wire::CmDreqWire>(mads_[0].mad);
  EXPECT_EQ(dreq.local_comm_id.get(), id_.value);
  EXPECT_EQ(dreq.remote_comm_id.get(), kPeerId);
  EXPECT_EQ(dreq.remote_qpn.get(), kPeerQpn.value);
  EXPECT_EQ(text_of(private_data_of(dreq.private_data)), "bye");
  EXPECT_EQ(given(drep()), "| Disconnected");
  EXPECT_EQ(given(drep()), "");
}

TEST_F(EndingTest, Disconnect_PassiveSide) {
  be_established_passive();
  ASSERT_EQ(manager_.disconnect(id_, {}, now_), 0);
  EXPECT_EQ(drained(), "DREQ");
  EXPECT_EQ(given(drep()), "| Disconnected");
}

// What was waited for still comes.
TEST_F(EndingTest, Disconnect_OfARequestChangesNothing) {
  be_request_sent();
  EXPECT_EQ(manager_.disconnect(id_, {}, now_), EINVAL);
  EXPECT_EQ(given(rep()), "| Replied");
  EXPECT_EQ(manager_.disconnect(id_, {}, now_), EINVAL);
  EXPECT_EQ(drained(), "");
  EXPECT_EQ(manager_.confirm(id_, {}, now_), 0);
  EXPECT_EQ(drained(), "RTU");
}

TEST_F(EndingTest, Disconnect_BeforeTheReplyChangesNothing) {
  be_requested();
  EXPECT_EQ(manager_.disconnect(id_, {}, now_), EINVAL);
  EXPECT_EQ(drained(), "");
  EXPECT_EQ(manager_.accept(id_, reply(kOurQpn), now_), 0);
  EXPECT_EQ(drained(), "REP");
}

TEST_F(EndingTest, Disconnect_BeforeRtuChangesNothing) {
  be_reply_sent();
  EXPECT_EQ(manager_.disconnect(id_, {}, now_), EINVAL);
  EXPECT_EQ(drained(), "");
  EXPECT_EQ(given(rtu()), "| Established");
  EXPECT_EQ(manager_.disconnect(id_, {}, now_), 0);
  EXPECT_EQ(drained(), "DREQ");
  EXPECT_EQ(manager_.disconnect(id_, {}, now_), EINVAL);
  EXPECT_EQ(given(drep()), "| Disconnected");
  EXPECT_EQ(manager_.disconnect(id_, {}, now_), EINVAL);
  EXPECT_EQ(drained(), "");
}

TEST_F(EndingTest, Disconnect_TooMuchData) {
  be_established_active();
  const std::vector<std::uint8_t> much(kDisconnectPrivateBytes + 1);
  EXPECT_EQ(manager_.disconnect(id_, much, now_), EINVAL);
  EXPECT_EQ(manager_.disconnect(id_, std::span(much).subspan(1), now_), 0);
}

TEST_F(EndingTest, OnDreq_IsAnsweredEachTime) {
  be_established_active();
  Connection peer = peer_;
  peer.remote_qpn = kOurQpn;
  peer.transaction_id = 0x4242;
  ASSERT_EQ(given(make_dreq(peer, data_of("bye").view())), "DREP | Disconnecting");
  EXPECT_EQ(text_of(events_[0].data), "bye");
  const auto header = wire::parse_cm_header(mads_[0].mad);
  EXPECT_EQ(header->transaction_id, 0x4242U);
  EXPECT_EQ(body_of<wire::CmDrepWire>(mads_[0].mad).remote_comm_id.get(), kPeerId);
  EXPECT_EQ(given(dreq()), "DREP");
}

TEST_F(EndingTest, OnDreq_OfAnotherQpIsDropped) {
  be_established_active();
  Connection peer = peer_;
  peer.remote_qpn = Qpn{kOurQpn.value + 1};
  EXPECT_EQ(given(make_dreq(peer, {})), "");
  EXPECT_EQ(manager_.counters().malformed, 1U);
}

TEST_F(EndingTest, OnDreq_OfNoConnectionIsAnsweredFromNoState) {
  peer_.remote_id = 0x1234;
  ASSERT_EQ(given(dreq()), "DREP");
  EXPECT_EQ(body_of<wire::CmDrepWire>(mads_[0].mad).local_comm_id.get(), 0x1234U);
  EXPECT_EQ(manager_.connections(), 0U);
}

TEST_F(EndingTest, OnDreq_CrossedEndsBoth) {
  be_disconnect_sent();
  EXPECT_EQ(given(dreq()), "DREP | Disconnected");
  EXPECT_EQ(given(drep()), "");
}

TEST_F(EndingTest, OnDreq_WithoutRtuProvesIt) {
  be_reply_sent();
  EXPECT_EQ(given(dreq()), "DREP | Established Disconnecting");
}

TEST_F(EndingTest, TimeWait_KeepsTheQpAndThenSaysSo) {
  be_in_time_wait();
  EXPECT_TRUE(manager_.is_in_use(kOurQpn));
  pass(config_.time_wait + nanoseconds(-1));
  EXPECT_EQ(drained(), "");
  EXPECT_TRUE(manager_.is_in_use(kOurQpn));
  pass(nanoseconds(1));
  EXPECT_EQ(drained(), "| TimeWaitOver");
  EXPECT_FALSE(manager_.is_in_use(kOurQpn));
  EXPECT_EQ(manager_.connections(), 1U);
  manager_.forget(id_, now_);
  EXPECT_EQ(manager_.connections(), 0U);
  EXPECT_TRUE(manager_.next_deadline().is_never());
}

TEST_F(EndingTest, Forget_InTimeWaitKeepsItSilently) {
  be_in_time_wait();
  manager_.forget(id_, now_);
  EXPECT_EQ(given(dreq()), "DREP");
  EXPECT_TRUE(manager_.is_in_use(kOurQpn));
  pass(config_.time_wait);
  EXPECT_EQ(drained(), "");
  EXPECT_FALSE(manager_.is_in_use(kOurQpn));
  EXPECT_EQ(manager_.connections(), 0U);
}

// Whoever connects and leaves in a loop must not fill the table for the others.
TEST_F(EndingTest, Forget_ManyInTimeWaitLeaveRoom) {
  be_in_time_wait();  // of a program that waits for its end
  for (std::uint32_t i = 1; i <= 10 * config_.most_connections; ++i) {
    peer_.id = {kPeerId + i};
    ASSERT_NO_FATAL_FAILURE(be_established_active());
    manager_.forget(id_, now_);
    ASSERT_EQ(drained(), "DREQ");
    ASSERT_EQ(given(drep()), "");
  }
  EXPECT_GE(manager_.connections(), config_.most_connections / 2) << "those that there is room for are kept";
  EXPECT_LE(manager_.connections(), config_.most_connections / 2 + 1);
  EXPECT_EQ(given(dreq()), "DREP");
  EXPECT_EQ(manager_.counters().duplicates, 1U) << "the newest is one of them";
  pass(config_.time_wait);
  EXPECT_EQ(drained(), "| TimeWaitOver");
  EXPECT_EQ(manager_.connections(), 1U);
}

TEST_F(EndingTest, Forget_EstablishedDisconnects) {
  be_established_passive();
  manager_.forget(id_, now_);
  EXPECT_EQ(drained(), "DREQ");
  EXPECT_EQ(manager_.disconnect(id_, {}, now_), EINVAL);
  EXPECT_EQ(given(drep()), "");
  EXPECT_TRUE(manager_.is_in_use(kOurQpn));
  pass(config_.time_wait);
  EXPECT_EQ(manager_.connections(), 0U);
}

TEST_F(EndingTest, Forget_TakesEventsThatWaitWithIt) {
  be_reply_sent();
  give(rtu());
  manager_.forget(id_, now_);
  EXPECT_EQ(drained(), "DREQ");
}

TEST_F(EndingTest, Forget_RequestSentRefusesWhatComes) {
  be_request_sent();
  manager_.forget(id_, now_);
  ASSERT_EQ(drained(), "REJ(4)");
  const auto& rej = body_of<wire::CmRejWire>(mads_[0].mad);
  EXPECT_EQ(rej.local_comm_id.get(), id_.value);
  EXPECT_EQ(rej.remote_comm_id.get(), 0U);
  EXPECT_EQ(wire::kSubject.of(rej.subject), static_cast<std::uint8_t>(wire::CmSubject::kOther));
  EXPECT_EQ(wire::kRejectInfoLength.of(rej.info_length), 8);  // the GUID of REQ
  EXPECT_EQ(rej.info[0], 8);
  EXPECT_EQ(given(rep()), "REJ(4)");
  pass(config_.time_wait);
  EXPECT_EQ(manager_.connections(), 0U);
}

TEST_F(EndingTest, Forget_RequestedRefusesAndItsRepeatToo) {
  be_requested();
  manager_.forget(id_, now_);
  ASSERT_EQ(drained(), "REJ(28)");
  EXPECT_EQ(wire::kSubject.of(body_of<wire::CmRejWire>(mads_[0].mad).subject), 0);
  EXPECT_EQ(given(req()), "REJ(28)");
}

TEST_F(EndingTest, Forget_RepliedRefusesAndItsRepeatToo) {
  be_replied();
  manager_.forget(id_, now_);
  EXPECT_EQ(drained(), "REJ(28)");
  EXPECT_EQ(given(rep()), "REJ(28)");
  EXPECT_TRUE(manager_.is_in_use(kOurQpn));
}

TEST_F(EndingTest, Forget_ReplySentTellsMoreThanOnce) {
  be_reply_sent();
  manager_.forget(id_, now_);
  EXPECT_EQ(drained(), "REJ(28)");
  int repeats = 0;
  while (!manager_.next_deadline().is_never()) {
    pass_deadline();
    if (drained() == "REJ(28)") ++repeats;
  }
  EXPECT_EQ(repeats, 3);
  EXPECT_EQ(manager_.connections(), 0U);
}

// The peer has not got REP, and is not to be told of anything else.
TEST_F(EndingTest, Forget_ReplySentRefusesARepeatedRequestAsSuch) {
  be_reply_sent();
  manager_.forget(id_, now_);
  EXPECT_EQ(drained(), "REJ(28)");
  EXPECT_EQ(wire::kSubject.of(body_of<wire::CmRejWire>(mads_[0].mad).subject), 2);
  ASSERT_EQ(given(req()), "REJ(28)");
  EXPECT_EQ(wire::kSubject.of(body_of<wire::CmRejWire>(mads_[0].mad).subject), 0);
}

TEST_F(EndingTest, Forget_AfterTheLastEvent) {
  be_request_sent();
  ASSERT_EQ(given(rej()), "| Rejected(28)");
  EXPECT_EQ(manager_.connections(), 1U);
  manager_.forget(id_, now_);
  EXPECT_EQ(manager_.connections(), 0U);
  manager_.forget(id_, now_);
  EXPECT_EQ(drained(), "");
}

}  // namespace
}  // namespace urdma::cm
