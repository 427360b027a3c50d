// Descriptors that come with messages (see passed_descriptors.hpp). Any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/passed_descriptors.hpp"

#include <cstring>

namespace urdma::control {
namespace {

constexpr int kScmPidfd = 4;  // Linux 6.5: on a socket of a client's making, it may ask for these, too

}  // namespace

std::vector<UniqueFd> take_descriptors(msghdr& header) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    const bool has_descriptors = control->cmsg_type == SCM_RIGHTS || control->cmsg_type == kScmPidfd;
    if (control->cmsg_level != SOL_SOCKET || !has_descriptors) continue;
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace urdma::control
