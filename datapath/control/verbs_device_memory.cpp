// Device memory (see requests.hpp): pages of the daemon's that programs map, and then register like their
// own. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fmt/format.h>

#include "datapath/control/requests.hpp"
#include "datapath/control/shares.hpp"

namespace urdma::control {

Outcome describe_dm(std::uint32_t handle, const DeviceMemory* memory) {
  if (memory == nullptr) return fail(EINVAL, "there is no such device memory");
  const abi::DmReply body{handle, 0, memory->length, memory->pages.size()};
  const auto bytes = bytes_of(body);
  return std::optional<Reply>(Reply{{bytes.begin(), bytes.end()}, {memory->pages.descriptor()}, nullptr});
}

Outcome alloc_dm(Node& node, ClientSession& session, Request& request) {
  const auto wanted = request.as<abi::AllocDm>();
  const std::uint64_t most = node.limits.max_dm_bytes_of_session;
  if (wanted.length == 0 || wanted.length > most) {
    return fail(EINVAL, fmt::format("device memory has between 1 and {} bytes", most));
  }
  Objects& objects = session.objects;
  if (objects.device_memories.size() >= node.limits.max_dm_of_session) {
    return fail(ENOMEM, "there are too many pieces of device memory");
  }
  if (auto room = check_descriptors(node, session); !room) return tl::make_unexpected(room.error());
  auto pages = memory::SharedMemory::create("urdma-dm", wanted.length, memory::ClientAccess::kReadWrite);
  if (!pages) return tl::make_unexpected(pages.error());
  if (pages->size() > most - objects.dm_bytes) return fail(ENOMEM, "the device memory is all taken");
  auto memory = std::make_unique<DeviceMemory>();
  memory->pages = std::move(*pages);
  memory->length = wanted.length;
  objects.dm_bytes += memory->pages.size();
  const std::uint32_t handle = objects.device_memories.insert(std::move(memory));
  return describe_dm(handle, objects.device_memories.find(handle));
}

Outcome free_dm(Node&, ClientSession& session, Request& request) {
  const auto memory = session.objects.device_memories.take(request.as<abi::Handle>().handle);
  if (memory == nullptr) return fail(EINVAL, "there is no such device memory");
  session.objects.dm_bytes -= memory->pages.size();
  return empty_reply();
}

}  // namespace urdma::control
