// Registered memory of every kind that programs have, while traffic goes on: each with conversion on and
// off (the node decides). Traffic is repeated, so that a region earns its conversion.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "verbs_test.hpp"

namespace urdma::system_test {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kSize = 256 * kPage;

class MemoryTest : public testing::Test {
 protected:
  MemoryTest() : link(device), far(device, kSize) {}

  // Writes [from, from + size) of the caller's region to the far region, and reads it back into the
  // caller's at the same place, so that both directions touch it.
  void round_trip(void* from, std::size_t size, std::uint32_t lkey, std::uint32_t seed,
                  bool read_back = true) {
    const std::span bytes{static_cast<std::uint8_t*>(from), size};
    ibv_sge piece{reinterpret_cast<std::uint64_t>(from), static_cast<std::uint32_t>(size), lkey};
    auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, far.address(), far.registration.rkey());
    link.a.post_send(write);
    wait_for_success(link.a.send_cq);
    ASSERT_EQ(first_difference(far.memory.bytes(0, size), seed), -1);
    if (!read_back) return;
    fill(far.memory.bytes(0, size), seed + 1);
    auto read = rdma_request(IBV_WR_RDMA_READ, 2, {&piece, 1}, far.address(), far.registration.rkey());
    link.a.post_send(read);
    wait_for_success(link.a.send_cq);
    ASSERT_EQ(first_difference(bytes, seed + 1), -1);
  }

  // Enough traffic on a region for it to be converted, where that is on.
  void exercise(void* address, std::size_t size, std::uint32_t lkey, int rounds = 40) {
    for (int i = 0; i < rounds; ++i) {
      const auto seed = static_cast<std::uint32_t>(10 * i);
      fill({static_cast<std::uint8_t*>(address), size}, seed);
      round_trip(address, size, lkey, seed);
    }
  }

  Device device;
  Link link;
  Region far;
};

TEST_F(MemoryTest, Private_ManyRounds) {
  Region region(device, kSize);
  exercise(region.memory.data(), kSize, region.registration.lkey());
}

TEST_F(MemoryTest, PartialPages_KeepTheirNeighbours) {
  Memory memory(8 * kPage);
  std::memset(memory.data(), 0xAB, 8 * kPage);
  std::uint8_t* start = memory.data() + 1000;
  const std::size_t size = 6 * kPage + 77;
  Registration registration(device.pd, start, size);
  exercise(start, size, registration.lkey());
  for (std::size_t i = 0; i < 1000; ++i) ASSERT_EQ(memory.data()[i], 0xAB) << i;
  for (std::size_t i = 1000 + size; i < 8 * kPage; ++i) ASSERT_EQ(memory.data()[i], 0xAB) << i;
}

TEST_F(MemoryTest, Contents_SurviveDeregistration) {
  Memory memory(kSize);
  {
    Registration registration(device.pd, memory.data(), kSize);
    exercise(memory.data(), kSize, registration.lkey());
    fill(memory.bytes(), 77);
  }
  EXPECT_EQ(first_difference(memory.bytes(), 77), -1);
  fill(memory.bytes(), 78);
  Registration again(device.pd, memory.data(), kSize);
  round_trip(memory.data(), kSize, again.lkey(), 78);
}

