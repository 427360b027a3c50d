// Descriptors that come with messages of Unix sockets (SCM_RIGHTS). Any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <vector>

#include "urdma/base/unique_fd.hpp"

namespace urdma::control {

// The most that one message can bring (SCM_MAX_FD of the kernel): what does not fit, the kernel would close
// on the thread that receives.
inline constexpr std::size_t kMostPassedFds = 253;
inline constexpr std::size_t kPassedFdsBytes = CMSG_SPACE(sizeof(int) * kMostPassedFds);

// Takes ownership of every descriptor that came with a message.
[[nodiscard]] std::vector<UniqueFd> take_descriptors(msghdr& header);

}  // namespace urdma::control
