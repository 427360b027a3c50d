// Memory windows on an engine: requests that bind and invalidate them, and packets that invalidate.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/windows.hpp"

#include <utility>

#include "datapath/engine/loop.hpp"
#include "urdma/base/check.hpp"

namespace urdma::engine {

using transport::LocalOp;
using transport::MemoryOp;
using transport::MemoryResult;

AccessContext Engine::Loop::access_context(const Qp& qp, PdId pd) const {
  return {regions, {pd, qp.instance}};
}

bool Engine::Loop::do_local(Qp& qp, const LocalOp& op) {
  const memory::Accessor who = access_context(qp, qp.config().pd).who;
  memory::Region* before = nullptr;
  bool is_done = false;
  switch (op.kind) {
    case LocalOp::Kind::kNone:
      break;
    case LocalOp::Kind::kInvalidate:
      is_done = memory::invalidate_window(regions, who, op.key, before);
      break;
    case LocalOp::Kind::kBind:
      is_done = memory::bind_window(
          regions, who, {op.key, op.bind_key, op.region_key, op.access, op.address, op.length}, before);
      break;
  }
  memory::Copier* copier = before != nullptr ? &before->space->copier() : nullptr;
  if (copier == nullptr || (copier->outstanding() == 0 && !common.has_several())) {
    qp.transport().on_local_done(is_done ? MemoryResult::kOk : MemoryResult::kProtection, now);
    return true;
  }
  // Some of what the copier has in hand may have come through the window that has been closed: the program
  // is told once it is done, and may then use the memory for something else.
  Transfer& fence = take_transfer(qp, Transfer::Stage::kLocal);
  fence.space = before->space;
  qp.local_wait = &fence;
  if (common.has_several()) {
    await_other_rounds(fence);
  } else {
    start_fence(fence);
  }
  return false;
}

// The fence's QP may have forgotten it, and stays until it is done.
void Engine::Loop::start_fence(Transfer& fence) {
  if (fence.space == nullptr) return finish_fence(fence);
  fence.job.kind = memory::CopyJob::Kind::kFence;
  fence.job.segments = {};
  fence.job.errand = nullptr;
  fence.job.owner = &fence;
  fence.job.failed = false;
  fence.space->copier().submit(fence.job, index);
}

void Engine::Loop::await_other_rounds(Transfer& fence) {
  append(waiting_fences_head, waiting_fences_tail, fence);
}

// One look at a time: what comes meanwhile waits for the next, which begins when this one has ended.
bool Engine::Loop::look_at_other_rounds() {
  if (closing_fences_head != nullptr) {
    for (const auto& other : common.loops) {
      if (other->index == index || other->rounds.load(std::memory_order_acquire) != rounds_seen[other->index])
        continue;
      engines_to_wake |= 1U << other->index;  // again, since it may have gone to sleep just now
      return false;
    }
    while (closing_fences_head != nullptr) start_fence(pop(closing_fences_head));
  }
  if (waiting_fences_head == nullptr) return false;
  closing_fences_head = std::exchange(waiting_fences_head, nullptr);
  for (const auto& other : common.loops) {
    rounds_seen[other->index] = other->rounds.load(std::memory_order_acquire);
    if (other->index != index) engines_to_wake |= 1U << other->index;
  }
  return true;
}

// The program whose copier the fences were for is gone.
void Engine::Loop::forget_space(const memory::AddressSpace& space) {
  for (Transfer* list : {waiting_fences_head, closing_fences_head}) {
    for (Transfer* fence = list; fence != nullptr; fence = fence->next) {
      if (fence->space == &space) fence->space = nullptr;
    }
  }
}

void Engine::Loop::finish_fence(Transfer& fence) {
  if (fence.stage == Transfer::Stage::kOrphan) return free_transfer(fence);
  finish_local(fence);
}

void Engine::Loop::finish_local(Transfer& fence) {
  Qp& qp = *fence.qp;
  URDMA_CHECK(std::exchange(qp.local_wait, nullptr) == &fence);
  qp.transport().on_local_done(MemoryResult::kOk, now);
  mark_ready(qp);
  free_transfer(fence);
}

// Operations of a QP are answered in order, and no other QP uses a type 2 window: nothing that was written
// through it is still under way.
MemoryResult Engine::Loop::conclude(const Qp& qp, const MemoryOp& op, MemoryResult result) {
  if (!op.invalidates || result != MemoryResult::kOk) return result;
  memory::Region* before = nullptr;
  const bool is_done =
      memory::invalidate_window(regions, access_context(qp, qp.config().pd).who, op.invalidate_key, before);
  return is_done ? MemoryResult::kOk : MemoryResult::kProtection;
}

}  // namespace urdma::engine
