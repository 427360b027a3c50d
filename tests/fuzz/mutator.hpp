// Damages byte strings at random, from a seed: what every fuzz target of this directory starts from.
// The same seed gives the same strings on every machine (mt19937_64, and no distribution of the standard
// library, whose results differ between implementations). One thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace urdma::fuzz {

using Bytes = std::vector<std::uint8_t>;

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  // A number in [0, limit); 0 when limit is 0.
  std::size_t below(std::size_t limit) {
    return limit == 0 ? 0 : static_cast<std::size_t>(random_() % limit);
  }

  // One of `samples` with one to eight changes, of which some are large.
  Bytes damaged(const std::vector<Bytes>& samples) {
    Bytes bytes = samples[below(samples.size())];
    for (std::size_t changes = 1 + below(8); changes > 0; --changes) change(bytes, samples);
    return bytes;
  }

 private:
  static constexpr std::size_t kHotBytes = 96;  // headers stand in front: most changes go there
  static constexpr std::array<std::uint8_t, 8> kEdges = {0x00, 0x01, 0x03, 0x04, 0x7F, 0x80, 0xFE, 0xFF};

  std::size_t position(const Bytes& bytes) {
    return below(below(4) == 0 ? bytes.size() : std::min(bytes.size(), kHotBytes));
  }

  void change(Bytes& bytes, const std::vector<Bytes>& samples) {
    if (bytes.empty()) bytes.push_back(0);
    const std::size_t at = position(bytes);
    switch (below(16)) {
      case 0:
        bytes.resize(below(bytes.size() + 1));
        return;
      case 1:
        bytes.resize(bytes.size() + below(64), static_cast<std::uint8_t>(random_()));
        return;
      case 2:
        splice(bytes, samples[below(samples.size())]);
        return;
      case 3:
        bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at));
        return;
      case 4:
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), kEdges[below(kEdges.size())]);
        return;
      case 5:
      case 6:
        nudge_number(bytes, at);
        return;
      case 7:
      case 8:
        bytes[at] = static_cast<std::uint8_t>(random_());
        return;
      case 9:
      case 10:
        bytes[at] = kEdges[below(kEdges.size())];
        return;
      default:
        bytes[at] ^= static_cast<std::uint8_t>(1U << below(8));
        return;
    }
  }

  // The head of one string in front of the tail of another.
  void splice(Bytes& bytes, const Bytes& other) {
    const std::size_t from = position(other);
    bytes.resize(position(bytes));
    bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
  }

  // A big-endian 16-bit number, such as a length, becomes a little larger or smaller.
  void nudge_number(Bytes& bytes, std::size_t at) {
    if (at + 1 >= bytes.size()) return;
    const auto number = static_cast<std::size_t>(bytes[at] << 8 | bytes[at + 1]) + below(17) - 8;
    bytes[at] = static_cast<std::uint8_t>(number >> 8);
    bytes[at + 1] = static_cast<std::uint8_t>(number);
  }

  std::mt19937_64 random_;
};

}  // namespace urdma::fuzz
