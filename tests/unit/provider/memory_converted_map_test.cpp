// Pages of this process on their way to being shared and back, while threads write to them: regions that
// overlap, memory that is replaced, and flags that are kept. The daemon is a fake (memory_fixture.hpp).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/memory/converted_map.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include <random>

#include "provider/memory/page_swap.hpp"
#include "tests/unit/provider/memory_fixture.hpp"

namespace urdma::provider {
namespace {

using namespace testing;  // NOLINT: of the provider's tests

class ConvertedMapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!PageSwap::instance().is_usable()) GTEST_SKIP() << "userfaultfd is not allowed here";
  }
  void TearDown() override { map_.end_session(peer_.requests(), this); }

  RegionUser user(std::uint32_t handle) { return {this, handle}; }
  void begin(std::uint32_t handle, std::uint64_t start, std::uint64_t end) {
    map_.begin_use(peer_.requests(), user(handle), start, end);
  }
  // As registration and traffic do it.
  void convert(std::uint32_t handle, std::uint64_t start, std::uint64_t end) {
    begin(handle, start, end);
    map_.convert(peer_.requests(), user(handle), start, end);
  }
  void convert(std::uint32_t handle, const Pages& pages) { convert(handle, pages.start(), pages.end()); }
  void end(std::uint32_t handle) { map_.end_use(peer_.requests(), user(handle)); }

  ConvertedMap& map_ = ConvertedMap::instance();
  ExtentPeer peer_;
};

TEST_F(ConvertedMapTest, Convert_BothSidesShareThePages) {
  const Pages pages(4);
  pages.data()[100] = std::byte{1};
  convert(1, pages);
  ASSERT_EQ(peer_.extent_count(), 1U);
  std::byte* theirs = peer_.view(pages.data());
  EXPECT_EQ(theirs[100], std::byte{1});
  theirs[5000] = std::byte{2};
  EXPECT_EQ(pages.data()[5000], std::byte{2});
  pages.data()[100] = std::byte{3};
  EXPECT_EQ(theirs[100], std::byte{3});
  end(1);
  EXPECT_EQ(peer_.extent_count(), 0U);
  EXPECT_FALSE(is_shared(pages.data()));
  EXPECT_EQ(pages.data()[100], std::byte{3});
  EXPECT_EQ(pages.data()[5000], std::byte{2});
}

TEST_F(ConvertedMapTest, Convert_CountersLoseNothing) {
  const Pages pages(1200);  // more than one piece
  Counting counting(pages.data(), pages.size(), 2);
  for (int round = 0; round < stress_rounds(10); ++round) {
    convert(1, pages);
    ASSERT_NE(peer_.view(pages.data()), nullptr);
    end(1);
    ASSERT_FALSE(is_shared(pages.data()));
  }
  counting.expect_nothing_lost();
}

TEST_F(ConvertedMapTest, Convert_RefusedByTheDaemon) {
  const Pages pages(4);
  Counting counting(pages.data(), pages.size(), 1);
  peer_.refuses_done = true;
  convert(1, pages);
  EXPECT_FALSE(is_shared(pages.data()));
  EXPECT_EQ(peer_.extent_count(), 0U);
  counting.expect_nothing_lost();
}

// Memory that the program shares already is passed as it is, and stays so.
TEST_F(ConvertedMapTest, Convert_SharedMapping) {
  const Pages pages(4);
  const UniqueFd file(::memfd_create("the program's", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 8 * kPage), 0);
  ASSERT_NE(
      ::mmap(pages.data(), pages.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), kPage),
      MAP_FAILED);
  convert(1, pages.start() + kPage, pages.end());
  std::byte* theirs = peer_.view(pages.data() + kPage);
  ASSERT_NE(theirs, nullptr);
  theirs[3] = std::byte{33};
  EXPECT_EQ(pages.data()[kPage + 3], std::byte{33}) << "the right place in the file";
  end(1);
  EXPECT_TRUE(is_shared(pages.data() + kPage));
  EXPECT_EQ(peer_.extent_count(), 0U);
}

TEST_F(ConvertedMapTest, Convert_UserHasEnded) {
  const Pages pages(4);
  begin(1, pages.start(), pages.end());
  end(1);
  map_.convert(peer_.requests(), user(1), pages.start(), pages.end());
  EXPECT_FALSE(is_shared(pages.data()));
}

TEST_F(ConvertedMapTest, Convert_LeavesOtherMemoryAlone) {
  const Pages pages(6);
  ::mprotect(pages.data(), kPage, PROT_READ);
  ::mprotect(pages.data() + kPage, kPage, PROT_READ | PROT_WRITE | PROT_EXEC);
  ::mprotect(pages.data() + 2 * kPage, kPage, PROT_NONE);
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  ASSERT_NE(
      ::mmap(pages.data() + 3 * kPage, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file.get(), 0),
      MAP_FAILED);
  convert(1, pages);
  EXPECT_FALSE(is_shared(pages.data()));
  EXPECT_FALSE(is_shared(pages.data() + kPage));
  EXPECT_FALSE(is_shared(pages.data() + 2 * kPage));
  EXPECT_FALSE(is_shared(pages.data() + 3 * kPage));
  EXPECT_TRUE(is_shared(pages.data() + 5 * kPage)) << "what is ordinary is converted";
}

