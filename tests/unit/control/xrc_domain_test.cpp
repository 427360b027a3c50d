// Tests of datapath/control/xrc_domain: which files are the same.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/xrc_domain.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "urdma/base/unique_fd.hpp"

namespace urdma::control {
namespace {

class IdentifyFileTest : public testing::Test {
 protected:
  IdentifyFileTest() { EXPECT_NE(::mkdtemp(directory_.data()), nullptr); }
  ~IdentifyFileTest() override {
    ::unlink(name().c_str());
    ::rmdir(directory_.c_str());
  }
  [[nodiscard]] std::string name() const { return directory_ + "/domain"; }
  [[nodiscard]] UniqueFd open() const {
    return UniqueFd(::open(name().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  }

  std::string directory_ = "/tmp/urdma-unit-XXXXXX";
};

TEST_F(IdentifyFileTest, IdentifyFile_IsTheSameForAllWhoOpenIt) {
  const UniqueFd first = open();
  const UniqueFd second = open();
  const auto identity = identify_file(first.get());
  ASSERT_TRUE(identity);
  EXPECT_EQ(*identity, *identify_file(second.get()));
}

TEST_F(IdentifyFileTest, IdentifyFile_ANewFileIsNotTheOneWhoseInodeNumberItHas) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    const auto before = identify_file(open().get());
    ::unlink(name().c_str());
    const auto after = identify_file(open().get());
    ::unlink(name().c_str());
    ASSERT_TRUE(before && after);
    if (before->inode != after->inode) continue;  // somebody else has the number
    EXPECT_NE(*before, *after);
    return;
  }
  GTEST_SKIP() << "this file system uses no number again";
}

TEST_F(IdentifyFileTest, IdentifyFile_OfWhatHasNoHandle) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd one(ends[0]);
  const UniqueFd other(ends[1]);
  EXPECT_TRUE(identify_file(one.get()));
  EXPECT_FALSE(identify_file(-1));
}

}  // namespace
}  // namespace urdma::control
