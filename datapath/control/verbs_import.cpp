// Protection domains and regions of other contexts of the same identity (see requests.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/requests.hpp"
#include "datapath/control/shares.hpp"

namespace urdma::control {
namespace {

// The object of this handle in whichever session has been opened with the same identity; null if none has it.
template <typename Object>
Object* find_among_siblings(const Node& node, const ClientSession& session,
                            HandleTable<Object> Objects::*table, std::uint32_t handle) {
  for (const auto& [id, sibling] : node.sessions) {
    if (sibling->identity != session.identity || sibling->is_ending) continue;
    if (Object* found = (sibling->objects.*table).find(handle)) return found;
  }
  return nullptr;
}

}  // namespace

Outcome import_pd(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::Handle>();
  if (session.objects.pds.find(wanted.handle) != nullptr) return reply_with(wanted);
  const ProtectionDomain* pd = find_among_siblings(node, session, &Objects::pds, wanted.handle);
  if (pd == nullptr) return fail(EINVAL, "no context of this device has such a protection domain");
  const auto room = check_room(node, session, kProtectionDomains, session.objects.pds.size());
  if (!room) return tl::make_unexpected(room.error());
  auto same = std::make_unique<ProtectionDomain>();
  same->id = pd->id;
  ++node.usage.pds;
  session.objects.pds.insert_as(wanted.handle, std::move(same));
  return reply_with(abi::Handle{wanted.handle, 0});
}

// Nothing is made: whoever is of its protection domain may use a region.
Outcome import_mr(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::ImportMr>();
  const ProtectionDomain* pd = session.objects.pds.find(wanted.pd);
  const RegionEntry* entry = find_among_siblings(node, session, &Objects::regions, wanted.handle);
  if (pd == nullptr || entry == nullptr || entry->region.pd != pd->id) {
    return fail(EINVAL, "the protection domain has no such region");
  }
  const memory::Region& region = entry->region;
  return reply_with(abi::ImportMrReply{wanted.handle, region.key.value, region.length, region.iova});
}

// Nothing is made here either: the pages are there for as long as somebody maps them.
Outcome import_dm(Node& node, ClientSession& session, Request& request) {
  const std::uint32_t handle = request.as<abi::Handle>().handle;
  return describe_dm(handle, find_among_siblings(node, session, &Objects::device_memories, handle));
}

}  // namespace urdma::control
