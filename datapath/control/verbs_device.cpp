// Questions about the device (see requests.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "datapath/control/device.hpp"
#include "datapath/control/requests.hpp"

namespace urdma::control {
namespace {

constexpr std::uint32_t kPort = 1;  // a device has one

Status check_port(std::uint32_t port) {
  if (port != kPort) return fail(EINVAL, fmt::format("the device has no port {}", port));
  return {};
}

}  // namespace

Outcome query_device(Node& node, ClientSession& session, Request&) {
  return reply_with(node.devices.at(session.device).info(node.limits));
}

Outcome query_port(Node& node, ClientSession& session, Request& request) {
  const auto asked = request.as<abi::QueryPort>();
  if (auto good = check_port(asked.port); !good) return tl::make_unexpected(good.error());
  return reply_with(node.devices.at(session.device).port_info());
}

Outcome query_gid_table(Node& node, ClientSession& session, Request& request) {
  const auto asked = request.as<abi::QueryGidTable>();
  if (auto good = check_port(asked.port); !good) return tl::make_unexpected(good.error());
  const GidTable& table = node.devices.at(session.device).gids;
  abi::QueryGidTableReply reply{};
  for (std::uint32_t index = 0; index < table.capacity() && reply.count < reply.kMaxEntries; ++index) {
    const PortGid* entry = table.at(index);
    if (entry == nullptr) continue;
    abi::GidEntry& shown = reply.entries[reply.count++];
    std::copy(entry->gid.begin(), entry->gid.end(), shown.gid);
    shown.index = index;
    shown.ifindex = static_cast<std::uint32_t>(entry->ifindex);
  }
  return reply_with(reply);
}

}  // namespace urdma::control
