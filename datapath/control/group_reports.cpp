// Membership reports of a port that the kernel does not know: see group_reports.hpp. Pure.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/group_reports.hpp"

#include <iterator>

#include "urdma/wire/resolution.hpp"

namespace urdma::control {
namespace {

using Kind = wire::MembershipReport::Kind;

std::size_t family_of(const wire::Gid& gid) { return wire::is_ipv4_mapped(gid) ? 0 : 1; }

}  // namespace

Duration GroupReports::random_delay(Duration most) {
  return {std::uniform_int_distribution<std::int64_t>(0, most.ns)(random_)};
}

void GroupReports::join(const wire::Gid& group, Instant now) {
  if (wire::is_reported_group(group)) change(group, true, now);
}

void GroupReports::leave(const wire::Gid& group, Instant now) {
  if (wire::is_reported_group(group)) change(group, false, now);
}

// What a change before this one still had to tell is overtaken by it (RFC 3376, 5.1).
void GroupReports::change(const wire::Gid& group, bool is_member, Instant now) {
  Entry& entry = entries_[group];
  entry.is_member = is_member;
  entry.changes_left = kRobustness;
  report_change(group, entry, now);
}

void GroupReports::report_change(const wire::Gid& group, Entry& entry, Instant now) {
  report(group, entry.is_member ? Kind::kJoined : Kind::kLeft, now);
  --entry.changes_left;
  entry.change_due = entry.changes_left > 0 ? now + random_delay(kRepeat) : Instant::never();
}

void GroupReports::report(const wire::Gid& group, Kind kind, Instant now) {
  const std::size_t family = family_of(group);
  outgoing_.push_back(
      {kind, now < legacy_until_[family], group, family == 0 ? sources_.ipv4 : sources_.ipv6_link_local});
}

void GroupReports::on_query(const wire::MembershipQuery& query, Instant now) {
  const std::size_t family = family_of(query.group);
  if (query.is_legacy) legacy_until_[family] = now + kLegacyRouter;
  const bool is_general = wire::is_unspecified(query.group);
  for (auto& [group, entry] : entries_) {
    const bool is_asked = is_general ? family_of(group) == family : group == query.group;
    if (!is_asked || !entry.is_member) continue;
    entry.answer_due = earlier(entry.answer_due, now + random_delay(milliseconds(query.max_response_ms)));
  }
}

void GroupReports::on_link_up(Instant now) {
  for (auto& [group, entry] : entries_) {
    if (entry.is_member) change(group, true, now);
  }
}

Instant GroupReports::on_time(Instant now) {
  Instant next = Instant::never();
  for (auto at = entries_.begin(); at != entries_.end();) {
    auto& [group, entry] = *at;
    if (entry.answer_due <= now) {
      entry.answer_due = Instant::never();
      report(group, Kind::kMember, now);
    }
    if (entry.change_due <= now) report_change(group, entry, now);
    next = earlier(next, earlier(entry.answer_due, entry.change_due));
    const bool is_over = !entry.is_member && entry.changes_left == 0;
    at = is_over ? entries_.erase(at) : std::next(at);
  }
  return next;
}

bool GroupReports::poll_transmit(wire::MembershipReport& report) {
  if (outgoing_.empty()) return false;
  report = outgoing_.front();
  outgoing_.pop_front();
  return true;
}

}  // namespace urdma::control
