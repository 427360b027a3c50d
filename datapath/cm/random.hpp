// Numbers that a peer cannot guess from nothing: splitmix64 over the manager's seed. No cryptography: who
// sees the wire sees the numbers anyway. One thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

namespace urdma::cm {

constexpr std::uint64_t scramble(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() { return scramble(state_ += 0x9E3779B97F4A7C15ULL); }

 private:
  std::uint64_t state_;
};

}  // namespace urdma::cm
