// The one EAL and frame pool that all tests of this executable share: EAL starts once a process.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <memory>
#include <optional>
#include <string>

#include "datapath/io/eal.hpp"
#include "datapath/io/frame_pool.hpp"

namespace urdma::io {

class EalEnvironment : public ::testing::Environment {
 public:
  void SetUp() override;
  void TearDown() override;

  static FramePool& frames() { return *instance_->frames_; }
  static Eal& eal() { return *instance_->eal_; }
  static const std::string& directory() { return instance_->directory_; }
  // The CPUs of this process before EAL started.
  static const cpu_set_t& affinity() { return instance_->affinity_; }
  static EalEnvironment* instance_;

 private:
  cpu_set_t affinity_{};
  std::string directory_;
  std::unique_ptr<Eal> eal_;
  std::optional<FramePool> frames_;
};

}  // namespace urdma::io
