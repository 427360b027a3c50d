// Starts EAL once, then runs the tests of datapath/engine.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "tests/unit/engine/environment.hpp"

namespace urdma::engine {

EalEnvironment* EalEnvironment::instance_ = nullptr;

void EalEnvironment::SetUp() {
  std::string pattern = (std::filesystem::temp_directory_path() / "urdma-engine-XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  directory_ = pattern;
  const io::FramePoolConfig pool{.name = "test", .frames = 8192};
  auto eal = io::Eal::start({.runtime_directory = directory_, .memory_bytes = frame_pool_bytes(pool)});
  ASSERT_TRUE(eal) << eal.error().message;
  eal_ = std::move(*eal);
  auto frames = io::FramePool::create(pool);
  ASSERT_TRUE(frames) << frames.error().message;
  frames_.emplace(std::move(*frames));
  const auto spec = io::parse_port_spec("loopback");
  ASSERT_TRUE(spec);
  auto port = io::Port::open(*spec, frames_->get());
  ASSERT_TRUE(port) << port.error().message;
  port_ = std::move(*port);
}

void EalEnvironment::TearDown() {
  port_.reset();
  frames_.reset();
  eal_.reset();
  std::filesystem::remove_all(directory_);
}

}  // namespace urdma::engine

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  urdma::engine::EalEnvironment::instance_ = new urdma::engine::EalEnvironment;  // gtest owns it from here
  ::testing::AddGlobalTestEnvironment(urdma::engine::EalEnvironment::instance_);
  return RUN_ALL_TESTS();
}
