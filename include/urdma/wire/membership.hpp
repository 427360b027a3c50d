// Membership in IP multicast groups, for ports without a kernel behind them: a router's questions, and what
// a host reports (IGMP: RFC 2236, 3376; MLD: RFC 2710, 3810), in one vocabulary. A membership takes the
// group's packets from every source.
// Pure: usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "urdma/wire/frame.hpp"

namespace urdma::wire {

// Room for any frame that write_membership_report makes.
inline constexpr std::size_t kMaxMembershipBytes = 96;

struct MembershipQuery {
  Gid group{};                        // the unspecified address of its family: every group
  bool is_legacy = false;             // IGMPv2 or MLDv1: its sender understands no newer reports
  std::uint32_t max_response_ms = 0;  // reports are to come within that time, spread at random
};

struct MembershipReport {
  enum class Kind : std::uint8_t {
    kMember,  // the answer to a query
    kJoined,
    kLeft,
  };

  Kind kind = Kind::kMember;
  bool is_legacy = false;  // in IGMPv2 or MLDv1
  Gid group{};
  // An address of the port, for MLD a link-local one; the unspecified address where there is none (RFC 3376,
  // 4.2.13; RFC 3810, 5.2.13).
  Gid source{};
};

// Whether routers and switches are told of members: not of the group that all hosts are in, nor of those that
// stay on the host (RFC 3376, 5; RFC 3810, 6).
[[nodiscard]] bool is_reported_group(const Gid& group);

// What one Ethernet frame asks. Nothing for other frames, and for those that the standards have discarded:
// wrong lengths, checksums, hop limits, sources. IGMPv1 counts as IGMPv2.
[[nodiscard]] std::optional<MembershipQuery> parse_membership_query(std::span<const std::uint8_t> frame);

// Writes a whole frame, and returns its size.
std::size_t write_membership_report(const MembershipReport& report, const MacAddress& source_mac,
                                    std::span<std::uint8_t, kMaxMembershipBytes> frame);

}  // namespace urdma::wire
