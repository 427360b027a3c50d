// What the stub itself reads from the node's tree: which uverbs devices are the node's, their device
// numbers, and the GID table. No allocation, no lock; errno stays; usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

namespace urdma::stub {

// Whether uverbsN is the node's, and not a real device of the host shown beside it.
[[nodiscard]] bool is_ours(std::uint32_t uverbs);

// Leaves the numbers as they are when the tree does not say.
void read_device_number(std::uint32_t uverbs, unsigned& major_number, unsigned& minor_number);

// The same of class/misc/rdma_cm.
void read_rdma_cm_number(unsigned& major_number, unsigned& minor_number);

struct TreeGid {
  std::uint8_t gid[16];
  std::uint32_t interface_index;  // 0: none
};

enum class GidState : std::uint8_t { kInUse, kUnused, kNoSuchIndex };

// Entry `index` of port 1. `entry` is set only for kInUse.
[[nodiscard]] GidState read_gid(std::uint32_t uverbs, std::uint32_t index, TreeGid& entry);

}  // namespace urdma::stub
