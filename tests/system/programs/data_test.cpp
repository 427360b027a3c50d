// Every kind of request with every byte compared, where perftest only counts. Both ends are in this process.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "verbs_test.hpp"

namespace urdma::system_test {
namespace {

constexpr std::size_t kMtu = 1024;
constexpr std::array<std::size_t, 13> kSizes = {
    0,    1,    kMtu - 1, kMtu,  kMtu + 1,      2 * kMtu - 1, 2 * kMtu, 2 * kMtu + 1,
    4095, 4097, 65536,    65537, (1U << 20) + 3};
constexpr std::size_t kRegionSize = std::size_t{2} << 20;
constexpr std::size_t kOffset = 4093;  // pieces begin at odd places and straddle pages

class DataTest : public testing::Test {
 protected:
  DataTest() : source(device, kRegionSize), target(device, kRegionSize) {}

  // The target holds the pattern in [kOffset, kOffset + size) and nothing else was touched.
  void expect_arrived(std::size_t size, std::uint32_t seed) const {
    EXPECT_EQ(first_difference(target.memory.bytes(kOffset, size), seed), -1) << size << " bytes";
    EXPECT_EQ(target.memory.data()[kOffset - 1], 0) << "a stray byte in front of " << size;
    EXPECT_EQ(target.memory.data()[kOffset + size], 0) << "a stray byte behind " << size;
  }
  void prepare(std::size_t size, std::uint32_t seed) {
    fill(source.memory.bytes(kOffset, size), seed);
    std::memset(target.memory.data(), 0, kRegionSize);
  }