// A thread that protected its own stack or its thread-local storage would wait for itself.
TEST_F(ConvertedMapTest, Convert_OwnStackAndThreadLocals) {
  const auto page_of = [](const void* at) { return reinterpret_cast<std::uint64_t>(at) / kPage * kPage; };
  std::thread thread([&] {
    const char here = 0;
    const std::uint64_t thread_pointer = page_of(__builtin_thread_pointer());
    for (const std::uint64_t page : {page_of(&here), thread_pointer, page_of(&errno)}) {
      convert(1, page, page + kPage);
      EXPECT_EQ(peer_.begins, 0U);
      end(1);
    }
  });
  thread.join();
}

// What libibverbs and programs have asked of their pages outlives both replacements.
TEST_F(ConvertedMapTest, Convert_KeepsFlags) {
  const Pages pages(8);
  ::mlock(pages.data(), pages.size());
  const bool was_locked = mapping_at(pages.data()).is_locked;  // not where a limit or a sanitizer forbids it
  ::madvise(pages.data(), pages.size(), MADV_DONTFORK);
  ::madvise(pages.data(), pages.size(), MADV_DONTDUMP);
  for (int way = 0; way < 2; ++way) {
    if (way == 0) {
      convert(1, pages);
    } else {
      end(1);
    }
    const Vma mapping = mapping_at(pages.data() + kPage);
    EXPECT_EQ(mapping.is_shared, way == 0);
    EXPECT_EQ(mapping.is_locked, was_locked);
    EXPECT_TRUE(mapping.is_dont_fork);
    EXPECT_TRUE(mapping.is_dont_dump);
    EXPECT_TRUE(mapping.is_writable);
  }
}

// Flags that the program changed while the pages were shared.
TEST_F(ConvertedMapTest, EndUse_KeepsProtection) {
  const Pages pages(5);
  for (std::size_t i = 0; i < 5; ++i) pages.data()[i * kPage] = std::byte(i + 1);
  convert(1, pages);
  ASSERT_TRUE(is_shared(pages.data()));
  ::mprotect(pages.data() + kPage, kPage, PROT_READ);
  ::mprotect(pages.data() + 2 * kPage, kPage, PROT_NONE);
  ::mprotect(pages.data() + 3 * kPage, kPage, PROT_READ | PROT_EXEC);
  end(1);
  const Vma read_only = mapping_at(pages.data() + kPage);
  EXPECT_TRUE(read_only.is_readable && !read_only.is_writable && !read_only.is_shared);
  const Vma none = mapping_at(pages.data() + 2 * kPage);
  EXPECT_TRUE(!none.is_readable && !none.is_writable && !none.is_shared);
  const Vma code = mapping_at(pages.data() + 3 * kPage);
  EXPECT_TRUE(code.is_readable && code.is_executable && !code.is_writable && !code.is_shared);
  ::mprotect(pages.data(), pages.size(), PROT_READ | PROT_WRITE);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(pages.data()[i * kPage], std::byte(i + 1));
}

TEST_F(ConvertedMapTest, EndUse_LastOneOut) {
  const Pages pages(16);
  begin(2, pages.start() + 4 * kPage, pages.start() + 8 * kPage);  // nested
  convert(1, pages);
  begin(3, pages.start() + 12 * kPage, pages.end() + kPage);  // overlapping, later
  end(1);
  EXPECT_TRUE(is_shared(pages.data())) << "others use the extent";
  end(2);
  EXPECT_TRUE(is_shared(pages.data()));
  end(3);
  EXPECT_FALSE(is_shared(pages.data()));
  EXPECT_EQ(peer_.extent_count(), 0U);
}

TEST_F(ConvertedMapTest, EndUse_AfterFree) {
  auto pages = std::make_unique<Pages>(8);
  convert(1, *pages);
  pages.reset();
  end(1);
  EXPECT_EQ(peer_.extent_count(), 0U);
}

