// A shared receive queue's ring: requests that are copied out and judged, the limit, another size, and what a
// hostile client writes.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/shared_receive_queue.hpp"

#include <bit>

#include "tests/unit/engine/fixture.hpp"

namespace urdma::engine {
namespace {

constexpr std::uint32_t kMaxWr = 8;
constexpr std::uint32_t kMaxSge = 3;
constexpr std::uint32_t kNumber = 77;

class SharedReceiveQueueTest : public ::testing::Test {
 protected:
  SharedReceiveQueueTest()
      : srq_(config(), kMaxWr, shared_memory(SrqGeometry::of(kMaxWr, kMaxSge).memory_bytes)) {}

  static SharedReceiveQueue::Config config() {
    SharedReceiveQueue::Config config;
    config.number = kNumber;
    config.max_sge = kMaxSge;
    return config;
  }
  abi::SrqPage& page() { return *reinterpret_cast<abi::SrqPage*>(srq_.memory().data()); }
  std::byte* slot(std::uint32_t index) {
    const SrqGeometry& geometry = srq_.geometry();
    return srq_.memory().data() + geometry.slots_offset +
           std::size_t{index & (geometry.slots - 1)} * geometry.stride;
  }
  void post(std::uint64_t wr_id, const std::vector<abi::Sge>& elements = {}) {
    const std::uint32_t index = page().producer.load();
    const abi::ReceiveWqe wqe{wr_id, static_cast<std::uint32_t>(elements.size()), 0};
    std::memcpy(slot(index), &wqe, sizeof wqe);
    std::memcpy(slot(index) + sizeof wqe, elements.data(), elements.size() * sizeof(abi::Sge));
    page().producer.store(index + 1, std::memory_order_release);
  }
  SharedReceiveQueue::Fetched fetch() { return srq_.fetch(request_, elements_); }
  // The wr_id of the next request; 0 when there is none.
  std::uint64_t next() { return fetch() == SharedReceiveQueue::Fetched::kOne ? request_.wr_id : 0; }

