// Client contexts and the processes behind them.
//
// An identity is what open("/dev/infiniband/uverbsN") gave a program: a connection with a token. Each
// Hello with that token makes a session: one context of one process. A session ends with its request
// connection or with its identity, whichever goes first; what it owned is taken apart by retirement.hpp.
// Owner: the node; control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "datapath/control/connection.hpp"
#include "datapath/control/extents.hpp"
#include "datapath/control/objects.hpp"
#include "datapath/engine/session.hpp"
#include "datapath/memory/address_space.hpp"
#include "urdma/base/unique_fd.hpp"

namespace urdma::control {

using ConnectionId = std::uint64_t;  // never used twice; 0: none

// What tells a program in memory from every other: the process, told from a later one with its number by
// its start, and the place of its stack, which each exec draws anew.
struct ProgramIdentity {
  pid_t pid = 0;
  std::uint64_t start_time = 0;
  std::uint64_t stack_start = 0;
  [[nodiscard]] bool is_known() const { return pid != 0 && start_time != 0 && stack_start != 0; }
  friend bool operator==(const ProgramIdentity&, const ProgramIdentity&) = default;
};

// One program of a client; its sessions share the way to its memory.
struct ClientProcess {
  ProgramIdentity identity;
  std::unique_ptr<memory::AddressSpace> space;
  ExtentTable extents;
};

struct Identity {
  abi::Token token{};
  ConnectionId connection = 0;
  std::uint32_t device = 0;
  // Where its sessions draw handles of what may be imported from one to another.
  std::shared_ptr<std::uint32_t> next_pd = std::make_shared<std::uint32_t>(1);
  std::shared_ptr<std::uint32_t> next_region = std::make_shared<std::uint32_t>(1);
  std::shared_ptr<std::uint32_t> next_dm = std::make_shared<std::uint32_t>(1);
};

struct ClientSession {
  std::uint32_t id = 0;
  std::uint32_t device = 0;
  ConnectionId identity = 0;
  ConnectionId request = 0;
  ConnectionId upcall = 0;
  Peer peer;
  std::string program;
  std::shared_ptr<ClientProcess> process;
  std::array<UniqueFd, abi::kMaxEngines> doorbells;
  std::unique_ptr<engine::Session> engine_session;
  Objects objects{abi::DoorbellBoard::kDoorbells};

  // ---- Taking apart: see retirement.hpp ----
  bool is_ending = false;
  std::string broken_reason;  // why the daemon ended it; empty: the client did
  std::unordered_map<std::uint64_t, std::shared_ptr<QpEntry>> retiring_qps;  // by wait
  struct RetiringRegion {
    std::unique_ptr<RegionEntry> entry;
    std::function<void()> done;
  };
  std::vector<RetiringRegion> regions_in_wait;   // removed before the running wait began
  std::vector<RetiringRegion> regions_for_next;  // removed since
  bool has_awaited_copies = false;               // at its end
  std::uint64_t region_wait = 0;                 // 0: none runs
};

class SessionTable {
 public:
  // ---- Identities ----
  Identity& add_identity(ConnectionId connection, std::uint32_t device);
  void remove_identity(ConnectionId connection) { identities_.erase(connection); }
  [[nodiscard]] const Identity* find_identity(const abi::Token& token) const;
  [[nodiscard]] std::size_t identity_count() const { return identities_.size(); }

  // ---- Sessions ----
  ClientSession& add(std::unique_ptr<ClientSession> session);  // gives it its id
  // Null when there is none with this id.
  [[nodiscard]] ClientSession* find(std::uint32_t id) const;
  [[nodiscard]] ClientSession* find_by_request(ConnectionId connection) const;
  // The latest session of this identity and process that has no upcall connection yet.
  [[nodiscard]] ClientSession* find_for_upcall(ConnectionId identity, pid_t pid) const;
  [[nodiscard]] std::vector<std::uint32_t> ids_of_identity(ConnectionId identity) const;
  // Sessions that are being taken apart included.
  [[nodiscard]] std::size_t size() const { return sessions_.size(); }
  void erase(std::uint32_t id) { sessions_.erase(id); }
  [[nodiscard]] auto begin() const { return sessions_.begin(); }
  [[nodiscard]] auto end() const { return sessions_.end(); }

  // ---- Processes ----
  // The program behind `peer`: the one that is known, or a new one that is reached by `mem_descriptor`. A
  // program that cannot be identified (in another pid namespace, say) is always a new one.
  [[nodiscard]] Result<std::shared_ptr<ClientProcess>> process_of(const Peer& peer, UniqueFd mem_descriptor,
                                                                  const std::vector<int>& wake_descriptors);

 private:
  std::map<ConnectionId, Identity> identities_;
  std::map<std::uint32_t, std::unique_ptr<ClientSession>> sessions_;
  std::vector<std::weak_ptr<ClientProcess>> processes_;
  std::uint32_t next_session_ = 1;
};

// From /proc/PID/stat; what cannot be read is 0.
[[nodiscard]] ProgramIdentity identify_program(pid_t pid);

}  // namespace urdma::control
