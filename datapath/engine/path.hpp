// How a QP's packets reach their peer.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

#include "urdma/base/ids.hpp"
#include "urdma/wire/frame.hpp"

namespace urdma::engine {

// Payload bytes of a packet between two connected QPs of one node: a chunk is copied in one go.
inline constexpr std::uint32_t kLocalPacketBytes = 64 * 1024;

// What sending a frame needs to know once its headers are written.
struct Route {
  bool is_local = false;        // both ends are on this node: no frames leave it (ARCHITECTURE decision 4)
  bool is_multicast = false;    // of a datagram
  std::uint32_t port = 0;       // index of the engine's port that it goes out of
  std::uint32_t dest_port = 0;  // is_local: of the port that has dest_gid
  wire::Gid dest_gid{};
  // The port has the source address no more: nothing is sent from it, until it is back or retries are used
  // up.
  bool is_silent = false;
};

struct Path : Route {
  bool is_set = false;
  wire::Gid source_gid{};
  wire::FlowTemplate flow;  // not local, or of datagrams
};

// The UDP source port of the packets from one QP to another: the same for the life of the flow, different
// from flow to flow, so that equal-cost paths are used (IBTA annex A17, and Linux).
constexpr std::uint16_t flow_port(Qpn own, Qpn peer) {
  constexpr std::uint32_t kPorts = 0x10000 - wire::kFirstSourcePort;
  const std::uint32_t mixed = (own.value * 0x9E3779B1U) ^ (peer.value * 0x85EBCA77U);
  return static_cast<std::uint16_t>(wire::kFirstSourcePort + (mixed >> 16) % kPorts);
}

}  // namespace urdma::engine
