// What the control thread does to an engine's ports, on the engine's thread inside run(), and the messages of
// address resolution and group membership that it gets from them: only ports without an interface of the
// kernel hand them over.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fmt/format.h>
#include <rte_mbuf.h>
#include <rte_ring.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <type_traits>

#include "datapath/engine/loop.hpp"
#include "datapath/io/frame.hpp"
#include "urdma/base/check.hpp"

namespace urdma::engine {

namespace {

constexpr unsigned kHeardSlots = 256;
static_assert(sizeof(Heard) % sizeof(std::uint32_t) == 0 && std::is_trivially_copyable_v<Heard>);

bool contains(std::span<const wire::Gid> gids, const wire::Gid& gid) {
  return std::find(gids.begin(), gids.end(), gid) != gids.end();
}

// Whether a message concerns a port with these addresses: most of what is asked on a link does not.
bool concerns(std::span<const wire::Gid> gids, const wire::Resolution& message) {
  switch (message.kind) {
    case wire::Resolution::Kind::kQuestion:
      return contains(gids, message.subject) || contains(gids, message.peer);
    case wire::Resolution::Kind::kAnswer:
      return contains(gids, message.peer) || wire::is_unspecified(message.peer);
  }
  return false;
}

}  // namespace

Status Engine::Loop::make_heard_ring() {
  static std::atomic<unsigned> count{0};  // a ring's name is unique in the process
  heard = rte_ring_create_elem(fmt::format("heard-{}", count++).c_str(), sizeof(Heard), kHeardSlots,
                               SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
  if (heard == nullptr) return fail(ENOMEM, "no memory for the messages of an engine's ports");
  return {};
}

// A flood costs a look at each frame, and the control thread no more than it can bear.
bool Engine::Loop::hear(const PortState& port, std::span<const std::uint8_t> frame) {
  Heard news{static_cast<std::uint32_t>(&port - ports.data()), {}};
  if (const auto message = wire::parse_resolution(frame)) {
    if (!concerns(port.gids, *message)) return true;
    news.message = *message;
  } else if (const auto query = wire::parse_membership_query(frame)) {
    news.message = *query;
  } else {
    return false;
  }
  if (!hearing.take(now) || rte_ring_sp_enqueue_elem(heard, &news, sizeof news) != 0) {
    ++counters.dropped_resolution;
    return true;
  }
  ++counters.resolution_heard;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(config.control_eventfd, &one, sizeof one);
  return true;
}

std::optional<Heard> Engine::next_heard() {
  Heard news;
  for (const auto& loop : common_->loops) {
    if (rte_ring_sc_dequeue_elem(loop->heard, &news, sizeof news) == 0) return news;
  }
  return std::nullopt;
}

void Engine::send_frame(std::uint32_t port, std::span<const std::uint8_t> bytes) {
  Loop& loop = *common_->loops.front();
  PortState& state = loop.ports.at(port);
  if (state.backlog.size() >= kMostBacklog) return;
  rte_mbuf* frame = io::new_frame(loop.config.frames);
  if (frame == nullptr) return;
  char* room = rte_pktmbuf_append(frame, static_cast<std::uint16_t>(bytes.size()));
  URDMA_CHECK(room != nullptr);
  std::copy(bytes.begin(), bytes.end(), room);
  loop.put_on_port(port, frame);
}

void Engine::set_port_gids(std::uint32_t port, std::span<const wire::Gid> gids) {
  for (const auto& loop : common_->loops) loop->ports.at(port).gids.assign(gids.begin(), gids.end());
}

void Engine::set_port_link(std::uint32_t port, std::uint32_t frame_bytes, bool finds_neighbours) {
  for (const auto& loop : common_->loops) {
    PortState& state = loop->ports.at(port);
    state.frame_bytes = frame_bytes;
    state.finds_neighbours = finds_neighbours;
  }
}

void Engine::Loop::detach(PortState& state) {
  if (!state.is_attached) return;
  state.is_attached = false;
  const int descriptor = state.is_receiving ? state.port->wake_descriptor() : -1;
  if (descriptor >= 0) ::epoll_ctl(epoll, EPOLL_CTL_DEL, descriptor, nullptr);
  for (rte_mbuf* frame : state.backlog) io::free_frame(frame);
  state.backlog.clear();
  has_freed = true;
}

Status Engine::Loop::attach(PortState& state) {
  if (state.is_attached) return {};
  const int descriptor = state.is_receiving ? state.port->wake_descriptor() : -1;
  epoll_event event{};
  event.events = EPOLLIN;
  if (descriptor >= 0 && ::epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) != 0) {
    return fail_errno(errno, "cannot watch port " + state.port->spec().text);
  }
  state.is_attached = true;
  return {};
}

void Engine::detach_port(std::uint32_t port) {
  for (const auto& loop : common_->loops) loop->detach(loop->ports.at(port));
}

Status Engine::attach_port(std::uint32_t port) {
  for (const auto& loop : common_->loops) {
    if (auto attached = loop->attach(loop->ports.at(port)); !attached) return attached;
  }
  return {};
}

}  // namespace urdma::engine
