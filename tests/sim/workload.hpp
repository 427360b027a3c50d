// A random application at one endpoint: it posts a mix of requests in bursts, and receives for what the peer
// sends, early or late. The mix, the sizes and the times come from the world's seed.
//
// Owner: a World, as an Actor.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstdint>

#include "tests/sim/world.hpp"

namespace urdma::sim {

struct WorkloadConfig {
  std::uint32_t requests = 100;
  std::uint64_t largest_message = 4096;
  std::uint32_t most_pieces = 4;
  std::uint32_t inline_bytes = 64;
  // Relative frequency of each opcode, in WrOpcode's order; kSendWithInv comes last.
  std::array<std::uint32_t, 8> weights = {4, 2, 4, 2, 3, 1, 1, 1};
  std::uint32_t signaled_ppm = 400'000;
  std::uint32_t fence_ppm = 50'000;
  std::uint32_t follow_ppm = 200'000;
  std::uint32_t most_burst = 16;
  Duration longest_pause = microseconds(20);  // between bursts
  std::uint32_t receives_ahead = 16;
  std::uint32_t receive_late_ppm = 0;  // share of receives before which there is a pause
  Duration longest_receive_pause = microseconds(200);
  std::uint64_t fixed_length = 0;  // not 0: every message has it
};

class Workload final : public Actor {
 public:
  Workload(World& world, Endpoint& endpoint, const WorkloadConfig& config);

  void act(Instant now) override;
  [[nodiscard]] Instant next_wakeup() const override;
  // Everything is posted and has completed, or the QP has failed.
  [[nodiscard]] bool is_done() const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::uint32_t posted() const { return posted_; }

 private:
  void post_receives(Instant now);
  void post_sends(Instant now);
  [[nodiscard]] SendSpec draw();
  [[nodiscard]] std::uint64_t draw_length();
  [[nodiscard]] WrOpcode draw_opcode();
  void mark_signaled(SendSpec& spec);

  Random& random_;
  Endpoint& endpoint_;
  WorkloadConfig config_;
  std::uint32_t posted_ = 0;
  std::uint32_t burst_left_ = 0;
  std::uint32_t unsignaled_run_ = 0;
  std::uint64_t unsignaled_bytes_ = 0;
  bool has_spec_ = false;  // drawn, and there was no room for it
  SendSpec spec_;
  Instant next_burst_;
  Instant next_receive_;
  bool is_waiting_for_receive_room_ = false;
};

}  // namespace urdma::sim
