// Protection domains and memory regions (see requests.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fmt/format.h>

#include "datapath/control/requests.hpp"
#include "datapath/control/retirement.hpp"
#include "datapath/control/shares.hpp"
#include "urdma/base/check.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::control {
namespace {

// What a region may be registered with. Huge pages are no concern of this device.
constexpr std::uint32_t kKnownAccess = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
                                       kAccessRemoteAtomic | kAccessMwBind | kAccessZeroBased |
                                       kAccessOnDemand | kAccessHugetlb | kAccessOptionalMask;
constexpr std::uint32_t kKnownRereg = abi::kReregTranslation | abi::kReregPd | abi::kReregAccess;

bool overflows(std::uint64_t start, std::uint64_t length) {
  return length != 0 && length - 1 > UINT64_MAX - start;
}

// All of the program's memory, whatever it will be (ibv_reg_mr with ODP).
bool is_implicit(const abi::RegMr& request) {
  return (request.access & kAccessOnDemand) != 0 && request.address == 0 && request.iova == 0 &&
         request.length == UINT64_MAX;
}

// Judges flags and ranges of a registration (IBTA 1, 10.6.3.1 and 11.2.8.2).
Status check_region(const Limits& limits, const abi::RegMr& request) {
  if ((request.access & ~kKnownAccess) != 0) {
    return fail(EINVAL, fmt::format("unknown access flags {:#x}", request.access & ~kKnownAccess));
  }
  const bool remote_writes = (request.access & (kAccessRemoteWrite | kAccessRemoteAtomic)) != 0;
  if (remote_writes && (request.access & kAccessLocalWrite) == 0) {
    return fail(EINVAL, "remote writes and atomics need local write access as well");
  }
  if (is_implicit(request)) return {};
  if (request.length > limits.max_mr_bytes) {
    return fail(EINVAL, fmt::format("a region has at most {} bytes", limits.max_mr_bytes));
  }
  if (overflows(request.address, request.length) || overflows(request.iova, request.length)) {
    return fail(EINVAL, "the region runs over the end of the address space");
  }
  return {};
}

void describe(memory::Region& region, const abi::RegMr& wanted) {
  region.access = wanted.access;
  region.iova = (wanted.access & kAccessZeroBased) != 0 ? 0 : wanted.iova;
  region.address = wanted.address;
  region.length = wanted.length;
}

// A region with a new key, as yet unknown to the engine.
std::unique_ptr<RegionEntry> make_region(Node& node, ClientSession& session, std::uint32_t pd) {
  auto entry = std::make_unique<RegionEntry>();
  entry->pd = pd;
  entry->region.key = node.keys.draw();
  entry->region.pd = session.objects.pds.find(pd)->id;
  entry->region.space = session.process->space.get();
  entry->region.session = session.id;
  return entry;
}

// Makes a region known: to the engine, then to the session.
Outcome add_region(Node& node, ClientSession& session, std::unique_ptr<RegionEntry> entry) {
  memory::Region& region = entry->region;
  region.handle = session.objects.regions.next_handle();
  bool was_added = false;
  node.engine.run([&] { was_added = node.engine.add_region(region); });
  if (!was_added) {
    node.keys.release(region.key);
    return fail(ENOMEM, "the engine has no room for another memory region");
  }
  ++session.objects.pds.find(entry->pd)->users;
  ++node.usage.regions;
  const abi::RegMrReply reply{region.handle, region.key.value};
  session.objects.regions.insert(std::move(entry));
  return reply_with(reply);
}

// What the region is to become.
abi::RegMr merge(const RegionEntry& entry, const abi::ReregMr& wanted) {
  const memory::Region& now = entry.region;
  abi::RegMr merged{entry.pd, now.access, now.address, now.length, now.iova};
  if ((wanted.flags & abi::kReregPd) != 0) merged.pd = wanted.region.pd;
  if ((wanted.flags & abi::kReregAccess) != 0) merged.access = wanted.region.access;
  if ((wanted.flags & abi::kReregTranslation) != 0) {
    merged.address = wanted.region.address;
    merged.length = wanted.region.length;
    merged.iova = wanted.region.iova;
  }
  return merged;
}

// Whether windows are bound to it (IBTA 1, 11.2.8.4 and 11.2.8.5).
Status check_unbound(Node& node, const RegionEntry& entry) {
  bool is_bound = false;
  node.engine.run([&] { is_bound = entry.region.windows != nullptr; });
  if (is_bound) return fail(EBUSY, "memory windows are bound to the region");
  return {};
}

// Another protection domain, other access: the same key, other rules from now on.
void change_region(Node& node, ClientSession& session, RegionEntry& entry, const abi::RegMr& merged) {
  ProtectionDomain* pd = session.objects.pds.find(merged.pd);
  node.engine.run([&] {
    entry.region.pd = pd->id;
    entry.region.access = merged.access;
  });
  if (ProtectionDomain* former = session.objects.pds.find(entry.pd)) --former->users;
  ++pd->users;
  entry.pd = merged.pd;
}

// Other memory: another region takes the handle; the old one is returned.
std::unique_ptr<RegionEntry> replace_region(Node& node, ClientSession& session, std::uint32_t handle,
                                            const abi::RegMr& merged) {
  auto made = make_region(node, session, merged.pd);
  memory::Region& region = made->region;
  describe(region, merged);
  region.handle = handle;
  auto former = session.objects.regions.exchange(handle, std::move(made));
  node.engine.run([&] {
    node.engine.remove_region(former->region);
    // A place has just become free, and no two regions have one index.
    URDMA_CHECK(node.engine.add_region(region));
  });
  ++session.objects.pds.find(merged.pd)->users;
  ++node.usage.regions;
  return former;
}

}  // namespace

