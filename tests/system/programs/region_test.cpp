// Regions that change, regions without memory, and regions whose pages come when they are used.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "verbs_test.hpp"

namespace urdma::system_test {
namespace {

constexpr std::size_t kSize = 256 * 1024;
constexpr std::size_t kPage = 4096;
constexpr int kOnDemand = kAllAccess | IBV_ACCESS_ON_DEMAND;
constexpr std::uint8_t kGuard = 0xA5;

std::uint64_t address_of(const void* data) { return reinterpret_cast<std::uint64_t>(data); }

class RegionTest : public testing::Test {
 protected:
  RegionTest() : source(device, kSize), target(kSize), link(device) {
    fill(source.memory.bytes(), 1);
    std::ranges::fill(target.bytes(), kGuard);
  }

  ibv_wc_status run(const Link& on, ibv_wr_opcode opcode, ibv_sge piece, std::uint64_t remote,
                    std::uint32_t rkey) {
    auto request = rdma_request(opcode, 1, {&piece, 1}, remote, rkey);
    on.a.post_send(request);
    return wait_for(on.a.send_cq).status;
  }
  ibv_wc_status write(std::uint64_t remote, std::uint32_t rkey, std::size_t bytes = 1000) {
    return run(link, IBV_WR_RDMA_WRITE, source.sge(0, bytes), remote, rkey);
  }
  // On a link of its own, which an error ends.
  ibv_wc_status write_apart(std::uint64_t remote, std::uint32_t rkey) {
    const Link apart(device);
    return run(apart, IBV_WR_RDMA_WRITE, source.sge(0, 8), remote, rkey);
  }
  // So much traffic that the pages are converted, where they are at all.
  void warm_up(std::uint64_t remote, std::uint32_t rkey, std::size_t bytes) {
    for (int i = 0; i < 60; ++i) ASSERT_EQ(write(remote, rkey, bytes), IBV_WC_SUCCESS);
  }

