// The table of goodput over loss, window and message size: fixed seeds, one fixed link, exact numbers. It is
// a picture of how the transport behaves; a change of it has to be meant. See scenario.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fmt/format.h>

#include <array>
#include <memory>
#include <string>

#include "tests/sim/bench.hpp"

namespace urdma::sim {

namespace {

// In the order in which Workload draws opcodes.
struct Operation {
  const char* name;
  std::array<std::uint32_t, 8> weights;
};
constexpr std::array<Operation, 3> kOperations = {{{"WRITE", {1, 0, 0, 0, 0, 0, 0, 0}},
                                                   {"SEND", {0, 0, 1, 0, 0, 0, 0, 0}},
                                                   {"READ", {0, 0, 0, 0, 1, 0, 0, 0}}}};
constexpr std::array<std::uint32_t, 4> kLossPpm = {0, 1'000, 10'000, 50'000};
constexpr std::array<std::uint32_t, 4> kWindowRequests = {1, 4, 16, 64};
constexpr std::array<std::uint64_t, 3> kMessageBytes = {1024, 16'384, 131'072};
constexpr std::uint64_t kBytesPerCell = 4U << 20;
constexpr std::uint32_t kLeastRequests = 64;
constexpr std::uint64_t kSeed = 20'000;
constexpr std::uint64_t kTenGigabit = 1250;  // bytes a microsecond

// Mbit/s of messages of `bytes`, `window` of them at a time, over 10 Gbit/s and 20 us there and back.
std::uint64_t goodput(const Operation& operation, std::uint32_t loss_ppm, std::uint32_t window,
                      std::uint64_t bytes) {
  LinkConfig link;
  link.loss_ppm = loss_ppm;
  link.delay = microseconds(10);
  link.bytes_per_us = kTenGigabit;
  World world(kSeed, link);
  Random settings(kSeed);  // of its own, so that a setting more or less changes nothing on the link
  EndpointConfig config = ordinary_endpoint(settings);
  config.qp.send_slots = window;
  config.qp.signal_all = true;
  config.attributes.path_mtu_code = 3;
  config.attributes.packet_bytes = mtu_bytes(3);
  config.attributes.timeout = 7;
  config.attributes.max_rd_atomic = config.attributes.max_dest_rd_atomic = 16;
  config.ring_bytes = (bytes + 256) * (window + 1);
  const Connection connection = world.connect(config, config);
  WorkloadConfig load;
  const std::uint32_t requests = std::max(kLeastRequests, static_cast<std::uint32_t>(kBytesPerCell / bytes));
  load.requests = requests;
  load.largest_message = load.fixed_length = bytes;
  load.weights = operation.weights;
  load.most_pieces = 1;
  load.fence_ppm = load.follow_ppm = 0;
  load.longest_pause = nanoseconds(0);
  load.receives_ahead = 0;
  world.add_actor(std::make_unique<Workload>(world, *connection.a, load));
  load.requests = 0;
  load.receives_ahead = window;
  world.add_actor(std::make_unique<Workload>(world, *connection.b, load));
  const Instant start = world.now();
  world.run_until([&] { return connection.a->ledger().sends_succeeded() == requests; }, kLongRun);
  const std::int64_t elapsed_ns = (world.now() - start).ns;
  constexpr std::uint64_t kBitsPerMbitNs = 8'000;
  return connection.a->ledger().bytes_completed() * kBitsPerMbitNs / static_cast<std::uint64_t>(elapsed_ns);
}

}  // namespace

std::string goodput_table() {
  std::string table =
      "# Goodput in Mbit/s: path MTU 1024, 10 Gbit/s, 20 us there and back, timeout code 7; window in "
      "requests.\n"
      "# Written by: sim --write-golden FILE\n"
      "#      bytes  window    loss 0 %  loss 0.1 %    loss 1 %    loss 5 %\n";
  for (const Operation& operation : kOperations) {
    for (const std::uint64_t bytes : kMessageBytes) {
      for (const std::uint32_t window : kWindowRequests) {
        table += fmt::format("{:<5} {:>6} {:>7}", operation.name, bytes, window);
        for (const std::uint32_t loss : kLossPpm)
          table += fmt::format(" {:>11}", goodput(operation, loss, window, bytes));
        table += '\n';
      }
    }
  }
  return table;
}

}  // namespace urdma::sim
