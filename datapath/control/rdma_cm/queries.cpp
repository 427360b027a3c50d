// What programs ask of an ID: its addresses, its path, its GIDs (see commands.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <endian.h>

#include <algorithm>
#include <cerrno>

#include "datapath/control/rdma_cm/commands.hpp"
#include "datapath/control/rdma_cm/path_constants.hpp"
#include "urdma/wire/ip_cm.hpp"

namespace urdma::control::rdma_cm {
namespace {

constexpr std::uint32_t kNoDeviceIndex = ~std::uint32_t{0};  // programs go by the GUID
constexpr std::uint8_t kExactly = 2;                         // of the selectors of a path

bool has_path(const Id& id) {
  switch (id.state) {
    case IdState::kIdle:
    case IdState::kBound:
    case IdState::kResolvingAddress:
    case IdState::kAddressResolved:
    case IdState::kListening:
      return false;
    case IdState::kRouteResolved:
    case IdState::kRequested:
    case IdState::kConnecting:
    case IdState::kConnected:
    case IdState::kDisconnected:
    case IdState::kOver:
      return id.local.has_value();
  }
  return false;
}

wire::Gid local_gid(const Id& id) { return id.local ? id.local->gid : wire::Gid{}; }

std::uint8_t life_time(const Id& id) {
  return id.ack_timeout && *id.ack_timeout > 0 ? static_cast<std::uint8_t>(*id.ack_timeout - 1)
                                               : kPacketLifeTime;
}

void fill_path(const Context& context, const Id& id, ib_user_path_rec& path) {
  std::copy(id.remote_gid.begin(), id.remote_gid.end(), path.dgid);
  const wire::Gid own = local_gid(id);
  std::copy(own.begin(), own.end(), path.sgid);
  path.pkey = htobe16(kDefaultPkey);
  if (!has_path(id)) return;
  const DeviceFacts facts = context.network.facts(id.local->device);
  path.reversible = 1;
  path.numb_path = 1;
  path.mtu = facts.path_mtu;
  path.hop_limit = kHopLimit;
  path.traffic_class = id.traffic_class;
  path.mtu_selector = path.rate_selector = path.packet_life_time_selector = kExactly;
  path.rate = facts.rate;
  path.packet_life_time = life_time(id);
}

// A path as the subnet administrator sends it (IBTA 1, 15.2.5.16).
struct PathRecord {
  std::uint8_t service_id[8];
  std::uint8_t dgid[16];
  std::uint8_t sgid[16];
  std::uint8_t lids[4];
  std::uint8_t flow_label[3];
  std::uint8_t hop_limit;
  std::uint8_t traffic_class;
  std::uint8_t reversible_and_paths;
  std::uint8_t pkey[2];
  std::uint8_t class_and_level[2];
  std::uint8_t mtu;  // this and the next two: selector, value
  std::uint8_t rate;
  std::uint8_t life_time;
  std::uint8_t preference;
  std::uint8_t reserved[6];
};
static_assert(sizeof(PathRecord) == sizeof(ib_path_rec_data::path_rec));

PathRecord record_of(const Context& context, const Id& id) {
  constexpr unsigned kSelectorShift = 6;
  constexpr std::uint8_t kReversibleOnePath = 0x81;
  const auto exactly = [](std::uint8_t value) {
    return static_cast<std::uint8_t>(kExactly << kSelectorShift | value);
  };
  const DeviceFacts facts = context.network.facts(id.local->device);
  PathRecord record{};
  std::copy(id.remote_gid.begin(), id.remote_gid.end(), record.dgid);
  std::copy(id.local->gid.begin(), id.local->gid.end(), record.sgid);
  record.hop_limit = kHopLimit;
  record.traffic_class = id.traffic_class;
  record.reversible_and_paths = kReversibleOnePath;
  record.pkey[0] = record.pkey[1] = kDefaultPkey & 0xFF;
  record.mtu = exactly(facts.path_mtu);
  record.rate = exactly(facts.rate);
  record.life_time = exactly(life_time(id));
  return record;
}

template <typename Response>
void fill_device(const Context& context, const Id& id, Response& response) {
  response.ibdev_index = kNoDeviceIndex;
  if (!id.local) return;
  response.node_guid = context.network.facts(id.local->device).node_guid;
  response.port_num = kPort;
}

Reply query_address(const Context& context, const Id& id, const Request& request) {
  if (request.response_bytes < offsetof(rdma_ucm_query_addr_resp, ibdev_index)) return refuse(ENOSPC);
  rdma_ucm_query_addr_resp response{};
  fill_device(context, id, response);
  if (id.local) response.pkey = htobe16(kDefaultPkey);
  response.src_size = static_cast<std::uint16_t>(
      write_address(id.source, std::as_writable_bytes(std::span(&response.src_addr, 1))));
  response.dst_size = static_cast<std::uint16_t>(
      write_address(id.dest, std::as_writable_bytes(std::span(&response.dst_addr, 1))));
  return reply_of(response);
}

Reply query_path(const Context& context, const Id& id, const Request& request) {
  struct {
    std::uint32_t num_paths;
    std::uint32_t reserved;
    ib_path_rec_data path;
  } response{};
  if (request.response_bytes < sizeof(rdma_ucm_query_path_resp)) return refuse(ENOSPC);
  if (!has_path(id) || request.response_bytes < sizeof(response)) return reply_of(std::uint64_t{0});
  response.num_paths = 1;
  response.path.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  const PathRecord record = record_of(context, id);
  std::memcpy(response.path.path_rec, &record, sizeof(record));
  return reply_of(response);
}

// An IP address as one of AF_IB: its GID, and the service ID that its port stands for.
SocketAddress as_ib(const Id& id, const SocketAddress& address, const wire::Gid& gid) {
  if (address.family == Family::kIb) return address;
  SocketAddress result = any_address(Family::kIb);
  result.gid = gid;
  result.pkey = id.local ? kDefaultPkey : std::uint16_t{0};
  result.service_id = wire::ip_service_id(static_cast<std::uint16_t>(id.space), address.port);
  return result;
}

Reply query_gids(const Context& context, const Id& id, const Request& request) {
  if (request.response_bytes < offsetof(rdma_ucm_query_addr_resp, ibdev_index)) return refuse(ENOSPC);
  rdma_ucm_query_addr_resp response{};
  fill_device(context, id, response);
  response.src_size = static_cast<std::uint16_t>(write_address(
      as_ib(id, id.source, local_gid(id)), std::as_writable_bytes(std::span(&response.src_addr, 1))));
  response.dst_size = static_cast<std::uint16_t>(write_address(
      as_ib(id, id.dest, id.remote_gid), std::as_writable_bytes(std::span(&response.dst_addr, 1))));
  return reply_of(response);
}

}  // namespace

Reply query_route(Context& context, Channel& channel, const Request& request) {
  int error = 0;
  const Id* id = context.find(channel, request.read<rdma_ucm_query>().id, error);
  if (id == nullptr) return refuse(error);
  rdma_ucm_query_route_resp response{};
  write_address(id->source, std::as_writable_bytes(std::span(&response.src_addr, 1)));
  write_address(id->dest, std::as_writable_bytes(std::span(&response.dst_addr, 1)));
  fill_device(context, *id, response);
  if (id->local) {
    response.num_paths = has_path(*id) ? 1 : 0;
    fill_path(context, *id, response.ib_route[0]);
  }
  return reply_of(response);
}

Reply query(Context& context, Channel& channel, const Request& request) {
  const auto body = request.read<rdma_ucm_query>();
  int error = 0;
  const Id* id = context.find(channel, body.id, error);
  if (id == nullptr) return refuse(error);
  switch (body.option) {
    case RDMA_USER_CM_QUERY_ADDR:
      return query_address(context, *id, request);
    case RDMA_USER_CM_QUERY_PATH:
      return query_path(context, *id, request);
    case RDMA_USER_CM_QUERY_GID:
      return query_gids(context, *id, request);
    default:
      return refuse(ENOSYS);
  }
}

}  // namespace urdma::control::rdma_cm
