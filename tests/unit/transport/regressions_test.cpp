// Faults that the simulator found, each in the smallest form that shows it.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "responder_fixture.hpp"

namespace urdma::transport {
namespace {

// A slow link, and an answer of many parts of which an early packet was lost: the duplicate request was
// answered behind all the later parts, which the requester drops, and its timer ran out again and again (sim
// slow_read).
TEST_F(ResponderTest, Regression_RepeatedReadIsAnsweredBeforeWhatIsBeyondIt) {
  read(0, 2 * kMtu);
  read(2, 2 * kMtu, 0x20000);
  answer();
  answer();
  TxPacket packet;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(responder.poll_transmit(packet));
  EXPECT_EQ(packet.headers.psn, psn(2));
  EXPECT_EQ(read(0, 2 * kMtu).kind, Kind::kCheck);
  answer();
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 3U);
  EXPECT_EQ(packets[0].headers.psn, psn(0));
  EXPECT_EQ(packets[1].headers.psn, psn(1));
  EXPECT_EQ(packets[2].headers.psn, psn(3));
}

TEST_F(ResponderTest, Regression_RepeatedAtomicIsAnsweredBeforeWhatIsBeyondIt) {
  fetch_add(0);
  answer(MemoryResult::kOk, 41);
  EXPECT_EQ(transmit().size(), 1U);
  read(1, 2 * kMtu);
  answer();
  fetch_add(0);
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 3U);
  EXPECT_EQ(packets[0].headers.psn, psn(0));
  EXPECT_EQ(packets[0].headers.atomic_original, 41U);
  EXPECT_EQ(packets[1].headers.psn, psn(1));
}

// The rest of a READ is asked for by a requester that has what is before: that is not sent again in front of
// it.
TEST_F(ResponderTest, Regression_RestOfAReadDoesNotWaitForItsBeginning) {
  read(0, 4 * kMtu);
  answer();
  EXPECT_EQ(read(2, 2 * kMtu, 0x10000 + 2 * kMtu).kind, Kind::kCheck);
  answer();
  const auto packets = transmit();
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_EQ(packets[0].headers.opcode, Opcode::kRcReadResponseFirst);
  EXPECT_EQ(packets[0].headers.psn, psn(2));
  EXPECT_EQ(packets[0].payload.address, 0x10000U + 2 * kMtu);
}

}  // namespace
}  // namespace urdma::transport
