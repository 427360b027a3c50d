// A client may cut the file of a mapping that it has shared with the daemon. Touching what is gone raises
// SIGBUS here; the guard puts an empty page of the daemon's own there, so that only the client's bytes are
// lost. Process-wide; called once, before engines start.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

#include "urdma/base/result.hpp"

namespace urdma::memory {

[[nodiscard]] Status install_bus_error_guard();

// Blocks all signals of the calling thread but the one that the guard mends where it is raised.
void block_signals_of_thread();

// How many pages have been replaced. Any thread.
[[nodiscard]] std::uint64_t bus_errors();

}  // namespace urdma::memory
