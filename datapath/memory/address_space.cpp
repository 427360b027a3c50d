// The memory of a client process: its extents and its copier.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/address_space.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace urdma::memory {

// Anything else could be a file that blocks, or that the client wants written with our rights: other files of
// /proc judge by who writes, and not by who has opened them. Only a process's memory is called "mem" there.
static bool is_process_memory(int descriptor) {
  struct statfs file_system {};
  if (::fstatfs(descriptor, &file_system) != 0 || file_system.f_type != PROC_SUPER_MAGIC) return false;
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) != O_RDWR || (flags & O_PATH) != 0) return false;
  char path[512];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
  return length > 0 && std::string_view(path, static_cast<std::size_t>(length)).ends_with("/mem");
}

Status check_process_memory(int descriptor) {
  if (is_process_memory(descriptor)) return {};
  return fail(EINVAL,
              "the memory descriptor of the client is no /proc/PID/mem, open for reading and writing");
}

Result<std::unique_ptr<AddressSpace>> AddressSpace::create(int mem_descriptor,
                                                           const std::vector<int>& wake_descriptors) {
  std::unique_ptr<AddressSpace> space(new AddressSpace);
  space->mem_descriptor_ = mem_descriptor;
  if (auto good = check_process_memory(mem_descriptor); !good) return tl::make_unexpected(good.error());
  space->copier_ = std::make_unique<Copier>(mem_descriptor, wake_descriptors);
  return space;
}

AddressSpace::~AddressSpace() {
  copier_.reset();
  if (mem_descriptor_ >= 0) ::close(mem_descriptor_);
}

bool AddressSpace::add_extent(const Extent& extent) {
  const auto next =
      std::lower_bound(extents_.begin(), extents_.end(), extent.address,
                       [](const Extent& e, std::uint64_t address) { return e.address < address; });
  if (next != extents_.end() && next->address - extent.address < extent.length) return false;
  if (next != extents_.begin()) {
    const Extent& before = *std::prev(next);
    if (extent.address - before.address < before.length) return false;
  }
  extents_.insert(next, extent);
  return true;
}

Extent AddressSpace::remove_extent(std::uint32_t id) {
  const auto found =
      std::find_if(extents_.begin(), extents_.end(), [id](const Extent& e) { return e.id == id; });
  if (found == extents_.end()) return {};
  const Extent extent = *found;
  extents_.erase(found);
  return extent;
}

}  // namespace urdma::memory
