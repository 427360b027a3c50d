// A session's part in conversion: which of its regions have whole pages, and what is asked of the process's
// map for them. The daemon is a fake (memory_fixture.hpp).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/control/conversion.hpp"

#include <cstdlib>

#include "provider/memory/page_swap.hpp"
#include "tests/unit/provider/memory_fixture.hpp"

namespace urdma::provider {
namespace {

using namespace testing;  // NOLINT: of the provider's tests

class ConversionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!PageSwap::instance().is_usable()) GTEST_SKIP() << "userfaultfd is not allowed here";
  }
  void convert(Conversion& conversion, std::uint32_t handle) {
    conversion.on_convert_range({handle, 0, 0, 0});  // the range is the session's own word, not the daemon's
  }

  ExtentPeer peer_;
  Pages pages_{4};
};

TEST_F(ConversionTest, OnConvertRange_WholePagesOfTheRegionOnly) {
  Conversion conversion(peer_.requests(), true);
  conversion.on_registered({1, pages_.start() + 100, 3 * kPage});
  EXPECT_EQ(peer_.extent_count(), 0U) << "not before traffic has earned it";
  convert(conversion, 1);
  EXPECT_FALSE(is_shared(pages_.data()));
  EXPECT_TRUE(is_shared(pages_.data() + kPage));
  EXPECT_TRUE(is_shared(pages_.data() + 2 * kPage));
  EXPECT_FALSE(is_shared(pages_.data() + 3 * kPage));
  conversion.before_deregister(1);
  EXPECT_EQ(peer_.extent_count(), 0U);
  EXPECT_FALSE(is_shared(pages_.data() + kPage));
}

TEST_F(ConversionTest, OnConvertRange_WithoutAWholePageNothing) {
  Conversion conversion(peer_.requests(), true);
  conversion.on_registered({1, pages_.start() + 1, 2 * kPage - 2});
  conversion.on_registered({2, pages_.start(), 0});
  for (const std::uint32_t handle : {1U, 2U}) convert(conversion, handle);
  EXPECT_EQ(peer_.begins, 0U);
  conversion.before_deregister(1);
}

TEST_F(ConversionTest, OnConvertRange_OfARegionThatIsGone) {
  Conversion conversion(peer_.requests(), true);
  conversion.on_registered({1, pages_.start(), pages_.size()});
  conversion.before_deregister(1);
  convert(conversion, 1);
  convert(conversion, 2);
  EXPECT_EQ(peer_.begins, 0U);
}

TEST_F(ConversionTest, Destructor_GivesBackWhatIsLeft) {
  {
    Conversion conversion(peer_.requests(), true);
    conversion.on_registered({1, pages_.start(), pages_.size()});
    convert(conversion, 1);
    EXPECT_TRUE(is_shared(pages_.data()));
  }
  EXPECT_FALSE(is_shared(pages_.data()));
  EXPECT_EQ(peer_.extent_count(), 0U);
}

TEST_F(ConversionTest, Constructor_TwoSessionsOfAProcessShareAnExtent) {
  Conversion first(peer_.requests(), true);
  Conversion second(peer_.requests(), true);
  first.on_registered({1, pages_.start(), pages_.size()});
  convert(first, 1);
  second.on_registered({1, pages_.start(), pages_.size()});
  first.before_deregister(1);
  EXPECT_TRUE(is_shared(pages_.data())) << "the other session still uses it";
  second.before_deregister(1);
  EXPECT_FALSE(is_shared(pages_.data()));
}

TEST_F(ConversionTest, Constructor_NotWhereTheDaemonOrThePersonSaysNo) {
  for (const bool daemon_wants : {false, true}) {
    if (daemon_wants) ::setenv("URDMA_CONVERT", "0", 1);
    Conversion conversion(peer_.requests(), daemon_wants);
    conversion.on_registered({1, pages_.start(), pages_.size()});
    convert(conversion, 1);
    conversion.before_deregister(1);
    EXPECT_EQ(peer_.begins, 0U);
  }
  ::unsetenv("URDMA_CONVERT");
}

}  // namespace
}  // namespace urdma::provider
