// A whole daemon in a child process, one for all tests of a suite, which are clients of its control socket.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/unit/control/client.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::control {

using abi::MessageType;

inline constexpr std::uint32_t kLocalAndRemoteWrite = kAccessLocalWrite | kAccessRemoteWrite;

class ServerTest : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();  // fails if the daemon has not ended well

  // The daemon's own account of itself; also a proof that it lives.
  static nlohmann::json status();
  static bool has_sessions_within(std::size_t count, int limit_ms);
  static abi::CreateCq cq_of(std::uint32_t depth) { return {1, depth, 0, 0, 0}; }
  static abi::CreateQp qp_of(std::uint32_t pd, std::uint32_t cq) {
    abi::CreateQp qp{};
    qp.pd = pd;
    qp.send_cq = cq;
    qp.recv_cq = cq;
    qp.type = static_cast<std::uint32_t>(QpType::kRc);
    qp.cap = {10, 10, 1, 1, 64};
    return qp;
  }

  static inline std::string node;
  static inline pid_t daemon = 0;
};

}  // namespace urdma::control
