// Big-endian integers of alignment 1, as they stand in a packet.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace urdma::wire {

template <typename Value, std::size_t kBytes>
class BigEndian {
 public:
  constexpr BigEndian() = default;
  constexpr BigEndian(Value value) { set(value); }  // NOLINT: a field is assigned its number

  [[nodiscard]] constexpr Value get() const { return gather(std::make_index_sequence<kBytes>()); }
  constexpr void set(Value value) { scatter(value, std::make_index_sequence<kBytes>()); }

 private:
  static constexpr unsigned shift_of(std::size_t index) {
    return static_cast<unsigned>(8 * (kBytes - 1 - index));
  }

  // Written out without a loop, so that the compiler sees one load or store and a byte swap.
  template <std::size_t... kIndex>
  [[nodiscard]] constexpr Value gather(std::index_sequence<kIndex...>) const {
    return static_cast<Value>(((std::uint64_t{bytes_[kIndex]} << shift_of(kIndex)) | ...));
  }

  template <std::size_t... kIndex>
  constexpr void scatter(std::uint64_t value, std::index_sequence<kIndex...>) {
    ((bytes_[kIndex] = static_cast<std::uint8_t>(value >> shift_of(kIndex))), ...);
  }

  std::array<std::uint8_t, kBytes> bytes_{};
};

using be16 = BigEndian<std::uint16_t, 2>;
using be24 = BigEndian<std::uint32_t, 3>;
using be32 = BigEndian<std::uint32_t, 4>;
using be64 = BigEndian<std::uint64_t, 8>;

static_assert(sizeof(be16) == 2 && alignof(be16) == 1);
static_assert(sizeof(be24) == 3 && alignof(be24) == 1);
static_assert(sizeof(be32) == 4 && alignof(be32) == 1);
static_assert(sizeof(be64) == 8 && alignof(be64) == 1);

// The bytes at `bytes` seen as a structure of the wire: it consists of bytes, so any address will do.
// The caller has checked that sizeof(Wire) bytes are there, and keeps them while it uses the result.
template <typename Wire>
const Wire& overlay(const std::uint8_t* bytes) {
  static_assert(alignof(Wire) == 1 && std::is_trivially_copyable_v<Wire>);
  return *reinterpret_cast<const Wire*>(bytes);
}

// The ICRC alone is little-endian on the wire.
class IcrcWire {
 public:
  constexpr IcrcWire() = default;
  constexpr explicit IcrcWire(std::uint32_t value) {
    for (std::uint8_t& byte : bytes_) {
      byte = static_cast<std::uint8_t>(value);
      value >>= 8;
    }
  }

  [[nodiscard]] constexpr std::uint32_t get() const {
    std::uint32_t value = 0;
    for (std::size_t i = bytes_.size(); i-- > 0;) value = (value << 8) | bytes_[i];
    return value;
  }

 private:
  std::array<std::uint8_t, 4> bytes_{};
};
static_assert(sizeof(IcrcWire) == 4 && alignof(IcrcWire) == 1);

}  // namespace urdma::wire
