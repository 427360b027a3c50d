// The one EAL, frame pool and loopback port that all tests of this executable share: EAL starts once a
// process, and one engine at a time uses the port.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "datapath/io/eal.hpp"
#include "datapath/io/frame_pool.hpp"
#include "datapath/io/port.hpp"

namespace urdma::engine {

class EalEnvironment : public ::testing::Environment {
 public:
  void SetUp() override;
  void TearDown() override;

  static io::FramePool& frames() { return *instance_->frames_; }
  static io::Port& port() { return *instance_->port_; }
  static EalEnvironment* instance_;

 private:
  std::string directory_;
  std::unique_ptr<io::Eal> eal_;
  std::optional<io::FramePool> frames_;
  std::unique_ptr<io::Port> port_;
};

}  // namespace urdma::engine
