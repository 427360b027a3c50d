// Options of IDs (see commands.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>

#include "datapath/control/rdma_cm/commands.hpp"

namespace urdma::control::rdma_cm {
namespace {

template <typename Value>
std::optional<Value> value_of(std::span<const std::byte> bytes) {
  Value value{};
  if (bytes.size() != sizeof(value)) return std::nullopt;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

int set_type_of_service(Id& id, std::span<const std::byte> bytes) {
  const auto value = value_of<std::uint8_t>(bytes);
  if (!value) return EINVAL;
  id.type_of_service = *value;
  return 0;
}

// What the ID says of its port, if it has one already.
void tell_port(Context& context, const Id& id) {
  if (id.has_port)
    context.ports.change(id.space, {id.number, id.source, id.reuses_address, id.family_only.value_or(false)});
}

int set_reuse(Context& context, Id& id, std::span<const std::byte> bytes) {
  const auto value = value_of<int>(bytes);
  const bool is_allowed =
      id.state == IdState::kIdle || (value && *value != 0 && id.state != IdState::kListening);
  if (!value || !is_allowed) return EINVAL;
  id.reuses_address = *value != 0;
  tell_port(context, id);
  return 0;
}

int set_family_only(Context& context, Id& id, std::span<const std::byte> bytes) {
  const auto value = value_of<int>(bytes);
  if (!value || (id.state != IdState::kIdle && id.state != IdState::kBound)) return EINVAL;
  id.family_only = *value != 0;
  tell_port(context, id);
  return 0;
}

int set_ack_timeout(Id& id, std::span<const std::byte> bytes) {
  constexpr std::uint8_t kMostTimeout = 31;
  const auto value = value_of<std::uint8_t>(bytes);
  if (!value || *value > kMostTimeout || (id.type != QpType::kRc && id.type != QpType::kXrcSend))
    return EINVAL;
  id.ack_timeout = *value;
  return 0;
}

int set_of_id(Context& context, Id& id, std::uint32_t option, std::span<const std::byte> bytes) {
  switch (option) {
    case RDMA_OPTION_ID_TOS:
      return set_type_of_service(id, bytes);
    case RDMA_OPTION_ID_REUSEADDR:
      return set_reuse(context, id, bytes);
    case RDMA_OPTION_ID_AFONLY:
      return set_family_only(context, id, bytes);
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      return set_ack_timeout(id, bytes);
    default:
      return ENOSYS;
  }
}

// A path that the program has found itself, by a subnet manager or a cache of its answers. RoCE has nothing
// of it that the addresses do not say.
int set_path(Context& context, Id& id, std::span<const std::byte> bytes) {
  constexpr std::uint32_t kWanted = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  bool is_there = false;
  if (bytes.size() % sizeof(ib_path_rec_data) != 0) return EINVAL;
  for (; !bytes.empty(); bytes = bytes.subspan(sizeof(ib_path_rec_data))) {
    std::uint32_t flags = 0;
    std::memcpy(&flags, bytes.data(), sizeof(flags));
    is_there |= flags == kWanted;
  }
  if (!is_there || id.state != IdState::kAddressResolved) return EINVAL;
  id.state = IdState::kRouteResolved;
  context.post(id, Context::event_of(id, EventType::kRouteResolved, 0));
  return 0;
}

}  // namespace

Reply set_option(Context& context, Channel& channel, const Request& request) {
  const auto body = request.read<rdma_ucm_set_option>();
  int error = 0;
  Id* id = context.find(channel, body.id, error);
  if (id == nullptr) return refuse(error);
  if (body.optlen != request.extra.size()) return refuse(EINVAL);
  switch (body.level) {
    case RDMA_OPTION_ID:
      return refuse(set_of_id(context, *id, body.optname, request.extra));
    case RDMA_OPTION_IB:
      return refuse(body.optname == RDMA_OPTION_IB_PATH ? set_path(context, *id, request.extra) : ENOSYS);
    default:
      return refuse(ENOSYS);
  }
}

}  // namespace urdma::control::rdma_cm
