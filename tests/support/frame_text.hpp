// Frames and addresses as tests write them.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "urdma/wire/frame.hpp"

namespace urdma::wire {

inline std::vector<std::uint8_t> bytes_of(const std::string& hex) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

inline Gid gid(const char* text) {
  Gid result{};
  in_addr ipv4{};
  if (inet_pton(AF_INET, text, &ipv4) == 1) return gid_from_ipv4(ntohl(ipv4.s_addr));
  EXPECT_EQ(inet_pton(AF_INET6, text, result.data()), 1) << text;
  return result;
}

}  // namespace urdma::wire
