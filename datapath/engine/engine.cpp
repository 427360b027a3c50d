// The engines' threads, and the way to them for the control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/engine.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <utility>

#include "datapath/engine/loop.hpp"
#include "datapath/io/frame.hpp"
#include "datapath/memory/bus_error.hpp"
#include "urdma/base/check.hpp"

namespace urdma::engine {

static_assert(memory::Copier::kMostLanes == abi::kMaxEngines);

namespace {

bool watch(int epoll, int descriptor, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace

Engine::Engine(std::unique_ptr<Common> common) : common_(std::move(common)) {}

Engine::~Engine() { stop(); }

Status Engine::Loop::open() {
  epoll = ::epoll_create1(EPOLL_CLOEXEC);
  wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll < 0 || wake < 0 || !watch(epoll, wake, EPOLLIN | EPOLLET)) {
    return fail_errno(errno, "cannot make the descriptors of an engine");
  }
  for (const PortState& port : ports) {
    const int descriptor = port.is_receiving ? port.port->wake_descriptor() : -1;
    if (descriptor >= 0 && !watch(epoll, descriptor, EPOLLIN)) {
      return fail_errno(errno, "cannot watch port " + port.port->spec().text);
    }
  }
  if (auto made = make_heard_ring(); !made) return made;
  if (auto made = make_management_ring(); !made) return made;
  return make_inbox();
}

Result<std::unique_ptr<Engine>> Engine::create(EngineConfig config) {
  URDMA_CHECK(config.count >= 1 && config.count <= abi::kMaxEngines);
  URDMA_CHECK(config.cores.empty() || config.cores.size() == config.count);
  auto common = std::make_unique<Common>(config);
  for (std::uint32_t i = 0; i < config.count; ++i) {
    auto loop = std::make_unique<Loop>(config, *common, i);
    if (auto opened = loop->open(); !opened) return tl::make_unexpected(opened.error());
    common->loops.push_back(std::move(loop));
  }
  if (common->has_several()) {
    common->regions.windows_lock().enable();
    for (memory::EngineLock& lock : common->sending) lock.enable();
  }
  return std::unique_ptr<Engine>(new Engine(std::move(common)));
}

void Engine::Loop::run_thread() {
  memory::block_signals_of_thread();
  const std::string name = index == 0 ? "urdma-engine" : fmt::format("urdma-engine-{}", index);
  pthread_setname_np(pthread_self(), name.c_str());
  if (!config.cores.empty()) pin_to(config.cores[index]);
  // A wake-up then preempts whatever spins on this core. An engine that polls for ever must not do so.
  if (config.idle != IdlePolicy::kPoll) is_realtime.store(realtime.become_realtime());
  const bool registered = rte_thread_register() == 0;  // gives it a cache of frame buffers
  work();
  if (registered) rte_thread_unregister();
}

Status Engine::start() {
  if (auto guarded = memory::install_bus_error_guard(); !guarded) return guarded;
  for (const auto& loop : common_->loops) loop->stopping.store(false);
  for (const auto& loop : common_->loops) {
    loop->thread = std::thread([engine = loop.get()] { engine->run_thread(); });
  }
  return {};
}

void Engine::stop() {
  for (const auto& loop : common_->loops) {
    loop->stopping.store(true, std::memory_order_release);
    loop->write_wake();
  }
  for (const auto& loop : common_->loops) {
    if (loop->thread.joinable()) loop->thread.join();
  }
  // Only now does nobody give anything to another one.
  for (const auto& loop : common_->loops) {
    if (loop->spare_frame != nullptr) io::free_frame(std::exchange(loop->spare_frame, nullptr));
    loop->drain_inbox();
  }
}

void Engine::run_on_engine(void (*call)(void*), void* argument) {
  if (!common_->loops.front()->thread.joinable()) {
    call(argument);
    return;
  }
  common_->meeting.call(call, argument, count());
  for (const auto& loop : common_->loops) loop->wake_if_asleep();
  common_->meeting.await_end();
}

std::vector<Report> Engine::take_reports() {
  const std::lock_guard guard(common_->reports_lock);
  return std::exchange(common_->reports, {});
}

std::uint32_t Engine::count() const { return static_cast<std::uint32_t>(common_->loops.size()); }

bool Engine::runs_realtime(std::uint32_t index) const { return common_->loops[index]->is_realtime.load(); }

std::vector<int> Engine::wake_descriptors() const {
  std::vector<int> descriptors;
  for (const auto& loop : common_->loops) descriptors.push_back(loop->wake);
  return descriptors;
}

Engine::Loop& Engine::loop_of(const Qp& qp) const { return common_->loop_of(qp); }

}  // namespace urdma::engine
