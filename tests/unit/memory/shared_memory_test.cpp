// Sealed shared memory: what a client can do with the descriptor, and what it cannot.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/shared_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace urdma::memory {
namespace {

SharedMemory make(std::size_t bytes, ClientAccess access = ClientAccess::kReadWrite) {
  auto made = SharedMemory::create("urdma-test", bytes, access);
  EXPECT_TRUE(made);
  return std::move(*made);
}

TEST(SharedMemory, Create_WholePagesOfZeros) {
  const SharedMemory memory = make(4097);
  EXPECT_EQ(memory.size(), 8192U);
  EXPECT_TRUE(std::all_of(memory.data(), memory.data() + 8192, [](std::byte b) { return b == std::byte{}; }));
}

TEST(SharedMemory, Create_SizeIsSealed) {
  const SharedMemory memory = make(8192);
  EXPECT_NE(::ftruncate(memory.descriptor(), 4096), 0);
  EXPECT_NE(::ftruncate(memory.descriptor(), 16384), 0);
  EXPECT_NE(::fcntl(memory.descriptor(), F_ADD_SEALS, F_SEAL_WRITE), 0) << "the client could stop the daemon";
  EXPECT_EQ(memory.data()[8191], std::byte{});
}

TEST(SharedMemory, Create_BothSidesSeeIt) {
  const SharedMemory memory = make(4096);
  void* client = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory.descriptor(), 0);
  ASSERT_NE(client, MAP_FAILED);
  static_cast<std::byte*>(client)[17] = std::byte{9};
  EXPECT_EQ(memory.data()[17], std::byte{9});
  ::munmap(client, 4096);
}

TEST(SharedMemory, Create_ReadOnlyForClients) {
  const SharedMemory memory = make(4096, ClientAccess::kReadOnly);
  memory.data()[3] = std::byte{5};
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory.descriptor(), 0), MAP_FAILED);
  const char byte = 1;
  EXPECT_LT(::pwrite(memory.descriptor(), &byte, 1, 0), 0);
  EXPECT_NE(::fallocate(memory.descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  void* client = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, memory.descriptor(), 0);
  ASSERT_NE(client, MAP_FAILED);
  EXPECT_NE(::mprotect(client, 4096, PROT_READ | PROT_WRITE), 0) << "it can make itself a writer later";
  EXPECT_EQ(static_cast<std::byte*>(client)[3], std::byte{5});
  memory.data()[3] = std::byte{6};
  EXPECT_EQ(static_cast<std::byte*>(client)[3], std::byte{6});
  ::munmap(client, 4096);
}

TEST(SharedMemory, CloseDescriptor_MappingStays) {
  SharedMemory memory = make(4096);
  const int fd = memory.descriptor();
  memory.close_descriptor();
  EXPECT_LT(::fcntl(fd, F_GETFD), 0);
  EXPECT_EQ(memory.descriptor(), -1);
  memory.data()[0] = std::byte{1};
  memory.close_descriptor();
}

TEST(SharedMemory, Move_LeavesNothingBehind) {
  SharedMemory first = make(4096);
  std::byte* data = first.data();
  SharedMemory second(std::move(first));
  EXPECT_EQ(first.data(), nullptr);  // NOLINT: what a moved-from object is, is what is tested
  EXPECT_EQ(first.descriptor(), -1);
  EXPECT_EQ(second.data(), data);
  SharedMemory third;
  third = std::move(second);
  third.data()[0] = std::byte{1};
  EXPECT_EQ(third.data(), data);
}

}  // namespace
}  // namespace urdma::memory
