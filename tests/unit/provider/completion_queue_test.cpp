// Polling, arming, and what a CQ does when the daemon is gone.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/queue/completion_queue.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "tests/unit/provider/fake_engine.hpp"

namespace urdma::provider::testing {
namespace {

constexpr std::uint64_t kUserPointer = 0x7777;

thread_local constinit const std::function<void()>* on_yield = nullptr;  // once

class CompletionQueueTest : public ::testing::Test {
 protected:
  // The events that stand in the channel.
  int take_events() {
    const int flags = ::fcntl(channel_.get(), F_GETFL);
    ::fcntl(channel_.get(), F_SETFL, flags | O_NONBLOCK);
    int count = 0;
    std::uint64_t event = 0;
    while (::read(channel_.get(), &event, sizeof(event)) == sizeof(event)) {
      EXPECT_EQ(event, kUserPointer);
      ++count;
    }
    return count;
  }

  FakeEngine engine_;
  UniqueFd channel_ = make_event_pipe();
  FakeCq cq_{engine_, 8, channel_.get(), kUserPointer};
  FakeQp qp_{engine_, cq_, cq_};
  ibv_wc completion_{};
};

TEST_F(CompletionQueueTest, Poll_IsEmptyAtFirst) { EXPECT_EQ(cq_.queue.poll(1, &completion_), 0); }

TEST_F(CompletionQueueTest, Poll_FillsEveryField) {
  ASSERT_EQ(post(*qp_.queue, receive_request(5)), 0);
  ASSERT_TRUE(cq_.push(*qp_.queue, 5, true, 1));
  std::memset(&completion_, 0xFF, sizeof(completion_));
  ASSERT_TRUE(poll_one(cq_, completion_));
  EXPECT_EQ(completion_.wr_id, 5U);
  EXPECT_EQ(completion_.status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion_.opcode, IBV_WC_RECV);
  EXPECT_EQ(completion_.byte_len, 7U);
  EXPECT_EQ(completion_.qp_num, qp_.queue->qpn());
  EXPECT_EQ(completion_.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(ntohl(completion_.imm_data), 0x01020304U);
  EXPECT_EQ(completion_.src_qp, 0U);
  EXPECT_EQ(completion_.slid, 0U);
  EXPECT_FALSE(poll_one(cq_, completion_));
}

TEST_F(CompletionQueueTest, Poll_TakesWhatCameWhileItYielded) {
  FakeCq cq(engine_, 8, -1, 0, true);
  FakeQp qp(engine_, cq, cq);
  ASSERT_EQ(post(*qp.queue, receive_request(5)), 0);
  bool has_yielded = false;
  const std::function<void()> first = [&] {
    has_yielded = true;
    EXPECT_TRUE(cq.push(*qp.queue, 5, true, 0));
  };
  on_yield = &first;
  int taken = 0;
  for (int i = 0; i < 100 && !has_yielded; ++i) taken = cq.queue.poll(1, &completion_);
  ASSERT_TRUE(has_yielded);
  EXPECT_EQ(taken, 1) << "it was there when the poll returned";
  const std::function<void()> second = [&] { EXPECT_TRUE(cq.push(*qp.queue, 6, true, 1)); };
  on_yield = &second;
  ASSERT_EQ(post(*qp.queue, receive_request(6)), 0);
  int error = ENOENT;
  for (int i = 0; i < 100 && on_yield != nullptr; ++i) error = cq.queue.start_poll();
  EXPECT_EQ(error, 0);
  cq.queue.end_poll();
}

TEST_F(CompletionQueueTest, StartPoll_ShowsOneAfterAnother) {
  EXPECT_EQ(cq_.queue.start_poll(), ENOENT);
  cq_.queue.end_poll();  // programs do
  ASSERT_TRUE(cq_.push(*qp_.queue, 5, true, 0));
  ASSERT_TRUE(cq_.push(*qp_.queue, 6, false, 0, WcStatus::kRemAccessErr));
  ASSERT_EQ(cq_.queue.start_poll(), 0);
  EXPECT_EQ(cq_.queue.polled().wc.wr_id, 5U);
  EXPECT_EQ(cq_.queue.polled().timestamp_ns, FakeCq::kTimestampNs);
  ASSERT_EQ(cq_.queue.next_poll(), 0);
  EXPECT_EQ(cq_.queue.polled().wc.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(cq_.queue.next_poll(), ENOENT);
  cq_.queue.end_poll();
  EXPECT_EQ(cq_.page().consumer.load(), 2U);
  EXPECT_FALSE(poll_one(cq_, completion_)) << "and the lock has been given back";
}

TEST_F(CompletionQueueTest, StartPoll_KeepsOthersOut) {
  ASSERT_TRUE(cq_.push(*qp_.queue, 5, true, 0));
  ASSERT_TRUE(cq_.push(*qp_.queue, 6, true, 0));
  ASSERT_EQ(cq_.queue.start_poll(), 0);
  std::atomic<bool> has_polled{false};
  std::thread other([&] {
    ibv_wc completion;
    EXPECT_TRUE(poll_one(cq_, completion));
    EXPECT_EQ(completion.wr_id, 6U);
    has_polled = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(has_polled.load());
  cq_.queue.end_poll();
  other.join();
}

TEST_F(CompletionQueueTest, StartPoll_FlushesOnceTheDaemonIsGone) {
  ASSERT_EQ(post(*qp_.queue, send_request(9)), 0);
  engine_.liveness.declare_gone();
  ASSERT_EQ(cq_.queue.start_poll(), 0);
  EXPECT_EQ(cq_.queue.polled().wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(cq_.queue.polled().timestamp_ns, 0U);
  EXPECT_EQ(cq_.queue.next_poll(), ENOENT);
  cq_.queue.end_poll();
}

TEST_F(CompletionQueueTest, Poll_MakesRoomForTheEngine) {
  for (std::uint32_t i = 0; i < 8; ++i) ASSERT_TRUE(cq_.push(*qp_.queue, i, false, 0));
  EXPECT_FALSE(cq_.push(*qp_.queue, 8, false, 0));
  ibv_wc completions[5];
  ASSERT_EQ(cq_.queue.poll(5, completions), 5);
  EXPECT_EQ(completions[4].wr_id, 4U);
  EXPECT_EQ(cq_.page().consumer.load(), 5U);
  for (std::uint32_t i = 8; i < 13; ++i) ASSERT_TRUE(cq_.push(*qp_.queue, i, false, 0));
  for (std::uint32_t i = 5; i < 13; ++i) {
    ASSERT_TRUE(poll_one(cq_, completion_));
    EXPECT_EQ(completion_.wr_id, i);
  }
  EXPECT_FALSE(poll_one(cq_, completion_));
}

TEST_F(CompletionQueueTest, Purge_DropsOneQpAndKeepsTheOrderOfOthers) {
  FakeQp other(engine_, cq_, cq_, {}, 4);
  ASSERT_TRUE(cq_.push(*qp_.queue, 1, false, 0));
  ASSERT_TRUE(cq_.push(*other.queue, 2, false, 0));
  ASSERT_TRUE(cq_.push(*qp_.queue, 3, false, 0));
  ASSERT_TRUE(cq_.push(*other.queue, 4, false, 0));
  other.destroy();
  ASSERT_TRUE(cq_.push(*qp_.queue, 5, false, 0));
  for (const std::uint64_t id : {1, 3, 5}) {
    ASSERT_TRUE(poll_one(cq_, completion_));
    EXPECT_EQ(completion_.wr_id, id);
  }
  EXPECT_FALSE(poll_one(cq_, completion_));
}

TEST_F(CompletionQueueTest, Purge_KeepsTheSlotsOfOthersRight) {
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(post(*qp_.queue, send_request(id)), 0);
  FakeQp other(engine_, cq_, cq_, {}, 4);
  ASSERT_TRUE(cq_.push(*qp_.queue, 0, false, 1));
  other.destroy();
  EXPECT_EQ(post(*qp_.queue, send_request(4)), ENOMEM) << "its completion waits to be polled";
  ASSERT_TRUE(poll_one(cq_, completion_));
  EXPECT_EQ(post(*qp_.queue, send_request(4)), 0);
}

TEST_F(CompletionQueueTest, Arm_FiresOncePerArming) {
  cq_.queue.arm(false);
  EXPECT_TRUE(cq_.fire(false));
  EXPECT_FALSE(cq_.fire(false));
  cq_.queue.arm(false);
  EXPECT_TRUE(cq_.fire(false)) << "the same arming again must be seen";
}

TEST_F(CompletionQueueTest, Arm_SolicitedDoesNotWeakenAnUnfiredNext) {
  cq_.queue.arm(false);
  cq_.queue.arm(true);
  EXPECT_TRUE(cq_.fire(false));
  cq_.queue.arm(true);
  EXPECT_FALSE(cq_.fire(false));
  EXPECT_TRUE(cq_.fire(true));
}

TEST_F(CompletionQueueTest, Arm_NextStrengthensAnUnfiredSolicited) {
  cq_.queue.arm(true);
  cq_.queue.arm(false);
  EXPECT_TRUE(cq_.fire(false));
}

TEST_F(CompletionQueueTest, Poll_NoticesADeadDaemonByItself) {
  ASSERT_EQ(post(*qp_.queue, send_request(1)), 0);
  EXPECT_FALSE(poll_one(cq_, completion_));
  reinterpret_cast<std::atomic<std::uint32_t>*>(&engine_.engine_page.alive)->fetch_or(abi::kOwnerDied);
  int polls = 0;
  while (!poll_one(cq_, completion_) && ++polls < 64) {
  }
  EXPECT_LT(polls, 64);
  EXPECT_EQ(completion_.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(engine_.liveness.is_gone());
}

TEST_F(CompletionQueueTest, Poll_DrainsThenFlushesEachOutstandingOnceInOrder) {
  for (std::uint64_t id = 0; id < 4; ++id) {
    ibv_send_wr request = send_request(id);
    request.opcode = IBV_WR_RDMA_READ;
    request.send_flags = 0;  // unsignalled ones are flushed, too
    ASSERT_EQ(post(*qp_.queue, request), 0);
  }
  for (std::uint64_t id = 10; id < 12; ++id) ASSERT_EQ(post(*qp_.queue, receive_request(id)), 0);
  ASSERT_TRUE(cq_.push(*qp_.queue, 0, false, 1));
  engine_.liveness.declare_gone();
  ASSERT_TRUE(poll_one(cq_, completion_));
  EXPECT_EQ(completion_.status, IBV_WC_SUCCESS) << "what came before the death is delivered";
  for (const std::uint64_t id : {1, 2, 3, 10, 11}) {
    ASSERT_TRUE(poll_one(cq_, completion_));
    EXPECT_EQ(completion_.wr_id, id);
    EXPECT_EQ(completion_.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(completion_.opcode, id < 10 ? IBV_WC_RDMA_READ : IBV_WC_RECV);
    EXPECT_EQ(completion_.qp_num, qp_.queue->qpn());
  }
  EXPECT_FALSE(poll_one(cq_, completion_));
}

TEST_F(CompletionQueueTest, Poll_FlushesWhatIsPostedAfterTheDeath) {
  engine_.liveness.declare_gone();
  EXPECT_FALSE(poll_one(cq_, completion_));
  for (std::uint64_t id = 0; id < 10; ++id) {
    ASSERT_EQ(post(*qp_.queue, send_request(id)), 0);
    ASSERT_TRUE(poll_one(cq_, completion_));
    EXPECT_EQ(completion_.wr_id, id);
    EXPECT_EQ(completion_.status, IBV_WC_WR_FLUSH_ERR);
  }
}

TEST_F(CompletionQueueTest, Poll_FlushesEachQueueIntoItsOwnCq) {
  FakeCq receives(engine_, 8);
  FakeQp qp(engine_, cq_, receives, {}, 5);
  ASSERT_EQ(post(*qp.queue, send_request(1)), 0);
  ASSERT_EQ(post(*qp.queue, receive_request(2)), 0);
  engine_.liveness.declare_gone();
  ASSERT_TRUE(poll_one(cq_, completion_));
  EXPECT_EQ(completion_.wr_id, 1U);
  EXPECT_FALSE(poll_one(cq_, completion_));
  ASSERT_TRUE(poll_one(receives, completion_));
  EXPECT_EQ(completion_.wr_id, 2U);
}

TEST_F(CompletionQueueTest, Arm_AfterTheDeathFiresForWhatIsToBeFlushed) {
  engine_.liveness.declare_gone();
  cq_.queue.arm(false);
  EXPECT_EQ(take_events(), 0) << "nothing is outstanding";
  ASSERT_EQ(post(*qp_.queue, send_request(1)), 0);
  EXPECT_EQ(take_events(), 1) << "a post to a dead device completes at once";
  cq_.queue.arm(false);
  EXPECT_EQ(take_events(), 1) << "it has not been polled yet";
  ASSERT_TRUE(poll_one(cq_, completion_));
}

// The handshake of arming against an engine in another thread: a sleeper must never miss its wake-up.
TEST(CompletionQueueThreadsTest, Arm_LosesNoWakeup) {
  constexpr std::uint32_t kRounds = 20000;
  FakeEngine engine;
  FakeCq cq(engine, 8);
  FakeQp qp(engine, cq, cq);
  std::atomic<std::uint32_t> events{0};
  std::atomic<bool> stuck{false};
  std::thread server([&] {
    for (std::uint32_t i = 0; i < kRounds && !stuck.load(); ++i) {
      while (!cq.push(*qp.queue, i, false, 0)) std::this_thread::yield();
      if (cq.fire(false)) events.fetch_add(1);
    }
  });
  ibv_wc completion;
  std::uint32_t polled = 0;
  std::uint32_t slept = 0;
  while (polled < kRounds && !stuck.load()) {
    cq.queue.arm(false);
    while (poll_one(cq, completion)) ++polled;
    if (polled == kRounds) break;
    // Asleep until an event comes; only one that is lost takes this long.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (events.load() == slept && !stuck.load()) {
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() > deadline) stuck = true;
    }
    ++slept;
    while (poll_one(cq, completion)) ++polled;
  }
  server.join();
  EXPECT_FALSE(stuck.load()) << "after " << polled << " completions";
  EXPECT_EQ(polled, kRounds);
}

// The daemon's part of another size: it has moved what was not polled to the start of the new ring.
TEST_F(CompletionQueueTest, Resize_GoesOnInTheNewRing) {
  ASSERT_EQ(post(*qp_.queue, receive_request(1)), 0);
  ASSERT_EQ(post(*qp_.queue, receive_request(2)), 0);
  ASSERT_TRUE(cq_.push(*qp_.queue, 1, true, 1));
  ASSERT_TRUE(poll_one(cq_, completion_));
  FakeCq larger(engine_, 32);
  ASSERT_TRUE(larger.push(*qp_.queue, 2, true, 2));
  ASSERT_EQ(cq_.queue.resize([&](abi::CreateCqReply& reply, std::vector<UniqueFd>& fds) {
    reply = {0, 32, abi::kCqRingOffset + 32 * sizeof(abi::Cqe)};
    fds.push_back(larger.descriptor());
    return 0;
  }),
            0);
  ASSERT_TRUE(poll_one(cq_, completion_));
  EXPECT_EQ(completion_.wr_id, 2U);
  EXPECT_FALSE(poll_one(cq_, completion_));
  EXPECT_EQ(larger.page().consumer.load(), 1U);
  cq_.queue.arm(false);
  EXPECT_NE(larger.page().arm.load(), 0U);
}

TEST_F(CompletionQueueTest, Resize_RefusedLeavesTheRing) {
  EXPECT_EQ(cq_.queue.resize([](abi::CreateCqReply&, std::vector<UniqueFd>&) { return EINVAL; }), EINVAL);
  ASSERT_EQ(post(*qp_.queue, receive_request(1)), 0);
  ASSERT_TRUE(cq_.push(*qp_.queue, 1, true, 1));
  EXPECT_TRUE(poll_one(cq_, completion_));
}

// A receive from an SRQ frees no slot of its QP, and one from an XRC QP needs none.
TEST_F(CompletionQueueTest, Poll_ReceivesOfAnSrq) {
  for (std::uint64_t id = 1; id <= 4; ++id) ASSERT_EQ(post(*qp_.queue, receive_request(id)), 0);
  ASSERT_TRUE(cq_.push(*qp_.queue, 7, true, 4, WcStatus::kSuccess, qp_.queue->cookie(), 11));
  ASSERT_TRUE(poll_one(cq_, completion_));
  EXPECT_EQ(completion_.wr_id, 7U);
  EXPECT_EQ(post(*qp_.queue, receive_request(5)), ENOMEM);
  ASSERT_TRUE(cq_.push(*qp_.queue, 8, true, 0, WcStatus::kSuccess, abi::kNoCookie, 12));
  ASSERT_TRUE(poll_one(cq_, completion_));
  EXPECT_EQ(completion_.wr_id, 8U);
  ASSERT_TRUE(cq_.push(*qp_.queue, 9, true, 0, WcStatus::kSuccess, abi::kNoCookie, 12));
  ASSERT_TRUE(cq_.push(*qp_.queue, 10, true, 0, WcStatus::kSuccess, abi::kNoCookie, 13));
  cq_.queue.purge_shared(12);
  ASSERT_TRUE(poll_one(cq_, completion_));
  EXPECT_EQ(completion_.wr_id, 10U) << "the other one's SRQ is gone";
}

}  // namespace
}  // namespace urdma::provider::testing

// In place of libc's, for the library under test.
extern "C" int sched_yield() noexcept {
  if (const auto* hook = std::exchange(urdma::provider::testing::on_yield, nullptr)) (*hook)();
  return static_cast<int>(::syscall(SYS_sched_yield));
}
