// Tests of datapath/cm/active.cpp: the side that asks.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>

#include "tests/unit/cm/fixture.hpp"

namespace urdma::cm {
namespace {

using ActiveTest = CmTest;

TEST_F(ActiveTest, Connect_SaysWhatIsAskedFor) {
  Request asked = request(kOurQpn, ends_here());
  asked.data = data_of("please");
  asked.qp.responder_resources = 200;  // the device has 16
  asked.ends.traffic_class = 0x20;
  asked.ends.flow_label = 0x12345;
  ASSERT_EQ(manager_.connect(asked, now_, id_), 0);
  EXPECT_NE(id_.value, 0U);
  ASSERT_EQ(drained(), "REQ");
  EXPECT_EQ(mads_[0].ends.local, kHere);
  EXPECT_EQ(mads_[0].ends.remote, kThere);
  const Request read = read_req(body_of<wire::CmReqWire>(mads_[0].mad), ends_there());
  EXPECT_EQ(read.qp.qpn, kOurQpn);
  EXPECT_EQ(read.qp.responder_resources, 16);
  EXPECT_EQ(read.ends.traffic_class, 0x20);
  EXPECT_EQ(read.ends.flow_label, 0x12345U);
  EXPECT_EQ(text_of(read.data), "please");
}

TEST_F(ActiveTest, Connect_RefusesWhatCannotBe) {
  const auto result_of = [this](auto change) {
    Request asked = request(kOurQpn, ends_here());
    change(asked);
    return manager_.connect(asked, now_, id_);
  };
  EXPECT_EQ(result_of([](Request& r) { r.data.size = kRequestPrivateBytes; }), 0);
  EXPECT_EQ(result_of([](Request& r) { r.data.size = kRequestPrivateBytes + 1; }), EINVAL);
  EXPECT_EQ(result_of([](Request& r) { r.path_mtu = 0; }), EINVAL);
  EXPECT_EQ(result_of([](Request& r) { r.path_mtu = 6; }), EINVAL);
  EXPECT_EQ(result_of([](Request& r) { r.type = QpType::kUd; }), EINVAL);
  EXPECT_EQ(result_of([](Request& r) { r.qp.qpn = Qpn{1}; }), EINVAL);
  EXPECT_EQ(result_of([](Request& r) { r.qp.qpn = kMulticastQpn; }), EINVAL);
  EXPECT_EQ(manager_.connections(), 1U);
}

TEST_F(ActiveTest, Connect_FullTable) {
  for (std::uint32_t i = 0; i < config_.most_connections; ++i)
    ASSERT_EQ(manager_.connect(request(Qpn{0x100 + i}, ends_here()), now_, id_), 0);
  EXPECT_EQ(manager_.connect(request(Qpn{0x300}, ends_here()), now_, id_), ENOMEM);
  EXPECT_FALSE(manager_.is_in_use(Qpn{0x300}));
}

TEST_F(ActiveTest, OnRep_HoldsAlsoBeyondWhatWasAskedFor) {
  be_request_sent();  // asks for 4 and 4
  Reply granted = reply(kPeerQpn);
  granted.qp.responder_resources = 12;
  granted.qp.initiator_depth = 13;
  granted.target_ack_delay = 15;
  granted.data = data_of("welcome");
  ASSERT_EQ(given(make_rep(peer_, granted, config_)), "| Replied");
  EXPECT_EQ(events_[0].connection, id_);
  EXPECT_EQ(events_[0].reply.qp.qpn, kPeerQpn);
  EXPECT_EQ(events_[0].reply.qp.starting_psn, Psn(0x2000));
  EXPECT_EQ(events_[0].reply.qp.responder_resources, 12);
  EXPECT_EQ(events_[0].reply.qp.initiator_depth, 13);
  EXPECT_EQ(events_[0].reply.target_ack_delay, 15);
  EXPECT_EQ(text_of(events_[0].reply.data), "welcome");
  EXPECT_TRUE(manager_.next_deadline().is_never());
}

TEST_F(ActiveTest, OnRep_IsCutToWhatTheDeviceAnswersAtOnce) {
  be_request_sent();
  Reply granted = reply(kPeerQpn);
  granted.qp.initiator_depth = 100;
  ASSERT_EQ(given(make_rep(peer_, granted, config_)), "| Replied");
  EXPECT_EQ(events_[0].reply.qp.initiator_depth, 16);
}

TEST_F(ActiveTest, Confirm_SendsRtuWithBothIds) {
  be_replied();
  const PrivateData data = data_of("ready");
  ASSERT_EQ(manager_.confirm(id_, data.view(), now_), 0);
  ASSERT_EQ(drained(), "RTU");
  const auto& rtu = body_of<wire::CmRtuWire>(mads_[0].mad);
  EXPECT_EQ(rtu.local_comm_id.get(), id_.value);
  EXPECT_EQ(rtu.remote_comm_id.get(), kPeerId);
  EXPECT_EQ(text_of(private_data_of(rtu.private_data)), "ready");
}

TEST_F(ActiveTest, Confirm_OnlyAfterReplied) {
  be_request_sent();
  EXPECT_EQ(manager_.confirm(id_, {}, now_), EINVAL);
  give(rep());
  const std::vector<std::uint8_t> much(kReadyPrivateBytes + 1);
  EXPECT_EQ(manager_.confirm(id_, much, now_), EINVAL);
  EXPECT_EQ(manager_.confirm(id_, {}, now_), 0);
  EXPECT_EQ(manager_.confirm(id_, {}, now_), EINVAL);
}

TEST_F(ActiveTest, OnRep_AgainIsAnsweredAgain) {
  be_replied();
  EXPECT_EQ(given(rep()), "");
  manager_.delay(id_, now_);
  EXPECT_EQ(given(rep()), "MRA");
  ASSERT_EQ(manager_.confirm(id_, data_of("x").view(), now_), 0);
  ASSERT_EQ(drained(), "RTU");
  const Mad first = mads_[0].mad;
  ASSERT_EQ(given(rep()), "RTU");
  EXPECT_EQ(mads_[0].mad, first);
  EXPECT_EQ(manager_.counters().duplicates, 3U);
}

TEST_F(ActiveTest, OnRep_OfAnotherPeerOrIdIsNotMeant) {
  be_request_sent();
  give(rep(), {kHere, kElsewhere});
  EXPECT_EQ(drained(), "REJ(6)");
  EXPECT_EQ(mads_[0].ends.remote, kElsewhere);
  ASSERT_EQ(given(rep()), "| Replied");
  peer_.id = {kPeerId + 1};
  EXPECT_EQ(given(rep()), "");
  EXPECT_EQ(manager_.counters().unmatched, 2U);
}

TEST_F(ActiveTest, OnRep_WithAQpThatCannotBeIsDropped) {
  be_request_sent();
  for (const std::uint32_t qpn : {0U, 1U, 0xFFFFFFU})
    EXPECT_EQ(given(make_rep(peer_, reply(Qpn{qpn}), config_)), "");
  EXPECT_EQ(manager_.counters().malformed, 3U);
  EXPECT_EQ(given(rep()), "| Replied");
}

TEST_F(ActiveTest, OnRep_OfNoConnectionIsRefusedFromNoState) {
  peer_.remote_id = 0x1234;
  ASSERT_EQ(given(rep()), "REJ(6)");
  const auto& rej = body_of<wire::CmRejWire>(mads_[0].mad);
  EXPECT_EQ(rej.local_comm_id.get(), 0x1234U);
  EXPECT_EQ(rej.remote_comm_id.get(), kPeerId);
  EXPECT_EQ(wire::kSubject.of(rej.subject), static_cast<std::uint8_t>(wire::CmSubject::kRep));
  EXPECT_EQ(manager_.connections(), 0U);
}

TEST_F(ActiveTest, OnRep_OfARequestThatWasGivenUpLongAgo) {
  be_request_sent();
  while (!manager_.next_deadline().is_never()) pass_deadline();
  ASSERT_NE(drained(), "");
  EXPECT_EQ(given(rep()), "REJ(6)") << "also while its program has not let go of it";
  manager_.forget(id_, now_);
  EXPECT_EQ(given(rep()), "REJ(6)");
}

TEST_F(ActiveTest, OnRep_WithAQpThatIsConnectedAlready) {
  be_established_active();
  const ConnectionId old = id_;
  ASSERT_EQ(manager_.connect(request(Qpn{0x333}, ends_here()), now_, id_), 0);
  ASSERT_EQ(drained(), "REQ");
  peer_.id = {kPeerId + 1};
  peer_.remote_id = id_.value;
  ASSERT_EQ(given(rep()), "DREQ REJ(10) | Disconnecting Rejected(10)");
  EXPECT_EQ(events_[0].connection, old);
  EXPECT_EQ(events_[1].connection, id_);
}

TEST_F(ActiveTest, Xrc_QpOfTheTargetStandsElsewhere) {
  Request asked = request(kOurQpn, ends_here());
  asked.type = QpType::kXrcSend;
  ASSERT_EQ(manager_.connect(asked, now_, id_), 0);
  ASSERT_EQ(drained(), "REQ");
  peer_.remote_id = id_.value;
  peer_.type = QpType::kXrcSend;
  const Mad answer = rep();
  EXPECT_EQ(body_of<wire::CmRepWire>(answer).local_qpn.get(), 0U);
  ASSERT_EQ(given(answer), "| Replied");
  EXPECT_EQ(events_[0].reply.qp.qpn, kPeerQpn);
  EXPECT_TRUE(events_[0].reply.qp.has_srq);
}

}  // namespace
}  // namespace urdma::cm
