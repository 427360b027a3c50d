// Time as the transport sees it: nanoseconds of one monotonic clock, always an argument.
// Values only. Nothing here reads a clock.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace urdma {

struct Duration {
  std::int64_t ns = 0;
  friend constexpr auto operator<=>(Duration, Duration) = default;
};

constexpr Duration nanoseconds(std::int64_t n) { return {n}; }
constexpr Duration microseconds(std::int64_t n) { return {n * 1'000}; }
constexpr Duration milliseconds(std::int64_t n) { return {n * 1'000'000}; }
constexpr Duration seconds(std::int64_t n) { return {n * 1'000'000'000}; }
constexpr Duration operator*(Duration d, std::int64_t times) { return {d.ns * times}; }
constexpr Duration operator+(Duration a, Duration b) { return {a.ns + b.ns}; }

// A point of the monotonic clock.
struct Instant {
  std::int64_t ns = 0;

  // Later than every real instant: a deadline that is not set.
  static constexpr Instant never() { return {std::numeric_limits<std::int64_t>::max()}; }
  [[nodiscard]] constexpr bool is_never() const { return *this == never(); }
  friend constexpr auto operator<=>(Instant, Instant) = default;
};

constexpr Instant operator+(Instant t, Duration d) { return {t.ns + d.ns}; }
constexpr Duration operator-(Instant a, Instant b) { return {a.ns - b.ns}; }
constexpr Instant earlier(Instant a, Instant b) { return a < b ? a : b; }

}  // namespace urdma
