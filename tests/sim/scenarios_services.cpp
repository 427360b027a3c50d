// Scenarios of the other transport services, and of shared receive queues. See lab.hpp and scenario.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/lab.hpp"
#include "tests/sim/scenario.hpp"

namespace urdma::sim {

namespace {

LinkConfig random_link(Random& random, std::uint32_t most_ppm, bool may_reorder) {
  LinkConfig link;
  link.loss_ppm = random.one_in(3) ? 0 : random.between32(1, most_ppm);
  link.corrupt_ppm = random.one_in(2) ? 0 : random.between32(1, most_ppm);
  if (may_reorder) {
    link.duplicate_ppm = random.between32(0, most_ppm);
    link.reorder_ppm = random.between32(0, most_ppm);
    link.reorder_packets = random.between32(1, 16);
  }
  link.delay = nanoseconds(random.between32(200, 20'000));
  link.bytes_per_us = random.pick<std::uint64_t>({125, 1250, 12500});
  return link;
}

void run_lab(Run& run, LabConfig config, std::uint32_t most_ppm, bool may_reorder) {
  Random draw(run.seed);
  config.link = random_link(draw, most_ppm, may_reorder);
  config.pairs = draw.between32(1, 4);
  config.messages = draw.between32(10, 60);
  Lab lab(run.seed, config);
  lab.run();
  run.packets = lab.packets();
}

constexpr std::uint32_t kBadPpm = 200'000;
constexpr std::uint32_t kRepairablePpm = 20'000;

LabConfig lab_of(QpType type, bool has_srq = false) {
  LabConfig config;
  config.type = type;
  config.has_srq = has_srq;
  return config;
}

void run_uc(Run& run) { run_lab(run, lab_of(QpType::kUc, run.seed % 4 == 0), kBadPpm, false); }
void run_uc_disorder(Run& run) { run_lab(run, lab_of(QpType::kUc), kBadPpm, true); }
void run_ud(Run& run) { run_lab(run, lab_of(QpType::kUd, run.seed % 4 == 0), kBadPpm, false); }
void run_ud_disorder(Run& run) { run_lab(run, lab_of(QpType::kUd), kBadPpm, true); }
void run_srq(Run& run) { run_lab(run, lab_of(QpType::kRc, true), kRepairablePpm, true); }
void run_windows(Run& run) { run_lab(run, lab_of(QpType::kRc), kRepairablePpm, true); }
void run_xrc(Run& run) { run_lab(run, lab_of(QpType::kXrcSend), kRepairablePpm, true); }

void run_srq_error(Run& run) {
  constexpr QpType kTypes[] = {QpType::kRc, QpType::kUc, QpType::kUd};
  LabConfig config = lab_of(kTypes[run.seed % 3], true);
  config.has_error_midway = true;
  run_lab(run, config, kRepairablePpm, false);
}

constexpr Scenario kScenarios[] = {
    {"uc", "UC under loss: messages whole, in order, at most once", run_uc},
    {"uc_disorder", "UC with doubled and disordered packets too: messages whole", run_uc_disorder},
    {"ud", "UD under loss: at most once, the right Q_Key only", run_ud},
    {"ud_disorder", "UD with doubled and disordered packets too: messages whole", run_ud_disorder},
    {"srq", "RC with shared receive queues: everything once, no receive lost", run_srq},
    {"srq_error", "a QP with a shared receive queue fails, and the others go on", run_srq_error},
    {"windows", "invalidations, local requests and ATOMIC WRITEs: each once, in order", run_windows},
    {"xrc", "XRC: everything once, into the SRQ that is named", run_xrc},
};

}  // namespace

std::span<const Scenario> service_scenarios() { return kScenarios; }

}  // namespace urdma::sim
