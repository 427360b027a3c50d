// The invariant CRC of RoCEv2 (IBTA annex A17.3.3): CRC-32 of Ethernet over the packet with the
// fields that routers change replaced by ones. Pure: usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <span>

namespace urdma::wire {

// `packet` starts at the IPv4 or IPv6 header and ends before the ICRC; it holds at least IP, UDP
// and BTH. The result is stored little-endian behind the packet.
[[nodiscard]] std::uint32_t icrc(std::span<const std::uint8_t> packet);

}  // namespace urdma::wire
