// A socket file that a dead process has left behind keeps the next one from listening there. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <string>

namespace urdma::io {

// Removes the socket that a memif device is to listen on (`arguments` are DPDK's for it) if nobody listens
// there. Does nothing for a client, an abstract socket, or what is no socket.
void remove_stale_memif_socket(const std::string& arguments);

}  // namespace urdma::io
