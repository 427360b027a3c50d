// QP attributes to the contract and back.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/ibv/qp_attributes.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "urdma/base/verbs.hpp"

namespace urdma::provider {
namespace {

ibv_qp_attr sample() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_2048;
  attributes.qkey = 1;
  attributes.rq_psn = 2;
  attributes.sq_psn = 3;
  attributes.dest_qp_num = 4;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  attributes.pkey_index = 0;
  attributes.max_rd_atomic = 5;
  attributes.max_dest_rd_atomic = 6;
  attributes.min_rnr_timer = 7;
  attributes.timeout = 8;
  attributes.retry_cnt = 6;
  attributes.rnr_retry = 7;
  attributes.port_num = 1;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.sl = 3;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.flow_label = 9;
  attributes.ah_attr.grh.sgid_index = 2;
  attributes.ah_attr.grh.hop_limit = 64;
  attributes.ah_attr.grh.traffic_class = 12;
  attributes.ah_attr.grh.dgid.raw[15] = 0x42;
  return attributes;
}

TEST(QpAttributesTest, FromContract_GivesBackWhatToContractTook) {
  const ibv_qp_attr before = sample();
  abi::QueryQpReply reply{};
  reply.attributes = to_contract(before);
  reply.cap = {10, 20, 3, 4, 64};
  const ibv_qp_attr after = from_contract(reply);
  EXPECT_EQ(after.qp_state, before.qp_state);
  EXPECT_EQ(after.path_mtu, before.path_mtu);
  EXPECT_EQ(after.qkey, before.qkey);
  EXPECT_EQ(after.rq_psn, before.rq_psn);
  EXPECT_EQ(after.sq_psn, before.sq_psn);
  EXPECT_EQ(after.dest_qp_num, before.dest_qp_num);
  EXPECT_EQ(after.qp_access_flags, before.qp_access_flags);
  EXPECT_EQ(after.max_rd_atomic, before.max_rd_atomic);
  EXPECT_EQ(after.max_dest_rd_atomic, before.max_dest_rd_atomic);
  EXPECT_EQ(after.min_rnr_timer, before.min_rnr_timer);
  EXPECT_EQ(after.timeout, before.timeout);
  EXPECT_EQ(after.retry_cnt, before.retry_cnt);
  EXPECT_EQ(after.rnr_retry, before.rnr_retry);
  EXPECT_EQ(after.port_num, before.port_num);
  EXPECT_EQ(after.ah_attr.is_global, before.ah_attr.is_global);
  EXPECT_EQ(after.ah_attr.sl, before.ah_attr.sl);
  EXPECT_EQ(after.ah_attr.grh.flow_label, before.ah_attr.grh.flow_label);
  EXPECT_EQ(after.ah_attr.grh.sgid_index, before.ah_attr.grh.sgid_index);
  EXPECT_EQ(after.ah_attr.grh.hop_limit, before.ah_attr.grh.hop_limit);
  EXPECT_EQ(after.ah_attr.grh.traffic_class, before.ah_attr.grh.traffic_class);
  EXPECT_EQ(after.ah_attr.grh.dgid.raw[15], before.ah_attr.grh.dgid.raw[15]);
  EXPECT_EQ(after.path_mig_state, IBV_MIG_MIGRATED);
  EXPECT_EQ(after.cap.max_recv_wr, 20U);
}

TEST(QpAttributesTest, ToContract_LeavesThe20BitsOfAFlowLabelThatPacketsHave) {
  ibv_ah_attr address{};
  address.grh.flow_label = 0xFFF12345;
  EXPECT_EQ(to_contract(address).flow_label, 0x12345U);
}

TEST(QpAttributesTest, CheckModification_WantsAGlobalRoute) {
  ibv_qp_attr attributes = sample();
  std::uint32_t mask = kAttrState | kAttrAv;
  EXPECT_EQ(check_modification(attributes, mask), 0);
  attributes.ah_attr.is_global = 0;
  EXPECT_EQ(check_modification(attributes, mask), EINVAL);
  mask = kAttrState;
  EXPECT_EQ(check_modification(attributes, mask), 0);
}

TEST(QpAttributesTest, CheckModification_DropsWhatSaysNothing) {
  ibv_qp_attr attributes = sample();
  attributes.path_mig_state = IBV_MIG_MIGRATED;
  std::uint32_t mask = kAttrState | kAttrPathMigState | kAttrSqdNotify;
  EXPECT_EQ(check_modification(attributes, mask), 0);
  EXPECT_EQ(mask, kAttrState);
  attributes.en_sqd_async_notify = 1;
  mask = kAttrState | kAttrSqdNotify;
  EXPECT_EQ(check_modification(attributes, mask), 0);
  EXPECT_EQ(mask, kAttrState | kAttrSqdNotify);
}

TEST(QpAttributesTest, CheckModification_RefusesWhatTheDeviceLacks) {
  const ibv_qp_attr attributes = sample();
  for (const std::uint32_t lacking : {kAttrAltPath, kAttrCap, kAttrRateLimit}) {
    std::uint32_t mask = lacking;
    EXPECT_EQ(check_modification(attributes, mask), EINVAL) << lacking;
  }
}

}  // namespace
}  // namespace urdma::provider
