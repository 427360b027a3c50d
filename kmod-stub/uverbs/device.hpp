// The node's uverbs devices: opening one, and knowing its descriptor again (interpose/device_socket.hpp). No
// allocation, no lock; usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>

#include "interpose/path_buffer.hpp"

namespace urdma::stub {

// "uverbs12" and nothing else.
[[nodiscard]] bool parse_uverbs(std::string_view name, std::uint32_t& uverbs);

// NODE/dev/uverbsN.
void append_socket_path(std::uint32_t uverbs, PathBuffer& path);

// As open(2) with these flags: a descriptor, or -1 and errno. When nobody answers it is ENODEV, and
// stderr gets one sentence, once in a process.
[[nodiscard]] int open_device(std::uint32_t uverbs, int flags);

// Whether `fd` is an open device of a node, and which. Costs system calls; errno stays.
[[nodiscard]] bool is_device(int fd, std::uint32_t& uverbs);

// st_rdev of the device, as the tree names it.
[[nodiscard]] dev_t device_number(std::uint32_t uverbs);

}  // namespace urdma::stub
