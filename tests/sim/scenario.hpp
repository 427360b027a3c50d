// The simulator's scenarios: each runs one seed to its end, and throws Failure when something does not hold.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tests/sim/workload.hpp"
#include "tests/sim/world.hpp"

namespace urdma::sim {

struct Run {
  std::uint64_t seed = 1;
  std::uint64_t wanted_packets = 0;  // for scenarios that run until so many are sent; 0: their own number
  std::uint64_t packets = 0;         // out: sent on all links
};

struct Scenario {
  const char* name;
  const char* what;
  void (*run)(Run& run);
};

// Random faults and loads, from the seed.
[[nodiscard]] std::span<const Scenario> random_scenarios();
// One fault each, which must end in the right way; times and sizes from the seed.
[[nodiscard]] std::span<const Scenario> failure_scenarios();
// Changes of the QP's state while it works.
[[nodiscard]] std::span<const Scenario> state_scenarios();
// Forged packets.
[[nodiscard]] std::span<const Scenario> hostile_scenarios();

// UC, UD, XRC, and shared receive queues.
[[nodiscard]] std::span<const Scenario> service_scenarios();
// The connection manager.
[[nodiscard]] std::span<const Scenario> cm_scenarios();

// Goodput over loss, window and message size, as a table; the same on every machine.
[[nodiscard]] std::string goodput_table();

// ---- Shared by scenarios ----

// A QP whose attributes suit a link of microseconds: patient, with room for `slots` requests.
[[nodiscard]] EndpointConfig ordinary_endpoint(Random& random);
// Long enough for anything that is going to end.
inline constexpr Duration kLongRun = seconds(600);

}  // namespace urdma::sim
