// Assertions that stay in release builds: for urdma's own faults, never for input from outside.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdio>
#include <cstdlib>

namespace urdma {

[[noreturn, gnu::cold]] inline void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "urdma: internal fault: %s does not hold at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace urdma

// Ends the process when `condition` does not hold.
#define URDMA_CHECK(condition)                               \
  do {                                                       \
    if (!(condition)) [[unlikely]]                           \
      ::urdma::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
