// Distinct types for the numbers of the protocol, so that none is taken for another.
// Values only: no ownership, usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <compare>
#include <cstdint>

namespace urdma {

// A queue pair number: 24 bits (IBTA 1, 3.5.1). 0 and 1 are the special QPs.
struct Qpn {
  std::uint32_t value = 0;
  friend constexpr auto operator<=>(Qpn, Qpn) = default;
};

inline constexpr std::uint32_t kQpnMask = 0xFFFFFF;
// The general services interface: management datagrams (IBTA 1, 3.9.1).
inline constexpr Qpn kManagementQpn{1};
// The destination of multicast datagrams.
inline constexpr Qpn kMulticastQpn{0xFFFFFF};

// A key of a memory region. The local and the remote key of a region have the same value, which is
// drawn at random by the daemon, and is valid in one protection domain.
struct MemoryKey {
  std::uint32_t value = 0;
  friend constexpr auto operator<=>(MemoryKey, MemoryKey) = default;
};

// A protection domain of the node; unique while the daemon lives. 0 is none.
struct PdId {
  std::uint32_t value = 0;
  friend constexpr auto operator<=>(PdId, PdId) = default;
};

// A packet sequence number: 24 bits, modular (IBTA 1, 9.7.2). All of its arithmetic is here.
class Psn {
 public:
  static constexpr std::uint32_t kMask = 0xFFFFFF;

  constexpr Psn() = default;
  constexpr explicit Psn(std::uint32_t value) : value_(value & kMask) {}

  [[nodiscard]] constexpr std::uint32_t value() const { return value_; }
  [[nodiscard]] constexpr Psn next() const { return Psn(value_ + 1); }
  [[nodiscard]] constexpr Psn previous() const { return Psn(value_ - 1); }
  [[nodiscard]] constexpr Psn plus(std::uint32_t packets) const { return Psn(value_ + packets); }
  [[nodiscard]] constexpr Psn minus(std::uint32_t packets) const { return Psn(value_ - packets); }

  // How far this number is ahead of `other`: in [-2^23, 2^23).
  [[nodiscard]] constexpr std::int32_t distance_from(Psn other) const {
    const std::uint32_t difference = (value_ - other.value_) & kMask;
    return static_cast<std::int32_t>(difference ^ kSign) - static_cast<std::int32_t>(kSign);
  }
  [[nodiscard]] constexpr bool is_before(Psn other) const { return distance_from(other) < 0; }
  [[nodiscard]] constexpr bool is_after(Psn other) const { return distance_from(other) > 0; }

  friend constexpr bool operator==(Psn, Psn) = default;

 private:
  static constexpr std::uint32_t kSign = 1U << 23;
  std::uint32_t value_ = 0;
};

}  // namespace urdma