// The child of a fork has its own copy of everything; what it writes, the parent never sees.
TEST_F(MemoryTest, Fork_ChildWritesItsOwnCopy) {
  Region region(device, kSize);
  exercise(region.memory.data(), kSize, region.registration.lkey());
  fill(region.memory.bytes(), 5);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool same = first_difference(region.memory.bytes(), 5) == -1;
    std::memset(region.memory.data(), 0xCC, kSize);
    _exit(same ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the child saw something else";
  EXPECT_EQ(first_difference(region.memory.bytes(), 5), -1);
  round_trip(region.memory.data(), kSize, region.registration.lkey(), 5);
}

TEST_F(MemoryTest, Fork_ParentWritesAreNotTheChilds) {
  Region region(device, kSize);
  exercise(region.memory.data(), kSize, region.registration.lkey());
  fill(region.memory.bytes(), 6);
  std::array<int, 2> gate{};
  ASSERT_EQ(pipe(gate.data()), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    char go = 0;
    const bool told = read(gate[0], &go, 1) == 1;
    _exit(told && first_difference(region.memory.bytes(), 6) == -1 ? 0 : 1);
  }
  fill(region.memory.bytes(), 7);
  round_trip(region.memory.data(), kSize, region.registration.lkey(), 7);
  ASSERT_EQ(write(gate[1], "g", 1), 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child saw the parent's later writes";
  close(gate[0]);
  close(gate[1]);
}

// The heap around a registration goes with the program into a child: it must work there.
TEST_F(MemoryTest, Fork_HeapWorksInTheChild) {
  auto heap = std::make_unique<std::array<std::uint8_t, 300'000>>();
  Registration registration(device.pd, heap->data(), heap->size());
  exercise(heap->data(), heap->size(), registration.lkey(), 20);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    heap->fill(0x11);
    std::vector<std::unique_ptr<std::uint8_t[]>> blocks;
    for (std::size_t i = 1; i < 500; ++i) blocks.push_back(std::make_unique<std::uint8_t[]>(i * 7));
    blocks.clear();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(MemoryTest, Fork_ChildOpensItsOwnDevice) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      Device own;
      Link own_link(own);
      Region region(own, kPage);
      ibv_sge piece = region.sge(0, 8);
      auto request =
          rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, region.address(64), region.registration.rkey());
      own_link.a.post_send(request);
      wait_for_success(own_link.a.send_cq);
      _exit(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      _exit(1);
    }
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  Region region(device, kSize);
  exercise(region.memory.data(), kSize, region.registration.lkey(), 3);
}

TEST_F(MemoryTest, Memlock_64KibIsEnough) {
  const rlimit limit{65536, 65536};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
  Region region(device, 16 << 20);
  exercise(region.memory.data(), kSize, region.registration.lkey(), 10);
}

// A thread increments counters all over a region while it is registered, used, converted and released.
TEST_F(MemoryTest, Threads_WritesDuringRegistrationAreKept) {
  Memory memory(kSize);
  std::atomic<bool> stop = false;
  std::uint64_t increments = 0;
  constexpr std::size_t kCounters = kSize / kPage;  // one in the last word of each page
  const auto counter = [&](std::size_t i) -> std::uint64_t& {
    return *reinterpret_cast<std::uint64_t*>(memory.data() + (i + 1) * kPage - 8);
  };
  std::thread writer([&] {
    for (std::size_t i = 0; !stop.load(std::memory_order_relaxed); ++i, ++increments) {
      std::atomic_ref(counter(i % kCounters)).fetch_add(1, std::memory_order_relaxed);
    }
  });
  for (int round = 0; round < 10; ++round) {
    Registration registration(device.pd, memory.data(), kSize);
    for (int i = 0; i < 40; ++i) {
      // All but the counter, which the reads would take back.
      const std::size_t offset = static_cast<std::size_t>(i) * kPage;
      fill(memory.bytes(offset, kPage - 8), 3);
      round_trip(memory.data() + offset, kPage - 8, registration.lkey(), 3);
    }
    ibv_sge piece{reinterpret_cast<std::uint64_t>(memory.data()), kSize, registration.lkey()};
    for (int i = 0; i < 10; ++i) {
      auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, far.address(), far.registration.rkey());
      link.a.post_send(write);
      wait_for_success(link.a.send_cq);
    }
  }
  stop = true;
  writer.join();
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kCounters; ++i) sum += counter(i);
  EXPECT_EQ(sum, increments);
  EXPECT_GT(increments, 0U);
}

