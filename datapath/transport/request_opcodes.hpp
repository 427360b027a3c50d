// Which opcode the packets of a send request have.
// Pure: usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include "urdma/base/verbs.hpp"
#include "urdma/wire/opcode.hpp"

namespace urdma::transport {

// By a packet's place in its message; in the words of RC, see wire::with_service.
struct MessageOpcodes {
  wire::Opcode first;
  wire::Opcode middle;
  wire::Opcode last;
  wire::Opcode only;

  [[nodiscard]] constexpr wire::Opcode at(bool is_first, bool is_last) const {
    if (is_first) return is_last ? only : first;
    return is_last ? last : middle;
  }
};

// Null for the operations that send nothing.
[[nodiscard]] const MessageOpcodes* opcodes_of(WrOpcode opcode);

}  // namespace urdma::transport
