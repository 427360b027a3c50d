// The simulator's command: runs scenarios over seeds, and prints how to run a failed one again.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/sim/check.hpp"
#include "tests/sim/scenario.hpp"

namespace urdma::sim {

namespace {

struct Options {
  std::uint64_t seed = 1;
  std::uint64_t count = 1;
  std::uint64_t packets = 0;
  std::uint32_t least_rate = 0;
  std::vector<std::string> names;
  std::string golden;
  std::string write_golden;
};

std::vector<Scenario> all_scenarios() {
  std::vector<Scenario> all;
  for (const auto group : {random_scenarios(), failure_scenarios(), state_scenarios(), hostile_scenarios(),
                           service_scenarios(), cm_scenarios()})
    all.insert(all.end(), group.begin(), group.end());
  return all;
}

// Of the processor, not of the wall: other tests may share the machine.
double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

bool run_seed(const Scenario& scenario, Run& run) {
  try {
    scenario.run(run);
    return true;
  } catch (const Failure& failure) {
    fmt::print("FAIL {} seed {}: {}\n  to reproduce: sim --scenario {} --seed {} --verbose\n", scenario.name,
               run.seed, failure.what(), scenario.name, run.seed);
    return false;
  }
}

// Runs the seeds of one scenario; returns how many failed.
std::uint64_t run_scenario(const Scenario& scenario, const Options& options) {
  const double start = processor_seconds();
  std::uint64_t failed = 0;
  std::uint64_t packets = 0;
  for (std::uint64_t i = 0; i < options.count; ++i) {
    Run run{.seed = options.seed + i, .wanted_packets = options.packets, .packets = 0};
    if (!run_seed(scenario, run)) ++failed;
    packets += run.packets;
  }
  const double took = processor_seconds() - start;
  const double rate = took > 0 ? static_cast<double>(packets) / took : 0;
  fmt::print(
      "{}: seeds {} to {}, {} failed; {} packets in {:.1f} s of one core, {:.2f} million packets a second\n",
      scenario.name, options.seed, options.seed + options.count - 1, failed, packets, took, rate / 1e6);
  if (rate < options.least_rate) {
    fmt::print("FAIL {}: below {} packets a second of one core\n", scenario.name, options.least_rate);
    ++failed;
  }
  return failed;
}

// Returns whether the table equals the file, and says in which lines it does not.
bool compare_golden(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    fmt::print("FAIL golden: cannot read {}\n", path);
    return false;
  }
  std::istringstream table(goodput_table());
  std::string expected;
  std::string actual;
  bool is_equal = true;
  while (true) {
    const bool has_expected = static_cast<bool>(std::getline(file, expected));
    const bool has_actual = static_cast<bool>(std::getline(table, actual));
    if (!has_expected && !has_actual) break;
    if (has_expected && has_actual && expected == actual) continue;
    fmt::print("FAIL golden:\n  expected {}\n  actual   {}\n", has_expected ? expected : "nothing",
               has_actual ? actual : "nothing");
    is_equal = false;
    if (!has_expected || !has_actual) break;
  }
  if (!is_equal) fmt::print("  if the change is meant: sim --write-golden {}\n", path);
  return is_equal;
}

int run_all(const Options& options) {
  if (!options.write_golden.empty()) {
    std::ofstream file(options.write_golden);
    file << goodput_table();
    return file.flush() ? 0 : 1;
  }
  if (!options.golden.empty()) return compare_golden(options.golden) ? 0 : 1;
  std::uint64_t failed = 0;
  std::uint64_t scenarios = 0;
  for (const Scenario& scenario : all_scenarios()) {
    const bool is_named =
        std::find(options.names.begin(), options.names.end(), scenario.name) != options.names.end();
    const bool is_meant = options.names.empty() ? std::string(scenario.name) != "throughput" : is_named;
    if (!is_meant) continue;
    ++scenarios;
    failed += run_scenario(scenario, options);
  }
  if (scenarios == 0) {
    fmt::print("no such scenario; sim --list names them\n");
    return 2;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace

}  // namespace urdma::sim

int main(int argc, char** argv) {
  urdma::sim::Options options;
  bool wants_list = false;
  CLI::App app{"The deterministic simulator of urdma's transport."};
  app.add_option("--seed", options.seed, "the first seed")->capture_default_str();
  app.add_option("--count", options.count, "how many seeds, one after the other")->capture_default_str();
  app.add_option("--scenario", options.names, "what to run; without it, everything but throughput");
  app.add_option("--packets", options.packets, "how many packets (throughput)");
  app.add_option("--least-rate", options.least_rate, "fail below so many packets a second");
  app.add_option("--golden", options.golden, "compare the goodput table with this file");
  app.add_option("--write-golden", options.write_golden, "write the goodput table to this file");
  app.add_flag("--verbose", urdma::sim::trace_enabled, "print every packet and completion");
  app.add_flag("--list", wants_list, "name the scenarios");
  CLI11_PARSE(app, argc, argv);
  if (wants_list) {
    for (const auto& scenario : urdma::sim::all_scenarios())
      fmt::print("{:<24} {}\n", scenario.name, scenario.what);
    return 0;
  }
  return urdma::sim::run_all(options);
}
