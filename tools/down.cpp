// `urdma down`: stops a node's daemon, and waits until it is gone. Single-threaded.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tools/commands.hpp"
#include "tools/node_location.hpp"

namespace urdma::tools {
namespace {

constexpr int kStepMs = 20;
constexpr int kStopMs = 5'000;
constexpr int kKillMs = 2'000;

// The lock goes with the process.
bool is_gone_within(const std::string& name, pid_t pid, int limit_ms) {
  for (int waited_ms = 0;; waited_ms += kStepMs) {
    const auto node = find_in(state_directory(), name);
    if (!node || node->pid != pid) return true;
    if (waited_ms >= limit_ms) return false;
    ::usleep(kStepMs * 1000);
  }
}

}  // namespace

int down(const std::string& name) {
  if (auto good = check_name(name); !good) return complain(good.error().message);
  const auto node = find_in(state_directory(), name);
  if (!node) return complain(fmt::format("no node named '{}' runs in {}", name, state_directory()));
  if (::kill(node->pid, SIGTERM) != 0 && errno != ESRCH) {
    return complain(fmt::format("cannot stop process {}: {}", node->pid, std::strerror(errno)));
  }
  if (!is_gone_within(name, node->pid, kStopMs)) {
    fmt::print(stderr, "urdma: process {} does not stop, and is killed\n", node->pid);
    ::kill(node->pid, SIGKILL);
    if (!is_gone_within(name, node->pid, kKillMs)) {
      return complain(fmt::format("process {} cannot be killed; it may hang in the kernel", node->pid));
    }
  }
  fmt::print("node {} is down\n", name);
  return EXIT_SUCCESS;
}

}  // namespace urdma::tools
