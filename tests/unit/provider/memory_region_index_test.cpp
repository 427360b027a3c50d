// Regions of a context by key, and where a range of one is.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/memory/region_index.hpp"

#include <gtest/gtest.h>

namespace urdma::provider {
namespace {

TEST(IndexedRegion, AddressOf_Bounds) {
  const IndexedRegion region{1, 0x1000, 0x70000, 0x100, true};
  EXPECT_EQ(region.address_of(0x1000, 0x100), 0x70000U);
  EXPECT_EQ(region.address_of(0x10FF, 1), 0x700FFU);
  EXPECT_FALSE(region.address_of(0xFFF, 1));
  EXPECT_FALSE(region.address_of(0x10FF, 2));
  EXPECT_FALSE(region.address_of(0x1000, 0x101));
  EXPECT_FALSE(region.address_of(UINT64_MAX, 1));
}

TEST(IndexedRegion, AddressOf_AllMemory) {
  const IndexedRegion region{1, 0, 0, UINT64_MAX, true};
  EXPECT_EQ(region.address_of(0x7FFF12345678, 4096), 0x7FFF12345678U);
  EXPECT_FALSE(region.address_of(UINT64_MAX, 1));
}

TEST(RegionIndex, Find_WhatWasSetLast) {
  RegionIndex index;
  EXPECT_FALSE(index.find(7));
  index.set(7, {1, 0, 0x1000, 1, false});
  index.set(7, {1, 0, 0x2000, 1, true});
  ASSERT_TRUE(index.find(7));
  EXPECT_EQ(index.find(7)->address, 0x2000U);
  index.erase(7);
  EXPECT_FALSE(index.find(7));
}

}  // namespace
}  // namespace urdma::provider
