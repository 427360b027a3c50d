// A QP's attributes between the two forms they have: the client's (abi) and the transport's. Judges what
// the control path can judge without the QP's state. Pure; control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include "datapath/limits.hpp"
#include "datapath/transport/types.hpp"
#include "urdma/abi/control.hpp"
#include "urdma/base/result.hpp"

namespace urdma::control {

// Everything but the address and packet_bytes, which depend on the path.
[[nodiscard]] transport::QpAttributes to_transport(const abi::QpAttributes& attributes, std::uint32_t mask);
[[nodiscard]] abi::QpAttributes to_abi(const transport::QpAttributes& attributes);

// EINVAL, in words, for an address that no port of ours can send to.
[[nodiscard]] Status check_address(const abi::AddressVector& address);

// EINVAL, in words, for attributes that no QP of this device can have. `active_mtu_code` is the port's.
[[nodiscard]] Status check_attributes(const abi::QpAttributes& attributes, std::uint32_t mask,
                                      const Limits& limits, std::uint8_t active_mtu_code);

}  // namespace urdma::control
