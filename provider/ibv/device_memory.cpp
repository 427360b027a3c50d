// Device memory: pages that the daemon makes and this program maps. Copies in and out are the provider's own;
// a region of it is one of the mapped pages, whose addresses begin at 0.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>
#include <cstring>
#include <new>

#include "provider/control/event_pipe.hpp"
#include "provider/ibv/objects.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::provider {

namespace {

// As devices have it: both ends of a copy or of a region lie on such a boundary.
constexpr std::uint64_t kGranuleBytes = 4;
constexpr std::uint32_t kPageShift = 12;  // the alignment that every piece has

struct DeviceMemory : ibv_dm {
  Mapping pages;
  std::uint64_t length = 0;  // as it was asked for
};

DeviceMemory& memory_of(ibv_dm* dm) { return *static_cast<DeviceMemory*>(dm); }

bool is_inside(const DeviceMemory& memory, std::uint64_t offset, std::uint64_t length) {
  return offset % kGranuleBytes == 0 && length % kGranuleBytes == 0 && length <= memory.length &&
         offset <= memory.length - length;
}

int copy_in(ibv_dm* dm, std::uint64_t offset, const void* from, std::size_t length) {
  const DeviceMemory& memory = memory_of(dm);
  if (!is_inside(memory, offset, length)) return EINVAL;
  std::memcpy(memory.pages.data() + offset, from, length);
  return 0;
}

int copy_out(void* to, ibv_dm* dm, std::uint64_t offset, std::size_t length) {
  const DeviceMemory& memory = memory_of(dm);
  if (!is_inside(memory, offset, length)) return EINVAL;
  std::memcpy(to, memory.pages.data() + offset, length);
  return 0;
}

// `ask` is what the daemon answers with a DmReply.
template <typename Request>
ibv_dm* map_memory(ibv_context* context, abi::MessageType type, const Request& ask) {
  std::unique_ptr<DeviceMemory> memory(new (std::nothrow) DeviceMemory{});
  if (memory == nullptr) return refuse(ENOMEM);
  abi::DmReply reply{};
  std::vector<UniqueFd> received;
  int error = session_of(context).requests().call(type, ask, reply, {}, &received);
  if (error != 0) return refuse(error);
  const bool is_sound = received.size() == 1 && reply.length <= reply.memory_bytes;
  error = is_sound ? memory->pages.map(received[0].get(), reply.memory_bytes, Mapping::Access::kReadWrite)
                   : EPROTO;
  if (error != 0) return refuse(error);
  memory->context = context;
  memory->memcpy_to_dm = copy_in;
  memory->memcpy_from_dm = copy_out;
  memory->comp_mask = IBV_DM_MASK_HANDLE;
  memory->handle = reply.handle;
  memory->length = reply.length;
  return memory.release();
}

// A forked child cannot speak for its parent's context: it has pages of its own, that no region can be of.
ibv_dm* map_local(ibv_context* context, std::uint64_t length) {
  std::unique_ptr<DeviceMemory> memory(new (std::nothrow) DeviceMemory{});
  if (memory == nullptr) return refuse(ENOMEM);
  if (const int error = memory->pages.map_anonymous(length); error != 0) return refuse(error);
  memory->context = context;
  memory->memcpy_to_dm = copy_in;
  memory->memcpy_from_dm = copy_out;
  memory->length = length;
  return memory.release();
}

}  // namespace

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attributes) {
  const Session& session = session_of(context);
  if (attributes->comp_mask != 0) return refuse(EOPNOTSUPP);
  if (attributes->length == 0 || attributes->length > session.device().max_dm_bytes ||
      attributes->log_align_req > kPageShift)
    return refuse(EINVAL);
  if (session.is_inherited()) return map_local(context, attributes->length);
  return map_memory(context, abi::MessageType::kAllocDm, abi::AllocDm{attributes->length});
}

ibv_dm* import_dm(ibv_context* context, std::uint32_t handle) {
  return map_memory(context, abi::MessageType::kImportDm, abi::Handle{handle, 0});
}

void unimport_dm(ibv_dm* dm) { delete &memory_of(dm); }

int free_dm(ibv_dm* dm) {
  Session& session = session_of(dm->context);
  if (device_of(dm->context).dm_regions.has_regions(dm)) return EBUSY;
  if ((dm->comp_mask & IBV_DM_MASK_HANDLE) != 0) {
    const int error = session.requests().call(abi::MessageType::kFreeDm, abi::Handle{dm->handle, 0});
    if (const int result = destroyed(session, error); result != 0) return result;
  }
  delete &memory_of(dm);
  return 0;
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length, unsigned int access) {
  const DeviceMemory& memory = memory_of(dm);
  if ((access & kAccessZeroBased) == 0 || !is_inside(memory, offset, length)) return refuse(EINVAL);
  if ((dm->comp_mask & IBV_DM_MASK_HANDLE) == 0) return refuse(EOPNOTSUPP);
  ibv_mr* mr = reg_range(pd, memory.pages.data() + offset, length, 0, static_cast<int>(access));
  if (mr == nullptr) return nullptr;
  mr->addr = nullptr;  // addresses begin at 0; where the pages are mapped is nobody's business
  device_of(pd->context).dm_regions.add(mr->handle, dm);
  return mr;
}

}  // namespace urdma::provider
