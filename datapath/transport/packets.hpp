// How messages lie in packets.
// Pure: usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

#include "urdma/wire/headers.hpp"

namespace urdma::transport {

// What an atomic, and an ATOMIC WRITE, works on; its address is a multiple of it (IBTA 9.4.5).
inline constexpr std::uint32_t kAtomicBytes = 8;

// How many packets a message of `length` bytes takes; one without bytes takes one.
constexpr std::uint32_t packets_of(std::uint64_t length, std::uint32_t packet_bytes) {
  if (length == 0) return 1;
  return static_cast<std::uint32_t>((length + packet_bytes - 1) / packet_bytes);
}

// Whether a request packet takes a receive request: the first one of a SEND, the last one of a WRITE with
// immediate.
inline bool uses_receive(const wire::Headers& headers) {
  const wire::OpcodeInfo& info = headers.info();
  return info.op_class == wire::OpClass::kSend ? info.is_first : info.has_immediate;
}

}  // namespace urdma::transport
