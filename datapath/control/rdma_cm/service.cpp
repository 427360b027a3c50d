// Channels and their commands (see service.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/rdma_cm/service.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "datapath/control/close_aside.hpp"
#include "datapath/control/rdma_cm/channel_socket.hpp"
#include "datapath/control/rdma_cm/commands.hpp"
#include "datapath/control/rdma_cm/manager_events.hpp"
#include "datapath/control/shares.hpp"

namespace urdma::control::rdma_cm {
namespace {

constexpr int kMessagesPerTurn = 16;  // of one channel, before the next one's turn

Peer peer_of(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return {};
  return {credentials.pid, credentials.uid, credentials.gid};
}

Status check_room(const Context& context, const Peer& peer) {
  const auto own = std::count_if(context.channels.begin(), context.channels.end(),
                                 [&](const auto& entry) { return entry.second->peer.uid == peer.uid; });
  return check_share({"channels of the connection manager", static_cast<std::uint64_t>(own),
                      context.channels.size(), context.limits.max_rdma_cm_channels},
                     1, peer.uid, context.options.owner, EMFILE);
}

}  // namespace

Service::~Service() {
  for (const auto& [key, channel] : context_.channels) loop_.remove(channel->fd.get());
}

void Service::add_channel(UniqueFd fd) {
  auto channel = std::make_unique<Channel>();
  channel->key = ++last_key_;
  channel->peer = peer_of(fd.get());
  channel->fd = std::move(fd);
  if (auto room = check_room(context_, channel->peer); !room) {
    spdlog::warn("process {} gets no channel: {}", channel->peer.pid, room.error().message);
    return close_aside(channel->fd.release());
  }
  if (!loop_.add(channel->fd.get(), [this, key = channel->key](std::uint32_t) { on_readable(key); }))
    return close_aside(channel->fd.release());
  context_.channels.emplace(channel->key, std::move(channel));
}

void Service::keep_spare() {
  if (!spare_.is_open()) spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void Service::on_readable(std::uint64_t key) {
  spare_.reset();
  serve(key);
  keep_spare();
}

void Service::serve(std::uint64_t key) {
  ChannelMessage message;
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    Channel* channel = context_.find_channel(key);
    if (channel == nullptr) return;
    switch (receive(channel->fd.get(), message)) {
      case Received::kNothing:
        return;
      case Received::kEnd:
        return end(key);
      case Received::kMessage:
        if (!message.answer.is_open()) {
          ++ignored_messages_;
          context_.put_back_tokens(*channel, 1);  // should it have been for an event
          break;
        }
        if (const auto request = parse_request(message.view())) {
          answer(std::move(message.answer), execute(context_, *channel, *request));
          break;
        }
        message.answer = {};
        [[fallthrough]];
      case Received::kNonsense:
        spdlog::warn("process {} sent nonsense to the connection manager, and loses its channel",
                     channel->peer.pid);
        return end(key);
    }
  }
}

// Its IDs go with it: their peers are told.
void Service::end(std::uint64_t key) {
  Channel& channel = *context_.channels.at(key);
  loop_.remove(channel.fd.get());
  ::shutdown(channel.fd.get(), SHUT_RDWR);
  while (!channel.ids.empty()) context_.destroy(*context_.ids.at(*channel.ids.begin()));
  close_aside(channel.fd.release());
  context_.channels.erase(key);
}

void Service::on_manager_event(std::uint32_t device, const cm::Event& event) {
  rdma_cm::on_manager_event(context_, device, event);
}

Instant Service::tend(Instant now) { return expire_resolutions(context_, now); }

Service::Summary Service::summary() const {
  const auto listeners = std::count_if(context_.ids.begin(), context_.ids.end(), [](const auto& entry) {
    return entry.second->state == IdState::kListening;
  });
  return {context_.channels.size(),    context_.ids.size(),  static_cast<std::size_t>(listeners),
          context_.connection_count(), context_.lost_events, ignored_messages_};
}

}  // namespace urdma::control::rdma_cm
