// Socket addresses, read and written.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/rdma_cm/socket_address.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <array>
#include <cstring>

namespace urdma::control::rdma_cm {
namespace {

template <typename Kernel>
std::span<const std::byte> bytes_of(const Kernel& address) {
  return std::as_bytes(std::span(&address, 1));
}

TEST(SocketAddress, Read_Ipv4) {
  sockaddr_in given{};
  given.sin_family = AF_INET;
  given.sin_port = htons(4791);
  given.sin_addr.s_addr = htonl(0xC0000201);
  const auto address = read_address(bytes_of(given));
  ASSERT_TRUE(address.has_value());
  EXPECT_EQ(address->family, Family::kIpv4);
  EXPECT_EQ(address->port, 4791);
  EXPECT_EQ(address->gid, wire::gid_from_ipv4(0xC0000201));
  sockaddr_in again{};
  EXPECT_EQ(write_address(*address, std::as_writable_bytes(std::span(&again, 1))), sizeof(again));
  EXPECT_EQ(std::memcmp(&again, &given, sizeof(given)), 0);
}

TEST(SocketAddress, Read_Ipv6) {
  sockaddr_in6 given{};
  given.sin6_family = AF_INET6;
  given.sin6_port = htons(1);
  given.sin6_scope_id = 3;
  given.sin6_flowinfo = 5;
  ASSERT_EQ(::inet_pton(AF_INET6, "fe80::1", &given.sin6_addr), 1);
  const auto address = read_address(bytes_of(given));
  ASSERT_TRUE(address.has_value());
  EXPECT_EQ(address->scope, 3U);
  sockaddr_in6 again{};
  EXPECT_EQ(write_address(*address, std::as_writable_bytes(std::span(&again, 1))), sizeof(again));
  EXPECT_EQ(std::memcmp(&again, &given, sizeof(given)), 0);
}

TEST(SocketAddress, Read_InfiniBand) {
  std::array<std::uint8_t, 48> given{};
  given[0] = 27;
  given[8] = 0xFE;
  given[29] = 1;  // service ID 0x0000000001060000 | 0x1D3F
  given[28] = 0;
  given[30] = 0x1D;
  given[31] = 0x3F;
  given[29] = 0x06;
  given[28] = 0x01;
  std::fill(given.begin() + 32, given.begin() + 40, std::uint8_t{0xFF});
  const auto address = read_address(std::as_bytes(std::span(given)));
  ASSERT_TRUE(address.has_value());
  EXPECT_EQ(address->family, Family::kIb);
  EXPECT_EQ(address->service_id, 0x0000000001061D3FU);
  EXPECT_EQ(address->port, 0x1D3F);
  std::array<std::uint8_t, 48> again{};
  EXPECT_EQ(write_address(*address, std::as_writable_bytes(std::span(again))), 48U);
  EXPECT_EQ(again, given);
}

TEST(SocketAddress, Read_NotEnoughOrUnknown) {
  sockaddr_in given{};
  given.sin_family = AF_INET;
  EXPECT_FALSE(read_address(bytes_of(given).first(15)).has_value());
  EXPECT_FALSE(read_address(bytes_of(given).first(1)).has_value());
  given.sin_family = AF_UNIX;
  EXPECT_FALSE(read_address(bytes_of(given)).has_value());
  given.sin_family = AF_UNSPEC;
  EXPECT_EQ(read_address(bytes_of(given))->family, Family::kNone);
}

TEST(SocketAddress, Kinds) {
  EXPECT_TRUE(any_address(Family::kIpv4).is_any());
  EXPECT_TRUE(any_address(Family::kIpv6).is_any());
  EXPECT_TRUE(address_of(wire::gid_from_ipv4(0x7F000005), 0).is_loopback());
  wire::Gid one{};
  one[15] = 1;
  EXPECT_TRUE(address_of(one, 0).is_loopback());
  EXPECT_FALSE(address_of(one, 0).is_any());
  EXPECT_TRUE(address_of(wire::gid_from_ipv4(0xEF010203), 0).is_multicast());
  EXPECT_FALSE(address_of(wire::gid_from_ipv4(0xC0000201), 0).is_multicast());
}

}  // namespace
}  // namespace urdma::control::rdma_cm
