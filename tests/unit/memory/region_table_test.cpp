// The judgement of access: bounds and overflow, flags, protection domains; the table by key.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/region_table.hpp"

#include <gtest/gtest.h>

#include "urdma/base/verbs.hpp"

namespace urdma::memory {
namespace {

constexpr PdId kPd{7};

Region region_at(std::uint64_t iova, std::uint64_t address, std::uint64_t length) {
  Region region;
  region.key = MemoryKey{0x1234};
  region.pd = kPd;
  region.access = kAccessLocalWrite | kAccessRemoteRead;
  region.iova = iova;
  region.address = address;
  region.length = length;
  return region;
}

bool allows(const Region& region, std::uint64_t address, std::uint64_t bytes) {
  std::uint64_t unused = 0;
  return translate(region, kPd, kAccessRemoteRead, address, bytes, unused);
}

TEST(Translate, Bounds) {
  const Region region = region_at(0x10000, 0x70000, 0x1000);
  std::uint64_t address = 0;
  ASSERT_TRUE(translate(region, kPd, 0, 0x10010, 16, address));
  EXPECT_EQ(address, 0x70010U);
  EXPECT_TRUE(allows(region, 0x10000, 0x1000));
  EXPECT_TRUE(allows(region, 0x10FFF, 1));
  EXPECT_FALSE(allows(region, 0xFFFF, 1));
  EXPECT_FALSE(allows(region, 0xFFFF, 2));
  EXPECT_FALSE(allows(region, 0x11000, 1));
  EXPECT_FALSE(allows(region, 0x10FFF, 2));
  EXPECT_FALSE(allows(region, 0x10000, 0x1001));
}

TEST(Translate, Overflow) {
  const Region region = region_at(0x10000, 0x70000, 0x1000);
  EXPECT_FALSE(allows(region, 0x10800, UINT64_MAX));
  EXPECT_FALSE(allows(region, 0x10800, UINT64_MAX - 0x7FF));
  EXPECT_FALSE(allows(region, UINT64_MAX, 1));
  EXPECT_FALSE(allows(region, UINT64_MAX, UINT64_MAX));
  EXPECT_FALSE(allows(region, 0, UINT64_MAX));
}

// A region that ends with the last byte of the address space.
TEST(Translate, EndOfTheAddressSpace) {
  const Region region = region_at(UINT64_MAX - 0xFFF, 0x70000, 0x1000);
  EXPECT_TRUE(allows(region, UINT64_MAX, 1));
  EXPECT_FALSE(allows(region, UINT64_MAX, 2));
  EXPECT_TRUE(allows(region, UINT64_MAX - 0xFFF, 0x1000));
  EXPECT_FALSE(allows(region, 0, 1)) << "it does not go on at 0";
}

TEST(Translate, ZeroBased) {
  const Region region = region_at(0, 0x70000, 0x1000);
  std::uint64_t address = 0;
  ASSERT_TRUE(translate(region, kPd, 0, 0, 1, address));
  EXPECT_EQ(address, 0x70000U);
  EXPECT_FALSE(allows(region, 0x70000, 1)) << "the program's own address means nothing";
}

TEST(Translate, AccessFlags) {
  const Region region = region_at(0, 0, 0x1000);
  std::uint64_t address = 0;
  EXPECT_TRUE(translate(region, kPd, 0, 0, 1, address));
  EXPECT_TRUE(translate(region, kPd, kAccessLocalWrite | kAccessRemoteRead, 0, 1, address));
  EXPECT_FALSE(translate(region, kPd, kAccessRemoteWrite, 0, 1, address));
  EXPECT_FALSE(translate(region, kPd, kAccessRemoteRead | kAccessRemoteWrite, 0, 1, address))
      << "all of them are needed";
  EXPECT_FALSE(translate(region, kPd, kAccessRemoteAtomic, 0, 1, address));
}

TEST(Translate, OtherProtectionDomain) {
  const Region region = region_at(0, 0, 0x1000);
  std::uint64_t address = 0;
  EXPECT_FALSE(translate(region, PdId{8}, 0, 0, 1, address));
  EXPECT_FALSE(translate(region, PdId{}, 0, 0, 1, address));
}

TEST(RegionTable, Insert_KeysAreUnique) {
  RegionTable table(2);
  Region first = region_at(0, 0, 1);
  Region same_key = first;
  Region second = first;
  second.key = MemoryKey{0x1334};
  Region third = first;
  third.key = MemoryKey{0};
  EXPECT_TRUE(table.insert(first));
  EXPECT_FALSE(table.insert(same_key));
  same_key.key = MemoryKey{0x1235};
  EXPECT_FALSE(table.insert(same_key)) << "the lowest bits do not tell keys apart";
  EXPECT_TRUE(table.insert(second));
  EXPECT_FALSE(table.insert(third)) << "it is full";
  EXPECT_EQ(table.find(MemoryKey{0x1234}), &first);
  EXPECT_EQ(table.find(MemoryKey{0x1235}), nullptr);
  EXPECT_EQ(table.find_index(MemoryKey{0x1235}), &first);
  EXPECT_EQ(table.find(MemoryKey{0}), nullptr);
  table.erase(first.key);
  EXPECT_EQ(table.find(MemoryKey{0x1234}), nullptr);
  EXPECT_EQ(table.find(MemoryKey{0x1334}), &second);
  EXPECT_TRUE(table.insert(third));
  EXPECT_EQ(table.find(MemoryKey{0}), &third) << "0 is a key like others";
  EXPECT_EQ(table.size(), 2U);
}

}  // namespace
}  // namespace urdma::memory
