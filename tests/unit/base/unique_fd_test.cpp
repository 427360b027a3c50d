// A descriptor is closed once, by its last owner.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/base/unique_fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace urdma {
namespace {

int open_one() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFdTest, Destructor_Closes) {
  const int fd = open_one();
  { const UniqueFd owner(fd); }
  EXPECT_FALSE(is_open(fd));
}

TEST(UniqueFdTest, Move_LeavesNothingBehindAndClosesWhatWasThere) {
  const int first = open_one();
  const int second = open_one();
  UniqueFd from(first);
  UniqueFd to(second);
  to = std::move(from);
  EXPECT_FALSE(from.is_open());  // NOLINT: what is left is what is looked at
  EXPECT_EQ(to.get(), first);
  EXPECT_FALSE(is_open(second));
  UniqueFd& same = to;
  to = std::move(same);
  EXPECT_TRUE(is_open(first));
}

TEST(UniqueFdTest, Release_GivesTheDescriptorAway) {
  UniqueFd owner(open_one());
  const int fd = owner.release();
  EXPECT_FALSE(owner.is_open());
  owner.reset();
  EXPECT_TRUE(is_open(fd));
  ::close(fd);
}

}  // namespace
}  // namespace urdma
