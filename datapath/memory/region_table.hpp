// The registered regions and memory windows of the node, found by key, and the one place where access is
// judged.
//
// Owner: the engines, which alone call it; the control thread changes it through Engine::run. What engines
// change while they run, windows, is behind a lock. It holds no memory of programs: an address that it yields
// is one of the region's address space.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <atomic>
#include <cstdint>

#include "datapath/memory/engine_lock.hpp"
#include "urdma/base/flat_table.hpp"
#include "urdma/base/ids.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::memory {

class AddressSpace;
struct Region;

enum class WindowType : std::uint8_t { kType1 = 1, kType2 = 2 };  // as ibv_mw_type has them

// What a memory window is bound to (windows.hpp).
struct Binding {
  WindowType type = WindowType::kType1;
  Region* region = nullptr;  // null: to nothing
  std::uint64_t qp = 0;      // type 2: Accessor::qp of the QP that has bound it, the only one it is for
  // The other windows of that region.
  Region* next = nullptr;
  Region* previous = nullptr;
};

// What has a key. Made and owned by the control path; stays in place while registered.
struct Region {
  enum class Kind : std::uint8_t {
    kMemory,
    kNull,    // of all addresses and no memory: reads yield zeros, writes go nowhere
    kWindow,  // access, iova, address and length are those of its binding, 0 where it has none
  };

  MemoryKey key;
  PdId pd;
  Kind kind = Kind::kMemory;
  std::uint32_t access = 0;   // kAccessLocalWrite ...
  std::uint64_t iova = 0;     // what work requests and peers call its first byte
  std::uint64_t address = 0;  // where that byte is in the program
  std::uint64_t length = 0;
  AddressSpace* space = nullptr;  // kMemory
  std::uint32_t handle = 0;
  std::uint32_t session = 0;  // the client context that registered it
  // Engines only, from here (the first three by atomic_ref). Traffic through the copier since the region was
  // made; conversion is earned by it.
  std::uint64_t copied_bytes = 0;
  std::uint32_t copied_operations = 0;
  bool conversion_requested = false;
  Region* windows = nullptr;  // kMemory: those bound to it
  Binding binding;            // kWindow

  // Its pages come and go: what is mapped here may not be what the program has there now.
  [[nodiscard]] bool is_on_demand() const { return (access & kAccessOnDemand) != 0; }
};

// Keys have an index, the upper 24 bits, which no two regions or windows share, and 8 bits that whoever binds
// a window chooses (IBTA 1, 10.6.7.2.4).
[[nodiscard]] constexpr std::uint32_t index_of(MemoryKey key) { return key.value >> 8; }

class RegionTable {
 public:
  // Room for `capacity` regions and windows.
  explicit RegionTable(std::uint32_t capacity) : regions_(capacity) {}

  // False when the key's index is taken or the table is full. The table does not own the region.
  [[nodiscard]] bool insert(Region& region) { return regions_.insert(index_of(region.key), region); }
  void erase(MemoryKey key) { regions_.erase(index_of(key)); }
  [[nodiscard]] Region* find(MemoryKey key) const {
    Region* region = find_index(key);
    return region != nullptr && has_key(*region, key) ? region : nullptr;
  }
  // Whatever the other 8 bits of its key are.
  [[nodiscard]] Region* find_index(MemoryKey key) const { return regions_.find(index_of(key)); }
  [[nodiscard]] std::uint32_t size() const { return regions_.size(); }
  // Held for all that looks at a window, or changes one, but the index of its key.
  [[nodiscard]] EngineLock& windows_lock() const { return windows_lock_; }

 private:
  // The key of a window may be changing: who has found one by it looks again, with the lock.
  static bool has_key(Region& region, MemoryKey key) {
    return std::atomic_ref<std::uint32_t>(region.key.value).load(std::memory_order_relaxed) == key.value;
  }

  FlatTable<Region> regions_;
  mutable EngineLock windows_lock_;
};

// Who asks for access: a queue pair, by its protection domain and a number that no other ever has.
struct Accessor {
  PdId pd;
  std::uint64_t qp = 0;
};

// Where a permitted access goes: to memory at `address` of the program; to a null region nowhere.
struct Place {
  Region* region = nullptr;  // never a window
  std::uint64_t address = 0;
};

// Whether `who` may access [address, address + bytes) in iova space of what `key` names, with all of
// `access`. A window is for remote access alone. `bytes` is not 0.
[[nodiscard]] bool permit(const RegionTable& table, MemoryKey key, const Accessor& who, std::uint32_t access,
                          std::uint64_t address, std::uint64_t bytes, Place& place);

// The address in the program of [address, address + bytes) in iova space, if `region` is of `pd`, allows all
// of `access` and contains the range; nothing (false) otherwise. `bytes` is not 0.
[[nodiscard]] bool translate(const Region& region, PdId pd, std::uint32_t access, std::uint64_t address,
                             std::uint64_t bytes, std::uint64_t& program_address);

}  // namespace urdma::memory
