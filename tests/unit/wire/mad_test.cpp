// Tests of include/urdma/wire/mad.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/mad.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace urdma::wire {
namespace {

constexpr std::uint64_t kTransaction = 0x0102030405060708;

MadBytes mad_of(const CmHeader& header) {
  MadBytes mad{};
  const MadWire wire = make_cm_header(header);
  std::memcpy(mad.data(), &wire, sizeof(wire));
  return mad;
}

TEST(MakeCmHeader, EveryFieldIsWhereTheSpecificationPutsIt) {
  const MadBytes mad = mad_of({CmAttribute::kSidrRep, kTransaction});
  const std::vector<std::uint8_t> expected = {1, 7, 2, 3, 0, 0,    0, 0, 1, 2, 3, 4,
                                              5, 6, 7, 8, 0, 0x18, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(std::vector<std::uint8_t>(mad.begin(), mad.begin() + kMadHeaderBytes), expected);
}

TEST(ParseCmHeader, GivesBackEachAttribute) {
  for (int attribute = 0x10; attribute <= 0x18; ++attribute) {
    const auto header = parse_cm_header(mad_of({static_cast<CmAttribute>(attribute), kTransaction}));
    ASSERT_TRUE(header);
    EXPECT_EQ(static_cast<int>(header->attribute), attribute);
    EXPECT_EQ(header->transaction_id, kTransaction);
  }
}

TEST(ParseCmHeader, WhatMeansNothingIsIgnored) {
  MadBytes mad = mad_of({CmAttribute::kReq, kTransaction});
  for (const std::size_t at : {4, 5, 6, 7, 18, 19, 20, 23}) mad[at] = 0xFF;
  EXPECT_TRUE(parse_cm_header(mad));
}

TEST(ParseCmHeader, OtherVersionsClassesAndMethodsAreRefused) {
  for (std::size_t at = 0; at < 4; ++at) {
    for (unsigned value = 0; value < 256; ++value) {
      MadBytes mad = mad_of({CmAttribute::kReq, kTransaction});
      const bool is_same = mad[at] == value;
      mad[at] = static_cast<std::uint8_t>(value);
      EXPECT_EQ(parse_cm_header(mad).has_value(), is_same) << at << " " << value;
    }
  }
}

TEST(ParseCmHeader, UnknownAttributesAreRefused) {
  for (const int attribute : {0, 1, 0x0F, 0x19, 0x1A, 0x1000, 0xFFFF}) {
    EXPECT_FALSE(parse_cm_header(mad_of({static_cast<CmAttribute>(attribute), 0}))) << attribute;
  }
}

TEST(ParseCmHeader, OtherSizesAreRefused) {
  const MadBytes mad = mad_of({CmAttribute::kReq, 0});
  std::vector<std::uint8_t> bytes(mad.begin(), mad.end());
  for (std::size_t size = 0; size < kMadBytes; ++size) {
    const std::vector<std::uint8_t> prefix(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(parse_cm_header(prefix)) << size;
  }
  bytes.push_back(0);
  EXPECT_FALSE(parse_cm_header(bytes));
}

}  // namespace
}  // namespace urdma::wire
