// The rules of binding and invalidating memory windows.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/windows.hpp"

#include <atomic>
#include <mutex>
#include <utility>

namespace urdma::memory {

namespace {

// Whether the window may be bound at all now. A type 2 window has to be invalidated first, and is not
// unbound by binding it.
bool may_be_bound(const Region& window, const Accessor& who, const BindRequest& request) {
  if (window.kind != Region::Kind::kWindow || window.pd != who.pd) return false;
  if (index_of(request.new_key) != index_of(window.key)) return false;
  switch (window.binding.type) {
    case WindowType::kType1:
      return (request.access & kAccessZeroBased) == 0;
    case WindowType::kType2:
      return window.binding.region == nullptr && request.length != 0;
  }
  return false;
}

// Whether the region carries such a window; `address` becomes its place in the program.
bool carries(const Region& region, const Accessor& who, const BindRequest& request, std::uint64_t& address) {
  const bool peers_write = (request.access & (kAccessRemoteWrite | kAccessRemoteAtomic)) != 0;
  const std::uint32_t needed = kAccessMwBind | (peers_write ? kAccessLocalWrite : 0);
  return region.kind == Region::Kind::kMemory &&
         translate(region, who.pd, needed, request.address, request.length, address);
}

void link(Region& window, Region& region) {
  window.binding.region = &region;
  window.binding.next = std::exchange(region.windows, &window);
  if (window.binding.next != nullptr) window.binding.next->binding.previous = &window;
}

}  // namespace

bool bind_window(const RegionTable& table, const Accessor& who, const BindRequest& request, Region*& before) {
  const std::lock_guard guard(table.windows_lock());
  Region* window = table.find_index(request.window);
  if (window == nullptr || !may_be_bound(*window, who, request)) return false;
  Region* region = request.length == 0 ? nullptr : table.find(request.region);
  std::uint64_t address = 0;
  if (request.length != 0 && (region == nullptr || !carries(*region, who, request, address))) return false;
  before = window->binding.region;
  unbind_window(*window);
  std::atomic_ref<std::uint32_t>(window->key.value).store(request.new_key.value, std::memory_order_relaxed);
  if (region == nullptr) return true;
  window->access = request.access & kAccessRemoteMask;
  window->iova = (request.access & kAccessZeroBased) != 0 ? 0 : request.address;
  window->address = address;
  window->length = request.length;
  window->binding.qp = who.qp;
  link(*window, *region);
  return true;
}

bool invalidate_window(const RegionTable& table, const Accessor& who, MemoryKey key, Region*& before) {
  const std::lock_guard guard(table.windows_lock());
  Region* window = table.find(key);
  if (window == nullptr || window->kind != Region::Kind::kWindow || window->pd != who.pd) return false;
  const Binding& binding = window->binding;
  if (binding.type != WindowType::kType2) return false;
  if (binding.region != nullptr && binding.qp != who.qp) return false;
  before = binding.region;
  unbind_window(*window);
  return true;
}

void unbind_window(Region& window) {
  Binding& binding = window.binding;
  if (binding.region == nullptr) return;
  if (binding.previous != nullptr) {
    binding.previous->binding.next = binding.next;
  } else {
    binding.region->windows = binding.next;
  }
  if (binding.next != nullptr) binding.next->binding.previous = binding.previous;
  binding = {.type = binding.type};
  window.access = 0;
  window.iova = window.address = window.length = 0;
}

void unbind_all_windows(Region& region) {
  while (region.windows != nullptr) unbind_window(*region.windows);
}

}  // namespace urdma::memory
