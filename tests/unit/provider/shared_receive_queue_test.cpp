// The client's side of a shared receive queue against an engine's that the test plays.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/queue/shared_receive_queue.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

namespace urdma::provider {
namespace {

abi::CreateSrqReply shape_of(std::uint32_t max_wr) {
  abi::CreateSrqReply reply{};
  reply.max_wr = max_wr;
  reply.max_sge = 2;
  reply.slots = max_wr;
  reply.stride = 64;
  reply.slots_offset = sizeof(abi::SrqPage);
  reply.memory_bytes = reply.slots_offset + std::uint64_t{reply.slots} * reply.stride;
  return reply;
}

// A ring as the daemon makes it.
struct Ring {
  explicit Ring(std::uint32_t max_wr) : reply(shape_of(max_wr)) {
    fd = UniqueFd(::memfd_create("urdma-test", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(fd.get(), 65536), 0);
    EXPECT_EQ(engine.map(fd.get(), reply.memory_bytes, Mapping::Access::kReadWrite), 0);
  }
  [[nodiscard]] Mapping mapping() const {
    Mapping memory;
    EXPECT_EQ(memory.map(fd.get(), reply.memory_bytes, Mapping::Access::kReadWrite), 0);
    return memory;
  }
  [[nodiscard]] abi::SrqPage& page() const { return *reinterpret_cast<abi::SrqPage*>(engine.data()); }
  [[nodiscard]] std::uint64_t wr_id(std::uint32_t index) const {
    abi::ReceiveWqe wqe;
    std::memcpy(&wqe, engine.data() + reply.slots_offset + (index & (reply.slots - 1)) * 64, sizeof(wqe));
    return wqe.wr_id;
  }

  abi::CreateSrqReply reply;
  UniqueFd fd;
  Mapping engine;
};

class SharedReceiveQueueTest : public testing::Test {
 protected:
  int post(std::uint64_t wr_id) {
    ibv_recv_wr request{};
    request.wr_id = wr_id;
    ibv_recv_wr* bad = nullptr;
    const int error = srq.post(&request, &bad);
    EXPECT_EQ(bad, error != 0 ? &request : nullptr);
    return error;
  }

  Ring ring{4};
  SharedReceiveQueue srq{ring.mapping(), ring.reply, 9};
};

TEST_F(SharedReceiveQueueTest, Post_FillsSlotsUntilNoneIsFree) {
  for (std::uint64_t id = 1; id <= 4; ++id) EXPECT_EQ(post(id), 0);
  EXPECT_EQ(post(5), ENOMEM);
  EXPECT_EQ(ring.page().producer.load(), 4U);
  ring.page().consumer.store(2);  // the engine has taken two; nothing has completed yet
  EXPECT_EQ(post(5), 0);
  EXPECT_EQ(post(6), 0);
  EXPECT_EQ(post(7), ENOMEM);
  EXPECT_EQ(ring.wr_id(2), 3U);
  EXPECT_EQ(ring.wr_id(4), 5U);
  EXPECT_EQ(ring.wr_id(5), 6U);
}

TEST_F(SharedReceiveQueueTest, Post_NamesTheFirstBadRequest) {
  std::array<ibv_sge, 3> pieces{};
  ibv_recv_wr second{2, nullptr, pieces.data(), 3};
  ibv_recv_wr first{1, &second, pieces.data(), 2};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(srq.post(&first, &bad), EINVAL);
  EXPECT_EQ(bad, &second);
  EXPECT_EQ(ring.page().producer.load(), 1U) << "the one before it is posted";
}

TEST_F(SharedReceiveQueueTest, Resize_GoesOnInTheNewRing) {
  EXPECT_EQ(post(1), 0);
  EXPECT_EQ(post(2), 0);
  Ring larger(8);
  larger.page().producer.store(2);  // the daemon has moved both
  const auto give = [&](abi::CreateSrqReply& reply, std::vector<UniqueFd>& fds) {
    reply = larger.reply;
    fds.emplace_back(::fcntl(larger.fd.get(), F_DUPFD_CLOEXEC, 0));
    return 0;
  };
  ASSERT_EQ(srq.resize(give), 0);
  for (std::uint64_t id = 3; id <= 8; ++id) EXPECT_EQ(post(id), 0);
  EXPECT_EQ(post(9), ENOMEM);
  EXPECT_EQ(larger.page().producer.load(), 8U);
  EXPECT_EQ(larger.wr_id(2), 3U);
  EXPECT_EQ(ring.page().producer.load(), 2U);
}

TEST_F(SharedReceiveQueueTest, Resize_RefusedLeavesTheRing) {
  EXPECT_EQ(srq.resize([](abi::CreateSrqReply&, std::vector<UniqueFd>&) { return EINVAL; }), EINVAL);
  EXPECT_EQ(post(1), 0);
  EXPECT_EQ(ring.page().producer.load(), 1U);
}

TEST_F(SharedReceiveQueueTest, Post_FromSeveralThreads) {
  constexpr std::uint32_t kEach = 20'000;
  std::vector<std::uint64_t> taken;
  std::thread engine([&] {
    for (std::uint32_t index = 0; index < 2 * kEach; ++index) {
      while (ring.page().producer.load(std::memory_order_acquire) == index) std::this_thread::yield();
      taken.push_back(ring.wr_id(index));
      ring.page().consumer.store(index + 1, std::memory_order_release);
    }
  });
  const auto program = [&](std::uint64_t base) {
    for (std::uint64_t i = 0; i < kEach; ++i) {
      ibv_recv_wr request{};
      request.wr_id = base + i;
      ibv_recv_wr* bad = nullptr;
      while (srq.post(&request, &bad) == ENOMEM) std::this_thread::yield();
    }
  };
  std::thread other(program, 0);
  program(kEach);
  other.join();
  engine.join();
  std::sort(taken.begin(), taken.end());
  for (std::uint64_t i = 0; i < taken.size(); ++i) ASSERT_EQ(taken[i], i) << "lost, or there twice";
}

TEST_F(SharedReceiveQueueTest, IsSound_HoldsTheReplyToItsMemory) {
  EXPECT_TRUE(SharedReceiveQueue::is_sound(shape_of(8)));
  abi::CreateSrqReply wrong = shape_of(8);
  wrong.slots = 7;
  EXPECT_FALSE(SharedReceiveQueue::is_sound(wrong));
  wrong = shape_of(8);
  wrong.max_wr = 9;
  EXPECT_FALSE(SharedReceiveQueue::is_sound(wrong));
  wrong = shape_of(8);
  wrong.max_sge = 4;
  EXPECT_FALSE(SharedReceiveQueue::is_sound(wrong));
  wrong = shape_of(8);
  wrong.memory_bytes -= 1;
  EXPECT_FALSE(SharedReceiveQueue::is_sound(wrong));
  wrong = shape_of(8);
  wrong.slots_offset = 0;
  EXPECT_FALSE(SharedReceiveQueue::is_sound(wrong));
}

}  // namespace
}  // namespace urdma::provider
