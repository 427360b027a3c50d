// Ports (see port_table.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/rdma_cm/port_table.hpp"

#include <cerrno>

namespace urdma::control::rdma_cm {

PortTable::Kind::Kind(const PortUser& user)
    : family(user.address.family),
      is_of_all_devices(user.address.is_of_all_devices()),
      reuses_address(user.reuses_address),
      is_family_only(user.is_family_only) {
  if (is_of_all_devices) return;
  gid = user.address.gid;
  scope = user.address.scope;
}

void PortTable::Port::add(const PortUser& user) {
  const Kind kind(user);
  users.emplace(user.id, kind);
  ++kinds[kind];
}

void PortTable::Port::remove(std::uint32_t id) {
  const auto found = users.find(id);
  if (found == users.end()) return;
  if (const auto kind = kinds.find(found->second); --kind->second == 0) kinds.erase(kind);
  users.erase(found);
}

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

int PortTable::check(PortSpace space, const PortUser& user, bool reuses_address) const {
  const auto port = ports_.find({space, user.address.port});
  if (port == ports_.end()) return 0;
  const Kind wanted(user);
  const auto own = port->second.users.find(user.id);
  for (const auto& [kind, count] : port->second.kinds) {
    const bool is_itself = count == 1 && own != port->second.users.end() && own->second == kind;
    if (is_itself || (reuses_address && kind.reuses_address)) continue;
    if (wanted.is_family_only && kind.is_family_only && wanted.family != kind.family) continue;
    if (wanted.is_of_all_devices || kind.is_of_all_devices) return EADDRNOTAVAIL;
    const bool is_same = wanted.family == kind.family && wanted.gid == kind.gid && wanted.scope == kind.scope;
    if (is_same) return EADDRINUSE;
  }
  return 0;
}

int PortTable::take(PortSpace space, PortUser& user) {
  if (user.address.port == 0) {
    if (const int error = find_free(space, user.address.port); error != 0) return error;
  } else if (const int error = check(space, user, user.reuses_address); error != 0) {
    return error;
  }
  Port& port = ports_[{space, user.address.port}];
  if (port.users.empty() && is_given(user.address.port)) ++taken_[space];
  port.add(user);
  return 0;
}

int PortTable::check_listen(PortSpace space, const PortUser& user) const { return check(space, user, false); }

void PortTable::note_listener(PortSpace space, std::uint16_t port, std::uint32_t id) {
  const auto found = ports_.find({space, port});
  if (found != ports_.end()) found->second.listeners.push_back(id);
}

void PortTable::change(PortSpace space, const PortUser& user) {
  const auto found = ports_.find({space, user.address.port});
  if (found == ports_.end() || !found->second.users.contains(user.id)) return;
  found->second.remove(user.id);
  found->second.add(user);
}

void PortTable::give_back(PortSpace space, std::uint16_t port, std::uint32_t id) {
  const auto found = ports_.find({space, port});
  if (found == ports_.end()) return;
  found->second.remove(id);
  std::erase(found->second.listeners, id);
  if (!found->second.users.empty()) return;
  ports_.erase(found);
  if (is_given(port)) --taken_[space];
}

std::span<const std::uint32_t> PortTable::listeners(PortSpace space, std::uint16_t port) const {
  const auto found = ports_.find({space, port});
  return found != ports_.end() ? std::span<const std::uint32_t>(found->second.listeners)
                               : std::span<const std::uint32_t>();
}

}  // namespace urdma::control::rdma_cm
