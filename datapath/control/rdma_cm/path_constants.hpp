// What is the same of every path of RoCE, and of every datagram service. Values only; any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

namespace urdma::control::rdma_cm {

inline constexpr std::uint8_t kPort = 1;
inline constexpr std::uint16_t kDefaultPkey = 0xFFFF;
inline constexpr std::uint8_t kHopLimit = 64;
inline constexpr std::uint8_t kPacketLifeTime = 16;  // code: 268 ms, as Linux has it for RoCE
inline constexpr std::uint8_t kAckTimeout = kPacketLifeTime + 1;
inline constexpr std::uint32_t kUdpQkey = 0x01234567;  // of whoever names no other

}  // namespace urdma::control::rdma_cm
