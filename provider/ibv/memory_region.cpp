// Registering memory. The client sees to it that the pages are there; the daemon judges the rest.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>
#include <new>
#include <span>

#include "provider/control/page_check.hpp"
#include "provider/ibv/objects.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::provider {

namespace {

constexpr std::uint32_t kKnownAccess = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
                                       kAccessRemoteAtomic | kAccessMwBind | kAccessZeroBased |
                                       kAccessOnDemand | kAccessHugetlb;
// verbs_mr::mr_type
constexpr int kPlainMr = 0;
constexpr int kNullMr = 1;

static_assert(abi::kReregTranslation == IBV_REREG_MR_CHANGE_TRANSLATION &&
              abi::kReregPd == IBV_REREG_MR_CHANGE_PD && abi::kReregAccess == IBV_REREG_MR_CHANGE_ACCESS);

std::uint32_t access_of(int flags) { return static_cast<std::uint32_t>(flags) & ~kAccessOptionalMask; }

// 0, or why no region can have these flags: IBTA 1, 10.6.3.1 wants local write where peers may write.
int check_access(std::uint32_t access) {
  if ((access & ~kKnownAccess) != 0) return EINVAL;
  const bool peers_write = (access & (kAccessRemoteWrite | kAccessRemoteAtomic)) != 0;
  return peers_write && (access & kAccessLocalWrite) == 0 ? EINVAL : 0;
}

// 0, or why a region cannot be so. The pages of on-demand regions need not be there yet.
int check_region(const abi::RegMr& region) {
  if (const int error = check_access(region.access); error != 0) return error;
  if ((region.access & kAccessOnDemand) != 0) return 0;
  return check_pages(region.address, region.length, (region.access & kAccessLocalWrite) != 0);
}

// The daemon has the region: tells all who follow what regions there are.
void note_region(Device& device, const abi::RegMrReply& reply, const abi::RegMr& region) {
  device.regions.set(reply.key, {region.pd, region.iova, region.address, region.length,
                                 (region.access & kAccessLocalWrite) != 0});
  if ((region.access & kAccessOnDemand) != 0) return;  // what is mapped there comes and goes
  device.session->conversion().on_registered({reply.handle, region.address, region.length});
}

abi::RegMr region_of(const abi34::verbs_mr& mr, const IndexedRegion& known) {
  return {known.pd, access_of(mr.access), known.address, known.length, known.iova};
}

// A region that is not the daemon's yet. Null when there is no memory.
std::unique_ptr<abi34::verbs_mr> new_mr(ibv_pd* pd, void* address, std::size_t length, int type, int flags) {
  std::unique_ptr<abi34::verbs_mr> mr(new (std::nothrow) abi34::verbs_mr{});
  if (mr == nullptr) return mr;
  mr->ibv_mr = {pd->context, pd, address, length, 0, 0, 0};
  mr->mr_type = type;
  mr->access = flags;
  return mr;
}

void set_keys(abi34::verbs_mr& mr, const abi::RegMrReply& reply) {
  mr.ibv_mr.handle = reply.handle;
  mr.ibv_mr.lkey = mr.ibv_mr.rkey = reply.key;
}

// Brings in the pages of one range of a piece of advice.
int prefetch(const Device& device, const ibv_pd& pd, const ibv_sge& range, ibv_advise_mr_advice advice) {
  const auto region = device.regions.find(range.lkey);
  if (!region || region->pd != pd.handle) return EFAULT;
  const auto address = region->address_of(range.addr, range.length);
  const bool for_writing = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  if (!address || (for_writing && !region->is_writable)) return EFAULT;
  if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return 0;  // no page has to be known before its use
  return check_pages(*address, range.length, for_writing) == 0 ? 0 : EFAULT;
}

}  // namespace

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int flags) {
  return length != 0 ? reg_range(pd, address, length, iova, flags) : refuse(EINVAL);
}

