// The engine's side of a completion queue (abi/queues.hpp): writes completions into shared memory and an
// event into the program's channel when the queue is armed.
//
// Made and destroyed by the control thread; between Engine::add_cq and remove_cq its methods are the
// engines', but for the getters of what is fixed. push() and notify() are for all engines at once, the others
// for one while the rest stands still.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "datapath/engine/event_channel.hpp"
#include "datapath/memory/engine_lock.hpp"
#include "datapath/memory/shared_memory.hpp"
#include "datapath/transport/types.hpp"
#include "urdma/abi/queues.hpp"

namespace urdma::engine {

class Qp;
class Session;
class SharedReceiveQueue;

class CompletionQueue {
 public:
  struct Config {
    Session* session = nullptr;
    std::uint32_t handle = 0;
    std::uint32_t depth = 0;         // a power of two
    std::uint64_t user_pointer = 0;  // what the channel carries
    EventChannel channel;            // not open: none
  };

  // Bytes of shared memory for a queue of `depth` entries.
  [[nodiscard]] static std::size_t memory_bytes(std::uint32_t depth);
  // `memory` is of memory_bytes(config.depth) or more.
  CompletionQueue(Config config, memory::SharedMemory memory);

  [[nodiscard]] std::uint32_t handle() const { return config_.handle; }
  [[nodiscard]] Session& session() const { return *config_.session; }
  [[nodiscard]] std::uint64_t user_pointer() const { return config_.user_pointer; }
  [[nodiscard]] memory::SharedMemory& memory() { return memory_; }
  // QPs and SRQs that complete into it: such a queue cannot be destroyed (EBUSY). Control thread.
  std::uint32_t users = 0;

  // Writes a completion. False when the queue has overrun, now or before: nothing is written then.
  [[nodiscard]] bool push(const transport::Completion& completion, std::uint32_t qpn, std::uint32_t cookie,
                          std::uint64_t timestamp_ns, std::uint32_t srq_cookie = abi::kNoCookie);
  // Goes over to a ring of `depth` entries in `memory`, to whose start it moves what has not been polled;
  // `memory` is the old one then. False, and nothing has changed, when that is more than `depth`.
  [[nodiscard]] bool resize(std::uint32_t depth, memory::SharedMemory& memory);
  [[nodiscard]] std::uint32_t depth() const { return config_.depth; }
  // Sends the event that an armed queue owes for the completions pushed since the last call. Called
  // once a burst, with the engine's lane of the copier. False when the channel is full or the event is under
  // way: call again later.
  [[nodiscard]] bool notify(std::uint32_t lane = 0);
  // An event is with the copier, and may yet come.
  [[nodiscard]] bool is_notifying() const { return config_.channel.is_busy(); }
  [[nodiscard]] bool has_overrun() const { return overrun_; }

  // Several engines complete into it.
  void enable_lock() { lock_.enable(); }

  // The engines': whether it is on the list of queues to notify (each engine its own), whether its overrun
  // has been told, and the QPs and SRQs that complete into it.
  std::array<bool, abi::kMaxEngines> is_listed{};
  std::atomic<bool> is_overrun_told{false};
  std::vector<Qp*> qps;
  std::vector<SharedReceiveQueue*> srqs;  // XRC

 private:
  [[nodiscard]] bool decide_event();
  [[nodiscard]] abi::CqPage& page() const;
  [[nodiscard]] abi::Cqe& entry(std::uint32_t index) const;

  Config config_;
  memory::SharedMemory memory_;
  std::uint32_t producer_ = 0;
  std::uint32_t fired_ = 0;
  std::uint32_t answered_arm_ = 0;  // valid while is_sending_
  bool is_sending_ = false;         // an event is to be written, or is being written
  bool overrun_ = false;
  memory::EngineLock lock_;  // of all that is not fixed
  bool pushed_any_ = false;
  bool pushed_solicited_ = false;
};

}  // namespace urdma::engine
