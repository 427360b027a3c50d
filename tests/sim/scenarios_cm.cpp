// Scenarios of the connection manager. See cm_world.hpp and scenario.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/cm_world.hpp"
#include "tests/sim/scenario.hpp"

namespace urdma::sim {

namespace {

constexpr std::uint32_t kMostPpm = 200'000;
constexpr std::uint32_t kOnePercentPpm = 10'000;
constexpr std::uint32_t kHalfPpm = 500'000;

LinkConfig random_link(Random& random) {
  LinkConfig link;
  link.duplicate_ppm = random.between32(0, kMostPpm);
  link.reorder_ppm = random.between32(0, kMostPpm);
  link.reorder_packets = random.between32(1, 8);
  link.delay =
      random.one_in(3) ? milliseconds(random.between32(1, 200)) : microseconds(random.between32(1, 500));
  link.jitter = random.one_in(3) ? milliseconds(random.between32(1, 300)) : nanoseconds(0);
  if (random.one_in(4)) return link;
  link.loss_ppm = random.between32(1, kMostPpm);
  link.corrupt_ppm = random.one_in(2) ? 0 : random.between32(1, kMostPpm / 4);
  return link;
}

void run_world(Run& run, const CmConfig& config) {
  CmWorld world(run.seed, config);
  world.run();
  run.packets = world.packets();
}

void run_cm(Run& run) {
  Random draw(run.seed);
  CmConfig config;
  config.link = random_link(draw);
  config.late_ppm = draw.one_in(2) ? 0 : kMostPpm;
  config.span = milliseconds(draw.between32(1, 20'000));
  run_world(run, config);
}

void run_cm_hostile(Run& run) {
  Random draw(run.seed);
  CmConfig config;
  config.link = random_link(draw);
  config.late_ppm = kMostPpm;
  config.forged_ppm = draw.between32(1, kHalfPpm);
  config.most_connections = 2048;
  run_world(run, config);
}

// 200 connections a second for ten seconds, and none may fail.
void run_cm_storm(Run& run) {
  CmConfig config;
  config.is_orderly = true;
  config.attempts = 2'000;
  config.span = seconds(10);
  config.most_connections = 4'096;
  config.link.loss_ppm = kOnePercentPpm;
  config.link.delay = microseconds(50);
  run_world(run, config);
}

constexpr Scenario kScenarios[] = {
    {"cm", "connections: refusals, deaths, crossings, under loss, disorder and late datagrams", run_cm},
    {"cm_hostile", "connections while somebody sends nearly right datagrams", run_cm_hostile},
    {"cm_storm", "200 connections a second under 1 % loss, and none fails", run_cm_storm},
};

}  // namespace

std::span<const Scenario> cm_scenarios() { return kScenarios; }

}  // namespace urdma::sim
