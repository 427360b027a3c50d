// Channels of the connection manager.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "rdma_cm/channel.hpp"

#include <sys/sysmacros.h>

#include "interpose/device_socket.hpp"
#include "sysfs/tree_reader.hpp"

namespace urdma::stub {

int open_channel(int flags) { return open_device_socket(kRdmaCm, flags); }

bool is_channel(int fd) {
  sockaddr_un address;
  return device_name(fd, address) == kRdmaCm;
}

dev_t channel_number() {
  unsigned major_number = 10;  // of misc devices, should the tree be gone
  unsigned minor_number = 0;
  read_rdma_cm_number(major_number, minor_number);
  return makedev(major_number, minor_number);
}

}  // namespace urdma::stub
