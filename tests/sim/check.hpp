// How the simulator says that something does not hold: one exception, which ends the seed's run.
// Used by the simulator's single thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace urdma::sim {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Whether every packet and completion is printed as it happens.
inline bool trace_enabled = false;

template <typename... Args>
[[noreturn, gnu::cold]] void fail_run(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) [[unlikely]]
    throw Failure(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void trace(fmt::format_string<Args...> format, Args&&... args) {
  if (!trace_enabled) [[likely]]
    return;
  fmt::print(format, std::forward<Args>(args)...);
  fmt::print("\n");
}

}  // namespace urdma::sim