// Freed and not deregistered; something else lives there by now, also as a shared mapping of the program's.
TEST_F(ConvertedMapTest, EndUse_OtherMemoryAtTheAddress) {
  const Pages pages(8);
  convert(1, pages);
  const UniqueFd file(::memfd_create("the program's", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kPage), 0);
  ::mmap(pages.data(), 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  ::mmap(pages.data() + 2 * kPage, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0);
  pages.data()[1] = std::byte{11};
  pages.data()[2 * kPage] = std::byte{22};
  end(1);
  EXPECT_EQ(pages.data()[1], std::byte{11});
  EXPECT_EQ(pages.data()[2 * kPage], std::byte{22});
  EXPECT_TRUE(is_shared(pages.data() + 2 * kPage)) << "the program's own";
  EXPECT_FALSE(is_shared(pages.data() + 4 * kPage)) << "the rest is private again";
}

// A part of the extent is gone when the next region begins: the daemon must not use it any more, and the
// pages that are left must not stay shared, where a child would share them, too.
TEST_F(ConvertedMapTest, BeginUse_ExtentWithAHole) {
  const Pages pages(8);
  pages.data()[5 * kPage] = std::byte{55};
  convert(1, pages);
  ::mmap(pages.data(), kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  begin(2, pages.start(), pages.end());
  EXPECT_EQ(peer_.view(pages.data()), nullptr);
  EXPECT_FALSE(is_shared(pages.data() + 5 * kPage));
  EXPECT_EQ(pages.data()[5 * kPage], std::byte{55});
  map_.convert(peer_.requests(), user(2), pages.start(), pages.end());
  EXPECT_NE(peer_.view(pages.data()), nullptr) << "it can be converted anew";
}

TEST_F(ConvertedMapTest, EndSession_GivesAllBack) {
  const Pages first(2);
  const Pages second(2);
  convert(1, first);
  convert(2, second);
  map_.end_session(peer_.requests(), this);
  EXPECT_FALSE(is_shared(first.data()));
  EXPECT_FALSE(is_shared(second.data()));
}

// The daemon is gone: memory stays usable, and becomes private again.
TEST_F(ConvertedMapTest, EndUse_DaemonIsGone) {
  const Pages pages(4);
  auto peer = std::make_unique<ExtentPeer>();
  map_.begin_use(peer->requests(), user(1), pages.start(), pages.end());
  map_.convert(peer->requests(), user(1), pages.start(), pages.end());
  ASSERT_TRUE(is_shared(pages.data()));
  Counting counting(pages.data(), pages.size(), 1);
  Liveness liveness;
  RequestChannel dead(liveness);
  map_.end_use(dead, user(1));
  EXPECT_FALSE(is_shared(pages.data()));
  counting.expect_nothing_lost();
}

// Regions of all sizes over the same pages by several threads, which all write there as well.
TEST_F(ConvertedMapTest, BeginUse_OverlappingByThreads) {
  const Pages pages(256);
  Counting counting(pages.data(), pages.size(), 1);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(i);
      for (int round = 0; round < stress_rounds(25); ++round) {
        const std::uint64_t from = random() % 250;
        const std::uint64_t to = from + 1 + random() % (256 - from);
        const std::uint32_t handle = i * 1000 + static_cast<std::uint32_t>(round);
        convert(handle, pages.start() + from * kPage, pages.start() + to * kPage);
        if (random() % 2 == 0) std::this_thread::yield();
        end(handle);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  counting.expect_nothing_lost();
  for (std::size_t i = 0; i < pages.size(); i += kPage) ASSERT_FALSE(is_shared(pages.data() + i));
  EXPECT_EQ(peer_.extent_count(), 0U);
}

// Where userfaultfd is not allowed nothing is converted, and everything else goes on: also the passing of
// what needs no conversion.
TEST(ConvertedMap, Convert_SharedMappingWithoutUserfaultfd) {
  const int result = in_child([] {
    ExtentPeer peer;
    const Pages pages(4);
    const Pages ordinary(2);
    const UniqueFd file(::memfd_create("the program's", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(pages.size())), 0);
    ::mmap(pages.data(), pages.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0);
    if (const int refused = forbid_userfaultfd(); refused != 0) return refused;
    PageSwap::instance().forget();
    const int session = 0;
    ConvertedMap& map = ConvertedMap::instance();
    for (const Pages* each : {&pages, &ordinary}) {
      const RegionUser user{&session, each == &pages ? 1U : 2U};
      map.begin_use(peer.requests(), user, each->start(), each->end());
      map.convert(peer.requests(), user, each->start(), each->end());
    }
    EXPECT_NE(peer.view(pages.data()), nullptr);
    EXPECT_EQ(peer.view(ordinary.data()), nullptr);
    EXPECT_EQ(peer.begins, 0U);
    map.end_session(peer.requests(), &session);
    return failures();
  });
  if (result == 77) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(result, 0);
}

TEST(ConvertedMap, Convert_NotUsable) {
  const int result = in_child([] {
    const rlimit none{3, 3};
    if (::setrlimit(RLIMIT_NOFILE, &none) != 0) return 77;
    PageSwap::instance().forget();  // no descriptor is to be had any more
    EXPECT_FALSE(PageSwap::instance().is_usable());
    const Pages pages(2);
    Liveness liveness;
    RequestChannel nobody(liveness);
    const int session = 0;
    ConvertedMap& map = ConvertedMap::instance();
    map.begin_use(nobody, {&session, 1}, pages.start(), pages.end());
    map.convert(nobody, {&session, 1}, pages.start(), pages.end());
    map.end_use(nobody, {&session, 1});
    pages.data()[0] = std::byte{1};
    return failures();
  });
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace urdma::provider
