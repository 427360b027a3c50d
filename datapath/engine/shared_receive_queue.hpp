// The engine's side of a shared receive queue (abi/queues.hpp): receive requests that several QPs take from,
// in the order in which they were posted, each for a packet that needs one.
//
// Made and destroyed by the control thread; between Engine::add_srq and remove_srq its methods are the
// engines', but for the getters of what is fixed. Taking a request is for who has the lock; all else for one
// engine while the others stand still.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "datapath/memory/engine_lock.hpp"
#include "datapath/memory/shared_memory.hpp"
#include "datapath/transport/types.hpp"
#include "urdma/abi/queues.hpp"

namespace urdma::engine {

class CompletionQueue;
class Session;

// An XRC domain of the node; unique while the daemon lives. 0 is none.
struct XrcDomainId {
  std::uint32_t value = 0;
  friend constexpr bool operator==(XrcDomainId, XrcDomainId) = default;
};

// Sizes and places of an SRQ's ring; also what the client is told.
struct SrqGeometry {
  std::uint32_t slots = 0;
  std::uint32_t stride = 0;
  std::uint64_t slots_offset = 0;
  std::uint64_t memory_bytes = 0;

  // For granted capabilities. Slots are a power of two, the stride a multiple of 64 bytes.
  [[nodiscard]] static SrqGeometry of(std::uint32_t max_wr, std::uint32_t max_sge);
};

class SharedReceiveQueue {
 public:
  struct Config {
    std::uint32_t number = 0;  // names it on the node, and to peers with XRC; never 0
    Session* session = nullptr;
    PdId pd;  // of the elements, and with XRC of all that its packets access
    // XRC: where it completes, and what it may be reached from.
    CompletionQueue* cq = nullptr;
    XrcDomainId domain;
    std::uint32_t handle = 0;
    std::uint32_t cookie = 0;
    std::uint64_t user_pointer = 0;
    std::uint32_t max_sge = 1;
  };

  // `memory` is of SrqGeometry::of(max_wr, config.max_sge).memory_bytes or more.
  SharedReceiveQueue(const Config& config, std::uint32_t max_wr, memory::SharedMemory memory);

  // ---- Fixed ----
  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] memory::SharedMemory& memory() { return memory_; }
  // QPs that take from it: such a queue cannot be destroyed (EBUSY). Control thread.
  std::uint32_t users = 0;

  // ---- Engine's ----
  [[nodiscard]] std::uint32_t max_wr() const { return max_wr_; }
  [[nodiscard]] const SrqGeometry& geometry() const { return geometry_; }
  [[nodiscard]] std::uint32_t limit() const { return limit_; }

  // Several engines take from it.
  void enable_lock() { lock_.enable(); }
  // Held from fetch() until its elements have been used.
  [[nodiscard]] memory::EngineLock& lock() { return lock_; }

  enum class Fetched : std::uint8_t { kNone, kOne, kBroken };
  // Takes the oldest request, whose slot is free again then. `elements` are valid until the next call.
  // kBroken, once, when the client broke the ring's contract: nothing is taken any more.
  [[nodiscard]] Fetched fetch(transport::ReceiveRequest& request, std::span<const transport::Sge>& elements);
  // Nothing is taken any more.
  void fail() { is_broken_ = true; }
  [[nodiscard]] bool is_broken() const { return is_broken_; }

  // Arms the limit (IBTA 1, 10.2.9.2); 0 disarms it. Only a request that is taken can set it off.
  void arm_limit(std::uint32_t limit) { limit_ = limit; }
  // True once after an armed limit was passed.
  [[nodiscard]] bool take_limit_event();

  // Goes over to a ring of `max_wr` requests in `memory`, to whose start it moves what was posted and has not
  // been taken; `memory` is the old one then. False, and nothing has changed, when that is more than
  // `max_wr`.
  [[nodiscard]] bool resize(std::uint32_t max_wr, memory::SharedMemory& memory);

 private:
  [[nodiscard]] abi::SrqPage& page() const;
  [[nodiscard]] const std::byte* slot(std::uint32_t index) const;
  [[nodiscard]] std::uint32_t waiting() const;

  Config config_;
  std::uint32_t max_wr_;
  SrqGeometry geometry_;
  memory::SharedMemory memory_;
  std::uint32_t consumer_ = 0;
  std::uint32_t limit_ = 0;  // 0: not armed
  bool has_passed_limit_ = false;
  bool is_broken_ = false;
  memory::EngineLock lock_;
  std::vector<transport::Sge> scratch_;
};

}  // namespace urdma::engine
