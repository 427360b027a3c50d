// One direction of the relay's wire: what happens to a RoCEv2 frame on its way, decided by a seeded
// generator. Does no I/O; frames leave through the function that each call is given. One thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <random>
#include <string>

#include "packet_socket.hpp"

namespace urdma::interop {

// Probabilities per frame.
struct Impairment {
  double loss = 0;
  double duplicate = 0;
  double corrupt = 0;
  double reorder = 0;
};

class Direction {
 public:
  using Send = std::function<void(const Packet&)>;
  // A frame that is reordered waits until up to so many others have overtaken it, or for so long.
  static constexpr unsigned kReorderDistance = 64;
  static constexpr std::chrono::milliseconds kHoldLimit{5};

  explicit Direction(unsigned seed) : random_(seed) {}

  void impair(const Impairment& impairment) { impairment_ = impairment; }
  void drop_next(std::uint8_t opcode, unsigned count) { drops_[opcode] = count; }
  void pass(Packet packet, const Send& send);
  void release_old(const Send& send);
  [[nodiscard]] bool holds() const { return !held_.empty(); }
  // "seen=N dropped=N duplicated=N corrupted=N reordered=N"
  [[nodiscard]] std::string stats() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Held {
    Packet packet;
    unsigned to_overtake;
    Clock::time_point since;
  };

  [[nodiscard]] bool happens(double probability) { return probability > 0 && chance_(random_) < probability; }
  [[nodiscard]] bool must_drop(const Packet& packet);
  void corrupt(Packet& packet);
  void forward(Packet packet, const Send& send);
  void count_overtaken(const Send& send);

  std::mt19937 random_;
  std::uniform_real_distribution<double> chance_{0, 1};
  Impairment impairment_;
  std::array<unsigned, 256> drops_{};
  std::list<Held> held_;
  std::uint64_t seen_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint64_t duplicated_ = 0;
  std::uint64_t corrupted_ = 0;
  std::uint64_t reordered_ = 0;
};

}  // namespace urdma::interop
