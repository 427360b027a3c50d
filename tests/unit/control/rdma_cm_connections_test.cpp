// Connections and datagram services as a program has them: every step, and what goes wrong.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>

#include "tests/unit/control/rdma_cm_fixture.hpp"

namespace urdma::control::rdma_cm {
namespace {

constexpr std::uint16_t kPortOfServer = 7471;
constexpr std::uint64_t kServerUid = 0xABCD;

class Connected : public RdmaCmTest {
 protected:
  // Up to the request that the server's program has taken.
  void request() {
    listener = make_listener(kPortOfServer);
    client = make_ready(address_of(ipv4(2), kPortOfServer));
    ASSERT_EQ(connect(client, parameters(0x111, "from the client")), 0);
    const auto event = expect_event(EventType::kConnectRequest);
    server = event.id;
    requested = event;
  }
  void establish() {
    request();
    ASSERT_EQ(accept(server, parameters(0x222, "from the server"), kServerUid), 0);
    replied = expect_event(EventType::kConnectResponse);
    ASSERT_EQ(accept(client, {}), 0);
    established = expect_event(EventType::kEstablished);
  }

  std::uint32_t listener = 0;
  std::uint32_t client = 0;
  std::uint32_t server = 0;
  rdma_ucm_event_resp requested{};
  rdma_ucm_event_resp replied{};
  rdma_ucm_event_resp established{};
};

TEST_F(Connected, Connect_RequestSaysWhatTheClientSaid) {
  request();
  const rdma_ucm_conn_param& told = requested.param.conn;
  EXPECT_EQ(told.qp_num, 0x111U);
  EXPECT_EQ(told.responder_resources, 5) << "what the client starts is what the server answers";
  EXPECT_EQ(told.initiator_depth, 3);
  EXPECT_EQ(told.retry_count, 6);
  EXPECT_EQ(told.rnr_retry_count, 4);
  EXPECT_EQ(told.private_data_len, 92 - 36) << "as much as the message carries";
  EXPECT_STREQ(reinterpret_cast<const char*>(told.private_data), "from the client");
  EXPECT_NE(requested.id, listener);
}

TEST_F(Connected, Accept_EndsWithBothEstablished) {
  establish();
  EXPECT_EQ(replied.param.conn.qp_num, 0x222U);
  EXPECT_STREQ(reinterpret_cast<const char*>(replied.param.conn.private_data), "from the server");
  EXPECT_EQ(established.uid, kServerUid);
  EXPECT_EQ(established.param.conn.private_data_len, 0) << "as Linux has it";
  EXPECT_FALSE(next_event().has_value());
}

TEST_F(Connected, InitQpAttr_SidesAgree) {
  establish();
  const auto client_rtr = qp_attributes(client, QpState::kRtr);
  const auto client_rts = qp_attributes(client, QpState::kRts);
  const auto server_rtr = qp_attributes(server, QpState::kRtr);
  const auto server_rts = qp_attributes(server, QpState::kRts);
  EXPECT_EQ(client_rtr.dest_qp_num, 0x222U);
  EXPECT_EQ(server_rtr.dest_qp_num, 0x111U);
  EXPECT_EQ(client_rtr.rq_psn, server_rts.sq_psn);
  EXPECT_EQ(server_rtr.rq_psn, client_rts.sq_psn);
  EXPECT_EQ(client_rtr.max_dest_rd_atomic, 5) << "what the server starts";
  EXPECT_EQ(client_rts.max_rd_atomic, 3);
  EXPECT_EQ(client_rts.retry_cnt, 6);
  EXPECT_EQ(client_rtr.path_mtu, 3U);
  EXPECT_EQ(std::memcmp(client_rtr.ah_attr.grh.dgid, ipv4(2).data(), 16), 0);
  EXPECT_EQ(std::memcmp(server_rtr.ah_attr.grh.dgid, ipv4(2).data(), 16), 0)
      << "its own address: the same node";
  EXPECT_EQ(client_rtr.qp_attr_mask, kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn |
                                         kAttrMaxDestRdAtomic | kAttrMinRnrTimer);
}

// A READ beyond what its responder was told of fails the connection.
TEST_F(Connected, InitQpAttr_NobodyStartsMoreThanTheOtherAnswers) {
  const auto set_up = [this](std::uint8_t client_depth, std::uint8_t server_depth) {
    client = make_ready(address_of(ipv4(2), kPortOfServer));
    rdma_ucm_conn_param given = parameters(0x111, "");
    given.responder_resources = given.initiator_depth = client_depth;
    EXPECT_EQ(connect(client, given), 0);
    server = expect_event(EventType::kConnectRequest).id;
    given.responder_resources = given.initiator_depth = server_depth;
    given.qp_num = 0x222;
    EXPECT_EQ(accept(server, given, kServerUid), 0);
    expect_event(EventType::kConnectResponse);
    EXPECT_EQ(accept(client, {}), 0);
    expect_event(EventType::kEstablished);
  };
  struct Case {
    std::uint8_t client, server, agreed;
  };
  listener = make_listener(kPortOfServer);
  for (const Case& each : {Case{1, 16, 16}, Case{16, 1, 1}, Case{4, 200, 16}}) {
    set_up(each.client, each.server);
    SCOPED_TRACE(testing::Message() << int{each.client} << " and " << int{each.server});
    EXPECT_EQ(qp_attributes(server, QpState::kRts).max_rd_atomic, each.agreed);
    EXPECT_EQ(qp_attributes(client, QpState::kRtr).max_dest_rd_atomic, each.agreed);
    EXPECT_EQ(qp_attributes(client, QpState::kRts).max_rd_atomic, each.agreed);
    EXPECT_EQ(qp_attributes(server, QpState::kRtr).max_dest_rd_atomic, each.agreed);
    EXPECT_EQ(destroy(client).error, 0);
    EXPECT_EQ(destroy(server).error, 0);
    while (next_event()) {
    }
  }
}

TEST_F(Connected, InitQpAttr_BeforeAConnectionThoseOfTheFirstState) {
  client = make_ready(address_of(ipv4(2), kPortOfServer));
  const auto attributes = qp_attributes(client, QpState::kInit);
  EXPECT_EQ(attributes.qp_attr_mask, kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags);
  EXPECT_EQ(attributes.qp_access_flags, 0U);
  const auto later = qp_attributes(client, QpState::kRtr);
  EXPECT_EQ(later.qp_attr_mask, attributes.qp_attr_mask);
  EXPECT_EQ(later.qp_state, static_cast<std::uint32_t>(QpState::kRtr));
  const std::uint32_t datagrams = make_ready(address_of(ipv4(2), kPortOfServer), PortSpace::kUdp);
  EXPECT_EQ(qp_attributes(datagrams, QpState::kRts).qp_attr_mask,
            kAttrState | kAttrPkeyIndex | kAttrPort | kAttrQkey);
  ASSERT_EQ(connect(client, parameters(0x101, "")), 0);
  EXPECT_EQ(run(RDMA_USER_CM_CMD_INIT_QP_ATTR, rdma_ucm_init_qp_attr{0, client, 2}).error, EINVAL)
      << "the peer is not known yet";
  const std::uint32_t idle = create();
  EXPECT_EQ(run(RDMA_USER_CM_CMD_INIT_QP_ATTR, rdma_ucm_init_qp_attr{0, idle, 1}).error, EINVAL);
}

TEST_F(Connected, Connect_NobodyListens) {
  client = make_ready(address_of(ipv4(2), kPortOfServer));
  ASSERT_EQ(connect(client, parameters(0x101, "")), 0);
  EXPECT_EQ(expect_event(EventType::kRejected).status, 8U) << "invalid service ID";
}

TEST_F(Connected, Connect_NobodyAnswers) {
  client = make_ready(address_of(ipv4(77), kPortOfServer));
  ASSERT_EQ(connect(client, parameters(0x101, "")), 0);
  EXPECT_FALSE(next_event().has_value());
  network.pass(context, seconds(120));
  EXPECT_EQ(static_cast<int>(expect_event(EventType::kUnreachable).status), -ETIMEDOUT);
}

TEST_F(Connected, Connect_PathMtuIsTheSmallerOne) {
  network.path_mtu = {5, 2};
  listener = make_listener(kPortOfServer);
  const std::uint32_t id = create();
  ASSERT_EQ(bind(id, address_of(ipv4(1), 0)), 0);
  ASSERT_EQ(resolve(id, address_of(ipv4(2), kPortOfServer)), 0);
  expect_event(EventType::kAddressResolved);
  ASSERT_EQ(resolve_route(id), 0);
  expect_event(EventType::kRouteResolved);
  ASSERT_EQ(connect(id, parameters(0x101, "")), 0);
  server = expect_event(EventType::kConnectRequest).id;
  ASSERT_EQ(accept(server, parameters(0x222, ""), kServerUid), 0);
  expect_event(EventType::kConnectResponse);
  EXPECT_EQ(qp_attributes(id, QpState::kRtr).path_mtu, 2U);
  EXPECT_EQ(qp_attributes(server, QpState::kRtr).path_mtu, 2U);
}

TEST_F(Connected, Connect_ChecksStateAndData) {
  const std::uint32_t id = create();
  EXPECT_EQ(connect(id, parameters(0x101, "")), EINVAL) << "no route";
  client = make_ready(address_of(ipv4(2), kPortOfServer));
  rdma_ucm_conn_param given = parameters(0x101, "");
  given.valid = 0;
  EXPECT_EQ(connect(client, given), EINVAL);
  given = parameters(0x101, "");
  given.private_data_len = 57;
  EXPECT_EQ(connect(client, given), EINVAL) << "longer than a request carries";
  given.private_data_len = 255;
  EXPECT_EQ(connect(client, given), EINVAL);
  given.private_data_len = 56;
  EXPECT_EQ(connect(client, given), 0);
}

TEST_F(Connected, Reject_TheClientHearsWhy) {
  request();
  rdma_ucm_reject body{};
  body.id = server;
  body.private_data_len = 2;
  body.private_data[0] = 'n';
  body.private_data[1] = 'o';
  EXPECT_EQ(run(RDMA_USER_CM_CMD_REJECT, body).error, 0);
  const auto event = expect_event(EventType::kRejected);
  EXPECT_EQ(event.status, 28U) << "by the consumer";
  EXPECT_STREQ(reinterpret_cast<const char*>(event.param.conn.private_data), "no");
  EXPECT_EQ(accept(server, parameters(0x101, "")), EINVAL);
}

TEST_F(Connected, Reject_ReasonsOfProgramsOnly) {
  request();
  rdma_ucm_reject body{};
  body.id = server;
  body.reason = 8;
  EXPECT_EQ(run(RDMA_USER_CM_CMD_REJECT, body).error, EINVAL);
  body.reason = 35;  // rdma_reject_ece
  EXPECT_EQ(run(RDMA_USER_CM_CMD_REJECT, body).error, 0);
  EXPECT_EQ(expect_event(EventType::kRejected).status, 35U);
}

TEST_F(Connected, Reject_AfterTheAnswer) {
  request();
  ASSERT_EQ(accept(server, parameters(0x222, ""), kServerUid), 0);
  expect_event(EventType::kConnectResponse);
  rdma_ucm_reject body{};
  body.id = server;
  EXPECT_EQ(run(RDMA_USER_CM_CMD_REJECT, body).error, 0);
  EXPECT_EQ(expect_event(EventType::kRejected).id, client);
}

TEST_F(Connected, Disconnect_BothAreToldOnce) {
  establish();
  EXPECT_EQ(disconnect(client), 0);
  const auto first = expect_event(EventType::kDisconnected);
  const auto second = expect_event(EventType::kDisconnected);
  EXPECT_NE(first.uid, second.uid);
  for (const auto& event : {first, second}) {
    EXPECT_EQ(event.status, 0U);
    EXPECT_EQ(event.param.conn.private_data_len, 0) << "as Linux has it";
  }
  EXPECT_EQ(disconnect(server), 0) << "as programs do when they are told";
  EXPECT_FALSE(next_event().has_value());
  network.pass(context, seconds(30));
  EXPECT_EQ(expect_event(EventType::kTimeWaitExit).event, 15U);
}

// A program that disconnects too early still hears what has become of its attempt.
TEST_F(Connected, Disconnect_ThatNobodyAnswersIsTimedOut) {
  establish();
  network.is_cut = true;
  EXPECT_EQ(disconnect(client), 0);
  EXPECT_FALSE(next_event().has_value());
  network.pass(context, seconds(10));
  const auto event = expect_event(EventType::kDisconnected);
  EXPECT_EQ(event.id, client);
  EXPECT_EQ(static_cast<int>(event.status), -ETIMEDOUT);
}

TEST_F(Connected, Disconnect_BeforeItStandsChangesNothing) {
  request();
  EXPECT_EQ(disconnect(client), 0);
  EXPECT_EQ(disconnect(server), 0);
  ASSERT_EQ(accept(server, parameters(0x222, ""), kServerUid), 0);
  EXPECT_EQ(disconnect(server), 0);
  expect_event(EventType::kConnectResponse);
  EXPECT_EQ(disconnect(client), 0);
  ASSERT_EQ(accept(client, {}), 0);
  EXPECT_EQ(expect_event(EventType::kEstablished).uid, kServerUid);
  EXPECT_EQ(disconnect(server), 0);
  expect_event(EventType::kDisconnected);
  expect_event(EventType::kDisconnected);
}

TEST_F(Connected, Disconnect_OfARequestThatNobodyAnswers) {
  client = make_ready(address_of(ipv4(77), kPortOfServer));
  ASSERT_EQ(connect(client, parameters(0x101, "")), 0);
  EXPECT_EQ(disconnect(client), 0);
  network.pass(context, seconds(120));
  EXPECT_EQ(static_cast<int>(expect_event(EventType::kUnreachable).status), -ETIMEDOUT);
}

TEST_F(Connected, Disconnect_WithoutAConnection) {
  EXPECT_EQ(disconnect(create()), EINVAL);
  EXPECT_EQ(disconnect(12345), ENOENT);
}

TEST_F(Connected, Destroy_ThePeerIsDisconnected) {
  establish();
  EXPECT_EQ(destroy(server).error, 0);
  EXPECT_EQ(expect_event(EventType::kDisconnected).id, client);
}

TEST_F(Connected, Destroy_AListenerRefusesWhatWaits) {
  listener = make_listener(kPortOfServer);
  client = make_ready(address_of(ipv4(2), kPortOfServer));
  ASSERT_EQ(connect(client, parameters(0x101, "")), 0);
  ASSERT_EQ(destroy(listener).error, 0);
  EXPECT_EQ(expect_event(EventType::kRejected).id, client);
  EXPECT_EQ(context.ids.size(), 1U) << "the request's ID went with its listener";
}

TEST_F(Connected, Destroy_CountsWhatWasTaken) {
  establish();
  EXPECT_EQ(body_of<rdma_ucm_destroy_id_resp>(destroy(listener)).events_reported, 1U) << "the request";
  EXPECT_EQ(body_of<rdma_ucm_destroy_id_resp>(destroy(server)).events_reported, 1U);
  EXPECT_EQ(body_of<rdma_ucm_destroy_id_resp>(destroy(client)).events_reported, 3U)
      << "address, route, response; that it is disconnected, it has not taken";
  EXPECT_TRUE(channel->events.empty());
}

TEST_F(Connected, Request_IsNobodysBeforeItIsTaken) {
  listener = make_listener(kPortOfServer);
  client = make_ready(address_of(ipv4(2), kPortOfServer));
  ASSERT_EQ(connect(client, parameters(0x101, "")), 0);
  ASSERT_EQ(channel->events.size(), 1U);
  const std::uint32_t child = channel->events.front().child;
  EXPECT_EQ(destroy(child).error, ENOENT);
  EXPECT_EQ(accept(child, parameters(0x101, "")), ENOENT);
}

TEST_F(Connected, Request_TooManyWait) {
  listener = make_listener(kPortOfServer);
  context.find(listener)->waiting_requests = 1024;
  client = make_ready(address_of(ipv4(2), kPortOfServer));
  ASSERT_EQ(connect(client, parameters(0x101, "")), 0);
  EXPECT_EQ(expect_event(EventType::kRejected).status, 3U) << "no resources";
  EXPECT_EQ(context.ids.size(), 2U);
}

TEST_F(Connected, Notify_OnlyThatTrafficHasCome) {
  request();
  ASSERT_EQ(accept(server, parameters(0x222, ""), kServerUid), 0);
  const auto comm_est = static_cast<std::uint32_t>(AsyncEvent::kCommEst);
  EXPECT_EQ(run(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{server, comm_est + 1}).error, EINVAL);
  EXPECT_EQ(run(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{server, comm_est}).error, 0);
  expect_event(EventType::kConnectResponse);
  EXPECT_EQ(expect_event(EventType::kEstablished).uid, kServerUid);
  EXPECT_EQ(run(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{server, comm_est}).error, EISCONN);
}

TEST_F(Connected, Loopback_AddressesStayAsTheProgramKnowsThem) {
  const std::uint32_t id = create();
  SocketAddress loopback = address_of(wire::gid_from_ipv4(0x7F000001), kPortOfServer);
  ASSERT_EQ(bind(id, loopback), 0);
  ASSERT_EQ(listen(id), 0);
  client = make_ready(loopback);
  ASSERT_EQ(connect(client, parameters(0x101, "")), 0);
  const auto event = expect_event(EventType::kConnectRequest);
  EXPECT_EQ(context.find(event.id)->source.gid, loopback.gid);
  EXPECT_EQ(context.find(event.id)->dest.gid, loopback.gid);
  EXPECT_EQ(context.find(event.id)->remote_gid, ipv4(1));
}

TEST_F(Connected, Loopback_AListenerIsFoundAtEveryAddress) {
  SocketAddress loopback = kLoopbackIpv4;
  loopback.port = kPortOfServer;
  const std::uint32_t id = create();
  ASSERT_EQ(bind(id, loopback), 0);
  ASSERT_EQ(listen(id), 0);
  for (const std::uint8_t device : {1, 2}) {
    client = make_ready(address_of(ipv4(device), kPortOfServer));
    ASSERT_EQ(connect(client, parameters(0x101, "")), 0);
    EXPECT_EQ(context.find(expect_event(EventType::kConnectRequest).id)->source.gid, ipv4(device));
  }
}

TEST_F(Connected, Datagrams_TheClientLearnsTheQueuePair) {
  listener = make_listener(kPortOfServer, PortSpace::kUdp);
  client = make_ready(address_of(ipv4(2), kPortOfServer), PortSpace::kUdp);
  ASSERT_EQ(connect(client, parameters(0x111, "who")), 0);
  const auto request = expect_event(EventType::kConnectRequest);
  EXPECT_EQ(request.param.ud.private_data_len, 216 - 36);
  EXPECT_STREQ(reinterpret_cast<const char*>(request.param.ud.private_data), "who");
  ASSERT_EQ(accept(request.id, parameters(0x222, "me"), kServerUid), 0);
  const auto event = expect_event(EventType::kEstablished);
  EXPECT_EQ(event.id, client);
  EXPECT_EQ(event.param.ud.qp_num, 0x222U);
  EXPECT_EQ(event.param.ud.qkey, 0x01234567U);
  EXPECT_EQ(event.param.ud.ah_attr.is_global, 1);
  EXPECT_EQ(std::memcmp(event.param.ud.ah_attr.grh.dgid, ipv4(2).data(), 16), 0);
  EXPECT_STREQ(reinterpret_cast<const char*>(event.param.ud.private_data), "me");
}

TEST_F(Connected, Datagrams_Refused) {
  client = make_ready(address_of(ipv4(2), kPortOfServer), PortSpace::kUdp);
  ASSERT_EQ(connect(client, parameters(0x101, "")), 0);
  EXPECT_EQ(expect_event(EventType::kUnreachable).status, 1U) << "no such service";
  listener = make_listener(kPortOfServer, PortSpace::kUdp);
  const std::uint32_t again = make_ready(address_of(ipv4(2), kPortOfServer), PortSpace::kUdp);
  ASSERT_EQ(connect(again, parameters(0x101, "")), 0);
  rdma_ucm_reject body{};
  body.id = expect_event(EventType::kConnectRequest).id;
  EXPECT_EQ(run(RDMA_USER_CM_CMD_REJECT, body).error, 0);
  EXPECT_EQ(expect_event(EventType::kUnreachable).status, 2U) << "rejected";
}

}  // namespace
}  // namespace urdma::control::rdma_cm