TEST_F(MemoryTest, Free_BeforeDeregistration) {
  Memory memory(kSize);
  Registration registration(device.pd, memory.data(), kSize);
  exercise(memory.data(), kSize, registration.lkey());
  std::uint8_t* old = memory.data();
  memory.release();
  // Something else lives there now, and must stay as it is.
  void* other =
      mmap(old, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(other, old);
  fill({old, kSize}, 44);
  registration.deregister();
  EXPECT_EQ(first_difference({old, kSize}, 44), -1);
  Registration again(device.pd, old, kSize);
  round_trip(old, kSize, again.lkey(), 44);
  again.deregister();
  munmap(old, kSize);
}

TEST_F(MemoryTest, Free_AndAnotherRegistrationInItsPlace) {
  Memory memory(kSize);
  Registration registration(device.pd, memory.data(), kSize);
  exercise(memory.data(), kSize, registration.lkey());
  std::uint8_t* old = memory.data();
  memory.release();
  void* other =
      mmap(old, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(other, old);
  Registration second(device.pd, old, kSize);
  exercise(old, kSize, second.lkey());
  registration.deregister();
  exercise(old, kSize, second.lkey(), 5);
  second.deregister();
  munmap(old, kSize);
}

TEST_F(MemoryTest, Overlapping_Regions) {
  Memory memory(kSize);
  auto whole = std::make_unique<Registration>(device.pd, memory.data(), kSize);
  auto half = std::make_unique<Registration>(device.pd, memory.data() + 100, kSize / 2);
  auto same = std::make_unique<Registration>(device.pd, memory.data(), kSize);
  exercise(memory.data(), kSize, whole->lkey());
  exercise(memory.data() + 100, kSize / 2, half->lkey());
  whole.reset();
  exercise(memory.data() + 100, kSize / 2, half->lkey());
  half.reset();
  exercise(memory.data(), kSize, same->lkey(), 5);
  fill(memory.bytes(), 9);
  same.reset();
  EXPECT_EQ(first_difference(memory.bytes(), 9), -1);
}

TEST_F(MemoryTest, Overlapping_ByManyThreads) {
  Memory memory(kSize);
  fill(memory.bytes(), 31);
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      Link own(device);
      for (int i = 0; i < 50; ++i) {
        Registration registration(device.pd, memory.data() + thread * kPage, kSize - 8 * kPage);
        ibv_sge piece{reinterpret_cast<std::uint64_t>(memory.data() + thread * kPage), kSize - 8 * kPage,
                      registration.lkey()};
        auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, far.address(), far.registration.rkey());
        own.a.post_send(write);
        wait_for_success(own.a.send_cq);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first_difference(memory.bytes(), 31), -1);
}

TEST_F(MemoryTest, Stack_Memory) {
  std::array<std::uint8_t, 20'000> local{};
  Registration registration(device.pd, local.data(), local.size());
  exercise(local.data(), local.size(), registration.lkey());
}

TEST_F(MemoryTest, Stack_OfAnotherThread) {
  std::thread thread([&] {
    std::array<std::uint8_t, 100'000> local{};
    Registration registration(device.pd, local.data(), local.size());
    exercise(local.data(), local.size(), registration.lkey());
  });
  thread.join();
}

std::array<std::uint8_t, 50'000> global_bytes{1};

TEST_F(MemoryTest, Data_Segment) {
  Registration registration(device.pd, global_bytes.data(), global_bytes.size());
  exercise(global_bytes.data(), global_bytes.size(), registration.lkey());
}

TEST_F(MemoryTest, SharedMapping_IsSeenByItsOtherUsers) {
  const int file = memfd_create("urdma-test", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, kSize), 0);
  auto* first = static_cast<std::uint8_t*>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  auto* second =
      static_cast<std::uint8_t*>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  ASSERT_NE(first, MAP_FAILED);
  ASSERT_NE(second, MAP_FAILED);
  {
    Registration registration(device.pd, first, kSize);
    exercise(first, kSize, registration.lkey());
  }
  EXPECT_EQ(std::memcmp(first, second, kSize), 0);
  munmap(first, kSize);
  munmap(second, kSize);
  close(file);
}

// A file that its owner shrinks takes its pages away: an error for its owner, and nobody else's trouble.
TEST_F(MemoryTest, SharedMapping_ShrunkUnderTheDaemon) {
  const int file = memfd_create("urdma-test", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, kSize), 0);
  auto* bytes = static_cast<std::uint8_t*>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  ASSERT_NE(bytes, MAP_FAILED);
  Registration registration(device.pd, bytes, kSize);
  exercise(bytes, kSize, registration.lkey());
  ASSERT_EQ(ftruncate(file, 0), 0);
  ibv_sge piece{reinterpret_cast<std::uint64_t>(bytes), kSize, registration.lkey()};
  auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, far.address(), far.registration.rkey());
  link.a.post_send(write);
  wait_for(link.a.send_cq);  // with whatever status: the daemon lives
  Device still_there;
  registration.deregister();
  munmap(bytes, kSize);
  close(file);
}

TEST_F(MemoryTest, ReadOnly_SourceWithoutLocalWrite) {
  Memory memory(kSize);
  fill(memory.bytes(), 21);
  ASSERT_EQ(mprotect(memory.data(), kSize, PROT_READ), 0);
  {
    Registration registration(device.pd, memory.data(), kSize, IBV_ACCESS_REMOTE_READ);
    for (int i = 0; i < 40; ++i) round_trip(memory.data(), kSize, registration.lkey(), 21, false);
  }
  EXPECT_EQ(first_difference(memory.bytes(), 21), -1);
}

// A constant of the program: a private mapping of a file, and read-only.
TEST_F(MemoryTest, ReadOnly_ProgramConstant) {
  static constexpr std::array<std::uint8_t, 16> kConstant = {1, 2,  3,  4,  5,  6,  7,  8,
                                                             9, 10, 11, 12, 13, 14, 15, 16};
  Registration registration(device.pd, const_cast<std::uint8_t*>(kConstant.data()), kConstant.size(), 0);
  ibv_sge piece{reinterpret_cast<std::uint64_t>(kConstant.data()), 16, registration.lkey()};
  auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, far.address(), far.registration.rkey());
  link.a.post_send(write);
  wait_for_success(link.a.send_cq);
  EXPECT_EQ(std::memcmp(far.memory.data(), kConstant.data(), 16), 0);
}

