// An engine's counters, all free-running. Written by the engine; read inside Engine::run.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace urdma::engine {

struct Counters {
  std::uint64_t loops = 0;
  std::uint64_t sleeps = 0;
  std::uint64_t respites = 0;  // that it gave to others in the midst of work
  std::uint64_t frames_received = 0;
  std::uint64_t frames_sent = 0;
  std::uint64_t local_packets = 0;
  std::uint64_t completions = 0;
  std::uint64_t bytes_copied_mapped = 0;
  std::uint64_t bytes_copied_by_copier = 0;
  std::uint64_t handed_over = 0;  // received frames, to the engine of their QP
  // Received frames that were dropped, by reason.
  std::uint64_t dropped_no_buffer = 0;
  std::uint64_t dropped_unknown_qp = 0;
  std::uint64_t dropped_wrong_address = 0;
  std::uint64_t dropped_busy = 0;
  std::uint64_t dropped_handover = 0;  // the engine of their QP did not keep up
  // ARP and neighbour discovery, and datagrams to QP 1: more than the control thread is to bear.
  std::uint64_t dropped_resolution = 0;
  std::uint64_t dropped_management = 0;
  std::uint64_t dropped_bad_management = 0;  // not of the form that QP 1 takes
  // Messages of address resolution that the control thread got.
  std::uint64_t resolution_heard = 0;
  std::uint64_t management_received = 0;  // datagrams to QP 1 that it got
  // Frames that were not sent, since an address or an interface has gone, or the interface's MTU has shrunk.
  std::uint64_t unsent_no_source = 0;
  std::uint64_t unsent_no_port = 0;
  std::uint64_t unsent_too_long = 0;
  std::uint64_t unsent_management = 0;   // datagrams of QP 1: no buffer, or a port that takes nothing
  std::uint64_t dropped_no_receive = 0;  // of an unreliable QP, whose receives were used up for too long
  std::uint64_t dropped_no_group = 0;    // to a multicast group without a QP here
  std::array<std::uint64_t, 8> dropped_by_parse{};  // indexed by wire::ParseError

  Counters& operator+=(const Counters& other);
};

inline Counters& Counters::operator+=(const Counters& other) {
  using Numbers = std::array<std::uint64_t, sizeof(Counters) / sizeof(std::uint64_t)>;
  auto sum = std::bit_cast<Numbers>(*this);
  const auto more = std::bit_cast<Numbers>(other);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  return *this = std::bit_cast<Counters>(sum);
}

}  // namespace urdma::engine
