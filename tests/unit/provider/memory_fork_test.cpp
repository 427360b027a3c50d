// fork() while pages are shared: the child has copies of its own, the parent's go on being shared, and
// neither waits for ever.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fcntl.h>
#include <spawn.h>

#include <chrono>

#include "provider/memory/converted_map.hpp"
#include "provider/memory/page_swap.hpp"
#include "tests/unit/provider/memory_fixture.hpp"

namespace urdma::provider {
namespace {

using namespace testing;  // NOLINT: of the provider's tests
using Clock = std::chrono::steady_clock;

class ForkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!PageSwap::instance().is_usable()) GTEST_SKIP() << "userfaultfd is not allowed here";
  }
  void TearDown() override { map_.end_session(peer_.requests(), this); }
  void convert(std::uint32_t handle, const Pages& pages) {
    map_.begin_use(peer_.requests(), {this, handle}, pages.start(), pages.end());
    map_.convert(peer_.requests(), {this, handle}, pages.start(), pages.end());
    ASSERT_TRUE(is_shared(pages.data() + pages.size() - 1));
  }
  void end(std::uint32_t handle) { map_.end_use(peer_.requests(), {this, handle}); }

  ConvertedMap& map_ = ConvertedMap::instance();
  ExtentPeer peer_;
};

TEST_F(ForkTest, Fork_ChildHasCopies) {
  const Pages pages(700);
  pages.data()[5] = std::byte{5};
  convert(1, pages);
  const int result = in_child([&] {
    EXPECT_EQ(pages.data()[5], std::byte{5});
    EXPECT_FALSE(is_shared(pages.data()));
    EXPECT_FALSE(is_shared(pages.data() + pages.size() - 1));
    for (std::size_t i = 0; i < pages.size(); i += kPage) pages.data()[i] = std::byte{66};
    return failures();
  });
  EXPECT_EQ(result, 0);
  EXPECT_EQ(pages.data()[0], std::byte{});
  EXPECT_EQ(peer_.view(pages.data())[0], std::byte{}) << "the child wrote to the daemon's pages";
  pages.data()[9] = std::byte{9};
  EXPECT_EQ(peer_.view(pages.data())[9], std::byte{9}) << "the parent's pages go on being shared";
  EXPECT_TRUE(is_shared(pages.data()));
}

// What the parent writes after fork is not the child's to see, however late the child looks.
TEST_F(ForkTest, Fork_ChildDoesNotSeeLaterWrites) {
  const Pages pages(16);
  convert(1, pages);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    char unused = 0;
    if (::read(ends[0], &unused, 1) != 1) ::_exit(2);
    ::_exit(pages.data()[3] == std::byte{} ? 0 : 1);
  }
  pages.data()[3] = std::byte{3};
  peer_.view(pages.data())[3] = std::byte{3};
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(ForkTest, Fork_DontFork) {
  const Pages all(4);
  const Pages some(8);
  ::madvise(all.data(), all.size(), MADV_DONTFORK);
  convert(1, all);
  convert(2, some);
  ::madvise(some.data() + 2 * kPage, kPage, MADV_DONTFORK);  // after the conversion, in its middle
  some.data()[7 * kPage] = std::byte{7};
  const int result = in_child([&] {
    EXPECT_EQ(mappings_of(all.start(), all.end(), false).size(), 0U);
    EXPECT_EQ(some.data()[7 * kPage], std::byte{7});
    EXPECT_FALSE(is_shared(some.data())) << "shared with the parent, because a neighbour was not inherited";
    EXPECT_FALSE(is_shared(some.data() + 7 * kPage));
    return failures();
  });
  EXPECT_EQ(result, 0);
  EXPECT_TRUE(is_shared(some.data()));
}

