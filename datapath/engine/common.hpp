// What the engines of a node have in common: the tables of the node, and one another. The tables are changed
// only while all engines stand still (Engine::run), and so read without a lock.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "datapath/engine/engine.hpp"
#include "datapath/engine/meeting.hpp"
#include "datapath/memory/engine_lock.hpp"
#include "datapath/memory/region_table.hpp"
#include "urdma/base/flat_table.hpp"

namespace urdma::engine {

struct Engine::Common {
  explicit Common(const EngineConfig& config)
      : regions(config.limits.max_mr + config.limits.max_mw),
        qps(config.limits.max_qp),
        srqs(config.limits.max_srq),
        sending(config.ports.size()) {}

  [[nodiscard]] bool has_several() const { return loops.size() > 1; }
  [[nodiscard]] Loop& loop_of(const Qp& qp) const { return *loops[qp.engine()]; }

  memory::RegionTable regions;
  FlatTable<Qp> qps;
  FlatTable<SharedReceiveQueue> srqs;                                      // by number
  std::map<std::pair<std::uint32_t, wire::Gid>, std::vector<Qp*>> groups;  // multicast: by port and GID
  std::uint64_t last_instance = 0;                                         // of a QP
  std::vector<memory::EngineLock> sending;                                 // by port: who sends on it now
  std::vector<std::unique_ptr<Loop>> loops;                                // by index
  Meeting meeting;
  std::mutex reports_lock;  // cold: reports are rare
  std::vector<Report> reports;
};

}  // namespace urdma::engine
