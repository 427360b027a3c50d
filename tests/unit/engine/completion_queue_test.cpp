// Completions in shared memory: overrun, and the events that an armed queue owes.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/completion_queue.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "tests/unit/engine/fixture.hpp"

namespace urdma::engine {
namespace {

constexpr std::uint64_t kPointer = 0x7F00'1234'5678;

class CompletionQueueTest : public ::testing::Test {
 protected:
  CompletionQueueTest() {
    EXPECT_EQ(::pipe2(pipe_, O_CLOEXEC | O_NONBLOCK), 0);
    CompletionQueue::Config config;
    config.depth = kDepth;
    config.user_pointer = kPointer;
    config.channel = std::move(*EventChannel::open(pipe_[1]));
    cq_ = std::make_unique<CompletionQueue>(std::move(config),
                                            shared_memory(CompletionQueue::memory_bytes(kDepth)));
  }
  ~CompletionQueueTest() override {
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  abi::CqPage& page() { return *reinterpret_cast<abi::CqPage*>(cq_->memory().data()); }
  abi::Cqe& entry(std::uint32_t index) {
    return reinterpret_cast<abi::Cqe*>(cq_->memory().data() + abi::kCqRingOffset)[index % kDepth];
  }
  bool push(std::uint64_t wr_id, bool is_solicited = false, WcStatus status = WcStatus::kSuccess) {
    transport::Completion completion;
    completion.wr_id = wr_id;
    completion.is_solicited = is_solicited;
    completion.status = status;
    return cq_->push(completion, 5, 6, 7);
  }
  void arm(abi::ArmKind kind) { page().arm.store(++arms_ << 2 | static_cast<std::uint32_t>(kind)); }
  // Events in the channel since the last call.
  int events() {
    int count = 0;
    std::uint64_t pointer = 0;
    while (::read(pipe_[0], &pointer, sizeof pointer) == sizeof pointer) {
      EXPECT_EQ(pointer, kPointer);
      ++count;
    }
    return count;
  }

  static constexpr std::uint32_t kDepth = 8;
  int pipe_[2] = {-1, -1};
  std::uint32_t arms_ = 0;
  std::unique_ptr<CompletionQueue> cq_;
};

TEST_F(CompletionQueueTest, Push_AllFields) {
  transport::Completion completion;
  completion.wr_id = 0x1122334455667788;
  completion.status = WcStatus::kRemAccessErr;
  completion.opcode = WcOpcode::kRecvRdmaWithImm;
  completion.flags = kWcWithImm;
  completion.is_receive = true;
  completion.reason = transport::FailureReason::kRemoteAccess;
  completion.byte_len = 1234;
  completion.immediate = 0xCAFE;
  completion.source_qp = Qpn{77};
  completion.wqe_index = 9;
  EXPECT_TRUE(cq_->push(completion, 5, 6, 7));
  const abi::Cqe& cqe = entry(0);
  EXPECT_EQ(cqe.sequence.load(), 1U);
  EXPECT_EQ(cqe.wr_id, 0x1122334455667788U);
  EXPECT_EQ(cqe.timestamp_ns, 7U);
  EXPECT_EQ(cqe.byte_len, 1234U);
  EXPECT_EQ(cqe.immediate, 0xCAFEU);
  EXPECT_EQ(cqe.qpn, 5U);
  EXPECT_EQ(cqe.source_qpn, 77U);
  EXPECT_EQ(cqe.status, static_cast<std::uint8_t>(WcStatus::kRemAccessErr));
  EXPECT_EQ(cqe.opcode, static_cast<std::uint8_t>(WcOpcode::kRecvRdmaWithImm));
  EXPECT_EQ(cqe.flags, kWcWithImm);
  EXPECT_EQ(cqe.is_receive, 1);
  EXPECT_EQ(cqe.vendor_error, static_cast<std::uint32_t>(transport::FailureReason::kRemoteAccess));
  EXPECT_EQ(cqe.wqe_index, 9U);
  EXPECT_EQ(cqe.qp_cookie, 6U);
}

TEST_F(CompletionQueueTest, Push_OverrunOverwritesNothing) {
  for (std::uint64_t i = 0; i < kDepth; ++i) EXPECT_TRUE(push(i));
  EXPECT_FALSE(push(99));
  EXPECT_TRUE(cq_->has_overrun());
  EXPECT_EQ(page().overrun.load(), 1U);
  for (std::uint32_t i = 0; i < kDepth; ++i) {
    EXPECT_EQ(entry(i).wr_id, i);
    EXPECT_EQ(entry(i).sequence.load(), i + 1);
  }
  page().consumer.store(kDepth);
  EXPECT_FALSE(push(100)) << "it does not recover";
}

TEST_F(CompletionQueueTest, Push_RoundAndRound) {
  for (std::uint32_t i = 0; i < 5 * kDepth; ++i) {
    ASSERT_TRUE(push(i));
    ASSERT_EQ(entry(i).wr_id, i);
    ASSERT_EQ(entry(i).sequence.load(), i + 1);
    page().consumer.store(i + 1);
  }
}

// Whatever the client writes there, entries land inside the ring.
TEST_F(CompletionQueueTest, Push_HostileConsumer) {
  ASSERT_TRUE(push(1));
  page().consumer.store(1000);
  EXPECT_FALSE(push(2));
  EXPECT_TRUE(cq_->has_overrun());
}

TEST_F(CompletionQueueTest, Notify_NextIsOneShot) {
  ASSERT_TRUE(push(1));
  EXPECT_TRUE(cq_->notify());
  EXPECT_EQ(events(), 0) << "not armed";
  arm(abi::ArmKind::kNext);
  EXPECT_TRUE(cq_->notify());
  EXPECT_EQ(events(), 0) << "what was there before is for the client to poll";
  ASSERT_TRUE(push(2));
  ASSERT_TRUE(push(3));
  EXPECT_TRUE(cq_->notify());
  EXPECT_EQ(events(), 1);
  EXPECT_EQ(page().fired.load(), page().arm.load());
  ASSERT_TRUE(push(4));
  EXPECT_TRUE(cq_->notify());
  EXPECT_EQ(events(), 0) << "once";
  arm(abi::ArmKind::kNext);
  ASSERT_TRUE(push(5));
  EXPECT_TRUE(cq_->notify());
  EXPECT_EQ(events(), 1);
}

TEST_F(CompletionQueueTest, Notify_Solicited) {
  arm(abi::ArmKind::kSolicited);
  ASSERT_TRUE(push(1));
  EXPECT_TRUE(cq_->notify());
  EXPECT_EQ(events(), 0);
  ASSERT_TRUE(push(2, true));
  EXPECT_TRUE(cq_->notify());
  EXPECT_EQ(events(), 1);
  arm(abi::ArmKind::kSolicited);
  ASSERT_TRUE(push(3));
  EXPECT_TRUE(cq_->notify());
  EXPECT_EQ(events(), 0) << "the solicited one was before this arming";
  ASSERT_TRUE(push(4, false, WcStatus::kWrFlushErr));
  EXPECT_TRUE(cq_->notify());
  EXPECT_EQ(events(), 1) << "an error counts as solicited";
}

TEST_F(CompletionQueueTest, Notify_SolicitedThenNext) {
  arm(abi::ArmKind::kSolicited);
  arm(abi::ArmKind::kNext);
  ASSERT_TRUE(push(1));
  EXPECT_TRUE(cq_->notify());
  EXPECT_EQ(events(), 1);
}

// The event that does not fit is held, and comes when there is room; completions go on meanwhile.
TEST_F(CompletionQueueTest, Notify_FullChannel) {
  const std::uint64_t filler = kPointer;
  while (::write(pipe_[1], &filler, sizeof filler) == sizeof filler) {
  }
  arm(abi::ArmKind::kSolicited);
  ASSERT_TRUE(push(1, true));
  EXPECT_FALSE(cq_->notify());
  ASSERT_TRUE(push(2));
  EXPECT_FALSE(cq_->notify());
  EXPECT_NE(page().fired.load(), page().arm.load());
  events();
  EXPECT_TRUE(cq_->notify());
  EXPECT_EQ(events(), 1);
  EXPECT_TRUE(cq_->notify());
  EXPECT_EQ(events(), 0);
}

TEST_F(CompletionQueueTest, Push_NamesTheSrq) {
  transport::Completion completion;
  ASSERT_TRUE(cq_->push(completion, 5, abi::kNoCookie, 7, 31));
  EXPECT_EQ(entry(0).srq_cookie, 31U);
  EXPECT_EQ(entry(0).qp_cookie, abi::kNoCookie);
  ASSERT_TRUE(push(1));
  EXPECT_EQ(entry(1).srq_cookie, abi::kNoCookie);
}

TEST_F(CompletionQueueTest, Resize_MovesWhatHasNotBeenPolled) {
  for (std::uint64_t id = 1; id <= kDepth; ++id) ASSERT_TRUE(push(id));
  page().consumer.store(3);
  ASSERT_TRUE(push(9));
  auto memory = shared_memory(CompletionQueue::memory_bytes(32));
  ASSERT_TRUE(cq_->resize(32, memory));
  const auto* ring = reinterpret_cast<const abi::Cqe*>(cq_->memory().data() + abi::kCqRingOffset);
  for (std::uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(ring[i].wr_id, 4 + i);
    EXPECT_EQ(ring[i].sequence.load(), i + 1);
  }
  EXPECT_EQ(ring[6].sequence.load(), 0U);
  EXPECT_EQ(page().consumer.load(), 0U);
  for (std::uint64_t id = 10; id < 36; ++id) ASSERT_TRUE(push(id)) << "there is room for 32";
  EXPECT_FALSE(push(36));
  EXPECT_EQ(ring[31].wr_id, 35U);
}

TEST_F(CompletionQueueTest, Resize_RefusesToLoseCompletions) {
  for (std::uint64_t id = 1; id <= 5; ++id) ASSERT_TRUE(push(id));
  auto memory = shared_memory(CompletionQueue::memory_bytes(4));
  EXPECT_FALSE(cq_->resize(4, memory));
  page().consumer.store(1);
  EXPECT_TRUE(cq_->resize(4, memory));
}

TEST_F(CompletionQueueTest, Resize_KeepsAnArming) {
  arm(abi::ArmKind::kNext);
  auto memory = shared_memory(CompletionQueue::memory_bytes(32));
  ASSERT_TRUE(cq_->resize(32, memory));
  ASSERT_TRUE(push(1));
  EXPECT_TRUE(cq_->notify());
  EXPECT_EQ(events(), 1);
  auto again = shared_memory(CompletionQueue::memory_bytes(8));
  ASSERT_TRUE(cq_->resize(8, again));
  ASSERT_TRUE(push(2));
  EXPECT_TRUE(cq_->notify());
  EXPECT_EQ(events(), 0) << "the arming has been answered";
}

// A consumer's index that no client would write costs that client completions, and nothing else.
TEST_F(CompletionQueueTest, Resize_WithAHostileIndex) {
  ASSERT_TRUE(push(1));
  page().consumer.store(0x80000000);
  auto memory = shared_memory(CompletionQueue::memory_bytes(32));
  EXPECT_TRUE(cq_->resize(32, memory));
}

TEST_F(CompletionQueueTest, Construct_SizesAreChecked) {
  CompletionQueue::Config config;
  config.depth = 6;
  EXPECT_DEATH(CompletionQueue(std::move(config), shared_memory(4096)), "internal fault");
}

}  // namespace
}  // namespace urdma::engine
