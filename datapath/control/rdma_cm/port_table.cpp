// Ports (see port_table.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/rdma_cm/port_table.hpp"

#include <cerrno>

namespace urdma::control::rdma_cm {
namespace {

int check(std::span<const PortUser> others, const PortUser& user, bool reuses_address) {
  for (const PortUser& other : others) {
    if (other.id == user.id || (reuses_address && other.reuses_address)) continue;
    const bool are_apart = user.is_family_only && other.is_family_only;
    if (are_apart && user.address.family != other.address.family) continue;
    if (user.address.is_of_all_devices() || other.address.is_of_all_devices()) return EADDRNOTAVAIL;
    if (user.address.has_same_address(other.address)) return EADDRINUSE;
  }
  return 0;
}

}  // namespace

PortTable::PortTable(std::uint16_t first, std::uint16_t last, std::uint32_t seed)
    : first_(first), count_(static_cast<std::uint16_t>(last - first + 1)), next_(seed % count_) {}

int PortTable::find_free(PortSpace space, std::uint16_t& port) {
  if (taken_[space] == count_) return EADDRNOTAVAIL;  // without a look at each
  for (std::uint32_t tried = 0; tried < count_; ++tried) {
    port = static_cast<std::uint16_t>(first_ + next_);
    next_ = (next_ + 1) % count_;
    if (!ports_.contains({space, port})) return 0;
  }
  return EADDRNOTAVAIL;
}

int PortTable::take(PortSpace space, PortUser& user) {
  if (user.address.port == 0) {
    if (const int error = find_free(space, user.address.port); error != 0) return error;
  } else if (const int error = check(users(space, user.address.port), user, user.reuses_address);
             error != 0) {
    return error;
  }
  std::vector<PortUser>& all = ports_[{space, user.address.port}];
  if (all.empty() && is_given(user.address.port)) ++taken_[space];
  all.push_back(user);
  return 0;
}

int PortTable::check_listen(PortSpace space, const PortUser& user) const {
  return check(users(space, user.address.port), user, false);
}

void PortTable::change(PortSpace space, const PortUser& user) {
  const auto found = ports_.find({space, user.address.port});
  if (found == ports_.end()) return;
  for (PortUser& each : found->second) {
    if (each.id == user.id) each = user;
  }
}

void PortTable::give_back(PortSpace space, std::uint16_t port, std::uint32_t id) {
  const auto found = ports_.find({space, port});
  if (found == ports_.end()) return;
  std::erase_if(found->second, [&](const PortUser& user) { return user.id == id; });
  if (!found->second.empty()) return;
  ports_.erase(found);
  if (is_given(port)) --taken_[space];
}

std::span<const PortUser> PortTable::users(PortSpace space, std::uint16_t port) const {
  const auto found = ports_.find({space, port});
  return found != ports_.end() ? std::span<const PortUser>(found->second) : std::span<const PortUser>();
}

}  // namespace urdma::control::rdma_cm
