// ModifyQp: judges the attributes, finds the path where there is an address, which may take as long as a
// neighbour takes to answer, and has the engine apply both. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fmt/format.h>

#include <memory>

#include "datapath/control/addressing.hpp"
#include "datapath/control/device.hpp"
#include "datapath/control/failures.hpp"
#include "datapath/control/qp_attributes.hpp"
#include "datapath/control/requests.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::control {
namespace {

// `path` is looked at where the mask has kAttrAv.
Outcome apply(Node& node, QpEntry& entry, const abi::ModifyQp& wanted, const engine::Path& path) {
  const bool has_address = (wanted.mask & kAttrAv) != 0;
  const bool is_local = has_address ? path.is_local : entry.is_local;
  if (is_local != entry.is_local && (wanted.mask & kAttrPathMtu) == 0) {
    return fail(EINVAL, "a queue pair cannot move between a peer on this node and one elsewhere");
  }
  transport::QpAttributes attributes = to_transport(wanted.attributes, wanted.mask);
  attributes.packet_bytes = is_local ? engine::kLocalPacketBytes : mtu_bytes(attributes.path_mtu_code);
  if (entry.qp->is_datagram()) attributes.packet_bytes = entry.qp->config().most_datagram_bytes;
  int error = 0;
  node.engine.run([&] { error = node.engine.modify_qp(*entry.qp, wanted.mask, attributes, path); });
  if (error != 0) return fail(error, "the queue pair cannot make this move, or not with these attributes");
  entry.is_local = is_local;
  if ((wanted.mask & kAttrPathMtu) != 0) entry.path_mtu_code = wanted.attributes.path_mtu;
  if (has_address) {
    entry.address = wanted.attributes.address;
    entry.source_gid = path.source_gid;
  }
  return empty_reply();
}

// The path has been found, or has not; meanwhile the QP and its session may be gone.
Outcome finish(Node& node, std::uint32_t session_id, const abi::ModifyQp& wanted,
               const Result<engine::Path>& path) {
  ClientSession* session = node.sessions.find(session_id);
  QpEntry* entry = session != nullptr ? session->objects.qps.find(wanted.handle) : nullptr;
  if (entry == nullptr) return fail(EINVAL, "the queue pair was destroyed meanwhile");
  entry->is_modifying = false;
  if (!path) {
    note_failure(node, *session, entry->qp->qpn().value, wanted.attributes.address, path.error().message);
    return tl::make_unexpected(path.error());
  }
  return apply(node, *entry, wanted, *path);
}

// A QP is in RESET: the program may use its buffers for something else once it hears of that. So it hears of
// it when no copier writes there any more.
Outcome reply_when_quiet(Node& node, ClientSession& session, QpEntry& entry, const ReplyTo& to,
                         std::uint32_t handle) {
  const std::uint64_t wait = node.waits.add([&node, id = session.id, to, handle](std::uint64_t) {
    ClientSession* waiting = node.sessions.find(id);
    QpEntry* reset = waiting != nullptr ? waiting->objects.qps.find(handle) : nullptr;
    if (reset != nullptr) reset->is_modifying = false;
    node.sender.reply(to, empty_reply());
  });
  bool is_quiet = false;
  node.engine.run([&] { is_quiet = node.engine.quiesce(*entry.qp, wait); });
  if (is_quiet) {
    node.waits.drop(wait);
    return empty_reply();
  }
  entry.is_modifying = true;
  return reply_later();
}

// What one half of an XRC connection does not have: programs set it for both, and Linux takes it off.
std::uint32_t ignored_attributes(QpType type) {
  switch (type) {
    case QpType::kXrcSend:
      return kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
    case QpType::kXrcRecv:
      return kAttrMaxQpRdAtomic | kAttrRetryCnt | kAttrRnrRetry;
    case QpType::kRc:
    case QpType::kUc:
    case QpType::kUd:
      break;
  }
  return 0;
}

}  // namespace

Outcome modify_qp(Node& node, ClientSession& session, Request& request) {
  auto wanted = request.as<abi::ModifyQp>();
  QpEntry* entry = session.objects.qps.find(wanted.handle);
  if (entry == nullptr) return fail(EINVAL, "there is no such queue pair");
  wanted.mask &= ~ignored_attributes(entry->qp->config().transport.type);
  if (entry->is_modifying) return fail(EBUSY, "another change of this queue pair is not done yet");
  const Device& device = node.devices.at(session.device);
  const auto good = check_attributes(wanted.attributes, wanted.mask, node.limits, device.active_mtu_code);
  if (!good) return tl::make_unexpected(good.error());
  if ((wanted.mask & kAttrAv) == 0) {
    Outcome outcome = apply(node, *entry, wanted, engine::Path{});
    const bool is_reset =
        (wanted.mask & kAttrState) != 0 && static_cast<QpState>(wanted.attributes.state) == QpState::kReset;
    if (!outcome || !is_reset) return outcome;
    return reply_when_quiet(node, session, *entry, request.to, wanted.handle);
  }
  entry->is_modifying = true;
  const auto done = [&node, id = session.id, to = request.to, wanted](const Result<engine::Path>& path) {
    node.sender.reply(to, finish(node, id, wanted, path));
  };
  node.addressing.find_path(device, wanted.attributes.address, entry->qp->qpn(),
                            Qpn{wanted.attributes.dest_qpn}, done);
  return reply_later();
}

}  // namespace urdma::control
