// The READs and atomics that may be asked for again.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/answered_requests.hpp"

#include <gtest/gtest.h>

namespace urdma::transport {
namespace {

TEST(AnsweredRequestsTest, Find_AnyPacketOfTheResponse) {
  AnsweredRequests requests;
  requests.reserve(2);
  EXPECT_EQ(requests.find(Psn{0}), nullptr);
  requests.add({.first_psn = Psn{0xFFFFFE}, .packets = 4});
  EXPECT_EQ(requests.find(Psn{0xFFFFFD}), nullptr);
  EXPECT_NE(requests.find(Psn{0xFFFFFE}), nullptr);
  EXPECT_NE(requests.find(Psn{1}), nullptr);
  EXPECT_EQ(requests.find(Psn{2}), nullptr);
}

TEST(AnsweredRequestsTest, Add_OverwritesTheOldest) {
  AnsweredRequests requests;
  requests.reserve(2);
  for (std::uint32_t i = 0; i < 3; ++i) requests.add({.first_psn = Psn{i}, .packets = 1});
  EXPECT_EQ(requests.find(Psn{0}), nullptr);
  EXPECT_NE(requests.find(Psn{1}), nullptr);
  EXPECT_NE(requests.find(Psn{2}), nullptr);
  requests.clear();
  EXPECT_EQ(requests.find(Psn{2}), nullptr);
}

TEST(AnsweredRequestsTest, Reserve_KeepsWhatIsThereInItsOrder) {
  AnsweredRequests requests;
  requests.reserve(3);
  for (std::uint32_t i = 0; i < 5; ++i) requests.add({.first_psn = Psn{i}, .packets = 1});
  requests.reserve(4);
  EXPECT_NE(requests.find(Psn{2}), nullptr);
  requests.add({.first_psn = Psn{5}, .packets = 1});
  EXPECT_NE(requests.find(Psn{2}), nullptr) << "there was room";
  requests.add({.first_psn = Psn{6}, .packets = 1});
  EXPECT_EQ(requests.find(Psn{2}), nullptr) << "the oldest goes first";
  EXPECT_NE(requests.find(Psn{3}), nullptr);
  requests.reserve(1);
  EXPECT_NE(requests.find(Psn{3}), nullptr) << "room is not taken away";
}

TEST(AnsweredRequestsTest, Find_TheNewestOfSeveral) {
  AnsweredRequests requests;
  requests.reserve(4);
  requests.add({.first_psn = Psn{0}, .packets = 9});
  requests.add({.first_psn = Psn{3}, .packets = 1, .is_atomic = true});
  EXPECT_TRUE(requests.find(Psn{3})->is_atomic);
}

}  // namespace
}  // namespace urdma::transport
