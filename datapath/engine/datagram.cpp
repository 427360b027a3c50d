// Datagrams: each finds its own way, by an address handle, to one QP or to all of a multicast group. A
// datagram always stands in a frame, also inside the node, where it goes straight to receive.cpp: its GRH is
// made of its headers.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <rte_mbuf.h>

#include <algorithm>

#include "datapath/engine/loop.hpp"
#include "datapath/io/frame.hpp"
#include "urdma/base/check.hpp"

namespace urdma::engine {

namespace {

// The datagram's receive gets its GRH as well.
void put_grh_in_front(rte_mbuf* frame, wire::FrameView& view) {
  auto* const bytes = rte_pktmbuf_mtod(frame, std::uint8_t*);
  auto* const payload = bytes + (view.payload.data() - bytes);
  wire::write_grh(bytes, payload);
  view.payload = {payload - wire::kGrhBytes, view.payload.size() + wire::kGrhBytes};
  const bool is_ipv4 = wire::is_ipv4_mapped(view.source_gid) && wire::is_ipv4_mapped(view.dest_gid);
  view.headers.network = is_ipv4 ? NetworkHeader::kIpv4 : NetworkHeader::kIpv6;
}

}  // namespace

void Engine::Loop::send_datagram(Qp& qp, const transport::TxPacket& packet) {
  const AddressHandle* to = qp.address_handle(packet.address_handle);
  if (to == nullptr) {
    // It was there when the request was fetched.
    qp.transport().on_gather_failed(packet, transport::MemoryResult::kProtection, now);
    mark_ready(qp);
    return;
  }
  wire::FlowTemplate flow = to->path.flow;
  wire::set_source_port(flow, flow_port(qp.qpn(), packet.headers.dest_qp));
  send_as_frame(qp, packet, flow, to->path);
}

// A datagram whose payload is in place.
void Engine::Loop::launch_datagram(rte_mbuf* frame, const Route& route) {
  if (route.is_local) {
    ++counters.local_packets;
    if (hand_to_owner(route.dest_port, frame, wire::IcrcPolicy::kTrusted)) return;
    take_frame(ports[route.dest_port], frame, wire::IcrcPolicy::kTrusted, Origin::kThisNode);
    return;
  }
  // What a port sends to a group does not come back to it, but for a loopback's.
  const bool comes_back = ports[route.port].port->is_loopback();
  if (route.is_multicast && !comes_back && common.groups.contains({route.port, route.dest_gid})) {
    rte_mbuf* copy = io::copy_frame(frame, config.frames);
    if (copy != nullptr) {
      take_frame(ports[route.port], copy, wire::IcrcPolicy::kTrusted, Origin::kThisNode);
    } else {
      ++counters.dropped_no_buffer;
    }
  }
  launch(frame, route);
}

// A received datagram, to whom it is for.
void Engine::Loop::take_datagram(PortState& port, wire::FrameView& view, rte_mbuf* frame, Origin origin) {
  const auto port_index = static_cast<std::uint32_t>(&port - ports.data());
  if (view.headers.dest_qp == kMulticastQpn && wire::is_multicast_gid(view.dest_gid)) {
    return take_multicast(port_index, view, frame, origin);
  }
  Qp* qp = nullptr;
  if (std::find(port.gids.begin(), port.gids.end(), view.dest_gid) == port.gids.end()) {
    ++counters.dropped_wrong_address;
  } else if (view.headers.dest_qp == kManagementQpn) {
    hear_management(port_index, view, origin);
  } else {
    qp = own_qp(view.headers.dest_qp.value);
    if (qp != nullptr && (!qp->is_datagram() || qp->config().port != port_index)) qp = nullptr;
    if (qp == nullptr) ++counters.dropped_unknown_qp;
    qp = judge_receiver(qp);
  }
  if (qp != nullptr) put_grh_in_front(frame, view);
  hand_over(qp, view, frame);
}

void Engine::Loop::take_multicast(std::uint32_t port, wire::FrameView& view, rte_mbuf* frame, Origin origin) {
  const auto group = common.groups.find({port, view.dest_gid});
  if (group == common.groups.end()) {
    ++counters.dropped_no_group;
  } else {
    if (origin != Origin::kOtherEngine) spread(group->second, port, frame);
    put_grh_in_front(frame, view);
    for (Qp* member : group->second) {
      if (member->engine() != index) continue;
      rte_mbuf_refcnt_update(frame, 1);
      hand_over(judge_receiver(member), view, frame);
    }
  }
  io::free_frame(frame);
}

void Engine::attach_mcast(Qp& qp, const wire::Gid& group) {
  std::vector<Qp*>& members = common_->groups[{qp.config().port, group}];
  if (std::find(members.begin(), members.end(), &qp) == members.end()) members.push_back(&qp);
}

void Engine::detach_mcast(Qp& qp, const wire::Gid& group) {
  const auto found = common_->groups.find({qp.config().port, group});
  if (found == common_->groups.end()) return;
  std::erase(found->second, &qp);
  if (found->second.empty()) common_->groups.erase(found);
}

void Engine::add_address_handle(Session& session, const AddressHandle& handle) {
  session.add_address_handle(handle);
}

void Engine::remove_address_handle(Session& session, std::uint32_t handle) {
  session.remove_address_handle(handle);
}

}  // namespace urdma::engine
