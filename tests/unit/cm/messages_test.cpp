// Tests of datapath/cm/messages.hpp: the messages of rxe, made again to the byte from what they say.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/cm/messages.hpp"

#include <gtest/gtest.h>

#include <bit>

#include "tests/support/golden_mads.hpp"

namespace urdma::cm {
namespace {

template <typename Body>
const Body& body_of(const Mad& mad) {
  return wire::overlay<wire::MadOf<Body>>(mad.data()).body;
}

// What the sender of a golden message knew: the numbers in its header, and what Linux is configured with.
struct Sender {
  Connection connection;
  Config config;
};

template <typename Body>
Sender sender_of(const Mad& mad) {
  Sender sender;
  sender.config.response_time = timeout_of(20);
  sender.config.most_retries = 15;
  sender.connection.transaction_id = wire::parse_cm_header(mad)->transaction_id;
  const Body& body = body_of<Body>(mad);
  if constexpr (requires { body.local_comm_id; }) sender.connection.id = {body.local_comm_id.get()};
  if constexpr (requires { body.remote_comm_id; }) sender.connection.remote_id = body.remote_comm_id.get();
  if constexpr (requires { body.local_ca_guid; })
    sender.config.channel_adapter_guid = std::bit_cast<std::uint64_t>(body.local_ca_guid);
  return sender;
}

Mad remade_req(const Mad& mad) {
  const auto& body = body_of<wire::CmReqWire>(mad);
  Sender sender = sender_of<wire::CmReqWire>(mad);
  const Request request = read_req(body, {body.primary.remote_gid, body.primary.local_gid});
  sender.connection.ends = {request.ends.remote, request.ends.local, request.ends.traffic_class,
                            request.ends.hop_limit, request.ends.flow_label};
  sender.connection.responder_resources = request.qp.responder_resources;
  sender.connection.initiator_depth = request.qp.initiator_depth;
  return make_req(sender.connection, request, sender.config);
}

Mad remade(const Mad& mad) {
  switch (wire::parse_cm_header(mad)->attribute) {
    case wire::CmAttribute::kReq:
      return remade_req(mad);
    case wire::CmAttribute::kRep: {
      const Sender sender = sender_of<wire::CmRepWire>(mad);
      const auto reply = read_rep(body_of<wire::CmRepWire>(mad), QpType::kRc);
      return make_rep(sender.connection, *reply, sender.config);
    }
    case wire::CmAttribute::kRtu:
      return make_rtu(sender_of<wire::CmRtuWire>(mad).connection, body_of<wire::CmRtuWire>(mad).private_data);
    case wire::CmAttribute::kDreq: {
      const auto& body = body_of<wire::CmDreqWire>(mad);
      Connection connection = sender_of<wire::CmDreqWire>(mad).connection;
      connection.remote_qpn = Qpn{body.remote_qpn.get()};
      return make_dreq(connection, body.private_data);
    }
    case wire::CmAttribute::kDrep:
      return make_drep(address_of(sender_of<wire::CmDrepWire>(mad).connection));
    case wire::CmAttribute::kRej: {
      const auto& body = body_of<wire::CmRejWire>(mad);
      const auto reason = static_cast<RejectReason>(body.reason.get());
      return make_rej(address_of(sender_of<wire::CmRejWire>(mad).connection),
                      {reason, wire::CmSubject::kReq, {}, body.private_data});
    }
    case wire::CmAttribute::kSidrReq: {
      const auto& body = body_of<wire::CmSidrReqWire>(mad);
      Connection connection = sender_of<wire::CmSidrReqWire>(mad).connection;
      connection.id = {body.request_id.get()};
      return make_sidr_req(connection, read_sidr_req(body, {}));
    }
    case wire::CmAttribute::kSidrRep: {
      const auto& body = body_of<wire::CmSidrRepWire>(mad);
      Connection connection = sender_of<wire::CmSidrRepWire>(mad).connection;
      connection.remote_id = body.request_id.get();
      connection.service = {body.service_id.get()};
      return make_sidr_rep(connection, *read_sidr_rep(body));
    }
    case wire::CmAttribute::kMra:  // not in the captures
      return {};
  }
  return {};
}

TEST(MakeMessages, GoldenDatagramsAreMadeAgainToTheByte) {
  const auto mads = test::golden_mads();
  ASSERT_EQ(mads.size(), 34U);
  for (const auto& [name, mad] : mads) {
    const Mad made = remade(mad);
    for (std::size_t i = 0; i < mad.size(); ++i) ASSERT_EQ(made[i], mad[i]) << name << " byte " << i;
  }
}

TEST(FaultOf, GoldenRequestsHaveNone) {
  for (const auto& [name, mad] : test::golden_mads()) {
    if (wire::parse_cm_header(mad)->attribute != wire::CmAttribute::kReq) continue;
    const auto& body = body_of<wire::CmReqWire>(mad);
    EXPECT_FALSE(fault_of(body, {wire::gid_from_ipv4(0x0A090001), wire::gid_from_ipv4(0x0A090002)})) << name;
  }
}

TEST(TimeoutCode, IsNotShorterThanTheTime) {
  EXPECT_EQ(timeout_code(nanoseconds(0)), 0);
  EXPECT_EQ(timeout_code(nanoseconds(4096)), 0);
  EXPECT_EQ(timeout_code(nanoseconds(4097)), 1);
  EXPECT_EQ(timeout_code(milliseconds(500)), 17);
  EXPECT_EQ(timeout_code(seconds(60)), 24);
  EXPECT_EQ(timeout_code(seconds(1'000'000)), 31);
  for (std::uint8_t code = 0; code <= kMostTimeoutCode; ++code)
    EXPECT_EQ(timeout_code(timeout_of(code)), code);
}

TEST(ReadReq, ServicesOfTransport) {
  for (const QpType type : {QpType::kRc, QpType::kUc, QpType::kXrcSend}) {
    Request request;
    request.type = type;
    const Mad mad = make_req({}, request, {});
    EXPECT_EQ(read_req(body_of<wire::CmReqWire>(mad), {}).type, type);
  }
}

TEST(ReadReq, FlowControlAndSrq) {
  Request request;
  request.qp.has_end_to_end_flow_control = true;
  Mad mad = make_req({}, request, {});
  EXPECT_TRUE(read_req(body_of<wire::CmReqWire>(mad), {}).qp.has_end_to_end_flow_control);
  EXPECT_FALSE(read_req(body_of<wire::CmReqWire>(mad), {}).qp.has_srq);
}

TEST(PrivateDataOf, IsCutToWhatCanBe) {
  const std::vector<std::uint8_t> much(300, 7);
  const PrivateData data = private_data_of(much);
  EXPECT_EQ(data.size, PrivateData::kMost);
  EXPECT_EQ(data.bytes.back(), 7);
}

}  // namespace
}  // namespace urdma::cm
