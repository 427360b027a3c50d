// XRC domains, and receive QPs that another process has made (see requests.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fcntl.h>

#include "datapath/control/requests.hpp"
#include "datapath/control/retirement.hpp"
#include "datapath/control/shares.hpp"

namespace urdma::control {

Outcome open_xrcd(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::OpenXrcd>();
  if ((wanted.has_file != 0) != (request.fds.size() == 1)) {
    return fail(EINVAL, "a file comes with its descriptor, and nothing else does");
  }
  const auto room = check_room(node, session, kXrcDomains, session.objects.xrcds.size());
  if (!room) return tl::make_unexpected(room.error());
  std::optional<FileIdentity> file;
  if (wanted.has_file != 0) {
    auto identity = identify_file(request.fds.front().get());
    if (!identity) return tl::make_unexpected(identity.error());
    file = *identity;
  }
  const bool may_create = (wanted.flags & O_CREAT) != 0;
  const XrcDomains::Wish wish{may_create, may_create && (wanted.flags & O_EXCL) != 0};
  auto domain = node.xrc_domains.open(session.device, file, wish);
  if (!domain) return tl::make_unexpected(domain.error());
  auto entry = std::make_unique<XrcdEntry>();
  entry->domain = std::move(*domain);
  ++node.usage.xrcds;
  return reply_with(abi::Handle{session.objects.xrcds.insert(std::move(entry)), 0});
}

Outcome close_xrcd(Node& node, ClientSession& session, Request& request) {
  const std::uint32_t handle = request.as<abi::Handle>().handle;
  const XrcdEntry* entry = session.objects.xrcds.find(handle);
  if (entry == nullptr) return fail(EINVAL, "there is no such XRC domain");
  if (entry->users != 0) return fail(EBUSY, "the XRC domain still has queues or queue pairs");
  session.objects.xrcds.take(handle);
  --node.usage.xrcds;
  return empty_reply();
}

Outcome open_qp(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::OpenQp>();
  XrcdEntry* xrcd = session.objects.xrcds.find(wanted.xrcd);
  if (xrcd == nullptr) return fail(EINVAL, "there is no such XRC domain");
  const auto found = xrcd->domain->qps.find(wanted.qpn);
  std::shared_ptr<QpEntry> entry = found != xrcd->domain->qps.end() ? found->second.lock() : nullptr;
  if (entry == nullptr) return fail(EINVAL, "the XRC domain has no such queue pair");
  // Each opening counts: whoever opens one QP without end takes nothing from others.
  const auto room = check_room(node, session, kQueuePairs, session.objects.qps.size());
  if (!room) return tl::make_unexpected(room.error());
  engine::Qp& qp = *entry->qp;
  abi::CreateQpReply reply{};
  reply.qpn = qp.qpn().value;
  reply.doorbell = qp.config().doorbell;
  reply.handle = share_xrc_qp(node, session, wanted.xrcd, std::move(entry), wanted.user_pointer);
  return reply_with(reply);
}

}  // namespace urdma::control
