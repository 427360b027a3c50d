// Taking objects apart (see retirement.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/retirement.hpp"

#include <malloc.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "datapath/control/device.hpp"
#include "datapath/control/failures.hpp"
#include "urdma/base/check.hpp"

namespace urdma::control {
namespace {

void advance_end(Node& node, ClientSession& session);

// The engine names the QP no more.
void free_qp(Node& node, ClientSession& session, const std::shared_ptr<QpEntry>& entry) {
  const transport::FailureReason failure = entry->qp->last_failure;
  if (failure != transport::FailureReason::kNone) {
    note_failure(node, session, entry->qp->qpn().value, entry->address,
                 failure_text(node, session, *entry, failure));
  }
  const engine::Qp::Config& config = entry->qp->config();
  if (config.send_cq != nullptr) --config.send_cq->users;
  if (config.recv_cq != nullptr) --config.recv_cq->users;
  if (config.srq != nullptr) --config.srq->users;
  if (ProtectionDomain* pd = session.objects.pds.find(entry->pd)) --pd->users;
  if (entry->domain == nullptr) {
    session.objects.doorbells.give_back(config.doorbell);
    session.objects.queue_bytes -= config.geometry.memory_bytes;
  }
  for (const wire::Gid& group : entry->groups) {
    session.objects.memberships.leave(group);
    node.groups.leave(node.devices.at(session.device), group);
  }
  node.qpns.release(config.transport.qpn);
  --node.usage.qps;
}

// The session has the QP no more; others may.
void leave_xrc_qp(Node& node, ClientSession& session, std::uint32_t handle, QpEntry& entry) {
  const XrcOpening opening = session.objects.xrc_openings.extract(handle).mapped();
  node.engine.run(
      [&] { node.engine.remove_opener(*entry.qp, *session.engine_session, opening.user_pointer); });
  if (XrcdEntry* xrcd = session.objects.xrcds.find(opening.xrcd)) --xrcd->users;
  // A change that this session had under way ends without it, and holds up no other's.
  entry.is_modifying = false;
}

void free_region(Node& node, ClientSession& session, const RegionEntry& entry) {
  if (ProtectionDomain* pd = session.objects.pds.find(entry.pd)) --pd->users;
  node.keys.release(entry.region.key);
  --(entry.region.kind == memory::Region::Kind::kWindow ? node.usage.windows : node.usage.regions);
}

// All regions whose wait is over.
void finish_regions(Node& node, ClientSession& session) {
  session.region_wait = 0;
  for (auto& retiring : std::exchange(session.regions_in_wait, {})) {
    if (retiring.entry != nullptr) free_region(node, session, *retiring.entry);
    if (!session.is_ending && retiring.done) retiring.done();
  }
}

// Waits for the end of all access to the regions that were removed since the last wait began: one wait at
// a time for each session.
void wait_for_regions(Node& node, ClientSession& session) {
  while (session.region_wait == 0 && !session.regions_for_next.empty()) {
    session.regions_in_wait = std::exchange(session.regions_for_next, {});
    session.region_wait = node.waits.add([&node, id = session.id](std::uint64_t) {
      ClientSession* waiting = node.sessions.find(id);
      URDMA_CHECK(waiting != nullptr);
      finish_regions(node, *waiting);
      wait_for_regions(node, *waiting);
      if (waiting->is_ending) advance_end(node, *waiting);
    });
    bool is_quiet = false;
    node.engine.run([&] { is_quiet = node.engine.quiesce(*session.engine_session, session.region_wait); });
    if (!is_quiet) return;
    node.waits.drop(session.region_wait);
    finish_regions(node, session);
  }
}

void remove_region_from_engine(Node& node, ClientSession& session, HandleTable<RegionEntry>& table,
                               std::uint32_t handle, std::function<void()> done) {
  auto entry = table.take(handle);
  URDMA_CHECK(entry != nullptr);
  node.engine.run([&] { node.engine.remove_region(entry->region); });
  session.regions_for_next.push_back({std::move(entry), std::move(done)});
}

// The last steps of a session whose QPs and regions are gone.
void free_session(Node& node, ClientSession& session) {
  node.engine.run([&] { node.engine.remove_session(*session.engine_session); });
  node.usage.pds -= session.objects.pds.size();
  node.usage.xrcds -= session.objects.xrcds.size();
  spdlog::info("session {} of {} (process {}) is gone", session.id, session.program, session.peer.pid);
  node.sessions.erase(session.id);
  // What thousands of queue pairs had goes back to the system. The C library keeps it otherwise; while
  // somebody uses the node it may, since returning it takes milliseconds.
  if (node.sessions.size() == 0) ::malloc_trim(0);
}

// One step of the order QPs, SRQs, CQs, regions, protection domains, as far as it goes now.
void advance_end(Node& node, ClientSession& session) {
  if (!session.retiring_qps.empty()) return;
  for (const std::uint32_t handle : session.objects.srqs.handles()) remove_srq(node, session, handle);
  for (const std::uint32_t handle : session.objects.ahs.handles()) remove_ah(node, session, handle);
  for (const std::uint32_t handle : session.objects.cqs.handles()) remove_cq(node, session, handle);
  for (auto* table : {&session.objects.windows, &session.objects.regions}) {
    for (const std::uint32_t handle : table->handles()) {
      remove_region_from_engine(node, session, *table, handle, {});
    }
  }
  // Once more without a region, for the events that are under way.
  if (!std::exchange(session.has_awaited_copies, true)) session.regions_for_next.emplace_back();
  wait_for_regions(node, session);
  if (session.region_wait == 0) free_session(node, session);
}

}  // namespace

void retire_qp(Node& node, ClientSession& session, std::uint32_t handle, std::function<void()> done) {
  std::shared_ptr<QpEntry> entry = session.objects.qps.take(handle);
  URDMA_CHECK(entry != nullptr);
  if (entry->domain != nullptr) leave_xrc_qp(node, session, handle, *entry);
  const bool is_used_elsewhere = entry.use_count() > 1;
  if (is_used_elsewhere) {
    if (!session.is_ending) done();
    return;
  }
  // Nobody opens it any more, however long copiers still have packets of it.
  if (entry->domain != nullptr) entry->domain->qps.erase(entry->qp->qpn().value);
  const std::uint64_t wait = node.waits.add([&node, id = session.id, done](std::uint64_t cookie) {
    ClientSession* waiting = node.sessions.find(id);
    URDMA_CHECK(waiting != nullptr);
    free_qp(node, *waiting, waiting->retiring_qps.extract(cookie).mapped());
    if (waiting->is_ending) {
      advance_end(node, *waiting);
    } else {
      done();
    }
  });
  bool is_quiet = false;
  node.engine.run([&] {
    node.engine.remove_qp(*entry->qp);
    is_quiet = node.engine.quiesce(*entry->qp, wait);
  });
  if (!is_quiet) {
    session.retiring_qps.emplace(wait, std::move(entry));
    return;
  }
  node.waits.drop(wait);
  free_qp(node, session, entry);
  if (!session.is_ending) done();
}

void retire_region(Node& node, ClientSession& session, std::uint32_t handle, std::function<void()> done) {
  remove_region_from_engine(node, session, session.objects.regions, handle, std::move(done));
  wait_for_regions(node, session);
}

void retire_window(Node& node, ClientSession& session, std::uint32_t handle, std::function<void()> done) {
  remove_region_from_engine(node, session, session.objects.windows, handle, std::move(done));
  wait_for_regions(node, session);
}

void await_region(Node& node, ClientSession& session, std::unique_ptr<RegionEntry> entry,
                  std::function<void()> done) {
  session.regions_for_next.push_back({std::move(entry), std::move(done)});
  wait_for_regions(node, session);
}

void await_copies(Node& node, ClientSession& session, std::function<void()> done) {
  await_region(node, session, nullptr, std::move(done));
}

std::uint32_t share_xrc_qp(Node& node, ClientSession& session, std::uint32_t xrcd,
                           std::shared_ptr<QpEntry> entry, std::uint64_t user_pointer) {
  engine::Qp& qp = *entry->qp;
  node.engine.run([&] { node.engine.add_opener(qp, *session.engine_session, user_pointer); });
  ++session.objects.xrcds.find(xrcd)->users;
  const std::uint32_t handle = session.objects.qps.insert(std::move(entry));
  session.objects.xrc_openings.emplace(handle, XrcOpening{user_pointer, xrcd});
  return handle;
}

void remove_srq(Node& node, ClientSession& session, std::uint32_t handle) {
  const auto entry = session.objects.srqs.take(handle);
  URDMA_CHECK(entry != nullptr && entry->srq->users == 0);
  node.engine.run([&] { node.engine.remove_srq(*entry->srq); });
  if (ProtectionDomain* pd = session.objects.pds.find(entry->pd)) --pd->users;
  if (engine::CompletionQueue* cq = entry->srq->config().cq) --cq->users;
  if (XrcdEntry* xrcd = session.objects.xrcds.find(entry->xrcd)) --xrcd->users;
  session.objects.queue_bytes -= entry->srq->geometry().memory_bytes;
  node.srqns.release(Qpn{entry->srq->config().number});
  --node.usage.srqs;
}

void run_by_copier(Node& node, ClientSession& session, std::function<void()> errand,
                   std::function<void()> done) {
  // The wait keeps the errand for as long as the copier may have it.
  const auto kept = std::make_shared<std::function<void()>>(std::move(errand));
  const std::uint64_t wait = node.waits.add([kept, done = std::move(done)](std::uint64_t) { done(); });
  const auto call = [](void* argument) { (*static_cast<std::function<void()>*>(argument))(); };
  node.engine.run([&] { node.engine.run_by_copier(*session.engine_session, call, kept.get(), wait); });
}

void remove_cq(Node& node, ClientSession& session, std::uint32_t handle) {
  auto entry = session.objects.cqs.take(handle);
  URDMA_CHECK(entry != nullptr && entry->cq->users == 0);
  node.engine.run([&] { node.engine.remove_cq(*entry->cq); });
  session.objects.queue_bytes -= entry->memory_bytes;
  --node.usage.cqs;
}

void remove_ah(Node& node, ClientSession& session, std::uint32_t handle) {
  const auto entry = session.objects.ahs.take(handle);
  URDMA_CHECK(entry != nullptr);
  node.engine.run([&] { node.engine.remove_address_handle(*session.engine_session, handle); });
  if (ProtectionDomain* pd = session.objects.pds.find(entry->pd)) --pd->users;
  --node.usage.ahs;
}

void end_session(Node& node, ClientSession& session, const std::string& reason) {
  if (session.is_ending) return;
  session.is_ending = true;
  session.broken_reason = reason;
  if (!reason.empty()) {
    spdlog::warn("session {} of {} (process {}) is ended: {}", session.id, session.program, session.peer.pid,
                 reason);
    note_failure(node, session, 0, {}, reason);
  }
  node.sender.close(std::exchange(session.request, 0));
  node.sender.close(std::exchange(session.upcall, 0));
  for (const std::uint32_t handle : session.objects.qps.handles()) {
    retire_qp(node, session, handle, {});
  }
  advance_end(node, session);
}

}  // namespace urdma::control
