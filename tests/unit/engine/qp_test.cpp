// A QP's rings: their geometry, requests that are copied out and judged, indices that a hostile client
// writes, and requests that change while they are read.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/qp.hpp"

#include <atomic>
#include <bit>
#include <thread>

#include "tests/unit/engine/fixture.hpp"

namespace urdma::engine {
namespace {

abi::SendWqe wqe_of(WrOpcode opcode, std::uint64_t wr_id) {
  abi::SendWqe wqe{};
  wqe.opcode = static_cast<std::uint8_t>(opcode);
  wqe.flags = kSendSignaled;
  wqe.wr_id = wr_id;
  return wqe;
}

class QpTest : public ::testing::Test {
 protected:
  // To ERR, where requests are flushed as they come: what was fetched shows as completions.
  void to_error() {
    transport::QpAttributes attributes;
    attributes.state = QpState::kInit;
    const std::uint32_t init = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;
    ASSERT_EQ(qp_->transport().modify(init, attributes, Instant{}), 0);
    attributes.state = QpState::kErr;
    ASSERT_EQ(qp_->transport().modify(kAttrState, attributes, Instant{}), 0);
  }
  // To RTS, where a request with a verdict completes with it.
  void to_rts() {
    transport::QpAttributes attributes;
    attributes.path_mtu_code = 3;
    attributes.packet_bytes = 1024;
    const auto move = [&](QpState state, std::uint32_t mask) {
      attributes.state = state;
      ASSERT_EQ(qp_->transport().modify(mask | kAttrState, attributes, Instant{}), 0);
    };
    move(QpState::kInit, kAttrPkeyIndex | kAttrPort | kAttrAccessFlags);
    move(QpState::kRtr,
         kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic | kAttrMinRnrTimer);
    move(QpState::kRts, kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrSqPsn | kAttrMaxQpRdAtomic);
  }
  // The status with which this request fails of itself; kSuccess if nothing is wrong with it.
  WcStatus verdict_of(const abi::SendWqe& wqe, const std::vector<abi::Sge>& elements,
                      const std::vector<std::byte>& inline_data = {}) {
    qp_ = make_qp(qp_config(2));
    ClientRings rings(*qp_);
    to_rts();
    rings.send(wqe, elements, inline_data);
    bool is_sound = false;
    EXPECT_EQ(qp_->fetch_sends(8, is_sound), 1U);
    EXPECT_TRUE(is_sound);
    transport::TxPacket packet;
    (void)qp_->transport().poll_transmit(Instant{}, packet);
    transport::Completion completion;
    return qp_->transport().poll_completion(completion) ? completion.status : WcStatus::kSuccess;
  }

