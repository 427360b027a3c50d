// QP attributes between the program's structures and the contract's. Pure functions.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "urdma/abi/control.hpp"

namespace urdma::provider {

// 0 when a device like this one can be asked for it, else a positive errno. `mask` loses what says nothing
// here: the migration state "migrated", which is the only one, and a wish for no SQD event.
[[nodiscard]] int check_modification(const ibv_qp_attr& attributes, std::uint32_t& mask);

[[nodiscard]] abi::AddressVector to_contract(const ibv_ah_attr& address);
[[nodiscard]] abi::QpAttributes to_contract(const ibv_qp_attr& attributes);
[[nodiscard]] ibv_qp_attr from_contract(const abi::QueryQpReply& reply);

[[nodiscard]] abi::QpCapabilities to_contract(const ibv_qp_cap& cap);
[[nodiscard]] ibv_qp_cap from_contract(const abi::QpCapabilities& cap);

}  // namespace urdma::provider
