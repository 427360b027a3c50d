// The node's /dev/infiniband/rdma_cm: opening it, and knowing a channel's descriptor again
// (interpose/device_socket.hpp). No allocation, no lock; usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <sys/types.h>

#include <string_view>

#include "urdma/abi/rdma_cm.hpp"

namespace urdma::stub {

inline constexpr std::string_view kRdmaCm = abi::rdma_cm::kDevice;

// As open(2) with these flags: a descriptor, or -1 and errno.
[[nodiscard]] int open_channel(int flags);

// Whether `fd` is a channel. Costs system calls; errno stays.
[[nodiscard]] bool is_channel(int fd);

// st_rdev of the device, as the tree names it.
[[nodiscard]] dev_t channel_number();

}  // namespace urdma::stub
