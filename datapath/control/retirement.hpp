// Taking objects apart while engines may still name them: each is removed from the engine at once, and freed
// when the engine says that nothing in flight names it. Also the order in which a whole session goes: QPs,
// SRQs, CQs, regions, protection domains. Until then what is left of a dead client counts against its limits.
// Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <functional>
#include <string>

#include "datapath/control/node.hpp"

namespace urdma::control {

// They take the object out of the session's table. `done` is called once, from here or later; never when
// the session goes meanwhile.
void retire_qp(Node& node, ClientSession& session, std::uint32_t handle, std::function<void()> done);
void retire_region(Node& node, ClientSession& session, std::uint32_t handle, std::function<void()> done);
void retire_window(Node& node, ClientSession& session, std::uint32_t handle, std::function<void()> done);
// The same for a region that is in no table and no engine any more.
void await_region(Node& node, ClientSession& session, std::unique_ptr<RegionEntry> entry,
                  std::function<void()> done);
// Calls `done` once everything that the session's copier has in hand now is done, events included.
void await_copies(Node& node, ClientSession& session, std::function<void()> done);

// An XRC receive QP becomes one of the session's as well, with a handle that retire_qp() takes. The QP goes
// with the last session that has it.
[[nodiscard]] std::uint32_t share_xrc_qp(Node& node, ClientSession& session, std::uint32_t xrcd,
                                         std::shared_ptr<QpEntry> entry, std::uint64_t user_pointer);

// Takes an SRQ without users out of the session, at once.
void remove_srq(Node& node, ClientSession& session, std::uint32_t handle);

// Has `errand` done by the session's copier, behind what it has in hand now: for what a client can hold up.
// `done` is called afterwards, on the control thread; the session may be gone.
void run_by_copier(Node& node, ClientSession& session, std::function<void()> errand,
                   std::function<void()> done);

// Takes a CQ without users out of the session, at once.
void remove_cq(Node& node, ClientSession& session, std::uint32_t handle);

// Ends the session: closes its connections, and takes apart all that it has. `reason` is empty when the
// client itself went. The session may be gone when this returns.
void end_session(Node& node, ClientSession& session, const std::string& reason);

// Takes an address handle out of the session, at once: datagrams on their way need it no more.
void remove_ah(Node& node, ClientSession& session, std::uint32_t handle);

}  // namespace urdma::control
