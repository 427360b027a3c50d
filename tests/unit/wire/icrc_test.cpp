// Tests of include/urdma/wire/icrc.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/icrc.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace urdma::wire {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kIpv4Head = 20 + 8 + 12;
constexpr std::size_t kIpv6Head = 40 + 8 + 12;

Bytes random_packet(std::uint8_t version_byte, std::size_t size, std::mt19937& random) {
  Bytes packet(size);
  for (std::uint8_t& byte : packet) byte = static_cast<std::uint8_t>(random());
  packet[0] = version_byte;
  return packet;
}

// The definition, bit by bit, on a masked copy of the whole packet.
std::uint32_t icrc_by_definition(Bytes packet) {
  const bool is_ipv6 = packet[0] >> 4 == 6;
  const std::size_t udp = is_ipv6 ? 40 : 20;
  if (is_ipv6) packet[0] |= 0x0F;
  const std::set<std::size_t> in_ip =
      is_ipv6 ? std::set<std::size_t>{1, 2, 3, 7} : std::set<std::size_t>{1, 8, 10, 11};
  for (const std::size_t byte : in_ip) packet[byte] = 0xFF;
  for (const std::size_t byte : {udp + 6, udp + 7, udp + 8 + 4}) packet[byte] = 0xFF;
  packet.insert(packet.begin(), 8, 0xFF);
  std::uint32_t crc = 0xFFFFFFFF;
  for (const std::uint8_t byte : packet) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

TEST(Icrc, EqualsTheDefinitionAtEverySize) {
  std::mt19937 random(1);
  for (std::size_t excess = 0; excess < 600; ++excess) {
    const Bytes ipv4 = random_packet(0x45, kIpv4Head + excess, random);
    const Bytes ipv6 = random_packet(0x6A, kIpv6Head + excess, random);
    ASSERT_EQ(icrc(ipv4), icrc_by_definition(ipv4)) << excess;
    ASSERT_EQ(icrc(ipv6), icrc_by_definition(ipv6)) << excess;
  }
}

TEST(Icrc, EqualsTheDefinitionForLargePackets) {
  std::mt19937 random(2);
  for (const std::size_t size : {1024U, 1500U, 4096U + 60U, 9000U}) {
    const Bytes packet = random_packet(0x45, size, random);
    EXPECT_EQ(icrc(packet), icrc_by_definition(packet)) << size;
  }
}

TEST(Icrc, DoesNotDependOnAlignment) {
  std::mt19937 random(3);
  const Bytes packet = random_packet(0x45, 700, random);
  for (std::size_t shift = 0; shift < 64; ++shift) {
    Bytes shifted(shift, 0);
    shifted.insert(shifted.end(), packet.begin(), packet.end());
    EXPECT_EQ(icrc(std::span(shifted).subspan(shift)), icrc(packet));
  }
}

TEST(IcrcDeathTest, PacketWithoutBthIsOurFault) {
  const Bytes packet(kIpv4Head - 1, 0x45);
  EXPECT_DEATH((void)icrc(packet), "internal fault");
}

}  // namespace
}  // namespace urdma::wire
