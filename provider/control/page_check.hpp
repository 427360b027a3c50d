// Whether a range of the program's memory can be registered: every page is there, readable, and
// writable where that is asked for. Any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>

namespace urdma::provider {

// Brings in all pages of the range, rounded to whole pages; `for_writing` breaks copy-on-write, so that
// the daemon's writes land where the program looks. 0, EINVAL (the range wraps around), or EFAULT (a hole,
// or a page without that permission).
[[nodiscard]] int check_pages(std::uintptr_t address, std::size_t length, bool for_writing);

// The same judged by /proc/self/maps alone, where madvise does not say: old kernels, device mappings. `begin`
// and `end` are page-aligned.
[[nodiscard]] int check_pages_by_maps(std::uintptr_t begin, std::uintptr_t end, bool for_writing);

}  // namespace urdma::provider
