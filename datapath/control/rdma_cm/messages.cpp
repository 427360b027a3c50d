// Messages and events (see messages.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/rdma_cm/messages.hpp"

#include <algorithm>

#include "datapath/control/rdma_cm/path_constants.hpp"

namespace urdma::control::rdma_cm {
namespace {

template <typename Parameters>
void put(Parameters& to, std::span<const std::uint8_t> data, std::size_t size) {
  std::copy_n(data.begin(), std::min(data.size(), size), to.private_data);
  to.private_data_len = static_cast<std::uint8_t>(size);
}

}  // namespace

ib_uverbs_ah_attr address_attributes(const Context& context, const Id& id, const wire::Gid& dest) {
  ib_uverbs_ah_attr attributes{};
  std::copy(dest.begin(), dest.end(), attributes.grh.dgid);
  attributes.grh.sgid_index = context.network.gid_index(*id.local).value_or(0);
  attributes.grh.hop_limit = kHopLimit;
  attributes.grh.traffic_class = id.traffic_class;
  attributes.is_global = 1;
  attributes.port_num = kPort;
  return attributes;
}

cm::ServiceId service_of(PortSpace space, std::uint16_t port) {
  return {wire::ip_service_id(static_cast<std::uint16_t>(space), port)};
}

cm::Ends ends_of(const Id& id) {
  cm::Ends ends;
  ends.local = id.local->gid;
  ends.remote = id.remote_gid;
  ends.traffic_class = id.traffic_class;
  ends.hop_limit = kHopLimit;
  return ends;
}

std::optional<cm::PrivateData> with_header(const Id& id, std::span<const std::uint8_t> data,
                                           std::size_t most) {
  cm::PrivateData whole;
  const std::size_t size = wire::kIpCmHeaderBytes + data.size();
  if (size > most || size > cm::PrivateData::kMost) return std::nullopt;
  const wire::IpCmHeader header{id.source.family == Family::kIpv6, id.source.port, id.source.gid,
                                id.dest.gid};
  wire::write_ip_cm(header, std::span(whole.bytes).first<wire::kIpCmHeaderBytes>());
  std::copy(data.begin(), data.end(), whole.bytes.begin() + wire::kIpCmHeaderBytes);
  whole.size = static_cast<std::uint8_t>(size);
  return whole;
}

void set_data(rdma_ucm_conn_param& to, std::span<const std::uint8_t> data, std::size_t size) {
  put(to, data, size);
}

void set_data(rdma_ucm_ud_param& to, std::span<const std::uint8_t> data, std::size_t size) {
  put(to, data, size);
}

std::uint8_t cut(std::uint8_t wanted, std::uint32_t most) {
  return static_cast<std::uint8_t>(std::min<std::uint32_t>(wanted, most));
}

void set_peer(rdma_ucm_conn_param& to, const cm::QpParameters& peer) {
  to.qp_num = peer.qpn.value;
  to.responder_resources = peer.initiator_depth;
  to.initiator_depth = peer.responder_resources;
  to.rnr_retry_count = peer.rnr_retry_count;
  to.srq = peer.has_srq ? 1 : 0;
  to.flow_control = peer.has_end_to_end_flow_control ? 1 : 0;
}

}  // namespace urdma::control::rdma_cm
