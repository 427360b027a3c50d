// Channels, IDs and events of rdma_cm (see context.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/rdma_cm/context.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "datapath/control/shares.hpp"
#include "urdma/abi/rdma_cm.hpp"

namespace urdma::control::rdma_cm {
namespace {

constexpr std::uint32_t kMostWaitingEvents = 64;      // of one ID, but for requests
constexpr std::uint32_t kMostWaitingRequests = 1024;  // of one listener, as Linux has it by default

}  // namespace

Channel* Context::find_channel(std::uint64_t key) const {
  const auto found = channels.find(key);
  return found != channels.end() ? found->second.get() : nullptr;
}

Id* Context::add_id(Channel& channel) {
  const auto user = ids_of_users_.find(channel.peer.uid);
  const std::uint64_t own = user != ids_of_users_.end() ? user->second : 0;
  const Share share{"connection manager IDs", own, ids.size(), limits.max_rdma_cm_ids};
  if (!check_share(share, 1, channel.peer.uid, options.owner, ENOMEM)) return nullptr;
  const auto number = numbers_.take();
  if (!number) return nullptr;
  auto id = std::make_unique<Id>();
  id->number = *number + 1;
  id->channel = channel.key;
  id->user = channel.peer.uid;
  id->parameters.own_psn = Psn(static_cast<std::uint32_t>(random()));
  channel.ids.insert(id->number);
  ++ids_of_users_[id->user];
  return ids.emplace(id->number, std::move(id)).first->second.get();
}

Id* Context::find(std::uint32_t number) const {
  const auto found = ids.find(number);
  return found != ids.end() ? found->second.get() : nullptr;
}

Id* Context::find(const Channel& channel, std::uint32_t number, int& error) const {
  Id* id = find(number);
  if (id == nullptr || id->listener != 0) {
    error = ENOENT;
    return nullptr;
  }
  if (id->channel != channel.key) {
    error = EINVAL;
    return nullptr;
  }
  return id;
}

void Context::destroy(Id& id) {
  drop_events_of(id);
  withdraw_request(id);
  detach(id);
  for (const JoinedGroup& group : id.groups) give_back_group_handle(group.handle);
  if (id.has_port) ports.give_back(id.space, id.source.port, id.number);
  end_resolution(id);
  withdraw_offer(id);
  if (Id* listener = find(id.listener)) --listener->waiting_requests;
  if (Channel* channel = find_channel(id.channel)) channel->ids.erase(id.number);
  numbers_.give_back(id.number - 1);
  if (--ids_of_users_[id.user] == 0) ids_of_users_.erase(id.user);
  ids.erase(id.number);
}

void Context::withdraw_offer(Id& id) {
  if (id.ticket != 0) offers.erase(std::exchange(id.ticket, 0));
}

void Context::end_resolution(Id& id) {
  if (resolving.erase({id.deadline, id.number}) == 0) return;
  network.stop_resolving(id.number);
  id.deadline = Instant::never();
}

Id* Context::find_connection(std::uint32_t device, cm::ConnectionId connection) const {
  const auto found = connections_.find({device, connection.value});
  return found != connections_.end() ? find(found->second) : nullptr;
}

void Context::attach(Id& id, cm::ConnectionId connection) {
  id.connection = connection;
  connections_[{id.local->device, connection.value}] = id.number;
}

void Context::detach(Id& id) {
  if (id.connection == cm::ConnectionId{}) return;
  connections_.erase({id.local->device, id.connection.value});
  network.manager(id.local->device).forget(id.connection, network.now());
  id.connection = {};
}

rdma_ucm_event_resp Context::event_of(const Id& id, EventType type, int status) {
  rdma_ucm_event_resp body{};
  body.uid = id.uid;
  body.id = id.number;
  body.event = static_cast<std::uint32_t>(type);
  body.status = static_cast<std::uint32_t>(status);
  return body;
}

void Context::queue(Id& owner, Channel& channel, const QueuedEvent& event) {
  owner.events.push_back(channel.events.insert(channel.events.end(), event));
  sign_events(channel);
}

void Context::post(Id& id, const rdma_ucm_event_resp& body, std::uint32_t group) {
  Channel* channel = find_channel(id.channel);
  if (channel == nullptr || id.uid == 0) return;
  if (id.events_queued >= kMostWaitingEvents) {
    ++lost_events;
    return;
  }
  ++id.events_queued;
  queue(id, *channel, {id.number, 0, group, body});
}

bool Context::post_request(Id& listener, Id& child, const rdma_ucm_event_resp& body) {
  Channel* channel = find_channel(listener.channel);
  if (channel == nullptr || listener.waiting_requests >= kMostWaitingRequests) return false;
  ++listener.waiting_requests;
  child.listener = listener.number;
  queue(listener, *channel, {listener.number, child.number, 0, body});
  return true;
}

void Context::sign_events(Channel& channel) {
  const auto wanted =
      static_cast<std::uint32_t>(std::min<std::size_t>(channel.events.size(), abi::rdma_cm::kMostTokens));
  const abi::rdma_cm::EventToken token{};
  while (channel.tokens < wanted) {
    // There is room for so many; a client that is gone is noticed elsewhere.
    if (::send(channel.fd.get(), &token, sizeof(token), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return;
    ++channel.tokens;
  }
}

void Context::put_back_tokens(Channel& channel, std::uint32_t count) {
  channel.tokens -= std::min(channel.tokens, count);
  sign_events(channel);
}

std::optional<QueuedEvent> Context::take_event(Channel& channel) {
  if (channel.tokens > 0) --channel.tokens;
  if (channel.events.empty()) return std::nullopt;
  QueuedEvent event = channel.events.front();
  channel.events.pop_front();
  Id& owner = *ids.at(event.owner);
  ++owner.events_reported;
  owner.events.erase(owner.events.begin());
  if (Id* child = find(event.child)) {
    --owner.waiting_requests;
    child->listener = 0;
  } else if (owner.events_queued > 0) {
    --owner.events_queued;
  }
  for (JoinedGroup& group : owner.groups) {
    if (group.handle == event.group && event.group != 0) ++group.events_reported;
  }
  return event;
}

void Context::move_to_channel(Id& id, Channel& to) {
  Channel* from = find_channel(id.channel);
  if (from == nullptr || from == &to) return;
  const auto take_along = [&](Id& moved) {
    from->ids.erase(moved.number);
    to.ids.insert(moved.number);
    moved.channel = to.key;
  };
  for (const EventQueue::iterator event : id.events) {
    to.events.splice(to.events.end(), from->events, event);
    if (Id* child = find(event->child)) take_along(*child);
  }
  take_along(id);
  sign_events(to);
}

void Context::drop_events_of(Id& id) {
  Channel* channel = find_channel(id.channel);
  if (channel == nullptr) return;
  for (const EventQueue::iterator event : std::exchange(id.events, {})) {
    Id* child = find(event->child);
    channel->events.erase(event);
    if (child == nullptr) continue;
    child->listener = 0;
    destroy(*child);
  }
}

// The event that would tell the listener's program of the ID.
void Context::withdraw_request(const Id& child) {
  Id* listener = find(child.listener);
  Channel* channel = find_channel(child.channel);
  if (listener == nullptr || channel == nullptr) return;
  const auto found = std::find_if(listener->events.begin(), listener->events.end(),
                                  [&](const auto& event) { return event->child == child.number; });
  if (found == listener->events.end()) return;
  channel->events.erase(*found);
  listener->events.erase(found);
}

void Context::drop_events_of_group(Id& id, std::uint32_t group) {
  Channel* channel = find_channel(id.channel);
  if (channel == nullptr) return;
  const auto dropped = std::erase_if(id.events, [&](const EventQueue::iterator& event) {
    const bool is_of_group = event->group == group;
    if (is_of_group) channel->events.erase(event);
    return is_of_group;
  });
  id.events_queued -= static_cast<std::uint32_t>(dropped);
}

std::uint32_t Context::new_group_handle(const Id& id) {
  const auto number = group_handles_.take();
  if (!number) return 0;
  group_owners_[*number + 1] = id.number;
  return *number + 1;
}

void Context::give_back_group_handle(std::uint32_t handle) {
  group_owners_.erase(handle);
  group_handles_.give_back(handle - 1);
}

Id* Context::find_group_owner(std::uint32_t handle) const {
  const auto found = group_owners_.find(handle);
  return found != group_owners_.end() ? find(found->second) : nullptr;
}

}  // namespace urdma::control::rdma_cm
