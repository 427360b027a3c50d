// What one user may have of a node that several use, so that none can take all of it. A user may take more
// while it holds less than is free: the first gets half, and there is always something left for the next
// (docs/limits.md). Whoever runs the node may have all of it. Control thread.
//
// What a user holds is counted from the sessions that there are, also those that are being taken apart, and
// kept nowhere else.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <optional>

#include "datapath/control/node.hpp"
#include "urdma/base/result.hpp"

namespace urdma::control {

struct Holdings {
  std::uint64_t sessions = 0;
  std::uint64_t pds = 0;
  std::uint64_t regions = 0;  // windows that are being taken apart, too
  std::uint64_t windows = 0;
  std::uint64_t cqs = 0;
  std::uint64_t qps = 0;
  std::uint64_t srqs = 0;
  std::uint64_t xrcds = 0;
  std::uint64_t ahs = 0;          // those whose neighbour is being looked for, too
  std::uint64_t memberships = 0;  // of queue pairs in multicast groups
  std::uint64_t queue_bytes = 0;
  std::uint64_t extents = 0;
};
// Of one user, or of all.
[[nodiscard]] Holdings holdings_of(const SessionTable& sessions, std::optional<uid_t> user);

// Multicast groups that queue pairs of a user are in.
[[nodiscard]] std::uint64_t groups_of(const SessionTable& sessions, uid_t user);

// Descriptors of the daemon's that completion channels and device memory have, of one user or of all.
[[nodiscard]] std::uint64_t descriptors_of(const SessionTable& sessions, std::optional<uid_t> user);

// One kind of thing, of which the node has `most`.
struct Share {
  const char* what;
  std::uint64_t held;  // by the user
  std::uint64_t used;  // by all
  std::uint64_t most;
};
// Whether `user` may have `wanted` more: `error` and a sentence otherwise.
[[nodiscard]] Status check_share(const Share& share, std::uint64_t wanted, uid_t user, uid_t owner,
                                 int error);
// The same for things of a session's user; `kind` says which (ENOMEM otherwise).
[[nodiscard]] Status check_share(const Node& node, uid_t user, const char* what,
                                 std::uint64_t Holdings::*kind, std::uint64_t most, std::uint64_t wanted = 1);

// A kind of object that clients make, and its limits.
struct Kind {
  const char* what;
  std::uint32_t Limits::*of_session;
  std::uint32_t Limits::*of_node;
  std::uint32_t Usage::*used;
  std::uint64_t Holdings::*held;
};
inline constexpr Kind kProtectionDomains{"protection domains", &Limits::max_pd_of_session, &Limits::max_pd,
                                         &Usage::pds, &Holdings::pds};
inline constexpr Kind kRegions{"memory regions", &Limits::max_mr_of_session, &Limits::max_mr, &Usage::regions,
                               &Holdings::regions};
inline constexpr Kind kWindows{"memory windows", &Limits::max_mw_of_session, &Limits::max_mw, &Usage::windows,
                               &Holdings::windows};
inline constexpr Kind kCompletionQueues{"completion queues", &Limits::max_cq_of_session, &Limits::max_cq,
                                        &Usage::cqs, &Holdings::cqs};
inline constexpr Kind kQueuePairs{"queue pairs", &Limits::max_qp_of_session, &Limits::max_qp, &Usage::qps,
                                  &Holdings::qps};
inline constexpr Kind kSharedReceiveQueues{"shared receive queues", &Limits::max_srq_of_session,
                                           &Limits::max_srq, &Usage::srqs, &Holdings::srqs};
inline constexpr Kind kXrcDomains{"XRC domains", &Limits::max_xrcd_of_session, &Limits::max_xrcd,
                                  &Usage::xrcds, &Holdings::xrcds};
inline constexpr Kind kAddressHandles{"address handles", &Limits::max_ah_of_session, &Limits::max_ah,
                                      &Usage::ahs, &Holdings::ahs};
// Whether a session that has `has` of a kind may make one more: by its own limit, the node's, and its user's
// share. ENOMEM otherwise.
[[nodiscard]] Status check_room(const Node& node, const ClientSession& session, const Kind& kind,
                                std::size_t has);

// The same for one more descriptor. EMFILE otherwise.
[[nodiscard]] Status check_descriptors(const Node& node, const ClientSession& session);

}  // namespace urdma::control
