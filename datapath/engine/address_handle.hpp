// Where datagrams go: a path that requests name by handle. Made by the control thread; the engine reads it
// between Engine::add_address_handle and remove_address_handle.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

#include "datapath/engine/path.hpp"
#include "urdma/base/ids.hpp"

namespace urdma::engine {

struct AddressHandle {
  std::uint32_t handle = 0;  // the session's
  PdId pd;
  Path path;
};

}  // namespace urdma::engine
