// The node that this process belongs to: the directory that URDMA_NODE_DIR names, read once when the
// library starts. Nothing here allocates or locks; usable from any thread and from signal handlers.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <string_view>

namespace urdma::stub {

// Whether the process has a node whose tree is there. Costs a system call; only for paths that matter.
[[nodiscard]] bool is_node_present();

// The node's directory, as the variable has it; empty: none.
[[nodiscard]] std::string_view node_directory();

// Turns a path below NODE/sysfs, in place, into the one that stands for it (below /sys or /dev), which is
// never longer. Every other path stays. `size` is without a NUL, and none is written. Returns the new size.
[[nodiscard]] std::size_t to_public(char* path, std::size_t size);

}  // namespace urdma::stub
