// Paths that follow the network: see rerouting.hpp. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/rerouting.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "datapath/control/addressing.hpp"

namespace urdma::control {
namespace {

struct User {
  std::uint32_t session = 0;
  std::uint32_t handle = 0;  // of a QP, or of an address handle
  bool is_ah = false;
};
using Users = std::vector<User>;
using Ends = std::pair<wire::Gid, wire::Gid>;  // source, destination

std::map<Ends, Users> paths_in_use(const Node& node, const Device& device) {
  std::map<Ends, Users> paths;
  for (const auto& [id, session] : node.sessions) {
    if (session->device != device.index || session->is_ending) continue;
    for (const auto& [handle, entry] : session->objects.qps) {
      if (entry->is_local || entry->address.is_global == 0) continue;
      wire::Gid dest{};
      std::copy(std::begin(entry->address.dest_gid), std::end(entry->address.dest_gid), dest.begin());
      paths[{entry->source_gid, dest}].push_back({id, handle, false});
    }
    for (const auto& [handle, entry] : session->objects.ahs) {
      const engine::Path& path = entry->ah.path;
      if (!path.is_local) paths[{path.source_gid, path.dest_gid}].push_back({id, handle, true});
    }
  }
  return paths;
}

// Null where it is gone.
engine::Path* path_of(const Node& node, const User& user) {
  const ClientSession* session = node.sessions.find(user.session);
  if (session == nullptr) return nullptr;
  if (user.is_ah) {
    AhEntry* entry = session->objects.ahs.find(user.handle);
    return entry != nullptr ? &entry->ah.path : nullptr;
  }
  const QpEntry* entry = session->objects.qps.find(user.handle);
  return entry != nullptr ? &entry->qp->path() : nullptr;
}

// Calls `change` for the path of each user that still has these two ends.
template <typename Change>
void change_paths(Node& node, const Users& users, const Ends& ends, const Change& change) {
  std::vector<engine::Path*> paths;
  for (const User& user : users) {
    if (engine::Path* path = path_of(node, user)) paths.push_back(path);
  }
  node.engine.run([&] {
    for (engine::Path* path : paths) {
      const bool has_ends = path->source_gid == ends.first && path->dest_gid == ends.second;
      if (path->is_set && !path->is_local && has_ends) change(*path);
    }
  });
}

}  // namespace

void renew_paths(Node& node, const Device& device) {
  for (const auto& [ends, users] : paths_in_use(node, device)) {
    const PortGid* source = device.gids.find(ends.first);
    const bool is_silent = source == nullptr;
    change_paths(node, users, ends, [&](engine::Path& path) { path.is_silent = is_silent; });
    if (is_silent) continue;
    const auto found = [&node, ends = ends, users = users,
                        own = device.mac](const Result<wire::MacAddress>& mac) {
      if (!mac) return;
      change_paths(node, users, ends,
                   [&](engine::Path& path) { wire::set_link_addresses(path.flow, own, *mac); });
    };
    node.addressing.find_link(device, *source, ends.second, found);
  }
}

}  // namespace urdma::control