  Device device;
  Region source;
  Region target;
};

TEST_F(DataTest, Send_EverySize) {
  Link link(device);
  for (std::uint32_t seed = 1; const std::size_t size : kSizes) {
    prepare(size, ++seed);
    link.b.post_receive(seed, target.sge(kOffset, size + 1));
    ibv_sge piece = source.sge(kOffset, size);
    auto request = send_request(IBV_WR_SEND, seed, {&piece, size == 0 ? 0U : 1U});
    link.a.post_send(request);
    EXPECT_EQ(wait_for_success(link.a.send_cq).opcode, IBV_WC_SEND);
    const ibv_wc received = wait_for_success(link.b.receive_cq);
    EXPECT_EQ(received.opcode, IBV_WC_RECV);
    EXPECT_EQ(received.byte_len, size);
    EXPECT_EQ(received.wr_id, seed);
    EXPECT_EQ(received.qp_num, link.b.qp->qp_num);
    expect_arrived(size, seed);
  }
}

TEST_F(DataTest, SendWithImmediate_ArrivesUnchanged) {
  Link link(device);
  prepare(100, 7);
  link.b.post_receive(1, target.sge(kOffset, 200));
  ibv_sge piece = source.sge(kOffset, 100);
  auto request = send_request(IBV_WR_SEND_WITH_IMM, 1, {&piece, 1});
  request.imm_data = htonl(0x12345678);
  link.a.post_send(request);
  wait_for_success(link.a.send_cq);
  const ibv_wc received = wait_for_success(link.b.receive_cq);
  EXPECT_NE(received.wc_flags & IBV_WC_WITH_IMM, 0U);
  EXPECT_EQ(ntohl(received.imm_data), 0x12345678U);
  expect_arrived(100, 7);
}

TEST_F(DataTest, Write_EverySize) {
  Link link(device);
  for (std::uint32_t seed = 1; const std::size_t size : kSizes) {
    prepare(size, ++seed);
    ibv_sge piece = source.sge(kOffset, size);
    auto request = rdma_request(IBV_WR_RDMA_WRITE, seed, {&piece, 1}, target.address(kOffset),
                                target.registration.rkey());
    link.a.post_send(request);
    EXPECT_EQ(wait_for_success(link.a.send_cq).opcode, IBV_WC_RDMA_WRITE);
    expect_arrived(size, seed);
  }
}

TEST_F(DataTest, WriteWithImmediate_TakesAReceiveWithoutPieces) {
  Link link(device);
  for (std::uint32_t seed = 1; const std::size_t size : kSizes) {
    prepare(size, ++seed);
    link.b.post_receive(seed, std::span<ibv_sge>{});
    ibv_sge piece = source.sge(kOffset, size);
    auto request = rdma_request(IBV_WR_RDMA_WRITE_WITH_IMM, seed, {&piece, 1}, target.address(kOffset),
                                target.registration.rkey());
    request.imm_data = htonl(seed);
    link.a.post_send(request);
    wait_for_success(link.a.send_cq);
    const ibv_wc received = wait_for_success(link.b.receive_cq);
    EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(received.byte_len, size);
    EXPECT_EQ(ntohl(received.imm_data), seed);
    expect_arrived(size, seed);
  }
}

TEST_F(DataTest, Read_EverySize) {
  Link link(device);
  for (std::uint32_t seed = 1; const std::size_t size : kSizes) {
    prepare(size, ++seed);
    ibv_sge piece = target.sge(kOffset, size);
    auto request = rdma_request(IBV_WR_RDMA_READ, seed, {&piece, 1}, source.address(kOffset),
                                source.registration.rkey());
    link.a.post_send(request);
    const ibv_wc completion = wait_for_success(link.a.send_cq);
    EXPECT_EQ(completion.opcode, IBV_WC_RDMA_READ);
    EXPECT_EQ(completion.byte_len, size);
    expect_arrived(size, seed);
  }
}

TEST_F(DataTest, ZeroLength_NeedsNoKeyOrAddress) {
  Link link(device);
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    auto request = rdma_request(opcode, 1, {}, 0, 0xDEAD);
    link.a.post_send(request);
    wait_for_success(link.a.send_cq);
  }
}

// Gathered from four pieces and scattered into four others, none of which is as long.
TEST_F(DataTest, Pieces_GatherAndScatter) {
  Link link(device);
  constexpr std::array<std::size_t, 4> kFrom = {1, 1500, 0, 3000};
  constexpr std::array<std::size_t, 4> kTo = {2000, 1, 2, 4000};
  std::size_t total = 0;
  std::array<ibv_sge, 4> from{};
  for (std::size_t i = 0; i < from.size(); ++i) {
    from[i] = source.sge(i * 8192 + i, kFrom[i]);
    for (std::size_t k = 0; k < kFrom[i]; ++k)
      source.memory.data()[i * 8192 + i + k] = pattern_byte(9, total++);
  }
  std::array<ibv_sge, 4> to{};
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = target.sge(i * 8192 + 3 * i, kTo[i]);
  link.b.post_receive(1, to);
  auto request = send_request(IBV_WR_SEND, 1, from);
  link.a.post_send(request);
  wait_for_success(link.a.send_cq);
  EXPECT_EQ(wait_for_success(link.b.receive_cq).byte_len, total);
  std::size_t done = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::size_t here = std::min(kTo[i], total - done);
    EXPECT_EQ(first_difference(target.memory.bytes(i * 8192 + 3 * i, here), 9, done), -1) << "piece " << i;
    done += here;
  }
}

TEST_F(DataTest, Inline_BufferIsFreeAtReturn) {
  Link link(device, {.inline_bytes = 236});
  std::array<std::uint8_t, 236> local{};
  for (std::uint32_t seed = 1; seed < 50; ++seed) {
    const std::size_t size = seed * 4;
    std::memset(target.memory.data(), 0, 8192);
    fill(std::span(local).first(size), seed);
    // The key is ignored for inline data.
    ibv_sge piece{reinterpret_cast<std::uint64_t>(local.data()), static_cast<std::uint32_t>(size), 0xBAD};
    auto request = rdma_request(IBV_WR_RDMA_WRITE, seed, {&piece, 1}, target.address(kOffset),
                                target.registration.rkey(), IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    link.a.post_send(request);
    local.fill(0xEE);
    wait_for_success(link.a.send_cq);
    expect_arrived(size, seed);
  }
}

// 1000 requests through a queue of 128, one in 32 signalled: the others free their slots without a word.
TEST_F(DataTest, Unsignalled_FreesItsSlots) {
  Link link(device);
  int signalled = 0;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const bool signal = i % 32 == 31;
    source.memory.data()[i] = static_cast<std::uint8_t>(i);
    ibv_sge piece = source.sge(i, 1);
    auto request = rdma_request(IBV_WR_RDMA_WRITE, i, {&piece, 1}, target.address(i),
                                target.registration.rkey(), signal ? kSignaled : kUnsignaled);
    link.a.post_send(request);
    if (signal) {
      EXPECT_EQ(wait_for_success(link.a.send_cq).wr_id, i);
      ++signalled;
    }
  }
  EXPECT_EQ(signalled, 31);
  EXPECT_TRUE(stays_empty(link.a.send_cq, 50));
}

