// Pages are replaced under running threads: no store is lost, whoever makes it.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/memory/page_swap.hpp"

#include <fcntl.h>

#include <cstddef>

#include "tests/support/map_apart.hpp"
#include "tests/unit/provider/memory_fixture.hpp"

namespace urdma::provider {
namespace {

using namespace testing;  // NOLINT: of the provider's tests

// There and back, `rounds` times.
void swap_back_and_forth(const Pages& pages, int rounds) {
  PageSwap& swap = PageSwap::instance();
  for (int i = 0; i < rounds; ++i) {
    const UniqueFd file(::memfd_create("pages", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(pages.size())), 0);
    ASSERT_TRUE(swap.to_shared(pages.start(), pages.size(), file.get(), 0));
    ASSERT_TRUE(swap.to_private(pages.start(), pages.size()));
  }
}

// Counters that are raised by writes to /proc/self/mem, as the daemon's copier makes them.
class CountingByCopier {
 public:
  CountingByCopier(const Pages& pages, int memory) : pages_(pages), memory_(memory) {
    thread_ = std::thread([this] { count(); });
  }
  ~CountingByCopier() { stop(); }
  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void expect_nothing_lost() {
    stop();
    EXPECT_EQ(lost_, 0);
    EXPECT_GT(rounds_, 0U);
  }

 private:
  static constexpr std::size_t kAt = 2560;  // in each page: away from those of Counting

  void count() {
    std::vector<std::uint64_t> expected(pages_.size() / kPage, 0);
    for (std::size_t page = 0; !stopping_; page = (page + 1) % expected.size(), ++rounds_) {
      auto* at = reinterpret_cast<volatile std::uint64_t*>(pages_.data() + page * kPage + kAt);
      if (*at != expected[page]) ++lost_;
      const std::uint64_t next = expected[page] + 1;
      // A page that is being replaced refuses the write; the copier tries again.
      while (::pwrite(memory_, &next, sizeof next, reinterpret_cast<off_t>(at)) != sizeof next) {
        std::this_thread::yield();
      }
      expected[page] = next;
    }
  }

  const Pages& pages_;
  int memory_;
  std::atomic<bool> stopping_{false};
  int lost_ = 0;
  std::uint64_t rounds_ = 0;
  std::thread thread_;
};

class PageSwapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!PageSwap::instance().is_usable()) GTEST_SKIP() << "userfaultfd is not allowed here";
  }
};

TEST_F(PageSwapTest, ToShared_SameBytes) {
  const Pages pages(3);
  for (std::size_t i = 0; i < pages.size(); ++i) pages.data()[i] = std::byte(i * 13);
  const UniqueFd file(::memfd_create("pages", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 8 * kPage), 0);
  ASSERT_TRUE(PageSwap::instance().to_shared(pages.start(), pages.size(), file.get(), 2 * kPage));
  const Vma mapping = mapping_at(pages.data());
  EXPECT_TRUE(mapping.is_shared);
  EXPECT_EQ(mapping.offset, 2 * kPage);
  std::vector<std::byte> in_file(pages.size());
  ASSERT_EQ(::pread(file.get(), in_file.data(), in_file.size(), 2 * kPage),
            static_cast<ssize_t>(pages.size()));
  for (std::size_t i = 0; i < pages.size(); ++i) {
    ASSERT_EQ(pages.data()[i], std::byte(i * 13));
    ASSERT_EQ(in_file[i], std::byte(i * 13));
  }
  pages.data()[5] = std::byte{99};
  ASSERT_TRUE(PageSwap::instance().to_private(pages.start(), pages.size()));
  EXPECT_FALSE(is_shared(pages.data()));
  EXPECT_EQ(pages.data()[5], std::byte{99});
  EXPECT_EQ(pages.data()[6], std::byte(6 * 13));
}

