// The few requests on a uverbs descriptor that libibverbs sends to the kernel itself, whatever the provider:
// by write(2) a completion channel, by ioctl(2) the GID table and the event channel of an imported device.
// The kernel's ABI: rdma/ib_user_verbs.h and rdma/rdma_user_ioctl_cmds.h. Everything else is answered as a
// kernel does that has no such command. No allocation, no lock; errno stays; usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "interpose/claim.hpp"

namespace urdma::stub {

// Whether these bytes have the shape of a command: a header that states just this length.
inline bool is_command(const void* bytes, std::size_t size) {
  constexpr std::size_t kMaxCommandBytes = 65536;
  constexpr std::uint32_t kCommandMask = 0xFF;
  if (size < sizeof(ib_uverbs_cmd_hdr) || size % 4 != 0 || size > kMaxCommandBytes) return false;
  if (!is_readable_pointer(bytes)) return false;
  ib_uverbs_cmd_hdr header;
  std::memcpy(&header, bytes, sizeof(header));
  if ((header.command & ~(kCommandMask | IB_USER_VERBS_CMD_FLAG_EXTENDED)) != 0) return false;
  if ((header.command & IB_USER_VERBS_CMD_FLAG_EXTENDED) == 0)
    return header.in_words * std::size_t{4} == size;
  if (size < sizeof(header) + sizeof(ib_uverbs_ex_cmd_hdr)) return false;
  ib_uverbs_ex_cmd_hdr extended;
  std::memcpy(&extended, static_cast<const char*>(bytes) + sizeof(header), sizeof(extended));
  return (header.in_words + std::size_t{extended.provider_in_words}) * 8 + sizeof(header) +
             sizeof(extended) ==
         size;
}

// Returns `size`, or a negative errno.
[[nodiscard]] long execute_command(const void* bytes, std::size_t size);

inline bool is_verbs_ioctl(unsigned long request) { return request == RDMA_VERBS_IOCTL; }

// Returns 0 or a negative errno; `argument` is the caller's ib_uverbs_ioctl_hdr.
[[nodiscard]] long execute_ioctl(std::uint32_t uverbs, void* argument);

// A channel for events: a pipe that is open at both ends, so that it never tells end-of-file; the
// daemon opens it again for writing. Returns a descriptor, closed on exec, or a negative errno.
[[nodiscard]] long make_channel();

}  // namespace urdma::stub
