// Tests of datapath/control/qp_attributes.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/qp_attributes.hpp"

#include <gtest/gtest.h>

#include "urdma/base/verbs.hpp"

namespace urdma::control {
namespace {

constexpr std::uint8_t kMtu1024 = 3;

int judge(std::uint32_t mask, const abi::QpAttributes& attributes) {
  const Status status = check_attributes(attributes, mask, Limits{}, kMtu1024);
  return status ? 0 : status.error().code;
}

abi::QpAttributes good_address() {
  abi::QpAttributes attributes{};
  attributes.address.is_global = 1;
  attributes.address.port = 1;
  return attributes;
}

TEST(CheckAttributesTest, Address_NeedsAGlobalRoute) {
  abi::QpAttributes attributes = good_address();
  EXPECT_EQ(judge(kAttrAv, attributes), 0);
  attributes.address.is_global = 0;
  EXPECT_EQ(judge(kAttrAv, attributes), EINVAL);
  EXPECT_EQ(judge(0, attributes), 0) << "an attribute that is not in the mask does not matter";
}

TEST(CheckAttributesTest, Address_NeedsThePortOfTheDevice) {
  abi::QpAttributes attributes = good_address();
  attributes.address.port = 2;
  EXPECT_EQ(judge(kAttrAv, attributes), EINVAL);
}

TEST(CheckAttributesTest, PathMtu_FitsThePort) {
  abi::QpAttributes attributes{};
  for (std::uint8_t code = 0; code < 8; ++code) {
    attributes.path_mtu = code;
    EXPECT_EQ(judge(kAttrPathMtu, attributes), code >= 1 && code <= kMtu1024 ? 0 : EINVAL) << int{code};
  }
}

TEST(CheckAttributesTest, Numbers_AreWithinTheLimits) {
  abi::QpAttributes attributes{};
  attributes.max_rd_atomic = 129;
  EXPECT_EQ(judge(kAttrMaxQpRdAtomic, attributes), EINVAL);
  attributes.max_rd_atomic = 128;
  EXPECT_EQ(judge(kAttrMaxQpRdAtomic, attributes), 0);
  attributes.max_dest_rd_atomic = 128;
  EXPECT_EQ(judge(kAttrMaxDestRdAtomic, attributes), 0);
  attributes.max_dest_rd_atomic = 129;
  EXPECT_EQ(judge(kAttrMaxDestRdAtomic, attributes), EINVAL);
  attributes.dest_qpn = kQpnMask + 1;
  EXPECT_EQ(judge(kAttrDestQpn, attributes), EINVAL);
  attributes.timeout = 32;
  EXPECT_EQ(judge(kAttrTimeout, attributes), EINVAL);
  attributes.rnr_retry = 8;
  EXPECT_EQ(judge(kAttrRnrRetry, attributes), EINVAL);
  attributes.state = 7;
  EXPECT_EQ(judge(kAttrState, attributes), EINVAL);
  attributes.pkey_index = 1;
  EXPECT_EQ(judge(kAttrPkeyIndex, attributes), EINVAL);
}

TEST(CheckAttributesTest, Mask_HasOnlyWhatTheDeviceCanSet) {
  EXPECT_EQ(judge(kAttrAltPath, {}), EINVAL);
  EXPECT_EQ(judge(kAttrCap, {}), EINVAL);
  EXPECT_EQ(judge(1U << 31, {}), EINVAL);
}

TEST(ToTransportTest, ToTransport_AndBackIsTheSame) {
  abi::QpAttributes attributes{};
  attributes.state = 3;
  attributes.path_mtu = 2;
  attributes.max_rd_atomic = 4;
  attributes.max_dest_rd_atomic = 5;
  attributes.min_rnr_timer = 6;
  attributes.timeout = 7;
  attributes.retry_count = 1;
  attributes.rnr_retry = 2;
  attributes.port = 1;
  attributes.qkey = 8;
  attributes.rq_psn = 9;
  attributes.sq_psn = 10;
  attributes.dest_qpn = 11;
  attributes.access_flags = 12;
  const abi::QpAttributes back = to_abi(to_transport(attributes, 0));
  EXPECT_EQ(back.state, attributes.state);
  EXPECT_EQ(back.path_mtu, attributes.path_mtu);
  EXPECT_EQ(back.max_rd_atomic, attributes.max_rd_atomic);
  EXPECT_EQ(back.max_dest_rd_atomic, attributes.max_dest_rd_atomic);
  EXPECT_EQ(back.min_rnr_timer, attributes.min_rnr_timer);
  EXPECT_EQ(back.timeout, attributes.timeout);
  EXPECT_EQ(back.retry_count, attributes.retry_count);
  EXPECT_EQ(back.rnr_retry, attributes.rnr_retry);
  EXPECT_EQ(back.port, attributes.port);
  EXPECT_EQ(back.qkey, attributes.qkey);
  EXPECT_EQ(back.rq_psn, attributes.rq_psn);
  EXPECT_EQ(back.sq_psn, attributes.sq_psn);
  EXPECT_EQ(back.dest_qpn, attributes.dest_qpn);
  EXPECT_EQ(back.access_flags, attributes.access_flags);
}

}  // namespace
}  // namespace urdma::control