ibv_mr* reg_range(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int flags) {
  abi::RegMr request{pd->handle, access_of(flags), reinterpret_cast<std::uintptr_t>(address), length, iova};
  if ((request.access & kAccessZeroBased) != 0) request.iova = 0;
  if (const int error = check_region(request); error != 0) return refuse(error);
  std::unique_ptr<abi34::verbs_mr> mr = new_mr(pd, address, length, kPlainMr, flags);
  if (mr == nullptr) return refuse(ENOMEM);
  abi::RegMrReply reply{};
  Device& device = device_of(pd->context);
  if (const int error = device.session->requests().call(abi::MessageType::kRegMr, request, reply); error != 0)
    return refuse(error);
  set_keys(*mr, reply);
  note_region(device, reply, request);
  return &mr.release()->ibv_mr;
}

ibv_mr* alloc_null_mr(ibv_pd* pd) {
  std::unique_ptr<abi34::verbs_mr> mr = new_mr(pd, nullptr, SIZE_MAX, kNullMr, 0);
  if (mr == nullptr) return refuse(ENOMEM);
  abi::RegMrReply reply{};
  const abi::AllocNullMr request{pd->handle, 0};
  const int error = session_of(pd->context).requests().call(abi::MessageType::kAllocNullMr, request, reply);
  if (error != 0) return refuse(error);
  set_keys(*mr, reply);
  return &mr.release()->ibv_mr;
}

int dereg_mr(abi34::verbs_mr* mr) {
  Device& device = device_of(mr->ibv_mr.context);
  Session& session = *device.session;
  session.conversion().before_deregister(mr->ibv_mr.handle);
  const int error = session.requests().call(abi::MessageType::kDeregMr, abi::Handle{mr->ibv_mr.handle, 0});
  if (const int result = destroyed(session, error); result != 0) {
    // It has windows, say, and lives on.
    const auto known = device.regions.find(mr->ibv_mr.lkey);
    if (known) note_region(device, {mr->ibv_mr.handle, mr->ibv_mr.lkey}, region_of(*mr, *known));
    return result;
  }
  device.regions.erase(mr->ibv_mr.lkey);
  device.dm_regions.remove(mr->ibv_mr.handle);
  delete mr;
  return 0;
}

// libibverbs changes the public fields, but for the keys, when this has succeeded.
int rereg_mr(abi34::verbs_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  Device& device = device_of(mr->ibv_mr.context);
  const auto known = device.regions.find(mr->ibv_mr.lkey);
  if (!known) return EINVAL;  // not of ibv_reg_mr
  const abi::RegMr before = region_of(*mr, *known);
  abi::RegMr after = before;
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) after.pd = pd->handle;
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) after.access = access_of(access);
  if (moves) {
    after.address = reinterpret_cast<std::uintptr_t>(address);
    after.length = length;
    after.iova = (after.access & kAccessZeroBased) != 0 ? 0 : after.address;
  }
  if (const int error = check_region(after); error != 0) return error;
  Session& session = *device.session;
  session.conversion().before_deregister(mr->ibv_mr.handle);
  const abi::ReregMr request{mr->ibv_mr.handle, static_cast<std::uint32_t>(flags), after};
  abi::RegMrReply reply{};
  if (const int error = session.requests().call(abi::MessageType::kReregMr, request, reply); error != 0) {
    note_region(device, {mr->ibv_mr.handle, mr->ibv_mr.lkey}, before);
    return error;
  }
  device.regions.erase(mr->ibv_mr.lkey);
  set_keys(*mr, reply);
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) mr->access = access;
  note_region(device, reply, after);
  return 0;
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* ranges,
              std::uint32_t count) {
  const bool is_known = advice == IBV_ADVISE_MR_ADVICE_PREFETCH ||
                        advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE ||
                        advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
  if (!is_known || (flags & ~std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0 || count == 0) return EINVAL;
  for (const ibv_sge& range : std::span(ranges, count)) {
    if (const int error = prefetch(device_of(pd->context), *pd, range, advice); error != 0) return error;
  }
  return 0;
}

}  // namespace urdma::provider