// Without the fence the SEND could leave with what the buffer held before the READ.
TEST_F(DataTest, Fence_SendAfterReadCarriesWhatWasRead) {
  Link link(device);
  Region middle(device, 1 << 20);
  for (std::uint32_t round = 1; round < 50; ++round) {
    const std::size_t size = 100'000;
    prepare(size, round);
    link.b.post_receive(round, target.sge(kOffset, size));
    ibv_sge piece = middle.sge(0, size);
    auto read = rdma_request(IBV_WR_RDMA_READ, round, {&piece, 1}, source.address(kOffset),
                             source.registration.rkey(), 0);
    auto send = send_request(IBV_WR_SEND, round, {&piece, 1}, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
    read.next = &send;
    link.a.post_send(read);
    wait_for_success(link.a.send_cq);
    wait_for_success(link.b.receive_cq);
    expect_arrived(size, round);
  }
}

TEST_F(DataTest, Reads_BeyondTheLimitQueue) {
  Link link(device, {.rd_atomic = 1});
  constexpr std::uint32_t kReads = 100;
  fill(source.memory.bytes(0, std::size_t{kReads} * 1000), 3);
  for (std::uint32_t i = 0; i < kReads; ++i) {
    ibv_sge piece = target.sge(i * 1000, 1000);
    auto request =
        rdma_request(IBV_WR_RDMA_READ, i, {&piece, 1}, source.address(i * 1000), source.registration.rkey());
    link.a.post_send(request);
  }
  for (std::uint32_t i = 0; i < kReads; ++i) EXPECT_EQ(wait_for_success(link.a.send_cq).wr_id, i);
  EXPECT_EQ(first_difference(target.memory.bytes(0, std::size_t{kReads} * 1000), 3), -1);
}

std::uint64_t& word(const Region& region, std::size_t offset) {
  return *reinterpret_cast<std::uint64_t*>(region.memory.data() + offset);
}

ibv_send_wr atomic_request(ibv_wr_opcode opcode, ibv_sge& piece, const Region& target,
                           std::uint64_t compare_add, std::uint64_t swap = 0) {
  auto request = send_request(opcode, 1, {&piece, 1});
  request.wr.atomic.remote_addr = target.address(64);
  request.wr.atomic.rkey = target.registration.rkey();
  request.wr.atomic.compare_add = compare_add;
  request.wr.atomic.swap = swap;
  return request;
}

// The first operations are the copier's, and the later ones the engine's own, on the pages that have become
// shared in between: no addition is lost or made twice on that border.
TEST_F(DataTest, FetchAdd_ExactWhilePagesAreConverted) {
  Link link(device);
  constexpr std::uint64_t kAdditions = 100;
  for (int round = 0; round < 20; ++round) {
    const Region fresh(device, std::size_t{64} << 10);
    for (std::uint64_t i = 0; i < kAdditions; ++i) {
      ibv_sge piece = source.sge(8 * i, 8);
      auto request = atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, piece, fresh, 1);
      link.a.post_send(request);
    }
    for (std::uint64_t i = 0; i < kAdditions; ++i) {
      wait_for_success(link.a.send_cq);
      EXPECT_EQ(word(source, 8 * i), i) << "in round " << round;
    }
    EXPECT_EQ(word(fresh, 64), kAdditions);
  }
}