// The program has put other memory where pages were shared, and not deregistered: that is not ours to copy.
TEST_F(ForkTest, Fork_OtherMemoryAtTheAddress) {
  const Pages pages(8);
  convert(1, pages);
  const UniqueFd file(::memfd_create("the program's", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kPage), 0);
  ::mmap(pages.data() + kPage, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0);
  ::mmap(pages.data() + 2 * kPage, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  pages.data()[4 * kPage] = std::byte{4};
  ::mprotect(pages.data() + 5 * kPage, kPage, PROT_NONE);
  ::mprotect(pages.data() + 6 * kPage, kPage, PROT_READ);
  const int result = in_child([&] {
    EXPECT_TRUE(is_shared(pages.data() + kPage)) << "shared between parent and child by the program";
    pages.data()[kPage] = std::byte{77};
    EXPECT_EQ(pages.data()[4 * kPage], std::byte{4});
    EXPECT_FALSE(is_shared(pages.data() + 4 * kPage));
    EXPECT_FALSE(mapping_at(pages.data() + 5 * kPage).is_readable);
    EXPECT_FALSE(is_shared(pages.data() + 5 * kPage));
    EXPECT_FALSE(mapping_at(pages.data() + 6 * kPage).is_writable);
    EXPECT_FALSE(is_shared(pages.data() + 6 * kPage));
    return failures();
  });
  EXPECT_EQ(result, 0);
  EXPECT_EQ(pages.data()[kPage], std::byte{77});
}

// The child can convert memory of its own, and its parent's regions are none of its business.
TEST_F(ForkTest, Fork_ChildStartsAnew) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "TSan ends children of threaded programs that start threads";
#endif
  const Pages pages(4);
  convert(1, pages);
  const int result = in_child([&] {
    ExtentPeer peer;
    map_.begin_use(peer.requests(), {this, 1}, pages.start(), pages.end());
    map_.convert(peer.requests(), {this, 1}, pages.start(), pages.end());
    EXPECT_NE(peer.view(pages.data()), nullptr);
    map_.end_use(peer.requests(), {this, 1});
    EXPECT_FALSE(is_shared(pages.data()));
    return failures();
  });
  EXPECT_EQ(result, 0);
}

// fork() in the middle of everything: conversions there and back by one thread, stores by another.
TEST_F(ForkTest, Fork_WhilePagesChange) {
  const Pages pages(64);
  Counting counting(pages.data(), pages.size(), 1);
  std::atomic<bool> stopping{false};
  std::thread converting([&] {
    for (std::uint32_t handle = 1; !stopping; ++handle) {
      map_.begin_use(peer_.requests(), {this, handle}, pages.start(), pages.end());
      map_.convert(peer_.requests(), {this, handle}, pages.start(), pages.end());
      end(handle);
    }
  });
  for (int i = 0; i < stress_rounds(20); ++i) {
    const int result = in_child([&] {
      for (std::size_t at = 0; at < pages.size(); at += kPage) {
        if (is_shared(pages.data() + at)) return 1;
        std::memset(pages.data() + at, 0x11, kPage);
      }
      return 0;
    });
    ASSERT_EQ(result, 0);
  }
  stopping = true;
  converting.join();
  counting.expect_nothing_lost();
}

// Other threads start programs meanwhile: those must not get hold of what the parent waits for.
TEST_F(ForkTest, Fork_WhileOthersSpawn) {
  const Pages pages(4);
  convert(1, pages);
  std::atomic<bool> stopping{false};
  std::vector<pid_t> sleepers;
  std::thread spawning([&] {
    for (int i = 0; i < 300 && !stopping; ++i) {
      char name[] = "sleep";
      char seconds[] = "5";
      char* arguments[] = {name, seconds, nullptr};
      pid_t process = 0;
      if (::posix_spawn(&process, "/bin/sleep", nullptr, nullptr, arguments, nullptr) == 0)
        sleepers.push_back(process);
    }
  });
  auto longest = Clock::duration::zero();
  for (int i = 0; i < 100; ++i) {
    const auto start = Clock::now();
    ASSERT_EQ(in_child([] { return 0; }), 0);
    longest = std::max(longest, Clock::now() - start);
  }
  stopping = true;
  spawning.join();
  for (const pid_t process : sleepers) {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }
  EXPECT_LT(longest, std::chrono::seconds(3));
}

}  // namespace
}  // namespace urdma::provider
