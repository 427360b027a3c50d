// The pipes that carry events to the program: completion channels (8 bytes: the ibv_cq *) and the
// async descriptor (struct ib_uverbs_async_event_desc). In both the first 8 bytes name the object.
//
// The daemon writes them, the program reads them; the functions here are for the cold cases in which the
// provider does one or the other. Each reopens the pipe, so that the program's O_NONBLOCK is never touched.
// Any thread. All events are shorter than PIPE_BUF, so that none is ever torn.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "urdma/base/unique_fd.hpp"

namespace urdma::provider {

inline constexpr std::size_t kCompletionEventBytes = 8;
inline constexpr std::size_t kAsyncEventBytes = 16;

// A pipe as one descriptor, opened for both directions so that its reader never sees end-of-file.
// Not open, and errno set, when that failed.
[[nodiscard]] UniqueFd make_event_pipe();

// Writes one event into the pipe behind `fd` without blocking; false when that was not possible.
bool write_event(int fd, std::span<const std::byte> event);

// Takes the unread events of `object` out of the pipe behind `fd`, whose events are `event_bytes` long, and
// leaves those of others (a pipe cannot delete: all are read, and the others written again).
void remove_events(int fd, std::size_t event_bytes, std::uint64_t object);

}  // namespace urdma::provider
