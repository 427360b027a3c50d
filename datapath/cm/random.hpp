// Numbers that nobody can work out from others of them: SipHash-2-4 (Aumasson, Bernstein 2012) of a counter,
// under a key that the caller keeps secret. IDs and transaction IDs go out on the wire; they say nothing of
// the next ones, nor of the keys of the tables (table.hpp). One thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

namespace urdma::cm {

using Key = std::array<std::uint64_t, 2>;

// Of whole words, little endian.
constexpr std::uint64_t siphash(const Key& key, std::span<const std::uint64_t> words) {
  std::uint64_t v0 = key[0] ^ 0x736F6D6570736575ULL;
  std::uint64_t v1 = key[1] ^ 0x646F72616E646F6DULL;
  std::uint64_t v2 = key[0] ^ 0x6C7967656E657261ULL;
  std::uint64_t v3 = key[1] ^ 0x7465646279746573ULL;
  const auto mix = [&](int rounds) {
    for (; rounds > 0; --rounds) {
      v0 += v1;
      v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32) + v3;
      v2 += v1;
      v3 = std::rotl(v3, 21) ^ v0;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  };
  const auto take = [&](std::uint64_t word) {
    v3 ^= word;
    mix(2);
    v0 ^= word;
  };
  for (const std::uint64_t word : words) take(word);
  take(std::uint64_t{words.size() * sizeof(std::uint64_t)} << 56);
  v2 ^= 0xFF;
  mix(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

class Random {
 public:
  explicit Random(const Key& key) : key_(key) {}

  std::uint64_t next() {
    const std::uint64_t count = ++count_;
    return siphash(key_, std::span(&count, 1));
  }
  // For whoever needs a secret of its own.
  Key next_key() {
    const std::uint64_t first = next();
    return {first, next()};
  }

 private:
  Key key_;
  std::uint64_t count_ = 0;
};

}  // namespace urdma::cm
