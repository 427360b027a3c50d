// Shares of users (see shares.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/shares.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

namespace urdma::control {

Holdings holdings_of(const SessionTable& sessions, std::optional<uid_t> user) {
  Holdings sum;
  std::set<const ClientProcess*> counted;  // several sessions may be of one process
  for (const auto& [id, session] : sessions) {
    if (user.has_value() && session->peer.uid != *user) continue;
    const Objects& objects = session->objects;
    ++sum.sessions;
    sum.pds += objects.pds.size();
    sum.regions +=
        objects.regions.size() + session->regions_in_wait.size() + session->regions_for_next.size();
    sum.windows += objects.windows.size();
    sum.cqs += objects.cqs.size();
    sum.qps += objects.qps.size() + session->retiring_qps.size();
    sum.srqs += objects.srqs.size();
    sum.xrcds += objects.xrcds.size();
    sum.ahs += objects.ahs.size() + objects.ahs_in_making;
    sum.memberships += objects.memberships.members();
    sum.queue_bytes += objects.queue_bytes;
    const ClientProcess* process = session->process.get();
    if (process != nullptr && counted.insert(process).second) sum.extents += process->extents.size();
  }
  return sum;
}

std::uint64_t groups_of(const SessionTable& sessions, uid_t user) {
  std::set<std::pair<std::uint32_t, wire::Gid>> groups;  // by device: several sessions may be in one
  for (const auto& [id, session] : sessions) {
    if (session->peer.uid != user) continue;
    for (const auto& [group, members] : session->objects.memberships.groups()) {
      groups.emplace(session->device, group);
    }
  }
  return groups.size();
}

std::uint64_t descriptors_of(const SessionTable& sessions, std::optional<uid_t> user) {
  std::uint64_t sum = 0;
  for (const auto& [id, session] : sessions) {
    if (user.has_value() && session->peer.uid != *user) continue;
    sum += session->objects.event_pipes.size() + session->objects.device_memories.size();
  }
  return sum;
}

Status check_share(const Share& share, std::uint64_t wanted, uid_t user, uid_t owner, int error) {
  const std::uint64_t free = share.most - std::min(share.used, share.most);
  if (wanted > free) {
    return fail(error, fmt::format("the node has {} {} in use, of {} that it takes", share.used, share.what,
                                   share.most));
  }
  // Afterwards the user holds no more than is left.
  if (user == owner || share.held + wanted <= free - wanted) return {};
  return fail(error, fmt::format("user {} has {} {}, and may have no more while only {} of the node's {} are "
                                 "free: the rest is for other users",
                                 user, share.held, share.what, free, share.most));
}

Status check_share(const Node& node, uid_t user, const char* what, std::uint64_t Holdings::*kind,
                   std::uint64_t most, std::uint64_t wanted) {
  const Holdings all = holdings_of(node.sessions, std::nullopt);
  const Holdings own = holdings_of(node.sessions, user);
  return check_share({what, own.*kind, all.*kind, most}, wanted, user, node.owner, ENOMEM);
}

Status check_room(const Node& node, const ClientSession& session, const Kind& kind, std::size_t has) {
  if (has >= node.limits.*kind.of_session || node.usage.*kind.used >= node.limits.*kind.of_node) {
    return fail(ENOMEM, fmt::format("there are too many {}", kind.what));
  }
  return check_share(node, session.peer.uid, kind.what, kind.held, node.limits.*kind.of_node);
}

Status check_descriptors(const Node& node, const ClientSession& session) {
  const uid_t user = session.peer.uid;
  const Share share{"descriptors of completion channels and device memory",
                    descriptors_of(node.sessions, user), descriptors_of(node.sessions, std::nullopt),
                    node.limits.max_descriptors};
  return check_share(share, 1, user, node.owner, EMFILE);
}

}  // namespace urdma::control
