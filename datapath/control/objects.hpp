// The objects of one client context, found by handles that mean nothing outside of it: a handle of another
// client is a bad handle. Owner: the session; control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "datapath/control/event_pipes.hpp"
#include "datapath/control/xrc_domain.hpp"
#include "datapath/engine/address_handle.hpp"
#include "datapath/engine/completion_queue.hpp"
#include "datapath/engine/qp.hpp"
#include "datapath/engine/shared_receive_queue.hpp"
#include "datapath/memory/region_table.hpp"
#include "datapath/memory/shared_memory.hpp"
#include "urdma/abi/control.hpp"
#include "urdma/base/check.hpp"

namespace urdma::control {

// Objects by handle. Handles ascend, so that one that is dead stays invalid for long.
template <typename Object, typename Owner = std::unique_ptr<Object>>
class HandleTable {
 public:
  // Draws handles from a counter that other tables have, too: no two of them give the same one.
  void share_counter(std::shared_ptr<std::uint32_t> next) { next_ = std::move(next); }
  // The handle that the next insert() gives.
  [[nodiscard]] std::uint32_t next_handle() {
    while (*next_ == 0 || objects_.contains(*next_)) ++*next_;
    return *next_;
  }
  std::uint32_t insert(Owner object) {
    const std::uint32_t handle = next_handle();
    objects_.emplace(handle, std::move(object));
    ++*next_;
    return handle;
  }
  // Under the handle that it has in another table; there is none of that handle here.
  void insert_as(std::uint32_t handle, Owner object) { objects_.emplace(handle, std::move(object)); }
  [[nodiscard]] Object* find(std::uint32_t handle) const {
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second.get();
  }
  // Null when there is none.
  Owner take(std::uint32_t handle) {
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    Owner object = std::move(found->second);
    objects_.erase(found);
    return object;
  }
  // Null when there is none. For objects that have several owners.
  [[nodiscard]] Owner share(std::uint32_t handle) const {
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  // Puts another object in the place of one that is there, which is returned.
  Owner exchange(std::uint32_t handle, Owner object) {
    std::swap(objects_.at(handle), object);
    return object;
  }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(objects_.size()); }
  [[nodiscard]] std::vector<std::uint32_t> handles() const {
    std::vector<std::uint32_t> result;
    for (const auto& [handle, object] : objects_) result.push_back(handle);
    return result;
  }
  [[nodiscard]] auto begin() const { return objects_.begin(); }
  [[nodiscard]] auto end() const { return objects_.end(); }

 private:
  std::unordered_map<std::uint32_t, Owner> objects_;
  std::shared_ptr<std::uint32_t> next_ = std::make_shared<std::uint32_t>(1);
};

// Numbers 0 to capacity-1, the lowest free one first.
class NumberPool {
 public:
  explicit NumberPool(std::uint32_t capacity) : capacity_(capacity) {}
  [[nodiscard]] std::optional<std::uint32_t> take();
  void give_back(std::uint32_t number);

 private:
  std::uint32_t capacity_;
  std::vector<bool> used_;
  std::uint32_t lowest_free_ = 0;  // no number below it is free
};

struct ProtectionDomain {
  PdId id;
  // Regions, windows, QPs, SRQs and address handles in it: EBUSY for DeallocPd.
  std::uint32_t users = 0;
};

// A region, or a memory window.
struct RegionEntry {
  memory::Region region;
  std::uint32_t pd = 0;  // handle
};

struct DeviceMemory {
  memory::SharedMemory pages;
  std::uint64_t length = 0;  // as it was asked for
};

struct CqEntry {
  std::unique_ptr<engine::CompletionQueue> cq;
  std::uint64_t memory_bytes = 0;
};

struct SrqEntry {
  std::unique_ptr<engine::SharedReceiveQueue> srq;
  std::uint32_t pd = 0;    // handles
  std::uint32_t cq = 0;    // XRC
  std::uint32_t xrcd = 0;  // XRC
};

struct XrcdEntry {
  std::shared_ptr<XrcDomain> domain;
  std::uint32_t users = 0;  // SRQs and QPs of this session in it: EBUSY for CloseXrcd
};

// How a session has an XRC receive QP, which several may have.
struct XrcOpening {
  std::uint64_t user_pointer = 0;
  std::uint32_t xrcd = 0;  // handle
};

struct QpEntry {
  std::unique_ptr<engine::Qp> qp;
  std::uint32_t pd = 0;  // handles
  std::uint32_t send_cq = 0;
  std::uint32_t recv_cq = 0;
  std::shared_ptr<XrcDomain> domain;  // of an XRC receive QP
  abi::AddressVector address{};
  std::vector<wire::Gid> groups;  // UD: the multicast groups that it is in
  wire::Gid source_gid{};  // of its path, where it has one; the index of `address` may be another's since
  std::uint8_t path_mtu_code = 0;
  bool is_local = false;      // its path is the copy inside the node
  bool is_modifying = false;  // a ModifyQp waits for a neighbour
};

// The multicast groups that the queue pairs of a session are in.
class Memberships {
 public:
  void join(const wire::Gid& group) {
    ++groups_[group];
    ++members_;
  }
  void leave(const wire::Gid& group) {
    const auto found = groups_.find(group);
    URDMA_CHECK(found != groups_.end());
    --members_;
    if (--found->second == 0) groups_.erase(found);
  }
  [[nodiscard]] std::uint32_t members() const { return members_; }  // each queue pair in each group
  [[nodiscard]] const std::map<wire::Gid, std::uint32_t>& groups() const { return groups_; }

 private:
  std::map<wire::Gid, std::uint32_t> groups_;  // with its members
  std::uint32_t members_ = 0;
};

struct AhEntry {
  engine::AddressHandle ah;
  std::uint32_t pd = 0;  // handle
  abi::AddressVector address{};
};

struct Objects {
  HandleTable<ProtectionDomain> pds;
  HandleTable<RegionEntry> regions;
  HandleTable<RegionEntry> windows;
  HandleTable<DeviceMemory> device_memories;
  HandleTable<CqEntry> cqs;
  HandleTable<SrqEntry> srqs;
  HandleTable<XrcdEntry> xrcds;
  HandleTable<AhEntry> ahs;
  std::uint32_t ahs_in_making = 0;  // whose neighbour is being looked for
  Memberships memberships;
  EventPipes event_pipes;
  HandleTable<QpEntry, std::shared_ptr<QpEntry>> qps;
  std::unordered_map<std::uint32_t, XrcOpening> xrc_openings;  // by the QP's handle
  NumberPool doorbells;
  std::uint64_t dm_bytes = 0;     // device memory, in whole pages
  std::uint64_t queue_bytes = 0;  // shared memory of CQs, SRQs and QPs

  explicit Objects(std::uint32_t doorbell_count) : doorbells(doorbell_count) {}
};

}  // namespace urdma::control
