// Tests of include/urdma/wire/cm_messages.hpp: where each field stands, by the frames of rxe.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/cm_messages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>

#include "tests/support/golden_mads.hpp"

namespace urdma::wire {
namespace {

template <typename Body>
Body golden(const std::string& name, CmAttribute attribute) {
  const auto mads = test::golden_mads();
  const auto found = mads.find(name);
  EXPECT_NE(found, mads.end()) << name;
  if (found == mads.end()) return {};
  const auto header = parse_cm_header(found->second);
  EXPECT_TRUE(header && header->attribute == attribute) << name;
  return std::bit_cast<MadOf<Body>>(found->second).body;
}

TEST(CmMessages, GoldenDatagramsAreTakenByTheirHeaders) {
  std::map<int, int> attributes;
  for (const auto& [name, mad] : test::golden_mads()) {
    const auto header = parse_cm_header(mad);
    ASSERT_TRUE(header) << name;
    ++attributes[static_cast<int>(header->attribute)];
  }
  const std::map<int, int> expected = {{0x10, 7}, {0x12, 1}, {0x13, 6}, {0x14, 6},
                                       {0x15, 6}, {0x16, 6}, {0x17, 1}, {0x18, 1}};
  EXPECT_EQ(attributes, expected);
}

TEST(CmMessages, Req) {
  const auto req = golden<CmReqWire>("rxe-cm.pcap 1", CmAttribute::kReq);
  EXPECT_EQ(req.local_comm_id.get(), 0x8593b7bcU);
  EXPECT_EQ(req.service_id.get(), 0x0000000001061c06U);
  EXPECT_EQ(req.local_ca_guid.get(), 0x505400fffe000002U);
  EXPECT_EQ(req.local_qkey.get(), 0U);
  EXPECT_EQ(req.local_qpn.get(), 0x11U);
  EXPECT_EQ(req.responder_resources, 1);
  EXPECT_EQ(req.initiator_depth, 1);
  EXPECT_EQ(kFiveBits.of(req.remote_timeout_and_service), 20);
  EXPECT_EQ(kTransport.of(req.remote_timeout_and_service), kTransportRc);
  EXPECT_EQ(kFlowControl.of(req.remote_timeout_and_service), 0);
  EXPECT_EQ(req.starting_psn.get(), 0xd69ba0U);
  EXPECT_EQ(kFiveBits.of(req.local_timeout_and_retries), 20);
  EXPECT_EQ(kRetryCount.of(req.local_timeout_and_retries), 7);
  EXPECT_EQ(req.pkey.get(), 0xFFFF);
  EXPECT_EQ(kPathMtu.of(req.mtu_and_rnr), 3);
  EXPECT_EQ(kReqRnrRetryCount.of(req.mtu_and_rnr), 7);
  EXPECT_EQ(kMaxCmRetries.of(req.retries_and_srq), 15);
  EXPECT_EQ(kReqHasSrq.of(req.retries_and_srq), 0);
  EXPECT_EQ(kExtendedTransport.of(req.retries_and_srq), 0);
}

TEST(CmMessages, ReqPaths) {
  const auto req = golden<CmReqWire>("rxe-cm.pcap 1", CmAttribute::kReq);
  EXPECT_EQ(req.primary.local_lid.get(), kPermissiveLid);
  EXPECT_EQ(req.primary.remote_lid.get(), kPermissiveLid);
  EXPECT_EQ(req.primary.local_gid, gid_from_ipv4(0x0A090002));
  EXPECT_EQ(req.primary.remote_gid, gid_from_ipv4(0x0A090001));
  EXPECT_EQ(req.primary.flow_label_and_rate.get() >> kCmFlowLabelShift, 0x699e9U);
  EXPECT_EQ(req.primary.traffic_class, 0);
  EXPECT_EQ(req.primary.hop_limit, 64);
  EXPECT_EQ(kServiceLevel.of(req.primary.service_level), 0);
  EXPECT_EQ(kSubnetLocal.of(req.primary.service_level), 0);
  EXPECT_EQ(kFiveBits.of(req.primary.ack_timeout), 19);
  EXPECT_EQ(req.alternate.local_gid, Gid{});
  EXPECT_EQ(req.alternate.local_lid.get(), 0);
}

TEST(CmMessages, Rep) {
  const auto rep = golden<CmRepWire>("rxe-cm.pcap 2", CmAttribute::kRep);
  EXPECT_EQ(rep.local_comm_id.get(), 0x216b4056U);
  EXPECT_EQ(rep.remote_comm_id.get(), 0x8593b7bcU);
  EXPECT_EQ(rep.local_qpn.get(), 0x11U);
  EXPECT_EQ(rep.local_eecn.get(), 0U);
  EXPECT_EQ(rep.starting_psn.get(), 0x3dc4e9U);
  EXPECT_EQ(rep.responder_resources, 1);
  EXPECT_EQ(rep.initiator_depth, 1);
  EXPECT_EQ(kFiveBits.of(rep.ack_delay_and_failover), 15);
  EXPECT_EQ(kFailover.of(rep.ack_delay_and_failover), 0);
  EXPECT_EQ(kFlowControl.of(rep.ack_delay_and_failover), 0);
  EXPECT_EQ(kRepRnrRetryCount.of(rep.rnr_and_srq), 7);
  EXPECT_EQ(kRepHasSrq.of(rep.rnr_and_srq), 0);
  EXPECT_EQ(rep.local_ca_guid.get(), 0x505400fffe000001U);
}

TEST(CmMessages, RtuDreqDrep) {
  const auto rtu = golden<CmRtuWire>("rxe-cm.pcap 3", CmAttribute::kRtu);
  EXPECT_EQ(rtu.local_comm_id.get(), 0x8593b7bcU);
  EXPECT_EQ(rtu.remote_comm_id.get(), 0x216b4056U);
  const auto dreq = golden<CmDreqWire>("rxe-cm.pcap 40", CmAttribute::kDreq);
  EXPECT_EQ(dreq.local_comm_id.get(), 0x8593b7bcU);
  EXPECT_EQ(dreq.remote_comm_id.get(), 0x216b4056U);
  EXPECT_EQ(dreq.remote_qpn.get(), 0x11U);
  const auto drep = golden<CmDrepWire>("rxe-cm.pcap 41", CmAttribute::kDrep);
  EXPECT_EQ(drep.local_comm_id.get(), 0x216b4056U);
  EXPECT_EQ(drep.remote_comm_id.get(), 0x8593b7bcU);
}

TEST(CmMessages, Rej) {
  const auto rej = golden<CmRejWire>("rxe-ipv6-pad-imm.pcap 179", CmAttribute::kRej);
  EXPECT_EQ(rej.local_comm_id.get(), 0U);
  EXPECT_EQ(rej.remote_comm_id.get(), 0x0d5ba8c5U);
  EXPECT_EQ(kSubject.of(rej.subject), 0);
  EXPECT_EQ(kRejectInfoLength.of(rej.info_length), 0);
  EXPECT_EQ(rej.reason.get(), 8);
}

TEST(CmMessages, Sidr) {
  const auto req = golden<CmSidrReqWire>("rxe-cm.pcap 55", CmAttribute::kSidrReq);
  EXPECT_EQ(req.request_id.get(), 0x8793b7bcU);
  EXPECT_EQ(req.pkey.get(), 0xFFFF);
  EXPECT_EQ(req.service_id.get(), 0x0000000001111c06U);
  const auto rep = golden<CmSidrRepWire>("rxe-cm.pcap 56", CmAttribute::kSidrRep);
  EXPECT_EQ(rep.request_id.get(), 0x8793b7bcU);
  EXPECT_EQ(rep.status, 0);
  EXPECT_EQ(rep.qpn.get(), 0x13U);
  EXPECT_EQ(rep.service_id.get(), 0x0000000001111c06U);
  EXPECT_EQ(rep.qkey.get(), 0x01234567U);
}

TEST(Bits, PutsAndGetsWhatItIsFor) {
  constexpr Bits kMiddle{2, 3};
  EXPECT_EQ(kMiddle.with(5), 0x14);
  EXPECT_EQ(kMiddle.with(0xFF), 0x1C);
  EXPECT_EQ(kMiddle.of(0x14), 5);
  EXPECT_EQ(kMiddle.of(0xE3), 0);
  for (unsigned value = 0; value < 32; ++value)
    EXPECT_EQ(kFiveBits.of(static_cast<std::uint8_t>(kFiveBits.with(value) | 7)), value);
}

// What the captures do not have: MRA, by hand.
TEST(CmMessages, MraByHand) {
  MadBytes bytes{};
  const std::array<std::uint8_t, 11> body = {1, 2, 3, 4, 5, 6, 7, 8, 0x40, 0xC0, 0xAA};
  std::copy(body.begin(), body.end(), bytes.begin() + kMadHeaderBytes);
  const auto& mra = overlay<MadOf<CmMraWire>>(bytes.data()).body;
  EXPECT_EQ(mra.local_comm_id.get(), 0x01020304U);
  EXPECT_EQ(mra.remote_comm_id.get(), 0x05060708U);
  EXPECT_EQ(kSubject.of(mra.subject), static_cast<std::uint8_t>(CmSubject::kRep));
  EXPECT_EQ(kFiveBits.of(mra.service_timeout), 24);
  EXPECT_EQ(mra.private_data[0], 0xAA);
}

}  // namespace
}  // namespace urdma::wire
