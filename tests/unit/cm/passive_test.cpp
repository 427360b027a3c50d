// Tests of datapath/cm/passive.cpp: the side that is asked.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>

#include "tests/unit/cm/fixture.hpp"

namespace urdma::cm {
namespace {

class PassiveTest : public CmTest {
 protected:
  // The peer's REQ, changed.
  template <typename Change>
  Mad req_with(Change change) const {
    Mad mad = req();
    auto& body = const_cast<wire::CmReqWire&>(body_of<wire::CmReqWire>(mad));
    change(body);
    return mad;
  }
};

TEST_F(PassiveTest, OnReq_TellsWhatIsAskedFor) {
  Request asked = request(kPeerQpn, ends_there());
  peer_.ends.traffic_class = 0x28;
  peer_.ends.flow_label = 0xABCDE;
  peer_.ends.hop_limit = 9;
  asked.type = QpType::kUc;
  asked.retry_count = 5;
  asked.ack_timeout = 19;
  asked.qkey = 0x1357;
  asked.qp.rnr_retry_count = 6;
  asked.qp.has_srq = true;
  asked.data = data_of("hello");
  peer_.initiator_depth = 200;  // cut to what the device has
  ASSERT_EQ(given(make_req(peer_, asked, config_)), "| Requested");
  const Request& told = events_[0].request;
  EXPECT_EQ(told.ends.local, kHere);
  EXPECT_EQ(told.ends.remote, kThere);
  EXPECT_EQ(told.ends.traffic_class, 0x28);
  EXPECT_EQ(told.ends.flow_label, 0xABCDEU);
  EXPECT_EQ(told.ends.hop_limit, 9);
  EXPECT_EQ(told.service, kService);
  EXPECT_EQ(told.type, QpType::kUc);
  EXPECT_EQ(told.path_mtu, 3);
  EXPECT_EQ(told.retry_count, 5);
  EXPECT_EQ(told.ack_timeout, 19);
  EXPECT_EQ(told.qkey, 0x1357U);
  EXPECT_EQ(told.qp.qpn, kPeerQpn);
  EXPECT_EQ(told.qp.starting_psn, Psn(0x1000));
  EXPECT_EQ(told.qp.responder_resources, 4);
  EXPECT_EQ(told.qp.initiator_depth, 16);
  EXPECT_EQ(told.qp.rnr_retry_count, 6);
  EXPECT_TRUE(told.qp.has_srq);
  EXPECT_EQ(told.data.size, kRequestPrivateBytes);
  EXPECT_EQ(text_of(told.data), "hello");
}

TEST_F(PassiveTest, OnReq_FaultsAreRefusedFromNoState) {
  const auto refusal_of = [this](auto change) { return given(req_with(change)); };
  EXPECT_EQ(refusal_of([](wire::CmReqWire& r) { r.primary.local_gid = kElsewhere; }), "REJ(12)");
  EXPECT_EQ(refusal_of([](wire::CmReqWire& r) { r.primary.remote_gid = kElsewhere; }), "REJ(12)");
  EXPECT_EQ(refusal_of([](wire::CmReqWire& r) { r.mtu_and_rnr = 0x07; }), "REJ(26)");
  EXPECT_EQ(refusal_of([](wire::CmReqWire& r) { r.mtu_and_rnr = 0x67; }), "REJ(26)");
  EXPECT_EQ(refusal_of([](wire::CmReqWire& r) { r.remote_timeout_and_service |= 4; }), "REJ(9)");
  EXPECT_EQ(refusal_of([](wire::CmReqWire& r) { r.remote_timeout_and_service |= 6; }), "REJ(9)");
  EXPECT_EQ(refusal_of([](wire::CmReqWire& r) { r.pkey = 0x8001; }), "REJ(5)");
  EXPECT_EQ(refusal_of([](wire::CmReqWire& r) { r.local_qpn = 1; }), "");
  EXPECT_EQ(manager_.counters().malformed, 8U);
  EXPECT_EQ(manager_.connections(), 0U);
}

TEST_F(PassiveTest, OnReq_LimitedMembershipOfThePartitionIsTaken) {
  EXPECT_EQ(given(req_with([](wire::CmReqWire& r) { r.pkey = 0x7FFF; })), "| Requested");
}

TEST_F(PassiveTest, OnReq_FullTable) {
  for (std::uint32_t i = 0; i < config_.most_connections; ++i)
    ASSERT_EQ(given(req_with([i](wire::CmReqWire& r) {
                r.local_comm_id = 0x100 + i;
                r.local_qpn = 0x100 + i;
              })),
              "| Requested");
  ASSERT_EQ(given(req()), "REJ(3)");
  EXPECT_EQ(body_of<wire::CmRejWire>(mads_[0].mad).remote_comm_id.get(), kPeerId);
  EXPECT_EQ(manager_.counters().no_room, 1U);
}

TEST_F(PassiveTest, OnReq_Xrc) {
  Request asked = request(kPeerQpn, ends_there());
  asked.type = QpType::kXrcSend;
  ASSERT_EQ(given(make_req(peer_, asked, config_)), "| Requested");
  EXPECT_EQ(events_[0].request.type, QpType::kXrcSend);
  ASSERT_EQ(manager_.accept(events_[0].connection, reply(kOurQpn), now_), 0);
  ASSERT_EQ(drained(), "REP");
  EXPECT_EQ(body_of<wire::CmRepWire>(mads_[0].mad).local_eecn.get(), kOurQpn.value);
}

TEST_F(PassiveTest, Accept_SaysWhatTheProgramGives) {
  peer_.responder_resources = peer_.initiator_depth = 1;
  be_requested();
  Reply granted = reply(kOurQpn);
  granted.qp.responder_resources = 200;
  granted.qp.initiator_depth = 5;
  granted.qp.rnr_retry_count = 6;
  granted.data = data_of("welcome");
  ASSERT_EQ(manager_.accept(id_, granted, now_), 0);
  ASSERT_EQ(drained(), "REP");
  const auto& body = body_of<wire::CmRepWire>(mads_[0].mad);
  EXPECT_EQ(body.local_comm_id.get(), id_.value);
  EXPECT_EQ(body.remote_comm_id.get(), kPeerId);
  const Reply read = read_rep(body, QpType::kRc).value();
  EXPECT_EQ(read.qp.qpn, kOurQpn);
  EXPECT_EQ(read.qp.responder_resources, 16) << "what the device has, though the peer wants one";
  EXPECT_EQ(read.qp.initiator_depth, 5) << "though the peer has offered one";
  EXPECT_EQ(read.qp.rnr_retry_count, 6);
  EXPECT_EQ(text_of(read.data), "welcome");
}

TEST_F(PassiveTest, Accept_RefusesWhatCannotBe) {
  be_requested();
  Reply granted = reply(Qpn{0});
  EXPECT_EQ(manager_.accept(id_, granted, now_), EINVAL);
  granted = reply(kOurQpn);
  granted.data.size = kReplyPrivateBytes + 1;
  EXPECT_EQ(manager_.accept(id_, granted, now_), EINVAL);
  granted.data.size = kReplyPrivateBytes;
  EXPECT_EQ(manager_.accept(id_, granted, now_), 0);
  EXPECT_EQ(manager_.accept(id_, granted, now_), EINVAL);
  EXPECT_EQ(manager_.accept({id_.value + 1}, granted, now_), EINVAL);
}

TEST_F(PassiveTest, Accept_SaysThatThereIsNoFailover) {
  ASSERT_EQ(given(req_with([](wire::CmReqWire& r) { r.alternate.remote_gid = kElsewhere; })), "| Requested");
  ASSERT_EQ(manager_.accept(events_[0].connection, reply(kOurQpn), now_), 0);
  ASSERT_EQ(drained(), "REP");
  EXPECT_EQ(wire::kFailover.of(body_of<wire::CmRepWire>(mads_[0].mad).ack_delay_and_failover), 1);
}

TEST_F(PassiveTest, OnRtu_BringsItsData) {
  be_reply_sent();
  ASSERT_EQ(given(make_rtu(peer_, data_of("ready").view())), "| Established");
  EXPECT_EQ(text_of(events_[0].data), "ready");
  EXPECT_EQ(given(rtu()), "");
  EXPECT_TRUE(manager_.next_deadline().is_never());
}

TEST_F(PassiveTest, OnRtu_OfAnotherPeerIsNotMeant) {
  be_reply_sent();
  give(rtu(), {kHere, kElsewhere});
  EXPECT_EQ(drained(), "");
  peer_.id = {kPeerId + 1};
  EXPECT_EQ(given(rtu()), "");
  EXPECT_EQ(manager_.counters().unmatched, 2U);
}

TEST_F(PassiveTest, OnTraffic_EstablishesOnce) {
  be_requested();
  EXPECT_EQ(manager_.on_traffic(id_, now_), EINVAL);
  ASSERT_EQ(manager_.accept(id_, reply(kOurQpn), now_), 0);
  ASSERT_EQ(drained(), "REP");
  EXPECT_EQ(manager_.on_traffic(id_, now_), 0);
  EXPECT_EQ(drained(), "| Established");
  EXPECT_EQ(manager_.on_traffic(id_, now_), EISCONN);
  EXPECT_EQ(given(rtu()), "");
  EXPECT_TRUE(manager_.next_deadline().is_never());
}

TEST_F(PassiveTest, OnReq_AgainIsAnsweredAgain) {
  be_requested();
  manager_.delay(id_, now_);
  EXPECT_EQ(given(req()), "MRA");
  ASSERT_EQ(manager_.accept(id_, reply(kOurQpn), now_), 0);
  ASSERT_EQ(drained(), "REP");
  const Mad first = mads_[0].mad;
  ASSERT_EQ(given(req()), "REP");
  EXPECT_EQ(mads_[0].mad, first);
  ASSERT_EQ(given(rtu()), "| Established");
  EXPECT_EQ(given(req()), "");
  EXPECT_EQ(manager_.connections(), 1U);
}

TEST_F(PassiveTest, OnReq_OfAConnectedQpEndsTheStaleConnection) {
  be_established_passive();
  const ConnectionId old = id_;
  peer_.id = {kPeerId + 1};
  ASSERT_EQ(given(req()), "DREQ REJ(10) | Disconnecting");
  EXPECT_EQ(events_[0].connection, old);
  EXPECT_EQ(body_of<wire::CmRejWire>(mads_[1].mad).remote_comm_id.get(), kPeerId + 1);
  EXPECT_EQ(given(req()), "| Requested");  // the peer's next try is welcome
}

TEST_F(PassiveTest, OnReq_OfAQpThatIsBeingConnected) {
  be_reply_sent();
  peer_.id = {kPeerId + 1};
  EXPECT_EQ(given(req()), "REJ(10) | Rejected(10) Requested");
  EXPECT_TRUE(manager_.is_in_use(kOurQpn));  // in time-wait
}

TEST_F(PassiveTest, OnReq_OfAQpThatIsBeingDisconnectedCountsAsDrep) {
  be_disconnect_sent();
  peer_.id = {kPeerId + 1};
  ASSERT_EQ(given(req()), "| Disconnected Requested");
  EXPECT_EQ(events_[0].connection, id_);
}

TEST_F(PassiveTest, OnReq_WithAnIdThatIsUsedAgain) {
  be_established_passive();
  const Mad other = req_with([](wire::CmReqWire& r) { r.local_qpn = 0x999; });
  ASSERT_EQ(given(other), "DREQ REJ(10) | Disconnecting");  // the peer has started anew
  EXPECT_EQ(given(other), "| Requested");
}

TEST_F(PassiveTest, OnReq_WithAnIdOfAConnectionInTimeWaitIsNew) {
  be_in_time_wait();
  EXPECT_EQ(given(req()), "");  // late
  EXPECT_EQ(given(req_with([](wire::CmReqWire& r) { r.local_qpn = 0x999; })), "| Requested");
}

TEST_F(PassiveTest, OnReq_SameNumbersOfAnotherPeerAreAnotherConnection) {
  be_established_passive();
  const Mad other = req_with([](wire::CmReqWire& r) { r.primary.local_gid = kElsewhere; });
  give(other, {kHere, kElsewhere});
  EXPECT_EQ(drained(), "| Requested");
  EXPECT_EQ(manager_.connections(), 2U);
}

}  // namespace
}  // namespace urdma::cm
