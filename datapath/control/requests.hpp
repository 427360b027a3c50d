// The requests of a session: their sizes, and who handles them. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "datapath/control/node.hpp"

namespace urdma::control {

struct Request {
  ReplyTo to;
  std::span<const std::byte> body;  // of the size that the type has
  std::vector<UniqueFd>& fds;       // as many as the type may have; a handler takes what it keeps

  // A copy of the body.
  template <typename Body>
  [[nodiscard]] Body as() const {
    Body value;
    std::memcpy(&value, body.data(), sizeof(value));
    return value;
  }
};

struct RequestRule {
  abi::MessageType type;
  std::size_t body_bytes;
  std::size_t most_fds;
  Outcome (*handle)(Node&, ClientSession&, Request&);
};

// The rule for requests of this type on a request connection; null when there is none.
[[nodiscard]] const RequestRule* find_rule(std::uint32_t type);

// verbs_device.cpp
Outcome query_device(Node&, ClientSession&, Request&);
Outcome query_port(Node&, ClientSession&, Request&);
Outcome query_gid_table(Node&, ClientSession&, Request&);
// verbs_memory.cpp
Outcome alloc_pd(Node&, ClientSession&, Request&);
Outcome dealloc_pd(Node&, ClientSession&, Request&);
Outcome reg_mr(Node&, ClientSession&, Request&);
Outcome dereg_mr(Node&, ClientSession&, Request&);
Outcome rereg_mr(Node&, ClientSession&, Request&);
Outcome alloc_null_mr(Node&, ClientSession&, Request&);
// verbs_import.cpp
Outcome import_pd(Node&, ClientSession&, Request&);
Outcome import_mr(Node&, ClientSession&, Request&);
Outcome import_dm(Node&, ClientSession&, Request&);
// verbs_windows.cpp
Outcome alloc_mw(Node&, ClientSession&, Request&);
Outcome dealloc_mw(Node&, ClientSession&, Request&);
// verbs_device_memory.cpp
Outcome alloc_dm(Node&, ClientSession&, Request&);
Outcome free_dm(Node&, ClientSession&, Request&);
// verbs_queues.cpp
Outcome create_cq(Node&, ClientSession&, Request&);
Outcome destroy_cq(Node&, ClientSession&, Request&);
Outcome resize_cq(Node&, ClientSession&, Request&);
Outcome create_qp(Node&, ClientSession&, Request&);
Outcome query_qp(Node&, ClientSession&, Request&);
Outcome destroy_qp(Node&, ClientSession&, Request&);
// verbs_srq.cpp
Outcome create_srq(Node&, ClientSession&, Request&);
Outcome modify_srq(Node&, ClientSession&, Request&);
Outcome query_srq(Node&, ClientSession&, Request&);
Outcome destroy_srq(Node&, ClientSession&, Request&);
// verbs_xrc.cpp
Outcome open_xrcd(Node&, ClientSession&, Request&);
Outcome close_xrcd(Node&, ClientSession&, Request&);
Outcome open_qp(Node&, ClientSession&, Request&);
// verbs_modify.cpp
Outcome modify_qp(Node&, ClientSession&, Request&);
// verbs_datagram.cpp
Outcome create_ah(Node&, ClientSession&, Request&);
Outcome destroy_ah(Node&, ClientSession&, Request&);
Outcome attach_mcast(Node&, ClientSession&, Request&);
Outcome detach_mcast(Node&, ClientSession&, Request&);
// extents.cpp
Outcome convert_begin(Node&, ClientSession&, Request&);
Outcome convert_done(Node&, ClientSession&, Request&);
Outcome revert(Node&, ClientSession&, Request&);
Outcome share_mapping(Node&, ClientSession&, Request&);

// What a client is told of its device memory, with a descriptor of it; null: there is none.
[[nodiscard]] Outcome describe_dm(std::uint32_t handle, const DeviceMemory* memory);

}  // namespace urdma::control
