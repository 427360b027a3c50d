// Address resolution, for ports without a kernel behind them: ARP for IPv4 (RFC 826, RFC 5227), and neighbour
// solicitations and advertisements for IPv6 (RFC 4861), in one vocabulary of questions and answers.
// Pure: usable from any thread. Whom to believe is for the caller to judge.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "urdma/wire/frame.hpp"

namespace urdma::wire {

inline constexpr std::uint16_t kEtherTypeArp = 0x0806;
// Room for any frame that write_resolution makes.
inline constexpr std::size_t kMaxResolutionBytes = 96;

struct Resolution {
  enum class Kind : std::uint8_t {
    kQuestion,  // who has `subject`? Tell `peer`, who is at `mac`
    kAnswer,    // `subject` is at `mac`; this is for `peer`
  };

  Kind kind = Kind::kQuestion;
  // Answers only: it was asked for, and replaces what the hearer has. ARP says neither: an answer to somebody
  // counts as asked for, and all of it replaces.
  bool is_solicited = false;
  bool is_override = true;
  Gid subject{};
  // The unspecified address: whoever asks has no address yet (a probe for duplicates), or the answer is
  // for everybody (an announcement).
  Gid peer{};
  // All zeros: not said, by a question, or by an answer that confirms what its hearer knows (RFC 4861, 4.4).
  MacAddress mac{};
};

// 0.0.0.0 or ::.
[[nodiscard]] bool is_unspecified(const Gid& gid);
[[nodiscard]] bool is_link_local(const Gid& gid);    // fe80::/10
[[nodiscard]] Gid unspecified_like(const Gid& gid);  // of the same address family
// The link address of an IP multicast group, by rule (RFC 1112, 6.4; RFC 2464, 7); nothing for other
// addresses.
[[nodiscard]] std::optional<MacAddress> multicast_mac(const Gid& gid);
// Where a question about `subject` goes when nothing is known of it: everybody (IPv4), or its solicited-node
// group (IPv6; RFC 4291, 2.7.1).
[[nodiscard]] MacAddress question_mac(const Gid& subject);

// What one Ethernet frame asks or says. Nothing for other frames, and for those that RFC 826 or RFC 4861
// (7.1) has discarded: wrong lengths, checksums, hop limits, group addresses where a host's must stand.
[[nodiscard]] std::optional<Resolution> parse_resolution(std::span<const std::uint8_t> frame);

// Writes a whole frame, and returns its size. A question to a group's link address goes to everybody or the
// solicited-node group, one to a host's to `subject` itself; an answer without a peer to everybody.
std::size_t write_resolution(const Resolution& message, const MacAddress& source_mac,
                             const MacAddress& dest_mac, std::span<std::uint8_t, kMaxResolutionBytes> frame);

}  // namespace urdma::wire
