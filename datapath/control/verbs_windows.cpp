// Memory windows: made and taken apart here, bound and invalidated by work requests (see requests.hpp).
// Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/requests.hpp"
#include "datapath/control/retirement.hpp"
#include "datapath/control/shares.hpp"

namespace urdma::control {
namespace {

bool is_window_type(std::uint32_t type) {
  return type == static_cast<std::uint32_t>(memory::WindowType::kType1) ||
         type == static_cast<std::uint32_t>(memory::WindowType::kType2);
}

}  // namespace

Outcome alloc_mw(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::AllocMw>();
  ProtectionDomain* pd = session.objects.pds.find(wanted.pd);
  if (pd == nullptr) return fail(EINVAL, "there is no such protection domain");
  if (!is_window_type(wanted.type)) return fail(EINVAL, "there are memory windows of type 1 and 2");
  const auto room = check_room(node, session, kWindows, session.objects.windows.size());
  if (!room) return tl::make_unexpected(room.error());
  auto entry = std::make_unique<RegionEntry>();
  entry->pd = wanted.pd;
  memory::Region& window = entry->region;
  window.kind = memory::Region::Kind::kWindow;
  window.binding.type = static_cast<memory::WindowType>(wanted.type);
  window.key = node.keys.draw();
  window.pd = pd->id;
  window.session = session.id;
  window.handle = session.objects.windows.next_handle();
  bool was_added = false;
  node.engine.run([&] { was_added = node.engine.add_region(window); });
  if (!was_added) {
    node.keys.release(window.key);
    return fail(ENOMEM, "the engine has no room for another memory window");
  }
  ++pd->users;
  ++node.usage.windows;
  const abi::AllocMwReply reply{window.handle, window.key.value};
  session.objects.windows.insert(std::move(entry));
  return reply_with(reply);
}

Outcome dealloc_mw(Node& node, ClientSession& session, Request& request) {
  const std::uint32_t handle = request.as<abi::Handle>().handle;
  if (session.objects.windows.find(handle) == nullptr) return fail(EINVAL, "there is no such memory window");
  retire_window(node, session, handle, [&node, to = request.to] { node.sender.reply(to, empty_reply()); });
  return reply_later();
}

}  // namespace urdma::control