  Device device;
  Region source;
  Memory target;
  Link link;
};

TEST_F(RegionTest, Rereg_Access) {
  Registration region(device.pd, target.data(), kSize, IBV_ACCESS_LOCAL_WRITE);
  const std::uint32_t rkey = region.rkey();
  EXPECT_EQ(write_apart(address_of(target.data()), rkey), IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(ibv_rereg_mr(region.mr(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess), 0);
  EXPECT_EQ(region.rkey(), rkey) << "peers know it";
  EXPECT_EQ(write(address_of(target.data()), rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(first_difference(target.bytes(0, 1000), 1), -1);
  ASSERT_EQ(ibv_rereg_mr(region.mr(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
  EXPECT_EQ(write_apart(address_of(target.data()), rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(RegionTest, Rereg_Translation) {
  Registration region(device.pd, target.data(), kSize);
  const std::uint32_t old_key = region.rkey();
  warm_up(address_of(target.data()), old_key, kSize);
  const Memory other(kSize / 2);
  std::ranges::fill(target.bytes(), kGuard);
  ASSERT_EQ(ibv_rereg_mr(region.mr(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, other.data(), kSize / 2, 0),
            0);
  EXPECT_NE(region.rkey(), old_key);
  EXPECT_EQ(region.mr()->addr, other.data());
  EXPECT_EQ(write_apart(address_of(target.data()), old_key), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(write_apart(address_of(target.data()), region.rkey()), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(write(address_of(other.data()), region.rkey(), kSize / 2), IBV_WC_SUCCESS);
  EXPECT_EQ(first_difference(other.bytes(), 1), -1);
  EXPECT_TRUE(std::ranges::all_of(target.bytes(), [](std::uint8_t byte) { return byte == kGuard; }));
  warm_up(address_of(other.data()), region.rkey(), kSize / 2);
}

TEST_F(RegionTest, Rereg_ProtectionDomain) {
  Registration region(device.pd, target.data(), kSize);
  ibv_pd* other = ibv_alloc_pd(device.context);
  ASSERT_NE(other, nullptr);
  ASSERT_EQ(ibv_rereg_mr(region.mr(), IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
  EXPECT_EQ(write_apart(address_of(target.data()), region.rkey()), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  ASSERT_EQ(ibv_rereg_mr(region.mr(), IBV_REREG_MR_CHANGE_PD, device.pd, nullptr, 0, 0), 0);
  EXPECT_EQ(write(address_of(target.data()), region.rkey()), IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(RegionTest, Rereg_FailureLeavesItAsItWas) {
  Registration region(device.pd, target.data(), kSize);
  const std::uint32_t key = region.rkey();
  Memory hole(kSize);
  hole.release();
  EXPECT_NE(ibv_rereg_mr(region.mr(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, hole.data(), kSize, 0), 0);
  EXPECT_NE(
      ibv_rereg_mr(region.mr(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE), 0);
  EXPECT_EQ(region.rkey(), key);
  EXPECT_EQ(write(address_of(target.data()), key), IBV_WC_SUCCESS);
  EXPECT_EQ(first_difference(target.bytes(0, 1000), 1), -1);
}

// Once it has returned the old memory is the program's alone, whatever peers had under way.
TEST_F(RegionTest, Rereg_UnderTraffic) {
  for (int round = 0; round < 20; ++round) {
    Registration region(device.pd, target.data(), kSize);
    const Link busy(device);
    ibv_sge piece = source.sge(0, kSize);
    for (int i = 0; i < 16; ++i) {
      auto request =
          rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, address_of(target.data()), region.rkey());
      busy.a.post_send(request);
    }
    const Memory other(kSize);
    ASSERT_EQ(ibv_rereg_mr(region.mr(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, other.data(), kSize, 0), 0);
    std::ranges::fill(target.bytes(), kGuard);
    for (int i = 0; i < 16; ++i) (void)wait_for(busy.a.send_cq);
    ASSERT_TRUE(std::ranges::all_of(target.bytes(), [](std::uint8_t byte) { return byte == kGuard; }));
  }
}

class NullTest : public RegionTest {
 protected:
  NullTest() : null(ibv_alloc_null_mr(device.pd)), sink(device, kSize) {
    if (null == nullptr) fail("ibv_alloc_null_mr");
    std::ranges::fill(sink.memory.bytes(), kGuard);
  }
  ~NullTest() override { EXPECT_EQ(ibv_dereg_mr(null), 0); }
  [[nodiscard]] ibv_sge nothing(std::size_t bytes, std::uint64_t address = 0) const {
    return {address, static_cast<std::uint32_t>(bytes), null->lkey};
  }
  [[nodiscard]] bool is_zero(std::size_t from, std::size_t bytes) const {
    return std::ranges::all_of(sink.memory.bytes(from, bytes), [](std::uint8_t byte) { return byte == 0; });
  }

  ibv_mr* null;
  Region sink;
};

TEST_F(NullTest, Null_ReadsAsZeros) {
  for (const std::size_t bytes : {1UL, 1000UL, 70000UL}) {
    std::array<ibv_sge, 3> pieces{source.sge(0, 100), nothing(bytes, ~0ULL - 5), source.sge(100, 300)};
    auto request = rdma_request(IBV_WR_RDMA_WRITE, 1, pieces, sink.address(), sink.registration.rkey());
    link.a.post_send(request);
    wait_for_success(link.a.send_cq);
    EXPECT_EQ(first_difference(sink.memory.bytes(0, 100), 1), -1);
    EXPECT_TRUE(is_zero(100, bytes));
    EXPECT_EQ(first_difference(sink.memory.bytes(100 + bytes, 300), 1, 100), -1);
    EXPECT_EQ(sink.memory.data()[400 + bytes], kGuard);
    std::ranges::fill(sink.memory.bytes(), kGuard);
  }
}

TEST_F(NullTest, Null_WritesGoNowhere) {
  for (const std::size_t bytes : {1UL, 1000UL, 70000UL}) {
    std::array<ibv_sge, 3> pieces{sink.sge(0, 100), nothing(bytes), sink.sge(100, 300)};
    link.b.post_receive(7, pieces);
    ibv_sge whole = source.sge(0, 400 + bytes);
    auto request = send_request(IBV_WR_SEND, 1, {&whole, 1});
    link.a.post_send(request);
    wait_for_success(link.a.send_cq);
    EXPECT_EQ(wait_for_success(link.b.receive_cq).byte_len, 400 + bytes);
    EXPECT_EQ(first_difference(sink.memory.bytes(0, 100), 1), -1);
    EXPECT_EQ(first_difference(sink.memory.bytes(100, 300), 1, 100 + bytes), -1);
    EXPECT_EQ(sink.memory.data()[400], kGuard);
    // And nothing of it comes back.
    auto zeros = nothing(bytes);
    EXPECT_EQ(run(link, IBV_WR_RDMA_WRITE, zeros, sink.address(), sink.registration.rkey()), IBV_WC_SUCCESS);
    EXPECT_TRUE(is_zero(0, bytes));
    std::ranges::fill(sink.memory.bytes(), kGuard);
  }
}

TEST_F(NullTest, Null_TakesTheAnswersOfReadsAndAtomics) {
  EXPECT_EQ(run(link, IBV_WR_RDMA_READ, nothing(70000), source.address(), source.registration.rkey()),
            IBV_WC_SUCCESS);
  std::memset(sink.memory.data(), 0, 8);
  ibv_sge answer = nothing(8);
  auto request = send_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, {&answer, 1});
  request.wr.atomic.remote_addr = sink.address();
  request.wr.atomic.rkey = sink.registration.rkey();
  request.wr.atomic.compare_add = 5;
  link.a.post_send(request);
  wait_for_success(link.a.send_cq);
  std::uint64_t value = 0;
  std::memcpy(&value, sink.memory.data(), sizeof value);
  EXPECT_EQ(value, 5U);
}

TEST_F(NullTest, Null_IsNothingForPeers) {
  EXPECT_EQ(write_apart(0, null->rkey), IBV_WC_REM_ACCESS_ERR);
  const Link apart(device);
  EXPECT_EQ(run(apart, IBV_WR_RDMA_READ, source.sge(0, 8), 4096, null->rkey), IBV_WC_REM_ACCESS_ERR);
}

class OnDemandTest : public RegionTest {
 protected:
  // At a place of the caller's choice, or the system's.
  static std::uint8_t* map(std::size_t bytes, void* at = nullptr) {
    void* mapped = ::mmap(at, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0), -1, 0);
    if (mapped == MAP_FAILED) fail("mmap");
    return static_cast<std::uint8_t*>(mapped);
  }
  static bool is_resident(void* page) {
    unsigned char is_there = 0;
    EXPECT_EQ(::mincore(page, kPage, &is_there), 0);
    return (is_there & 1) != 0;
  }
};

TEST_F(OnDemandTest, OnDemand_PagesComeLater) {
  std::uint8_t* memory = map(kSize);
  ASSERT_EQ(::munmap(memory, kSize), 0);
  const Registration region(device.pd, memory, kSize, kOnDemand);
  EXPECT_NE(write_apart(address_of(memory), region.rkey()), IBV_WC_SUCCESS) << "nothing is there yet";
  for (int round = 0; round < 3; ++round) {
    map(kSize, memory);
    for (int i = 0; i < 40; ++i) ASSERT_EQ(write(address_of(memory), region.rkey(), kSize), IBV_WC_SUCCESS);
    EXPECT_EQ(first_difference({memory, kSize}, 1), -1) << "in what is there now";
    ASSERT_EQ(::munmap(memory, kSize), 0);
  }
}

TEST_F(OnDemandTest, OnDemand_ReadsAndAtomics) {
  std::uint8_t* memory = map(kSize);
  const Registration region(device.pd, memory, kSize, kOnDemand);
  EXPECT_EQ(run(link, IBV_WR_RDMA_READ, source.sge(0, 5000), address_of(memory), region.rkey()),
            IBV_WC_SUCCESS);
  EXPECT_TRUE(std::ranges::all_of(source.memory.bytes(0, 5000), [](std::uint8_t byte) { return byte == 0; }));
  for (std::uint64_t i = 0; i < 5; ++i) {
    ibv_sge answer = source.sge(0, 8);
    auto request = send_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, {&answer, 1});
    request.wr.atomic.remote_addr = address_of(memory) + 2 * kPage;
    request.wr.atomic.rkey = region.rkey();
    request.wr.atomic.compare_add = 3;
    link.a.post_send(request);
    wait_for_success(link.a.send_cq);
    std::uint64_t before = 0;
    std::memcpy(&before, source.memory.data(), sizeof before);
    EXPECT_EQ(before, 3 * i);
  }
  ASSERT_EQ(::munmap(memory, kSize), 0);
}

TEST_F(OnDemandTest, OnDemand_AllMemory) {
  const Registration everything(device.pd, nullptr, SIZE_MAX, kOnDemand);
  fill(target.bytes(), 9);
  const Memory late(kSize);
  ibv_sge from{address_of(target.data()), kSize, everything.lkey()};
  ibv_sge to{address_of(late.data()), kSize, everything.lkey()};
  link.b.post_receive(7, to);
  auto request = send_request(IBV_WR_SEND, 1, {&from, 1});
  link.a.post_send(request);
  wait_for_success(link.a.send_cq);
  wait_for_success(link.b.receive_cq);
  EXPECT_EQ(first_difference(late.bytes(), 9), -1);
  EXPECT_EQ(write(address_of(late.data()), everything.rkey(), kSize), IBV_WC_SUCCESS);
  EXPECT_EQ(first_difference(late.bytes(), 1), -1);
  EXPECT_NE(write_apart(8, everything.rkey()), IBV_WC_SUCCESS) << "no page has this address";
  EXPECT_NE(write_apart(~0ULL - 100, everything.rkey()), IBV_WC_SUCCESS);
}

TEST_F(OnDemandTest, OnDemand_Advice) {
  std::uint8_t* memory = map(kSize);
  const Registration region(device.pd, memory, kSize, kOnDemand);
  EXPECT_FALSE(is_resident(memory));
  ibv_sge range{address_of(memory), kPage, region.lkey()};
  const auto advise = [&](ibv_advise_mr_advice advice) {
    return ibv_advise_mr(device.pd, advice, IBV_ADVISE_MR_FLAG_FLUSH, &range, 1);
  };
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT), 0);
  EXPECT_FALSE(is_resident(memory));
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE), 0);
  EXPECT_TRUE(is_resident(memory));
  EXPECT_FALSE(is_resident(memory + kPage));
  range.length = kSize + 1;
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH), EFAULT);
  range.length = kPage;
  range.lkey ^= 0x5A5A5A5A;
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH), EFAULT);
  ASSERT_EQ(::munmap(memory, kSize), 0);
  range.lkey = region.lkey();
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH), EFAULT);
}

}  // namespace
}  // namespace urdma::system_test
