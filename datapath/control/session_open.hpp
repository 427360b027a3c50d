// Opening a session: what a client brings (a token, the way to its memory, its event pipe) against what it
// gets (the daemon's page, its own page, its doorbells). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <vector>

#include "datapath/control/node.hpp"

namespace urdma::control {

// The session of a Hello that came on `connection` from `peer`. `fds` are the message's.
[[nodiscard]] Result<ClientSession*> open_session(Node& node, ConnectionId connection, const Peer& peer,
                                                  const abi::Hello& hello, std::vector<UniqueFd> fds);
// What the client is told of its new session. `engine_page` is the descriptor of the daemon's page.
[[nodiscard]] Reply describe_session(Node& node, ClientSession& session, int engine_page, bool is_polling);

}  // namespace urdma::control
