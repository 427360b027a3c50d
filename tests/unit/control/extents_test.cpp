// Pages of clients that are mapped in the daemon: limits, and what is closed when.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/extents.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace urdma::control {
namespace {

constexpr std::uint64_t kPage = 4096;

UniqueFd memory_file(std::uint64_t bytes) {
  UniqueFd file(::memfd_create("urdma-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  return file;
}

int error_of(const Result<ExtentTable::Entry*>& result) { return result ? 0 : result.error().code; }

class ExtentTableTest : public ::testing::Test {
 protected:
  std::uint32_t make(std::uint64_t page) {
    const auto made = table.make(page * kPage, kPage, limits);
    EXPECT_TRUE(made);
    return (*made)->extent.id;
  }

  // All of what ShareMapping does.
  Result<ExtentTable::Entry*> share(UniqueFd file, std::uint64_t address, std::uint64_t length,
                                    std::uint64_t offset) {
    if (auto good = table.begin_take_over(address, length, limits); !good)
      return tl::make_unexpected(good.error());
    return table.take_over(ExtentTable::map_file(std::move(file), length, offset), address, length, limits);
  }

  Limits limits;
  ExtentTable table;
};

TEST_F(ExtentTableTest, Make_WholePagesOnly) {
  EXPECT_EQ(error_of(table.make(1, kPage, limits)), EINVAL);
  EXPECT_EQ(error_of(table.make(kPage, 1, limits)), EINVAL);
  EXPECT_EQ(error_of(table.make(kPage, 0, limits)), EINVAL);
  EXPECT_EQ(error_of(table.make(UINT64_MAX - kPage + 1, kPage, limits)), EINVAL);
}

TEST_F(ExtentTableTest, Make_BytesAreLimitedAndComeBack) {
  limits.max_converted_bytes_of_session = 2 * kPage;
  const std::uint32_t first = make(1);
  make(2);
  EXPECT_EQ(error_of(table.make(3 * kPage, kPage, limits)), ENOMEM);
  table.erase(first);
  make(3);
}

TEST_F(ExtentTableTest, Make_FewAtATimeAreInTheMaking) {
  limits.max_extents_in_making_of_session = 2;
  ExtentTable::Entry* first = table.find(make(1));
  const std::uint32_t second = make(2);
  EXPECT_EQ(error_of(table.make(3 * kPage, kPage, limits)), ENOMEM);
  ASSERT_TRUE(ExtentTable::seal(table.begin_seal(*first)));
  EXPECT_EQ(error_of(table.make(3 * kPage, kPage, limits)), ENOMEM) << "the copier still has its file";
  table.end_seal(*first);
  make(3);
  table.erase(second);
  make(4);
  EXPECT_EQ(error_of(table.make(5 * kPage, kPage, limits)), ENOMEM);
}

TEST_F(ExtentTableTest, Erase_WhileItIsSealed) {
  limits.max_extents_in_making_of_session = 1;
  const std::uint32_t id = make(1);
  ASSERT_TRUE(ExtentTable::seal(table.begin_seal(*table.find(id))));
  table.erase(id);
  make(2);
}

TEST_F(ExtentTableTest, TakeOver_NumberIsLimited) {
  limits.max_extents_of_session = 1;
  const auto taken = share(memory_file(2 * kPage), kPage, kPage, kPage);
  ASSERT_TRUE(taken);
  EXPECT_FALSE((*taken)->file.is_open());
  EXPECT_EQ((*taken)->mapped_bytes, kPage);
  EXPECT_EQ(error_of(share(memory_file(kPage), 3 * kPage, kPage, 0)), ENOMEM);
}

TEST_F(ExtentTableTest, TakeOver_FewAtATimeAreWithTheCopier) {
  limits.max_extents_in_making_of_session = 2;
  ASSERT_TRUE(table.begin_take_over(kPage, kPage, limits));
  make(2);
  EXPECT_EQ(table.begin_take_over(3 * kPage, kPage, limits).error().code, ENOMEM);
  EXPECT_EQ(error_of(table.take_over(fail(EINVAL, "refused"), kPage, kPage, limits)), EINVAL);
  EXPECT_TRUE(table.begin_take_over(3 * kPage, kPage, limits));
}

TEST_F(ExtentTableTest, MapFile_NotBeyondItsFile) {
  EXPECT_EQ(error_of(share(memory_file(kPage), kPage, 2 * kPage, 0)), EINVAL);
  EXPECT_EQ(error_of(share(memory_file(kPage), kPage, kPage, kPage)), EINVAL);
  EXPECT_EQ(error_of(share(memory_file(2 * kPage), kPage, kPage, 1)), EINVAL);
}

}  // namespace
}  // namespace urdma::control
