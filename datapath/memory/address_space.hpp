// The memory of one client process, as the daemon reaches it: pages that are mapped here (extents), and
// the rest through the process's own /proc/self/mem on a copier thread.
//
// Owner: the control thread, which makes and destroys it. Extents are read by engines and changed
// through Engine::run. An engine never touches the descriptor: reading it can hang (docs/design).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "datapath/memory/copier.hpp"
#include "urdma/base/result.hpp"

namespace urdma::memory {

// Pages of the program that are mapped in the daemon.
struct Extent {
  std::uint32_t id = 0;
  std::uint64_t address = 0;  // in the program, page-aligned
  std::uint64_t length = 0;   // whole pages
  std::byte* data = nullptr;  // where they are here
};

// EINVAL unless `descriptor` is some process's /proc/PID/mem, open for reading and writing.
[[nodiscard]] Status check_process_memory(int descriptor);

class AddressSpace {
 public:
  // Takes ownership of `mem_descriptor`, /proc/PID/mem opened by that process for reading and writing; EINVAL
  // for anything else, since other files of /proc take writes as commands.
  // `wake_descriptors` are the copier's: see there.
  [[nodiscard]] static Result<std::unique_ptr<AddressSpace>> create(int mem_descriptor,
                                                                    const std::vector<int>& wake_descriptors);
  ~AddressSpace();

  [[nodiscard]] Copier& copier() { return *copier_; }

  // Where [address, address + length) is here, if it lies in one extent; null otherwise.
  [[nodiscard]] std::byte* resolve(std::uint64_t address, std::uint64_t length) const {
    // The last extent that starts at or before `address`.
    std::size_t low = 0;
    std::size_t high = extents_.size();
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (extents_[middle].address <= address)
        low = middle + 1;
      else
        high = middle;
    }
    if (low == 0) return nullptr;
    const Extent& extent = extents_[low - 1];
    const std::uint64_t offset = address - extent.address;
    if (offset > extent.length || length > extent.length - offset) return nullptr;
    return extent.data + offset;
  }

  // False when it overlaps an extent that is there.
  [[nodiscard]] bool add_extent(const Extent& extent);
  // The extent that was removed; its mapping is the caller's to unmap. id 0 if there is none.
  Extent remove_extent(std::uint32_t id);
  [[nodiscard]] std::size_t extent_count() const { return extents_.size(); }

 private:
  AddressSpace() = default;

  int mem_descriptor_ = -1;
  std::vector<Extent> extents_;  // by address
  std::unique_ptr<Copier> copier_;
};

}  // namespace urdma::memory
