// Paths in use follow the network: when link addresses or addresses of the port change, the frames of queue
// pairs that are connected go on to where the peer is now. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include "datapath/control/device.hpp"
#include "datapath/control/node.hpp"

namespace urdma::control {

// Looks at every path out of `device` again, once for all queue pairs with the same two ends. Where the port
// has the source address no more the path falls silent, until it has it again; a peer that is not found keeps
// the link address that it had. What takes time comes later.
void renew_paths(Node& node, const Device& device);

}  // namespace urdma::control