Outcome alloc_pd(Node& node, ClientSession& session, Request&) {
  const auto room = check_room(node, session, kProtectionDomains, session.objects.pds.size());
  if (!room) return tl::make_unexpected(room.error());
  ++node.usage.pds;
  auto pd = std::make_unique<ProtectionDomain>();
  pd->id = PdId{++node.last_pd};
  return reply_with(abi::Handle{session.objects.pds.insert(std::move(pd)), 0});
}

Outcome dealloc_pd(Node& node, ClientSession& session, Request& request) {
  const std::uint32_t handle = request.as<abi::Handle>().handle;
  const ProtectionDomain* pd = session.objects.pds.find(handle);
  if (pd == nullptr) return fail(EINVAL, "there is no such protection domain");
  if (pd->users != 0) return fail(EBUSY, "the protection domain still has regions or queue pairs");
  session.objects.pds.take(handle);
  --node.usage.pds;
  return empty_reply();
}

Outcome reg_mr(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::RegMr>();
  if (session.objects.pds.find(wanted.pd) == nullptr)
    return fail(EINVAL, "there is no such protection domain");
  if (auto good = check_region(node.limits, wanted); !good) return tl::make_unexpected(good.error());
  if (auto good = check_room(node, session, kRegions, session.objects.regions.size()); !good)
    return tl::make_unexpected(good.error());
  auto entry = make_region(node, session, wanted.pd);
  describe(entry->region, wanted);
  return add_region(node, session, std::move(entry));
}

Outcome alloc_null_mr(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::AllocNullMr>();
  if (session.objects.pds.find(wanted.pd) == nullptr)
    return fail(EINVAL, "there is no such protection domain");
  if (auto good = check_room(node, session, kRegions, session.objects.regions.size()); !good)
    return tl::make_unexpected(good.error());
  auto entry = make_region(node, session, wanted.pd);
  entry->region.kind = memory::Region::Kind::kNull;
  entry->region.access = kAccessLocalWrite;  // for elements of requests; peers have no business there
  entry->region.length = UINT64_MAX;
  entry->region.space = nullptr;
  return add_region(node, session, std::move(entry));
}

Outcome rereg_mr(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::ReregMr>();
  RegionEntry* entry = session.objects.regions.find(wanted.handle);
  if (entry == nullptr || entry->region.kind != memory::Region::Kind::kMemory) {
    return fail(EINVAL, "there is no such memory region");
  }
  if (wanted.flags == 0 || (wanted.flags & ~kKnownRereg) != 0) {
    return fail(EINVAL, "nothing, or something unknown, of the region is to be changed");
  }
  const abi::RegMr merged = merge(*entry, wanted);
  if (session.objects.pds.find(merged.pd) == nullptr)
    return fail(EINVAL, "there is no such protection domain");
  if (auto good = check_region(node.limits, merged); !good) return tl::make_unexpected(good.error());
  if (auto good = check_unbound(node, *entry); !good) return tl::make_unexpected(good.error());
  std::unique_ptr<RegionEntry> former;
  if ((wanted.flags & abi::kReregTranslation) != 0) {
    former = replace_region(node, session, wanted.handle, merged);
  } else {
    change_region(node, session, *entry, merged);
  }
  const abi::RegMrReply reply{wanted.handle, session.objects.regions.find(wanted.handle)->region.key.value};
  await_region(node, session, std::move(former),
               [&node, to = request.to, reply] { node.sender.reply(to, reply_with(reply)); });
  return reply_later();
}

Outcome dereg_mr(Node& node, ClientSession& session, Request& request) {
  const std::uint32_t handle = request.as<abi::Handle>().handle;
  const RegionEntry* entry = session.objects.regions.find(handle);
  if (entry == nullptr) return fail(EINVAL, "there is no such memory region");
  if (auto good = check_unbound(node, *entry); !good) return tl::make_unexpected(good.error());
  retire_region(node, session, handle, [&node, to = request.to] { node.sender.reply(to, empty_reply()); });
  return reply_later();
}

}  // namespace urdma::control
