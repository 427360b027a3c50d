// What managers of communication tell, as events of programs: requests find their listener, and what happens
// to a connection its ID. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

#include "datapath/control/rdma_cm/context.hpp"

namespace urdma::control::rdma_cm {

void on_manager_event(Context& context, std::uint32_t device, const cm::Event& event);

}  // namespace urdma::control::rdma_cm