TEST_F(DataTest, CompareAndSwap_SwapsOnlyWhatIsEqual) {
  Link link(device);
  ibv_sge piece = source.sge(8, 8);
  word(target, 64) = 1234;
  auto different = atomic_request(IBV_WR_ATOMIC_CMP_AND_SWP, piece, target, 1, 99);
  link.a.post_send(different);
  EXPECT_EQ(wait_for_success(link.a.send_cq).opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(word(target, 64), 1234U);
  EXPECT_EQ(word(source, 8), 1234U);
  auto equal = atomic_request(IBV_WR_ATOMIC_CMP_AND_SWP, piece, target, 1234, 99);
  link.a.post_send(equal);
  wait_for_success(link.a.send_cq);
  EXPECT_EQ(word(target, 64), 99U);
  EXPECT_EQ(word(source, 8), 1234U);
}

// Two queue pairs add to one word while this thread adds to it, too, where the device promises that.
TEST_F(DataTest, FetchAndAdd_SumIsExact) {
  Link first(device);
  Link second(device);
  constexpr int kRounds = 500;
  ibv_sge piece_a = source.sge(0, 8);
  ibv_sge piece_b = source.sge(4096, 8);
  word(target, 64) = 0;
  for (int i = 0; i < kRounds; ++i) {
    auto one = atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, piece_a, target, 3);
    auto two = atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, piece_b, target, std::uint64_t{1} << 40);
    first.a.post_send(one);
    second.a.post_send(two);
    EXPECT_EQ(wait_for_success(first.a.send_cq).opcode, IBV_WC_FETCH_ADD);
    wait_for_success(second.a.send_cq);
  }
  EXPECT_EQ(word(target, 64), 3U * kRounds + (std::uint64_t{kRounds} << 40));
}

// Programs poll on the last byte of a WRITE: once it is there, all others are.
TEST_F(DataTest, LastByte_ComesLast) {
  Link link(device);
  constexpr std::array<std::size_t, 8> kLengths = {2, 9, 64, 256, 1000, 4096, 10'000, 100'000};
  constexpr int kRounds = 300;
  std::atomic<int> early = 0;
  std::thread poller([&] {
    for (const std::size_t length : kLengths) {
      for (int round = 1; round <= kRounds; ++round) {
        const auto value = static_cast<std::uint8_t>(round % 255 + 1);
        std::uint8_t* bytes = target.memory.data() + kOffset;
        while (std::atomic_ref(bytes[length - 1]).load(std::memory_order_acquire) != value) sched_yield();
        for (std::size_t i = 0; i < length; ++i) early += bytes[i] != value ? 1 : 0;
        // Tells the writer to go on.
        std::atomic_ref(source.memory.data()[kRegionSize - 1]).store(value, std::memory_order_release);
      }
    }
  });
  for (const std::size_t length : kLengths) {
    for (int round = 1; round <= kRounds; ++round) {
      const auto value = static_cast<std::uint8_t>(round % 255 + 1);
      std::memset(source.memory.data(), value, length);
      ibv_sge piece = source.sge(0, length);
      auto request = rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, target.address(kOffset),
                                  target.registration.rkey());
      link.a.post_send(request);
      wait_for_success(link.a.send_cq);
      while (std::atomic_ref(source.memory.data()[kRegionSize - 1]).load(std::memory_order_acquire) !=
             value) {
        sched_yield();
      }
    }
  }
  poller.join();
  EXPECT_EQ(early.load(), 0);
}

// Several path MTUs, both ways at once.
TEST_F(DataTest, PathMtu_Each) {
  for (const ibv_mtu mtu : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
    if (mtu > device.port.active_mtu) continue;
    Link link(device, {.mtu = mtu});
    prepare(50'001, mtu);
    ibv_sge piece = source.sge(kOffset, 50'001);
    auto request =
        rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, target.address(kOffset), target.registration.rkey());
    link.a.post_send(request);
    wait_for_success(link.a.send_cq);
    expect_arrived(50'001, mtu);
  }
}

}  // namespace
}  // namespace urdma::system_test