// When it cannot be done everything is as before, and nobody waits.
TEST_F(PageSwapTest, ToShared_Failures) {
  const Pages pages(2);
  const UniqueFd read_only(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(PageSwap::instance().to_shared(pages.start(), pages.size(), read_only.get(), 0));
  EXPECT_FALSE(is_shared(pages.data()));
  pages.data()[0] = std::byte{2};  // hangs if protection is left
}

TEST_F(PageSwapTest, ToShared_RangeWithAHole) {
  auto* at = static_cast<std::byte*>(urdma::test::map_apart(2 * kPage));
  ASSERT_NE(at, MAP_FAILED);
  const UniqueFd file(::memfd_create("pages", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 2 * kPage), 0);
  ::munmap(at + kPage, kPage);
  EXPECT_FALSE(PageSwap::instance().to_shared(reinterpret_cast<std::uint64_t>(at), 2 * kPage, file.get(), 0));
  at[0] = std::byte{3};  // hangs if protection is left
  EXPECT_FALSE(is_shared(at));
  ::munmap(at, kPage);
}

TEST_F(PageSwapTest, BackAndForth_NoStoreIsLost) {
  const Pages pages(64);
  Counting counting(pages.data(), pages.size(), 2);
  swap_back_and_forth(pages, stress_rounds(40));
  counting.expect_nothing_lost();
}

// Threads touch pages for the first time while they are being replaced.
TEST_F(PageSwapTest, BackAndForth_UntouchedPages) {
  for (int round = 0; round < stress_rounds(20); ++round) {
    const Pages pages(128);
    Counting counting(pages.data(), pages.size(), 2);
    swap_back_and_forth(pages, 1);
    counting.expect_nothing_lost();
  }
}

TEST_F(PageSwapTest, BackAndForth_NoWriteOfTheCopierIsLost) {
  const Pages pages(64);
  const UniqueFd memory(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  CountingByCopier counting(pages, memory.get());
  swap_back_and_forth(pages, stress_rounds(60));
  counting.expect_nothing_lost();
}

// Without privileges: writers of user space alone are held (UFFD_USER_MODE_ONLY).
TEST_F(PageSwapTest, BackAndForth_OrdinaryUser) {
  const int result = in_child([] {
    const UniqueFd memory(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return 77;
    PageSwap::instance().forget();
    if (!PageSwap::instance().is_usable()) return 77;
    const Pages pages(64);
    Counting counting(pages.data(), pages.size(), 2);
    CountingByCopier copier(pages, memory.get());
    swap_back_and_forth(pages, 30);
    counting.expect_nothing_lost();
    copier.expect_nothing_lost();
    return failures();
  });
  if (result == 77) GTEST_SKIP() << "no userfaultfd for an ordinary user here";
  EXPECT_EQ(result, 0);
}

TEST_F(PageSwapTest, CopyAlone_PrivateCopies) {
  const Pages pages(4);
  const UniqueFd file(::memfd_create("pages", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(pages.size())), 0);
  ASSERT_TRUE(PageSwap::instance().to_shared(pages.start(), pages.size(), file.get(), 0));
  pages.data()[7] = std::byte{7};
  PageSwap::copy_alone(pages.start(), pages.size());
  EXPECT_FALSE(is_shared(pages.data()));
  EXPECT_EQ(pages.data()[7], std::byte{7});
  pages.data()[7] = std::byte{8};
  std::byte in_file{};
  ASSERT_EQ(::pread(file.get(), &in_file, 1, 7), 1);
  EXPECT_EQ(in_file, std::byte{7});
}

TEST(PageSwap, IsUsable_ForbiddenByASandbox) {
  const int result = in_child([] {
    if (const int refused = forbid_userfaultfd(); refused != 0) return refused;
    PageSwap::instance().forget();
    const Pages pages(2);
    pages.data()[0] = std::byte{1};
    EXPECT_FALSE(PageSwap::instance().is_usable());
    const UniqueFd file(::memfd_create("pages", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(pages.size())), 0);
    EXPECT_FALSE(PageSwap::instance().to_shared(pages.start(), pages.size(), file.get(), 0));
    EXPECT_FALSE(PageSwap::instance().to_private(pages.start(), pages.size()));
    EXPECT_EQ(pages.data()[0], std::byte{1});
    return failures();
  });
  if (result == 77) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace urdma::provider
