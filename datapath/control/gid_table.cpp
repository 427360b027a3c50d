// The GIDs of a port (see gid_table.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/gid_table.hpp"

#include <arpa/inet.h>

#include <algorithm>

namespace urdma::control {

bool GidTable::update(std::span<const PortGid> wanted) {
  bool changed = false;
  for (auto& entry : entries_) {
    if (!entry.has_value()) continue;
    const auto same =
        std::find_if(wanted.begin(), wanted.end(), [&](const PortGid& gid) { return gid.gid == entry->gid; });
    if (same != wanted.end() && *same == *entry) continue;
    // An address whose interface has another MAC, or was made anew, keeps its index.
    entry = same != wanted.end() ? std::optional(*same) : std::nullopt;
    changed = true;
  }
  for (const PortGid& gid : wanted) {
    if (find(gid.gid) != nullptr) continue;
    const auto free =
        std::find_if(entries_.begin(), entries_.end(), [](const auto& e) { return !e.has_value(); });
    if (free == entries_.end()) break;
    *free = gid;
    changed = true;
  }
  return changed;
}

const PortGid* GidTable::at(std::uint32_t index) const {
  return index < entries_.size() && entries_[index].has_value() ? &*entries_[index] : nullptr;
}

const PortGid* GidTable::find(const wire::Gid& gid) const {
  for (const auto& entry : entries_) {
    if (entry.has_value() && entry->gid == gid) return &*entry;
  }
  return nullptr;
}

std::vector<wire::Gid> GidTable::gids() const {
  std::vector<wire::Gid> result;
  for (const auto& entry : entries_) {
    if (entry.has_value()) result.push_back(entry->gid);
  }
  return result;
}

std::vector<PortGid> interface_gids(const InterfaceState& interface) {
  std::vector<PortGid> result;
  for (const InterfaceAddress& address : interface.addresses) {
    result.push_back({address.gid, interface.index, interface.name, interface.mac});
  }
  return result;
}

std::vector<PortGid> host_gids(std::span<const InterfaceState> interfaces) {
  std::vector<PortGid> result;
  int loopback_index = 0;
  for (const InterfaceState& interface : interfaces) {
    if (interface.name == "lo") {
      loopback_index = interface.index;
    } else if (interface.is_up) {
      const auto gids = interface_gids(interface);
      result.insert(result.end(), gids.begin(), gids.end());
    }
  }
  if (result.empty()) result.push_back({wire::gid_from_ipv4(INADDR_LOOPBACK), loopback_index, "lo", {}});
  return result;
}

std::string gid_text(const wire::Gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  if (wire::is_ipv4_mapped(gid)) {
    ::inet_ntop(AF_INET, gid.data() + 12, text, sizeof(text));
  } else {
    ::inet_ntop(AF_INET6, gid.data(), text, sizeof(text));
  }
  return text;
}

}  // namespace urdma::control
