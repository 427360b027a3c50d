// Tests of include/urdma/wire/be.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/be.hpp"

#include <gtest/gtest.h>

#include <bit>

namespace urdma::wire {
namespace {

template <typename Field>
std::vector<std::uint8_t> bytes_of(const Field& field) {
  const auto bytes = std::bit_cast<std::array<std::uint8_t, sizeof(Field)>>(field);
  return {bytes.begin(), bytes.end()};
}

using Bytes = std::vector<std::uint8_t>;

TEST(BigEndian, Set_MostSignificantByteFirst) {
  EXPECT_EQ(bytes_of(be16(0x0102)), (Bytes{1, 2}));
  EXPECT_EQ(bytes_of(be24(0x010203)), (Bytes{1, 2, 3}));
  EXPECT_EQ(bytes_of(be32(0x01020304)), (Bytes{1, 2, 3, 4}));
  EXPECT_EQ(bytes_of(be64(0x0102030405060708)), (Bytes{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(BigEndian, Set_ReplacesEveryByte) {
  be32 field(0xFFFFFFFF);
  field.set(0);
  EXPECT_EQ(bytes_of(field), (Bytes{0, 0, 0, 0}));
}

TEST(BigEndian, Set_24BitsDropTheHighByte) {
  be24 field(0xAB010203);
  EXPECT_EQ(field.get(), 0x010203U);
}

TEST(BigEndian, Get_IsWhatWasSet) {
  for (unsigned bit = 0; bit < 64; ++bit) {
    const std::uint64_t value = 1ULL << bit;
    EXPECT_EQ(be64(value).get(), value);
    EXPECT_EQ(be32(static_cast<std::uint32_t>(value)).get(), static_cast<std::uint32_t>(value));
    EXPECT_EQ(be16(static_cast<std::uint16_t>(value)).get(), static_cast<std::uint16_t>(value));
  }
  EXPECT_EQ(be64(0xFFFFFFFFFFFFFFFF).get(), 0xFFFFFFFFFFFFFFFFU);
}

TEST(BigEndian, WorksAtCompileTime) {
  constexpr be24 kField(0x123456);
  static_assert(kField.get() == 0x123456);
}

TEST(IcrcWire, IsLittleEndian) {
  const IcrcWire field(0x01020304);
  EXPECT_EQ(bytes_of(field), (Bytes{4, 3, 2, 1}));
  EXPECT_EQ(field.get(), 0x01020304U);
}

TEST(Overlay, ReadsAtAnyAddress) {
  const Bytes bytes{9, 0, 1, 0, 0, 0, 2};
  EXPECT_EQ(overlay<be32>(bytes.data() + 3).get(), 2U);
  EXPECT_EQ(overlay<be16>(bytes.data() + 1).get(), 1U);
}

}  // namespace
}  // namespace urdma::wire
