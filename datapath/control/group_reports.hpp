// Tells routers and switches which multicast groups a port is in, for a port that has no interface of the
// kernel: the host's part of IGMP and MLD (RFC 3376, 5; RFC 3810, 6), old routers included (RFC 3376, 7.2;
// RFC 3810, 8.2). Queries and time in, reports out: no I/O, clock or thread.
// Owner: the device; control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <random>

#include "urdma/base/time.hpp"
#include "urdma/wire/membership.hpp"

namespace urdma::control {

class GroupReports {
 public:
  // How often a change is told, since a report may be lost, and the longest time from one to the next.
  static constexpr std::uint32_t kRobustness = 2;
  static constexpr Duration kRepeat = seconds(1);
  // For so long after a query of the old kind, reports are of that kind.
  static constexpr Duration kLegacyRouter = seconds(260);

  // Addresses to report from, one for each family; unspecified where the port has none. `seed` draws the
  // random delays, so that the hosts of a link do not speak all at once.
  struct Sources {
    wire::Gid ipv4 = wire::gid_from_ipv4(0);
    wire::Gid ipv6_link_local{};
  };
  GroupReports(const Sources& sources, std::uint32_t seed) : sources_(sources), random_(seed) {}

  // Each group once; those that nobody is told of are passed over.
  void join(const wire::Gid& group, Instant now);
  void leave(const wire::Gid& group, Instant now);
  void on_query(const wire::MembershipQuery& query, Instant now);
  // The link has come up, perhaps to somebody else: tells again.
  void on_link_up(Instant now);
  // Does what is due; returns when it is to be called next.
  Instant on_time(Instant now);
  // False when there is nothing more to send.
  [[nodiscard]] bool poll_transmit(wire::MembershipReport& report);

 private:
  struct Entry {
    bool is_member = true;
    std::uint32_t changes_left = 0;  // reports of the last change that are still to come
    Instant change_due = Instant::never();
    Instant answer_due = Instant::never();
  };

  void change(const wire::Gid& group, bool is_member, Instant now);
  void report_change(const wire::Gid& group, Entry& entry, Instant now);
  void report(const wire::Gid& group, wire::MembershipReport::Kind kind, Instant now);
  [[nodiscard]] Duration random_delay(Duration most);

  Sources sources_;
  std::minstd_rand random_;
  std::map<wire::Gid, Entry> entries_;  // bounded by the limits on groups, and those left within kRepeat
  std::deque<wire::MembershipReport> outgoing_;
  std::array<Instant, 2> legacy_until_{};  // of IPv4, and of IPv6
};

}  // namespace urdma::control
