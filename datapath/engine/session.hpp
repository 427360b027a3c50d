// A client context as an engine sees it: its doorbells, its protection of memory, its async events.
//
// Made and destroyed by the control thread; between Engine::add_session and remove_session what is not
// fixed is the engines': the tables change while all of them stand still, events are behind a lock.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "datapath/engine/address_handle.hpp"
#include "datapath/engine/event_channel.hpp"
#include "datapath/memory/address_space.hpp"
#include "datapath/memory/engine_lock.hpp"
#include "datapath/memory/shared_memory.hpp"
#include "urdma/abi/pages.hpp"
#include "urdma/base/flat_table.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::engine {

class Qp;

class Session {
 public:
  struct Config {
    std::uint32_t id = 0;
    memory::SharedMemory page;  // an abi::SessionPage
    EventChannel async;
    memory::AddressSpace* space = nullptr;                  // outlives the session
    std::array<int, abi::kMaxEngines> doorbell_eventfds{};  // one an engine; the control path's
  };

  explicit Session(Config config);

  [[nodiscard]] std::uint32_t id() const { return config_.id; }
  [[nodiscard]] memory::AddressSpace& space() const { return *config_.space; }
  [[nodiscard]] memory::SharedMemory& page_memory() { return config_.page; }
  [[nodiscard]] int doorbell_eventfd(std::uint32_t engine) const { return config_.doorbell_eventfds[engine]; }
  [[nodiscard]] abi::DoorbellBoard& board(std::uint32_t engine) const;

  // Queues an asynchronous event; `element` is the object's user pointer, or the port number. Engines.
  void post_async(std::uint64_t element, AsyncEvent event);
  // Writes queued events, by the copier's lane `engine`. False when the pipe is full: call again later.
  [[nodiscard]] bool flush_async(std::uint32_t engine = 0);
  // An event is with the copier, and may yet come.
  [[nodiscard]] bool is_sending_async() const { return config_.async.is_busy(); }
  // Takes back the events of an object that goes, before they are written.
  void drop_async(std::uint64_t element);

  // The QP behind a doorbell, or null.
  [[nodiscard]] Qp* qp_at(std::uint32_t doorbell) const {
    return doorbell < doorbells_.size() ? doorbells_[doorbell] : nullptr;
  }
  void bind_doorbell(std::uint32_t doorbell, Qp* qp);

  // Address handles are found in this table. Control thread, before the first one.
  using AddressTable = FlatTable<const AddressHandle>;
  void set_address_table(std::unique_ptr<AddressTable> table) { address_handles_ = std::move(table); }
  [[nodiscard]] bool has_address_table() const { return address_handles_ != nullptr; }
  void add_address_handle(const AddressHandle& handle);
  void remove_address_handle(std::uint32_t handle) { address_handles_->erase(handle); }
  // Null when there is none.
  [[nodiscard]] const AddressHandle* address_handle(std::uint32_t handle) const {
    return address_handles_ != nullptr ? address_handles_->find(handle) : nullptr;
  }

  // What this session's QPs on an engine hold of its pools. That engine.
  struct alignas(abi::kCacheLine) Held {
    std::uint32_t transfers = 0;
    std::uint32_t buffers = 0;
  };
  [[nodiscard]] Held& held(std::uint32_t engine) { return held_[engine]; }
  [[nodiscard]] const Held& held(std::uint32_t engine) const { return held_[engine]; }
  // The client broke the contract of shared memory: its connection is to be ended (once reported). Engines.
  std::atomic<bool> is_broken{false};
  // Several engines write its events.
  void enable_lock() { lock_.enable(); }

 private:
  struct Async {
    std::uint64_t element;
    AsyncEvent event;
  };

  Config config_;
  std::vector<Qp*> doorbells_;
  std::unique_ptr<AddressTable> address_handles_;
  std::array<Held, abi::kMaxEngines> held_{};
  memory::EngineLock lock_;
  std::deque<Async> async_;  // bounded; the oldest are kept. Behind the lock, as the writing of events.
};

}  // namespace urdma::engine
