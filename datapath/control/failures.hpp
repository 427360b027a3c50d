// Why connections fail, in words for `urdma status` and the log. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <string>

#include "datapath/control/node.hpp"
#include "datapath/transport/types.hpp"

namespace urdma::control {

[[nodiscard]] const char* failure_text(transport::FailureReason reason);

// The same of a queue pair: where what is known of its port explains that nothing came back, that.
[[nodiscard]] std::string failure_text(const Node& node, const ClientSession& session, const QpEntry& entry,
                                       transport::FailureReason reason);

// Logs a failure and keeps it in the node's history. `qpn` 0: the session as a whole failed.
void note_failure(Node& node, const ClientSession& session, std::uint32_t qpn, const abi::AddressVector& peer,
                  const std::string& reason);

[[nodiscard]] std::string peer_text(const abi::AddressVector& peer);

}  // namespace urdma::control
