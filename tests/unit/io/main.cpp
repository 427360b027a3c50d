// Starts EAL once, then runs the tests of datapath/io.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <filesystem>

#include "tests/unit/io/environment.hpp"

namespace urdma::io {

EalEnvironment* EalEnvironment::instance_ = nullptr;

void EalEnvironment::SetUp() {
  std::string pattern = (std::filesystem::temp_directory_path() / "urdma-io-XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  directory_ = pattern;
  const FramePoolConfig pool{.name = "test", .frames = 4096};
  sched_getaffinity(0, sizeof affinity_, &affinity_);
  auto eal = Eal::start({.runtime_directory = directory_, .memory_bytes = frame_pool_bytes(pool)});
  ASSERT_TRUE(eal) << eal.error().message;
  eal_ = std::move(*eal);
  auto frames = FramePool::create(pool);
  ASSERT_TRUE(frames) << frames.error().message;
  frames_.emplace(std::move(*frames));
}

void EalEnvironment::TearDown() {
  frames_.reset();
  eal_.reset();
  std::filesystem::remove_all(directory_);
}

}  // namespace urdma::io

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  urdma::io::EalEnvironment::instance_ = new urdma::io::EalEnvironment;  // gtest owns it from here
  ::testing::AddGlobalTestEnvironment(urdma::io::EalEnvironment::instance_);
  return RUN_ALL_TESTS();
}