TEST_F(MemoryTest, ReadOnly_WithLocalWriteIsEfault) {
  Memory memory(kSize);
  ASSERT_EQ(mprotect(memory.data() + 5 * kPage, kPage, PROT_READ), 0);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(device.pd, memory.data(), kSize, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(MemoryTest, Hole_IsEfault) {
  Memory memory(kSize);
  ASSERT_EQ(munmap(memory.data() + 5 * kPage, kPage), 0);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(device.pd, memory.data(), kSize, kAllAccess), nullptr);
  EXPECT_EQ(errno, EFAULT);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(device.pd, memory.data(), kSize, 0), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(MemoryTest, HugePages_Region) {
  constexpr std::size_t kHuge = std::size_t{4} << 20;
  void* address = mmap(nullptr, kHuge, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT), -1, 0);
  if (address == MAP_FAILED) GTEST_SKIP() << "no huge pages can be had here";
  {
    Registration registration(device.pd, address, kHuge);
    auto* bytes = static_cast<std::uint8_t*>(address);
    exercise(bytes + kHuge - kSize, kSize, registration.lkey());
    exercise(bytes + 12345, 1000, registration.lkey());
  }
  munmap(address, kHuge);
}

TEST_F(MemoryTest, TransparentHugePages_Region) {
  Memory memory(std::size_t{8} << 20);
  madvise(memory.data(), std::size_t{8} << 20, MADV_HUGEPAGE);
  Registration registration(device.pd, memory.data(), std::size_t{8} << 20);
  exercise(memory.data() + (3 << 20), kSize, registration.lkey());
}

TEST_F(MemoryTest, Untouched_PagesReadAsZeros) {
  Region region(device, kSize);
  fill(far.memory.bytes(), 1);
  ibv_sge piece = region.sge(0, kSize);
  auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, far.address(), far.registration.rkey());
  link.a.post_send(write);
  wait_for_success(link.a.send_cq);
  for (const std::uint8_t byte : far.memory.bytes()) ASSERT_EQ(byte, 0);
}

TEST_F(MemoryTest, ZeroBased_Addresses) {
  Memory memory(kSize);
  Registration registration(device.pd, memory.data() + 100, 10'000, kAllAccess | IBV_ACCESS_ZERO_BASED);
  fill(far.memory.bytes(0, 1000), 8);
  ibv_sge piece = far.sge(0, 1000);
  auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, 5000, registration.rkey());
  link.a.post_send(write);
  wait_for_success(link.a.send_cq);
  EXPECT_EQ(first_difference(memory.bytes(5100, 1000), 8), -1);
}

TEST_F(MemoryTest, Iova_OfTheProgramsChoice) {
  Memory memory(kSize);
  constexpr std::uint64_t kIova = 0x7000'0000'0000;
  ibv_mr* mr = ibv_reg_mr_iova(device.pd, memory.data(), kSize, kIova, kAllAccess);
  ASSERT_NE(mr, nullptr) << std::strerror(errno);
  fill(far.memory.bytes(0, 1000), 8);
  ibv_sge piece = far.sge(0, 1000);
  auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, kIova + 5000, mr->rkey);
  link.a.post_send(write);
  wait_for_success(link.a.send_cq);
  EXPECT_EQ(first_difference(memory.bytes(5000, 1000), 8), -1);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(MemoryTest, OptionalAccess_IsTolerated) {
  Memory memory(kSize);
  Registration registration(device.pd, memory.data(), kSize, kAllAccess | IBV_ACCESS_RELAXED_ORDERING);
  exercise(memory.data(), kSize, registration.lkey(), 3);
}

TEST_F(MemoryTest, RemoteWrite_NeedsLocalWrite) {
  Memory memory(kPage);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(device.pd, memory.data(), kPage, IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(MemoryTest, ManyRegions_ComeAndGo) {
  Memory memory(kSize);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Registration>> registrations;
    for (std::size_t i = 0; i < kSize / kPage; ++i) {
      registrations.push_back(std::make_unique<Registration>(device.pd, memory.data() + i * kPage, kPage));
    }
    for (std::size_t i = 0; i < registrations.size(); ++i) {
      ibv_sge piece{reinterpret_cast<std::uint64_t>(memory.data() + i * kPage), kPage,
                    registrations[i]->lkey()};
      auto write = rdma_request(IBV_WR_RDMA_WRITE, i, {&piece, 1}, far.address(), far.registration.rkey());
      link.a.post_send(write);
      wait_for_success(link.a.send_cq);
    }
  }
}

}  // namespace
}  // namespace urdma::system_test
