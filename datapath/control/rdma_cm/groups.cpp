// Multicast groups of IDs (see commands.hpp): the group of an IP address is the GID of the same bytes. To
// join is to learn that: the network is told of a group by the queue pairs that are attached to it
// (control/multicast.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>

#include "datapath/control/rdma_cm/commands.hpp"
#include "datapath/control/rdma_cm/messages.hpp"
#include "datapath/control/rdma_cm/path_constants.hpp"

namespace urdma::control::rdma_cm {
namespace {

constexpr std::size_t kMostGroupsOfId = 64;

struct Wanted {
  std::uint32_t id = 0;
  std::uint64_t uid = 0;
  std::optional<SocketAddress> address;
  std::uint32_t address_bytes = 0;
  std::uint16_t flags = RDMA_MC_JOIN_FLAG_FULLMEMBER;
};

int check(const Id& id, const Wanted& wanted) {
  const bool is_ready = id.state == IdState::kBound || id.state == IdState::kAddressResolved;
  if (!id.is_datagram() || !is_ready || !id.local) return EINVAL;
  if (!wanted.address->is_multicast()) return EINVAL;
  return id.groups.size() < kMostGroupsOfId ? 0 : ENOMEM;
}

Reply join_group(Context& context, Channel& channel, const Wanted& wanted) {
  const bool is_sound = wanted.address && wanted.address_bytes != 0 &&
                        wanted.address_bytes == address_bytes(wanted.address->family) &&
                        wanted.flags < RDMA_MC_JOIN_FLAG_RESERVED;
  if (!is_sound) return refuse(EINVAL);
  int error = 0;
  Id* id = context.find(channel, wanted.id, error);
  if (id == nullptr) return refuse(error);
  error = check(*id, wanted);
  if (error != 0) return refuse(error);
  JoinedGroup group;
  group.handle = context.new_group_handle(*id);
  if (group.handle == 0) return refuse(ENOMEM);
  group.uid = wanted.uid;
  group.gid = wanted.address->gid;
  id->groups.push_back(group);
  rdma_ucm_event_resp event = Context::event_of(*id, EventType::kMulticastJoin, 0);
  event.uid = group.uid;
  event.id = group.handle;
  event.param.ud.ah_attr = address_attributes(context, *id, group.gid);
  event.param.ud.qp_num = kMulticastQpn.value;
  event.param.ud.qkey = kUdpQkey;
  context.post(*id, event, group.handle);
  return reply_of(rdma_ucm_create_id_resp{group.handle});
}

}  // namespace

Reply join_ip(Context& context, Channel& channel, const Request& request) {
  const auto body = request.read<rdma_ucm_join_ip_mcast>();
  Wanted wanted{body.id, body.uid, read_address(std::as_bytes(std::span(&body.addr, 1)))};
  if (wanted.address)
    wanted.address_bytes = static_cast<std::uint32_t>(address_bytes(wanted.address->family));
  return join_group(context, channel, wanted);
}

Reply join(Context& context, Channel& channel, const Request& request) {
  const auto body = request.read<rdma_ucm_join_mcast>();
  return join_group(context, channel,
                    {body.id, body.uid, read_address(std::as_bytes(std::span(&body.addr, 1))), body.addr_size,
                     body.join_flags});
}

Reply leave(Context& context, Channel& channel, const Request& request) {
  const std::uint32_t handle = request.read<rdma_ucm_destroy_id>().id;
  Id* id = context.find_group_owner(handle);
  if (id == nullptr) return refuse(ENOENT);
  if (id->channel != channel.key) return refuse(EINVAL);
  const auto group = std::find_if(id->groups.begin(), id->groups.end(),
                                  [&](const JoinedGroup& each) { return each.handle == handle; });
  context.drop_events_of_group(*id, handle);
  const rdma_ucm_destroy_id_resp response{group->events_reported};
  context.give_back_group_handle(handle);
  id->groups.erase(group);
  return reply_of(response);
}

}  // namespace urdma::control::rdma_cm