  std::unique_ptr<Qp> qp_ = make_qp(qp_config(2));
  ClientRings rings_{*qp_};
};

TEST(QpGeometry, Of_FitsAndDoesNotOverlap) {
  for (const std::uint32_t wr : {0U, 1U, 2U, 3U, 100U, 16384U}) {
    for (const std::uint32_t sge : {0U, 1U, 3U, 32U}) {
      for (const std::uint32_t bytes : {0U, 1U, 64U, 1000U}) {
        const QpGeometry geometry = QpGeometry::of({wr, wr + 1, sge, sge, bytes});
        EXPECT_TRUE(std::has_single_bit(geometry.send_slots) && geometry.send_slots >= wr);
        EXPECT_TRUE(std::has_single_bit(geometry.receive_slots) && geometry.receive_slots >= wr + 1);
        EXPECT_GE(geometry.send_stride, sizeof(abi::SendWqe) + std::max<std::size_t>(sge * 16, bytes));
        EXPECT_GE(geometry.receive_stride, sizeof(abi::ReceiveWqe) + sge * 16);
        EXPECT_EQ(geometry.send_stride % 64, 0U);
        EXPECT_EQ(geometry.receive_stride % 64, 0U);
        EXPECT_GE(geometry.send_offset, sizeof(abi::QpPage));
        EXPECT_GE(geometry.receive_offset,
                  geometry.send_offset + std::uint64_t{geometry.send_slots} * geometry.send_stride);
        EXPECT_GE(geometry.memory_bytes,
                  geometry.receive_offset + std::uint64_t{geometry.receive_slots} * geometry.receive_stride);
      }
    }
  }
}

TEST_F(QpTest, FetchSends_InOrderAndOnce) {
  to_error();
  for (std::uint64_t i = 0; i < 10; ++i) rings_.send(wqe_of(WrOpcode::kSend, i), {{0x1000, 8, 5}});
  bool is_sound = false;
  EXPECT_TRUE(qp_->has_unfetched_sends());
  EXPECT_EQ(qp_->fetch_sends(4, is_sound), 4U);
  EXPECT_TRUE(is_sound);
  EXPECT_EQ(qp_->fetch_sends(100, is_sound), 6U);
  EXPECT_FALSE(qp_->has_unfetched_sends());
  EXPECT_EQ(qp_->fetch_sends(100, is_sound), 0U);
  transport::Completion completion;
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(qp_->transport().poll_completion(completion));
    EXPECT_EQ(completion.wr_id, i);
    EXPECT_EQ(completion.status, WcStatus::kWrFlushErr);
    EXPECT_EQ(completion.wqe_index, i + 1);
  }
}

TEST_F(QpTest, FetchSends_RoundAndRound) {
  to_error();
  bool is_sound = false;
  transport::Completion completion;
  for (std::uint64_t i = 0; i < 100; ++i) {
    rings_.send(wqe_of(WrOpcode::kRdmaWrite, i), {{0x1000, 8, 5}, {0x2000, 8, 5}});
    ASSERT_EQ(qp_->fetch_sends(100, is_sound), 1U);
    ASSERT_TRUE(qp_->transport().poll_completion(completion));
    ASSERT_EQ(completion.wr_id, i);
  }
}

TEST_F(QpTest, FetchSends_HostileIndex) {
  to_error();
  bool is_sound = true;
  for (const std::uint32_t producer : {17U, 1000U, 0x80000000U, UINT32_MAX}) {
    rings_.page().send_producer.store(producer);
    EXPECT_EQ(qp_->fetch_sends(100, is_sound), 0U);
    EXPECT_FALSE(is_sound) << producer;
  }
  rings_.page().send_producer.store(16);
  EXPECT_EQ(qp_->fetch_sends(100, is_sound), 16U);
  EXPECT_TRUE(is_sound) << "a full ring";
}

TEST_F(QpTest, FetchReceive_HostileIndex) {
  bool is_sound = true;
  for (const std::uint32_t producer : {17U, 0x80000000U, UINT32_MAX}) {
    rings_.page().receive_producer.store(producer);
    EXPECT_FALSE(qp_->fetch_receive(is_sound));
    EXPECT_FALSE(is_sound) << producer;
  }
  rings_.page().receive_producer.store(0);
  EXPECT_FALSE(qp_->fetch_receive(is_sound));
  EXPECT_TRUE(is_sound) << "an empty ring";
}

TEST_F(QpTest, FetchReceive_TooManyElements) {
  to_error();
  rings_.receive(1, {{0, 8, 5}});
  const abi::ReceiveWqe wqe{1, 5, 0};
  std::memcpy(rings_.receive_slot(0), &wqe, sizeof wqe);
  bool is_sound = true;
  EXPECT_FALSE(qp_->fetch_receive(is_sound));
  EXPECT_FALSE(is_sound);
}

TEST_F(QpTest, FetchReceive_InOrder) {
  to_error();
  bool is_sound = true;
  transport::Completion completion;
  for (std::uint64_t i = 0; i < 40; ++i) {
    rings_.receive(i, {{0, 8, 5}, {1, 8, 5}, {2, 8, 5}, {3, 8, 5}});
    ASSERT_TRUE(qp_->transport().wants_receive());
    ASSERT_TRUE(qp_->fetch_receive(is_sound));
    ASSERT_TRUE(qp_->transport().poll_completion(completion));
    EXPECT_EQ(completion.wr_id, i);
    EXPECT_TRUE(completion.is_receive);
    EXPECT_EQ(completion.wqe_index, i + 1);
  }
  EXPECT_FALSE(qp_->fetch_receive(is_sound));
}

TEST_F(QpTest, FetchSends_Verdicts) {
  const abi::Sge some{0x1000, 16, 5};
  EXPECT_EQ(verdict_of(wqe_of(WrOpcode::kSend, 1), {some}), WcStatus::kSuccess);
  EXPECT_EQ(verdict_of(wqe_of(WrOpcode::kSend, 1), {}), WcStatus::kSuccess);
  EXPECT_EQ(verdict_of(wqe_of(WrOpcode::kLocalInv, 1), {some}), WcStatus::kLocQpOpErr);
  EXPECT_EQ(verdict_of(wqe_of(WrOpcode::kLocalInv, 1), {}), WcStatus::kSuccess);
  EXPECT_EQ(verdict_of(wqe_of(WrOpcode::kBindMw, 1), {some}), WcStatus::kSuccess);
  EXPECT_EQ(verdict_of(wqe_of(WrOpcode::kBindMw, 1), {some, some}), WcStatus::kLocQpOpErr);
  abi::SendWqe unknown = wqe_of(WrOpcode::kSend, 1);
  unknown.opcode = 200;
  EXPECT_EQ(verdict_of(unknown, {some}), WcStatus::kLocQpOpErr);
  EXPECT_EQ(verdict_of(wqe_of(WrOpcode::kSend, 1), {some, some, some, some, some}), WcStatus::kLocQpOpErr)
      << "one element more than the QP has";
  EXPECT_EQ(verdict_of(wqe_of(WrOpcode::kSend, 1), {{0, 0x80000000, 5}, {0, 1, 5}}), WcStatus::kLocLenErr);
  EXPECT_EQ(verdict_of(wqe_of(WrOpcode::kFetchAdd, 1), {{0, 4, 5}}), WcStatus::kLocLenErr);
  const std::vector<std::byte> bytes(128);
  EXPECT_EQ(verdict_of(wqe_of(WrOpcode::kSend, 1), {}, bytes), WcStatus::kSuccess);
  EXPECT_EQ(verdict_of(wqe_of(WrOpcode::kRdmaRead, 1), {}, bytes), WcStatus::kLocQpOpErr);
}

TEST_F(QpTest, FetchSends_InlineBytesBeyondTheSlot) {
  to_rts();
  abi::SendWqe wqe = wqe_of(WrOpcode::kSend, 1);
  wqe.flags |= kSendInline;
  wqe.inline_bytes = UINT32_MAX;
  rings_.send(wqe);
  std::memcpy(rings_.send_slot(0), &wqe, sizeof wqe);  // send() has set it to what it was given
  bool is_sound = false;
  EXPECT_EQ(qp_->fetch_sends(1, is_sound), 1U);
  transport::TxPacket packet;
  EXPECT_FALSE(qp_->transport().poll_transmit(Instant{}, packet));
  transport::Completion completion;
  ASSERT_TRUE(qp_->transport().poll_completion(completion));
  EXPECT_EQ(completion.status, WcStatus::kLocQpOpErr);
}

// A client that changes its requests while they are read gets one meaning or another, and harms nobody; of
// use under ASan above all.
TEST_F(QpTest, FetchSends_ChangingUnderOurEyes) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the race is what is tested";
#endif
  to_error();
  std::atomic<bool> stopping{false};
  std::thread hostile([&] {
    for (std::uint8_t i = 0; !stopping; ++i) {
      for (std::uint32_t slot = 0; slot < 16; ++slot) {
        const std::atomic_ref<std::uint8_t> elements(
            *reinterpret_cast<std::uint8_t*>(rings_.send_slot(slot) + 2));
        const std::atomic_ref<std::uint8_t> flags(
            *reinterpret_cast<std::uint8_t*>(rings_.send_slot(slot) + 1));
        const std::atomic_ref<std::uint32_t> receive(
            *reinterpret_cast<std::uint32_t*>(rings_.receive_slot(slot) + 8));
        elements.store(i % 2 == 0 ? 1 : 255, std::memory_order_relaxed);
        flags.store(i % 3 == 0 ? kSendInline : 0, std::memory_order_relaxed);
        receive.store(i % 2 == 0 ? 1 : 0x10000, std::memory_order_relaxed);
      }
    }
  });
  transport::Completion completion;
  std::uint32_t sends = 0;
  for (int round = 0; round < stress_rounds(20'000); ++round) {
    bool is_sound = true;
    rings_.page().send_producer.store(++sends);
    ASSERT_EQ(qp_->fetch_sends(1, is_sound), 1U);
    const std::uint32_t before = rings_.page().receive_producer.load();
    rings_.page().receive_producer.store(before + 1);
    if (!qp_->fetch_receive(is_sound)) rings_.page().receive_producer.store(before);  // refused
    while (qp_->transport().poll_completion(completion)) {
    }
  }
  stopping = true;
  hostile.join();
}

TEST_F(QpTest, ResetRings_StartsAnew) {
  to_error();
  bool is_sound = false;
  for (std::uint64_t i = 0; i < 5; ++i) rings_.send(wqe_of(WrOpcode::kSend, i));
  EXPECT_EQ(qp_->fetch_sends(100, is_sound), 5U);
  qp_->set_flush_receives(true);
  EXPECT_EQ(rings_.page().flush_receives.load(), 1U);
  qp_->reset_rings();
  EXPECT_EQ(rings_.page().flush_receives.load(), 0U);
  EXPECT_EQ(rings_.page().send_producer.load(), 0U);
  EXPECT_EQ(rings_.page().receive_producer.load(), 0U);
  EXPECT_FALSE(qp_->has_unfetched_sends());
}

TEST_F(QpTest, InlineData_IsInTheRing) {
  for (const std::uint32_t index : {0U, 15U, 16U, 31U, UINT32_MAX}) {
    const std::byte* data = qp_->inline_data(index);
    EXPECT_EQ(data, rings_.send_slot(index) + sizeof(abi::SendWqe));
    EXPECT_LE(data + kCap.max_inline_data, qp_->memory().data() + qp_->config().geometry.receive_offset);
  }
}

TEST(Qp, Destructor_NothingInFlight) {
  auto qp = make_qp(qp_config(2));
  qp->transfers = 1;
  EXPECT_DEATH(qp.reset(), "internal fault");
  qp->transfers = 0;
}

}  // namespace
}  // namespace urdma::engine
