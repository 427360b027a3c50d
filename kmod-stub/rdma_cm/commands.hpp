// Commands on a channel of the connection manager, by write(2): each is carried to the daemon unread, but for
// the pointers and descriptors in it, and its answer to where the program wants it (urdma/abi/rdma_cm.hpp).
// No allocation, no lock; errno stays; usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "interpose/claim.hpp"

namespace urdma::stub {

// Whether these bytes have the shape of a command, also of one that is newer or whose lengths are wrong: the
// header, and a number that may be one.
inline bool is_channel_command(const void* bytes, std::size_t size) {
  constexpr std::size_t kMaxCommandBytes = 65536;
  constexpr std::uint32_t kCommandNumbers = 64;  // the kernel has 23
  if (size < sizeof(rdma_ucm_cmd_hdr) || size > kMaxCommandBytes || !is_readable_pointer(bytes)) return false;
  rdma_ucm_cmd_hdr header;
  std::memcpy(&header, bytes, sizeof(header));
  return header.cmd < kCommandNumbers;
}

// Returns `size`, or a negative errno.
[[nodiscard]] long execute_channel_command(int channel, const void* bytes, std::size_t size);

}  // namespace urdma::stub
