// Address handles and multicast groups (see requests.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "datapath/control/addressing.hpp"
#include "datapath/control/device.hpp"
#include "datapath/control/failures.hpp"
#include "datapath/control/qp_attributes.hpp"
#include "datapath/control/requests.hpp"
#include "datapath/control/retirement.hpp"
#include "datapath/control/shares.hpp"

namespace urdma::control {
namespace {

wire::Gid gid_of(const std::uint8_t (&bytes)[16]) {
  wire::Gid gid;
  std::copy(std::begin(bytes), std::end(bytes), gid.begin());
  return gid;
}

Outcome install_ah(Node& node, ClientSession& session, const abi::CreateAh& wanted,
                   const engine::Path& path) {
  ProtectionDomain* pd = session.objects.pds.find(wanted.pd);
  if (pd == nullptr) return fail(EINVAL, "there is no such protection domain");
  engine::Session& engine_session = *session.engine_session;
  if (!engine_session.has_address_table()) {
    auto table = std::make_unique<engine::Session::AddressTable>(node.limits.max_ah_of_session);
    node.engine.run([&] { engine_session.set_address_table(std::move(table)); });
  }
  auto entry = std::make_unique<AhEntry>();
  entry->pd = wanted.pd;
  entry->address = wanted.address;
  entry->ah = {session.objects.ahs.next_handle(), pd->id, path};
  ++pd->users;
  ++node.usage.ahs;
  const engine::AddressHandle& installed = entry->ah;
  const std::uint32_t handle = session.objects.ahs.insert(std::move(entry));
  node.engine.run([&] { node.engine.add_address_handle(engine_session, installed); });
  return reply_with(abi::Handle{handle, 0});
}

// The path has been found, or has not; meanwhile the session may be gone.
Outcome finish_ah(Node& node, std::uint32_t session_id, const abi::CreateAh& wanted,
                  const Result<engine::Path>& path) {
  ClientSession* session = node.sessions.find(session_id);
  if (session == nullptr || session->is_ending) return fail(EINVAL, "the session is gone");
  --session->objects.ahs_in_making;
  if (path) return install_ah(node, *session, wanted, *path);
  note_failure(node, *session, 0, wanted.address, path.error().message);
  return tl::make_unexpected(path.error());
}

// The queue pair and the group of a membership.
Result<QpEntry*> judge_membership(ClientSession& session, const abi::McastMembership& wanted) {
  QpEntry* entry = session.objects.qps.find(wanted.qp);
  if (entry == nullptr) return fail(EINVAL, "there is no such queue pair");
  if (!entry->qp->is_datagram()) return fail(EINVAL, "multicast is for queue pairs of datagrams");
  if (!wire::is_multicast_gid(gid_of(wanted.gid)))
    return fail(EINVAL, "the GID is not that of a multicast group");
  return entry;
}

// Whether one more queue pair of the session may be in the group: by the limits of the group, the session and
// the node, and by what its user has.
Status check_room_for_member(const Node& node, const ClientSession& session, const wire::Gid& group) {
  const Limits& limits = node.limits;
  const std::uint32_t members = node.groups.members(node.devices.at(session.device), group);
  if (members >= limits.max_mcast_members) return fail(ENOMEM, "the group has too many queue pairs");
  const Memberships& own = session.objects.memberships;
  const bool is_new_here = !own.groups().contains(group);
  if (own.members() >= limits.max_mcast_members_of_session ||
      (is_new_here && own.groups().size() >= limits.max_mcast_groups_of_session)) {
    return fail(ENOMEM, "the program is in too many multicast groups");
  }
  const uid_t user = session.peer.uid;
  if (members == 0) {
    const Share groups{"multicast groups", groups_of(node.sessions, user), node.groups.size(),
                       limits.max_mcast_groups};
    if (auto room = check_share(groups, 1, user, node.owner, ENOMEM); !room) return room;
  }
  return check_share(node, user, "queue pairs in multicast groups", &Holdings::memberships,
                     limits.max_mcast_members_in_all);
}

}  // namespace

Outcome create_ah(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::CreateAh>();
  if (session.objects.pds.find(wanted.pd) == nullptr)
    return fail(EINVAL, "there is no such protection domain");
  if (auto good = check_address(wanted.address); !good) return tl::make_unexpected(good.error());
  const std::uint32_t has = session.objects.ahs.size() + session.objects.ahs_in_making;
  if (auto room = check_room(node, session, kAddressHandles, has); !room)
    return tl::make_unexpected(room.error());
  ++session.objects.ahs_in_making;
  const auto done = [&node, id = session.id, to = request.to, wanted](const Result<engine::Path>& path) {
    node.sender.reply(to, finish_ah(node, id, wanted, path));
  };
  // The engine mixes the numbers of both queue pairs into each datagram's source port.
  node.addressing.find_path(node.devices.at(session.device), wanted.address, Qpn{}, Qpn{}, done);
  return reply_later();
}

Outcome destroy_ah(Node& node, ClientSession& session, Request& request) {
  const std::uint32_t handle = request.as<abi::Handle>().handle;
  if (session.objects.ahs.find(handle) == nullptr) return fail(EINVAL, "there is no such address handle");
  remove_ah(node, session, handle);
  return empty_reply();
}

Outcome attach_mcast(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::McastMembership>();
  const auto entry = judge_membership(session, wanted);
  if (!entry) return tl::make_unexpected(entry.error());
  const wire::Gid group = gid_of(wanted.gid);
  std::vector<wire::Gid>& groups = (*entry)->groups;
  if (std::find(groups.begin(), groups.end(), group) != groups.end()) return empty_reply();
  if (auto room = check_room_for_member(node, session, group); !room)
    return tl::make_unexpected(room.error());
  groups.push_back(group);
  session.objects.memberships.join(group);
  node.groups.join(node.devices.at(session.device), group);
  node.engine.run([&] { node.engine.attach_mcast(*(*entry)->qp, group); });
  return empty_reply();
}

Outcome detach_mcast(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::McastMembership>();
  const auto entry = judge_membership(session, wanted);
  if (!entry) return tl::make_unexpected(entry.error());
  const wire::Gid group = gid_of(wanted.gid);
  if (std::erase((*entry)->groups, group) == 0) return fail(EINVAL, "the queue pair is not in this group");
  node.engine.run([&] { node.engine.detach_mcast(*(*entry)->qp, group); });
  session.objects.memberships.leave(group);
  node.groups.leave(node.devices.at(session.device), group);
  return empty_reply();
}

}  // namespace urdma::control
