// Tests of datapath/cm/random.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/cm/random.hpp"

#include <gtest/gtest.h>

#include <set>

namespace urdma::cm {
namespace {

// Of the table of the authors: the key is the bytes 0 to 15, the message as many bytes from 0 on.
TEST(RandomTest, Siphash_IsThatOfItsAuthors) {
  constexpr Key kKey = {0x0706050403020100, 0x0F0E0D0C0B0A0908};
  constexpr std::uint64_t kWords[] = {0x0706050403020100, 0x0F0E0D0C0B0A0908};
  EXPECT_EQ(siphash(kKey, {}), 0x726FDB47DD0E0E31U);
  EXPECT_EQ(siphash(kKey, std::span(kWords).first(1)), 0x93F5F5799A932462U);
  EXPECT_EQ(siphash(kKey, kWords), 0x3F2ACC7F57C29BDBU);
}

TEST(RandomTest, Next_DependsOnBothHalvesOfTheKey) {
  std::set<std::uint64_t> seen;
  for (const Key& key : {Key{1, 2}, Key{1, 3}, Key{2, 2}}) {
    Random random(key);
    for (int i = 0; i < 100; ++i) seen.insert(random.next());
  }
  EXPECT_EQ(seen.size(), 300U);
}

TEST(RandomTest, Next_IsTheSameOfTheSameKey) {
  Random one({1, 2});
  Random other({1, 2});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(one.next(), other.next());
}

}  // namespace
}  // namespace urdma::cm
