// Management datagrams: QP 1 of each port is the control thread's (IBTA 1, 13.6). They go like other
// datagrams, in frames, also to a port of this node.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fmt/format.h>
#include <rte_mbuf.h>
#include <rte_ring.h>
#include <unistd.h>

#include <algorithm>
#include <type_traits>

#include "datapath/engine/loop.hpp"
#include "datapath/io/frame.hpp"
#include "urdma/base/check.hpp"
#include "urdma/wire/mad.hpp"

namespace urdma::engine {

namespace {

constexpr unsigned kManagementSlots = 4096;
static_assert(sizeof(ManagementDatagram) % sizeof(std::uint32_t) == 0 &&
              std::is_trivially_copyable_v<ManagementDatagram>);

bool is_sound(const wire::Headers& headers) {
  return headers.opcode == wire::Opcode::kUdSendOnly && headers.source_qp == kManagementQpn &&
         headers.qkey == wire::kManagementQkey && headers.payload_bytes == kManagementBytes;
}

}  // namespace

Status Engine::Loop::make_management_ring() {
  static std::atomic<unsigned> count{0};  // a ring's name is unique in the process
  management = rte_ring_create_elem(fmt::format("management-{}", count++).c_str(), sizeof(ManagementDatagram),
                                    kManagementSlots, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
  if (management == nullptr) return fail(ENOMEM, "no memory for the management datagrams of an engine");
  return {};
}

void Engine::Loop::hear_management(std::uint32_t port, const wire::FrameView& view, Origin origin) {
  if (!is_sound(view.headers)) {
    ++counters.dropped_bad_management;
    return;
  }
  ManagementDatagram datagram{port, view.source_gid, view.dest_gid, view.traffic_class, view.hop_limit, {}};
  std::copy(view.payload.begin(), view.payload.end(), datagram.bytes.begin());
  // The limit is for a flood from outside: what this node sends is the control thread's own.
  const bool is_within_limit = origin == Origin::kThisNode || managing.take(now);
  if (!is_within_limit || rte_ring_sp_enqueue_elem(management, &datagram, sizeof datagram) != 0) {
    ++counters.dropped_management;
    return;
  }
  ++counters.management_received;
  // Once, until the control thread has taken what there is.
  if (is_management_told.exchange(true)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(config.control_eventfd, &one, sizeof one);
}

std::optional<ManagementDatagram> Engine::next_management() {
  ManagementDatagram datagram;
  for (const auto& loop : common_->loops) {
    const auto take = [&] {
      return rte_ring_sc_dequeue_elem(loop->management, &datagram, sizeof datagram) == 0;
    };
    if (take()) return datagram;
    // What comes from now on is told of. What came before found that it was told of already, and is seen
    // here: both exchange the flag, the engine after it has put the datagram there.
    if (loop->is_management_told.exchange(false) && take()) return datagram;
  }
  return std::nullopt;
}

void Engine::send_management(const Path& path, std::span<const std::uint8_t, kManagementBytes> bytes) {
  Loop& loop = *common_->loops.front();
  if (loop.ports.at(path.port).backlog.size() >= kMostBacklog) {
    ++loop.counters.unsent_management;
    return;
  }
  wire::Headers headers;
  headers.opcode = wire::Opcode::kUdSendOnly;
  headers.dest_qp = kManagementQpn;
  headers.source_qp = kManagementQpn;
  headers.qkey = wire::kManagementQkey;
  headers.payload_bytes = kManagementBytes;
  headers.psn = Psn(loop.management_sent++);
  const auto ip_id = static_cast<std::uint16_t>(headers.psn.value());
  rte_mbuf* frame = io::new_frame(loop.config.frames);
  if (frame == nullptr) {
    ++loop.counters.unsent_management;
    return;
  }
  const std::size_t size = wire::frame_bytes(path.flow, headers);
  URDMA_CHECK(rte_pktmbuf_tailroom(frame) >= size);
  auto* room = reinterpret_cast<std::uint8_t*>(rte_pktmbuf_append(frame, static_cast<std::uint16_t>(size)));
  const std::size_t header = wire::write_frame_headers(path.flow, headers, ip_id, room);
  std::copy(bytes.begin(), bytes.end(), room + header);
  loop.launch_datagram(frame, path);
}

}  // namespace urdma::engine
