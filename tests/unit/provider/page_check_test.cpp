// Which memory can be registered.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/control/page_check.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "tests/support/map_apart.hpp"

namespace urdma::provider {
namespace {

// Three pages: readable and writable, then what a test makes of them.
class PageCheckTest : public ::testing::Test {
 protected:
  PageCheckTest() : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    base_ = static_cast<char*>(urdma::test::map_apart(3 * page_));
  }
  ~PageCheckTest() override { ::munmap(base_, 3 * page_); }

  // Both ways of checking must agree.
  int check(std::size_t offset, std::size_t length, bool for_writing) {
    const auto base = reinterpret_cast<std::uintptr_t>(base_);
    const int result = check_pages(base + offset, length, for_writing);
    const std::uintptr_t begin = base + offset / page_ * page_;
    const std::uintptr_t end = base + (offset + length + page_ - 1) / page_ * page_;
    EXPECT_EQ(check_pages_by_maps(begin, end, for_writing), result);
    return result;
  }

  std::size_t page_;
  char* base_;
};

TEST_F(PageCheckTest, CheckPages_AcceptsOrdinaryMemory) {
  EXPECT_EQ(check(0, 3 * page_, true), 0);
  EXPECT_EQ(check(10, 1, false), 0);
}

TEST_F(PageCheckTest, CheckPages_FindsAHole) {
  ASSERT_EQ(::munmap(base_ + page_, page_), 0);
  EXPECT_EQ(check(0, 3 * page_, false), EFAULT);
  EXPECT_EQ(check(page_ - 1, 2, true), EFAULT) << "one byte of the hole";
  EXPECT_EQ(check(0, page_, true), 0);
}

TEST_F(PageCheckTest, CheckPages_WantsPermissionOnlyForWhatIsAsked) {
  ASSERT_EQ(::mprotect(base_ + page_, page_, PROT_READ), 0);
  EXPECT_EQ(check(0, 3 * page_, false), 0);
  EXPECT_EQ(check(0, 3 * page_, true), EFAULT);
  ASSERT_EQ(::mprotect(base_ + page_, page_, PROT_NONE), 0);
  EXPECT_EQ(check(0, 3 * page_, false), EFAULT);
}

TEST(CheckPagesTest, CheckPages_RefusesARangeThatWraps) {
  EXPECT_EQ(check_pages(UINTPTR_MAX - 10, 100, false), EINVAL);
  EXPECT_EQ(check_pages(UINTPTR_MAX - 10, 5, false), EINVAL);
  EXPECT_EQ(check_pages(UINTPTR_MAX, 0, true), 0) << "no bytes, no pages";
}

}  // namespace
}  // namespace urdma::provider
