// The shared memory of a client's queues, within what it may have. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "datapath/control/node.hpp"

namespace urdma::control {

// ENOMEM beyond the session's share. The caller counts it (Objects::queue_bytes) once it is used.
[[nodiscard]] Result<memory::SharedMemory> make_queue_memory(const Node& node, const ClientSession& session,
                                                             const char* name, std::uint64_t bytes);

// A reply that brings a queue's memory, whose descriptor the daemon then needs no more.
[[nodiscard]] inline Outcome with_memory(std::span<const std::byte> body, memory::SharedMemory& memory) {
  return std::optional<Reply>(Reply{{body.begin(), body.end()}, {memory.descriptor()}, &memory});
}

}  // namespace urdma::control
