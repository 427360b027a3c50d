// What open() of a device of the node yields: a socket, connected to NODE/dev/NAME, and how it is known again
// after dup, fork, exec, or a journey to another process: its peer's name ends in /dev/NAME. There is no
// table. No allocation, no lock; usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <sys/un.h>

#include <atomic>
#include <string_view>

#include "interpose/path_buffer.hpp"

namespace urdma::stub {

// NODE/dev/NAME.
void append_device_path(std::string_view name, PathBuffer& path);

// As open(2) with these flags: a descriptor, or -1 and errno. When nobody answers it is ENODEV, and
// stderr gets one sentence, once in a process.
[[nodiscard]] int open_device_socket(std::string_view name, int flags);

// One sentence for the person, once in a process for each `complained`.
void complain_once(std::atomic<bool>& complained, std::string_view reason);

// The NAME of the device that `fd` is; empty: it is none. `address` holds it. Costs system calls; errno
// stays.
[[nodiscard]] std::string_view device_name(int fd, sockaddr_un& address);

}  // namespace urdma::stub