  SharedReceiveQueue srq_;
  transport::ReceiveRequest request_;
  std::span<const transport::Sge> elements_;
};

TEST_F(SharedReceiveQueueTest, Geometry_HoldsWhatIsGranted) {
  for (const std::uint32_t max_wr : {1U, 3U, 100U}) {
    for (const std::uint32_t max_sge : {1U, 3U, 32U}) {
      const SrqGeometry geometry = SrqGeometry::of(max_wr, max_sge);
      EXPECT_TRUE(std::has_single_bit(geometry.slots));
      EXPECT_GE(geometry.slots, max_wr);
      EXPECT_EQ(geometry.stride % 64, 0U);
      EXPECT_GE(geometry.stride, sizeof(abi::ReceiveWqe) + max_sge * sizeof(abi::Sge));
      EXPECT_EQ(geometry.memory_bytes,
                geometry.slots_offset + std::uint64_t{geometry.slots} * geometry.stride);
    }
  }
}

TEST_F(SharedReceiveQueueTest, Fetch_TakesInOrderAndFreesTheSlot) {
  EXPECT_EQ(fetch(), SharedReceiveQueue::Fetched::kNone);
  post(11, {{0x1000, 64, 5}, {0x2000, 32, 6}});
  post(12);
  ASSERT_EQ(fetch(), SharedReceiveQueue::Fetched::kOne);
  EXPECT_EQ(request_.wr_id, 11U);
  EXPECT_EQ(request_.srq, kNumber);
  ASSERT_EQ(elements_.size(), 2U);
  EXPECT_EQ(elements_[1].address, 0x2000U);
  EXPECT_EQ(elements_[1].length, 32U);
  EXPECT_EQ(elements_[1].lkey, MemoryKey{6});
  EXPECT_EQ(page().consumer.load(), 1U);
  EXPECT_EQ(next(), 12U);
  EXPECT_EQ(page().consumer.load(), 2U);
  EXPECT_EQ(next(), 0U);
}

TEST_F(SharedReceiveQueueTest, Fetch_GoesRoundTheRing) {
  for (std::uint64_t id = 1; id <= 5 * kMaxWr; ++id) {
    post(id);
    EXPECT_EQ(next(), id);
  }
}

TEST_F(SharedReceiveQueueTest, Fetch_AnIndexOutOfRangeBreaksItOnce) {
  page().producer.store(kMaxWr + 1);
  EXPECT_EQ(fetch(), SharedReceiveQueue::Fetched::kBroken);
  EXPECT_EQ(fetch(), SharedReceiveQueue::Fetched::kNone);
  page().producer.store(0);
  post(1);
  EXPECT_EQ(next(), 0U) << "nothing is taken from a broken queue";
}

TEST_F(SharedReceiveQueueTest, Fetch_TooManyElementsBreakIt) {
  post(1);
  const abi::ReceiveWqe wqe{1, kMaxSge + 1, 0};
  std::memcpy(slot(0), &wqe, sizeof wqe);
  EXPECT_EQ(fetch(), SharedReceiveQueue::Fetched::kBroken);
}

TEST_F(SharedReceiveQueueTest, Limit_IsToldOnceWhenFewerAreLeft) {
  for (std::uint64_t id = 1; id <= 4; ++id) post(id);
  srq_.arm_limit(3);
  EXPECT_FALSE(srq_.take_limit_event()) << "arming alone is no event";
  EXPECT_EQ(next(), 1U);
  EXPECT_FALSE(srq_.take_limit_event()) << "three are left";
  EXPECT_EQ(next(), 2U);
  EXPECT_TRUE(srq_.take_limit_event());
  EXPECT_EQ(srq_.limit(), 0U) << "it is disarmed then";
  EXPECT_EQ(next(), 3U);
  EXPECT_FALSE(srq_.take_limit_event());
  srq_.arm_limit(1);
  EXPECT_EQ(next(), 4U);
  EXPECT_TRUE(srq_.take_limit_event()) << "armed anew it is told anew";
}

TEST_F(SharedReceiveQueueTest, Resize_KeepsWhatHasNotBeenTaken) {
  for (std::uint64_t id = 1; id <= kMaxWr; ++id) post(id, {{id, 1, 1}});
  EXPECT_EQ(next(), 1U);
  EXPECT_EQ(next(), 2U);
  post(9, {{9, 1, 1}});  // has gone round
  auto larger = shared_memory(SrqGeometry::of(32, kMaxSge).memory_bytes);
  ASSERT_TRUE(srq_.resize(32, larger));
  EXPECT_EQ(srq_.max_wr(), 32U);
  EXPECT_EQ(page().producer.load(), 7U);
  EXPECT_EQ(page().consumer.load(), 0U);
  post(10, {{10, 1, 1}});
  for (std::uint64_t id = 3; id <= 10; ++id) {
    EXPECT_EQ(next(), id);
    EXPECT_EQ(elements_[0].address, id);
  }
  EXPECT_EQ(next(), 0U);
}

TEST_F(SharedReceiveQueueTest, Resize_RefusesToLoseRequests) {
  for (std::uint64_t id = 1; id <= 5; ++id) post(id);
  auto smaller = shared_memory(SrqGeometry::of(4, kMaxSge).memory_bytes);
  EXPECT_FALSE(srq_.resize(4, smaller));
  EXPECT_EQ(srq_.max_wr(), kMaxWr);
  EXPECT_EQ(next(), 1U);
  EXPECT_TRUE(srq_.resize(4, smaller));
  for (std::uint64_t id = 2; id <= 5; ++id) EXPECT_EQ(next(), id);
}

TEST_F(SharedReceiveQueueTest, Resize_OfADamagedRingIsRefused) {
  page().producer.store(1000);
  auto memory = shared_memory(SrqGeometry::of(2048, kMaxSge).memory_bytes);
  EXPECT_FALSE(srq_.resize(2048, memory));
}

}  // namespace
}  // namespace urdma::engine
