// The flat table against a std::map, with keys that collide.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/base/flat_table.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "tests/unit/memory/fixture.hpp"

namespace urdma {
namespace {

// Keys for which the table's hash, (key * 2654435769 >> 7) & mask, is the same or neighbouring: the
// multiplication is undone by the inverse of the factor modulo 2^32.
std::uint32_t colliding_key(std::uint32_t i) {
  constexpr std::uint32_t kInverse = 340573321U;
  static_assert(kInverse * 2654435769U == 1);
  return (i % 5) * 128 * kInverse + (i / 5) * (kInverse << 24);
}

void compare_with_map(std::uint32_t capacity, std::uint32_t (*key_of)(std::uint32_t), std::uint32_t keys) {
  FlatTable<int> table(capacity);
  std::map<std::uint32_t, int*> model;
  std::vector<int> values(16);
  std::mt19937 random(capacity);
  const int steps = memory::stress_rounds(50'000);
  for (int step = 0; step < steps; ++step) {
    const std::uint32_t key = key_of(random() % keys);
    int& value = values[random() % values.size()];
    if (random() % 2 == 0) {
      const bool fits = model.size() < capacity && !model.contains(key);
      ASSERT_EQ(table.insert(key, value), fits) << "step " << step;
      if (fits) model[key] = &value;
    } else {
      table.erase(key);
      model.erase(key);
    }
    ASSERT_EQ(table.size(), model.size());
    const std::uint32_t asked = key_of(random() % keys);
    ASSERT_EQ(table.find(asked), model.contains(asked) ? model[asked] : nullptr) << "step " << step;
  }
  for (std::uint32_t i = 0; i < keys; ++i) {
    const std::uint32_t key = key_of(i);
    ASSERT_EQ(table.find(key), model.contains(key) ? model[key] : nullptr);
  }
}

TEST(FlatTable, RandomOperations_DenseKeys) {
  compare_with_map(
      100, [](std::uint32_t i) { return i; }, 150);
}

TEST(FlatTable, RandomOperations_CollidingKeys) { compare_with_map(60, colliding_key, 90); }

TEST(FlatTable, RandomOperations_TinyTable) {
  compare_with_map(
      1, [](std::uint32_t i) { return i * 0x10000001; }, 4);
}

TEST(FlatTable, Find_EmptyTable) {
  const FlatTable<int> table(0);
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.find(0xFFFFFFFF), nullptr);
}

TEST(FlatTable, Insert_NoCapacity) {
  FlatTable<int> table(0);
  int value = 0;
  EXPECT_FALSE(table.insert(1, value));
}

}  // namespace
}  // namespace urdma
