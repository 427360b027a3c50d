// Timers and retry counters of a requester.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/retransmission.hpp"

#include <gtest/gtest.h>

namespace urdma::transport {
namespace {

using Expiry = Retransmission::Expiry;

constexpr Instant kNow{5'000'000};
constexpr std::uint8_t kTimeout = 10;
constexpr Duration kTimeoutTime = nanoseconds(4096 * 1024);

Retransmission configured(std::uint8_t timeout, std::uint8_t retry_count, std::uint8_t rnr_retry) {
  Retransmission retransmission;
  retransmission.configure(timeout, retry_count, rnr_retry);
  return retransmission;
}

TEST(DeadlinesTest, NextDeadline_TheEarlier) {
  Deadlines deadlines;
  EXPECT_TRUE(deadlines.next_deadline().is_never());
  deadlines.set(Timer::kAck, Instant{30});
  deadlines.set(Timer::kRnr, Instant{20});
  EXPECT_EQ(deadlines.next_deadline(), Instant{20});
  deadlines.stop(Timer::kRnr);
  EXPECT_EQ(deadlines.next_deadline(), Instant{30});
}

TEST(DeadlinesTest, TakeExpired_OnceAndNotEarly) {
  Deadlines deadlines;
  deadlines.set(Timer::kAck, Instant{30});
  EXPECT_FALSE(deadlines.take_expired(Timer::kAck, Instant{29}));
  EXPECT_TRUE(deadlines.take_expired(Timer::kAck, Instant{30}));
  EXPECT_FALSE(deadlines.take_expired(Timer::kAck, Instant{31}));
}

TEST(RetransmissionTest, AckTimeout_PowersOfTwo) {
  EXPECT_EQ(ack_timeout(0), Duration{});
  EXPECT_EQ(ack_timeout(1), nanoseconds(8'192));
  EXPECT_EQ(ack_timeout(14), nanoseconds(67'108'864));
  EXPECT_EQ(ack_timeout(31), nanoseconds(8'796'093'022'208));
}

TEST(RetransmissionTest, RnrDelay_EachCodeOfTheTable) {
  // IBTA table 45, in milliseconds.
  constexpr double kTable[32] = {655.36, 0.01,  0.02,  0.03,   0.04,   0.06,   0.08,   0.12,
                                 0.16,   0.24,  0.32,  0.48,   0.64,   0.96,   1.28,   1.92,
                                 2.56,   3.84,  5.12,  7.68,   10.24,  15.36,  20.48,  30.72,
                                 40.96,  61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52};
  for (std::uint8_t code = 0; code < 32; ++code) {
    EXPECT_EQ(rnr_delay(code).ns, static_cast<std::int64_t>(kTable[code] * 1e6 + 0.5)) << int{code};
  }
}

TEST(RetransmissionTest, OnSent_StartsTheTimerOnce) {
  Retransmission retransmission = configured(kTimeout, 7, 7);
  EXPECT_TRUE(retransmission.next_deadline().is_never());
  retransmission.on_sent(kNow);
  retransmission.on_sent(kNow + microseconds(5));
  EXPECT_EQ(retransmission.next_deadline(), kNow + kTimeoutTime);
}

TEST(RetransmissionTest, OnSent_NoTimerWithoutTimeout) {
  Retransmission retransmission = configured(0, 7, 7);
  retransmission.on_sent(kNow);
  EXPECT_TRUE(retransmission.next_deadline().is_never());
}

TEST(RetransmissionTest, OnProgress_RestartsOrStops) {
  Retransmission retransmission = configured(kTimeout, 7, 7);
  retransmission.on_sent(kNow);
  retransmission.on_progress(true, kNow + microseconds(9));
  EXPECT_EQ(retransmission.next_deadline(), kNow + microseconds(9) + kTimeoutTime);
  retransmission.on_progress(false, kNow + microseconds(10));
  EXPECT_TRUE(retransmission.next_deadline().is_never());
}

TEST(RetransmissionTest, OnDeadline_GivesUpAfterRetryCount) {
  for (std::uint8_t count = 0; count <= 7; ++count) {
    Retransmission retransmission = configured(kTimeout, count, 7);
    for (std::uint8_t i = 0; i < count; ++i) {
      retransmission.on_sent(kNow);
      EXPECT_EQ(retransmission.on_deadline(kNow + kTimeoutTime), Expiry::kSendAgain);
    }
    retransmission.on_sent(kNow);
    EXPECT_EQ(retransmission.on_deadline(kNow + kTimeoutTime), Expiry::kGiveUp);
  }
}

TEST(RetransmissionTest, OnDeadline_ProgressGivesAllRetriesBack) {
  Retransmission retransmission = configured(kTimeout, 1, 7);
  for (int i = 0; i < 20; ++i) {
    retransmission.on_sent(kNow);
    EXPECT_EQ(retransmission.on_deadline(kNow + kTimeoutTime), Expiry::kSendAgain);
    retransmission.on_progress(false, kNow);
  }
}

TEST(RetransmissionTest, OnRnrNak_WaitsInsteadOfTheAckTimer) {
  Retransmission retransmission = configured(kTimeout, 7, 7);
  retransmission.on_sent(kNow);
  ASSERT_TRUE(retransmission.on_rnr_nak(12, kNow));
  EXPECT_TRUE(retransmission.is_waiting_for_receiver());
  EXPECT_EQ(retransmission.next_deadline(), kNow + microseconds(640));
  EXPECT_EQ(retransmission.on_deadline(kNow + microseconds(639)), Expiry::kNone);
  EXPECT_EQ(retransmission.on_deadline(kNow + microseconds(640)), Expiry::kResume);
  EXPECT_FALSE(retransmission.is_waiting_for_receiver());
}

TEST(RetransmissionTest, OnRnrNak_GivesUpAfterItsOwnCount) {
  for (std::uint8_t count = 0; count < 7; ++count) {
    Retransmission retransmission = configured(kTimeout, 0, count);
    for (std::uint8_t i = 0; i < count; ++i) EXPECT_TRUE(retransmission.on_rnr_nak(1, kNow));
    EXPECT_FALSE(retransmission.on_rnr_nak(1, kNow)) << int{count};
  }
}

TEST(RetransmissionTest, OnRnrNak_GivesTheOtherCountBack) {
  Retransmission retransmission = configured(kTimeout, 1, 7);
  for (int i = 0; i < 5; ++i) {
    retransmission.on_sent(kNow);
    EXPECT_EQ(retransmission.on_deadline(kNow + kTimeoutTime), Expiry::kSendAgain);
    EXPECT_TRUE(retransmission.on_rnr_nak(1, kNow));
    EXPECT_EQ(retransmission.on_deadline(kNow + microseconds(10)), Expiry::kResume);
  }
}

TEST(RetransmissionTest, OnRnrNak_SevenIsForEver) {
  Retransmission retransmission = configured(kTimeout, 0, 7);
  for (int i = 0; i < 1'000; ++i) ASSERT_TRUE(retransmission.on_rnr_nak(1, kNow));
}

TEST(RetransmissionTest, OnSequenceNak_CountsWithoutProgressOnly) {
  Retransmission retransmission = configured(kTimeout, 2, 7);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(retransmission.on_sequence_nak(true, 0));
  EXPECT_TRUE(retransmission.on_sequence_nak(false, 0));
  EXPECT_TRUE(retransmission.on_sequence_nak(false, 0));
  EXPECT_FALSE(retransmission.on_sequence_nak(false, 0));
}

TEST(RetransmissionTest, OnSequenceNak_OneForEachPacketUnderWayDoesNotCount) {
  Retransmission retransmission = configured(kTimeout, 1, 7);
  EXPECT_TRUE(retransmission.on_sequence_nak(false, 3));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(retransmission.on_sequence_nak(false, 3));
  EXPECT_FALSE(retransmission.on_sequence_nak(false, 3));
}

}  // namespace
}  // namespace urdma::transport
