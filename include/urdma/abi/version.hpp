// The version of the contract between the daemon and its clients. A client and a daemon of
// different versions refuse each other in words. Any change of a structure in abi/ raises it.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>

namespace urdma::abi {

inline constexpr std::uint32_t kMagic = 0x616D6475;  // "udma"
inline constexpr std::uint32_t kVersion = 2;

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::uint32_t kMaxEngines = 8;

}  // namespace urdma::abi
