// Which moves of a queue pair's state machine are legal, and with which attributes (IBTA 11.2.5.2,
// and what Linux accepts of them).
//
// Pure: usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

#include "datapath/transport/types.hpp"

namespace urdma::transport {

// Judges a modify call on a QP in state `current`, without changing anything. Without kAttrState
// the state is to stay as it is. Returns 0, or EINVAL for an illegal move, a missing or an unwanted
// attribute, or a value out of range. The port, the P_Key index and the address are the control path's to
// judge.
[[nodiscard]] int check_modify(const QpConfig& config, QpState current, std::uint32_t mask,
                               const QpAttributes& attributes);

}  // namespace urdma::transport
