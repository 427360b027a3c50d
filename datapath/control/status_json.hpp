// The document that `urdma status` shows: devices, engines, sessions, queue pairs, and what went wrong.
// Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <string>

#include "datapath/control/node.hpp"
#include "datapath/control/rdma_cm/node_network.hpp"
#include "datapath/control/rdma_cm/service.hpp"

namespace urdma::control {

struct StatusFacts {
  std::string name;
  std::string directory;
  std::string idle;
  bool force_wire = false;
};

[[nodiscard]] std::string status_json(Node& node, const StatusFacts& facts, const rdma_cm::Service& service,
                                      rdma_cm::NodeNetwork& network);

}  // namespace urdma::control
