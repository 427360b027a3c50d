// Requests by RDMA_VERBS_IOCTL: a list of attributes, of which small inputs stand in the list itself.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include "interpose/raw.hpp"
#include "sysfs/tree_reader.hpp"
#include "uverbs/commands.hpp"

namespace urdma::stub {
namespace {

constexpr std::uint32_t kPort = 1;
constexpr int kNothingOffered = -1;

[[gnu::tls_model("initial-exec")]] constinit thread_local int offered_channel = kNothingOffered;

class Request {
 public:
  explicit Request(ib_uverbs_ioctl_hdr* header) : header_(header) {}

  [[nodiscard]] bool is_sound() const {
    return header_->length == sizeof(*header_) + header_->num_attrs * sizeof(ib_uverbs_attr) &&
           header_->reserved1 == 0 && header_->reserved2 == 0;
  }
  [[nodiscard]] bool is(unsigned object, unsigned method) const {
    return header_->object_id == object && header_->method_id == method;
  }
  [[nodiscard]] ib_uverbs_attr* find(unsigned id) const {
    for (std::uint16_t i = 0; i < header_->num_attrs; ++i)
      if (header_->attrs[i].attr_id == id) return &header_->attrs[i];
    return nullptr;
  }

  // A number of at most eight bytes; false when it is not there, or is longer.
  [[nodiscard]] bool input(unsigned id, std::uint64_t& value) const {
    const ib_uverbs_attr* const attribute = find(id);
    if (attribute == nullptr || attribute->len > sizeof(value)) return false;
    value = attribute->data;
    return true;
  }

  // Writes as much as there is room for, and zeroes the rest of the room.
  [[nodiscard]] long output(unsigned id, const void* bytes, std::size_t size) const {
    ib_uverbs_attr* const attribute = find(id);
    if (attribute == nullptr) return -EINVAL;
    char* const where = room(*attribute);
    if (!is_readable_pointer(where)) return -EFAULT;
    const std::size_t fitting = size < attribute->len ? size : attribute->len;
    std::memcpy(where, bytes, fitting);
    std::memset(where + fitting, 0, attribute->len - fitting);
    attribute->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
    return 0;
  }

  static char* room(const ib_uverbs_attr& attribute) {
    return reinterpret_cast<char*>(static_cast<std::uintptr_t>(attribute.data));
  }

 private:
  ib_uverbs_ioctl_hdr* header_;
};

ib_uverbs_gid_entry to_entry(const TreeGid& gid, std::uint32_t index) {
  ib_uverbs_gid_entry entry{};
  std::memcpy(entry.gid, gid.gid, sizeof(entry.gid));
  entry.gid_index = index;
  entry.port_num = kPort;
  entry.gid_type = IB_UVERBS_GID_TYPE_ROCE_V2;
  entry.netdev_ifindex = gid.interface_index;
  return entry;
}

long query_gid_entry(std::uint32_t uverbs, const Request& request) {
  std::uint64_t port = 0;
  std::uint64_t index = 0;
  std::uint64_t flags = 0;
  if (!request.input(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, port) ||
      !request.input(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, index) ||
      !request.input(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, flags))
    return -EINVAL;
  if (port != kPort || flags != 0 || index > UINT32_MAX) return -EINVAL;
  TreeGid gid{};
  switch (read_gid(uverbs, static_cast<std::uint32_t>(index), gid)) {
    case GidState::kNoSuchIndex:
      return -EINVAL;
    case GidState::kUnused:
      return -ENODATA;
    case GidState::kInUse:
      break;
  }
  const ib_uverbs_gid_entry entry = to_entry(gid, static_cast<std::uint32_t>(index));
  return request.output(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, &entry, sizeof(entry));
}

// The entries in use, one after another, each in `entry_bytes` as the caller counts them.
long write_gid_table(std::uint32_t uverbs, ib_uverbs_attr& entries, std::size_t entry_bytes,
                     std::uint64_t& count) {
  char* const where = Request::room(entries);
  const std::size_t most = entries.len / entry_bytes;
  if (most != 0 && !is_readable_pointer(where)) return -EFAULT;
  const std::size_t used_bytes =
      entry_bytes < sizeof(ib_uverbs_gid_entry) ? entry_bytes : sizeof(ib_uverbs_gid_entry);
  TreeGid gid{};
  for (std::uint32_t index = 0;; ++index) {
    const GidState state = read_gid(uverbs, index, gid);
    if (state == GidState::kNoSuchIndex) break;
    if (state == GidState::kUnused) continue;
    if (count == most) return -EINVAL;
    const ib_uverbs_gid_entry entry = to_entry(gid, index);
    char* const slot = where + count * entry_bytes;
    std::memset(slot, 0, entry_bytes);
    std::memcpy(slot, &entry, used_bytes);
    ++count;
  }
  entries.flags |= UVERBS_ATTR_F_VALID_OUTPUT;
  return 0;
}

long query_gid_table(std::uint32_t uverbs, const Request& request) {
  std::uint64_t entry_bytes = 0;
  std::uint64_t flags = 0;
  std::uint64_t count = 0;
  ib_uverbs_attr* const entries = request.find(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
  if (!request.input(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, entry_bytes) ||
      !request.input(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, flags) || entries == nullptr)
    return -EINVAL;
  if (entry_bytes == 0 || flags != 0) return -EINVAL;
  const long result = write_gid_table(uverbs, *entries, static_cast<std::size_t>(entry_bytes), count);
  if (result < 0) return result;
  return request.output(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &count, sizeof(count));
}

long allocate_event_channel(const Request& request) {
  ib_uverbs_attr* const handle = request.find(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE);
  if (handle == nullptr) return -EINVAL;
  const long channel = offered_channel >= 0 ? offered_channel : make_channel();
  if (channel < 0) return channel;
  offered_channel = kNothingOffered;
  handle->data_s64 = channel;
  handle->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
  return 0;
}

}  // namespace

long execute_ioctl(std::uint32_t uverbs, void* argument) {
  if (!is_readable_pointer(argument)) return -EFAULT;
  const Request request(static_cast<ib_uverbs_ioctl_hdr*>(argument));
  if (!request.is_sound()) return -EINVAL;
  if (request.is(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY))
    return query_gid_entry(uverbs, request);
  if (request.is(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE))
    return query_gid_table(uverbs, request);
  if (request.is(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC))
    return allocate_event_channel(request);
  return -EPROTONOSUPPORT;
}

}  // namespace urdma::stub

// See urdma/abi/stub.hpp.
extern "C" [[gnu::visibility("default")]] void urdma_offer_event_channel(int fd);
extern "C" void urdma_offer_event_channel(int fd) { urdma::stub::offered_channel = fd; }
