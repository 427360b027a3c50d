// Tests of datapath/control/options.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/options.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <string>
#include <vector>

namespace urdma::control {
namespace {

DaemonWords words() {
  DaemonWords result;
  result.directory = "/tmp/node";
  return result;
}

TEST(JudgeTest, Judge_DefaultsToTheLoopbackPortAndAdaptiveIdle) {
  const auto options = judge(words());
  ASSERT_TRUE(options);
  ASSERT_EQ(options->ports.size(), 1U);
  EXPECT_EQ(options->ports[0].kind, io::PortSpec::Kind::kLoopback);
  EXPECT_EQ(options->idle, engine::IdlePolicy::kAdaptive);
  EXPECT_EQ(options->engines, 1U);
  EXPECT_TRUE(options->cores.empty());
  EXPECT_TRUE(options->converts);
}

TEST(JudgeTest, Judge_RefusesWhatItCannotRead) {
  DaemonWords bad = words();
  bad.idle = "sometimes";
  EXPECT_FALSE(judge(bad));
  bad = words();
  bad.ports = {"carrier-pigeon"};
  EXPECT_FALSE(judge(bad));
  bad = words();
  bad.directory.clear();
  EXPECT_FALSE(judge(bad));
  bad = words();
  bad.cores = "1023";
  EXPECT_EQ(judge(bad).error().code, EINVAL);
}

TEST(JudgeTest, Judge_OneEngineACore) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  std::vector<int> cores;
  DaemonWords several = words();
  for (int core = 0; core < CPU_SETSIZE && cores.size() < 2; ++core) {
    if (!CPU_ISSET(static_cast<std::size_t>(core), &allowed)) continue;
    several.cores += (cores.empty() ? "" : ",") + std::to_string(core);
    cores.push_back(core);
  }
  const auto options = judge(several);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->engines, cores.size());
  EXPECT_EQ(options->cores, cores);
  several.engines = static_cast<std::uint32_t>(cores.size());
  EXPECT_TRUE(judge(several));
  several.engines = 3;
  EXPECT_EQ(judge(several).error().code, EINVAL) << "two numbers that differ";
}

TEST(JudgeTest, Judge_EnginesWithoutCores) {
  DaemonWords several = words();
  several.engines = abi::kMaxEngines;
  const auto options = judge(several);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->engines, abi::kMaxEngines);
  EXPECT_TRUE(options->cores.empty());
  several.engines = abi::kMaxEngines + 1;
  EXPECT_EQ(judge(several).error().code, EINVAL);
}

TEST(ParseCoresTest, ParseCores_ReadsListsAndRanges) {
  EXPECT_EQ(*parse_cores("3"), std::vector{3});
  EXPECT_EQ(*parse_cores("4,0-2,1"), (std::vector{0, 1, 2, 4}));
}

TEST(ParseCoresTest, ParseCores_RefusesEverythingElse) {
  for (const char* text : {"", ",", "1,", ",1", "a", "-1", "3-1", "1-", "1 ", "99999999999", "1-99999"}) {
    EXPECT_FALSE(parse_cores(text)) << text;
  }
}

}  // namespace
}  // namespace urdma::control
