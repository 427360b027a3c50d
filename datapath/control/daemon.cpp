// The daemon (see daemon.hpp). Main thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/daemon.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <new>
#include <span>
#include <utility>
#include <variant>

#include "datapath/control/keys.hpp"
#include "datapath/control/rerouting.hpp"
#include "datapath/control/retirement.hpp"
#include "datapath/control/status_json.hpp"
#include "urdma/base/check.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::control {
namespace {

constexpr std::size_t kMostPorts = 8;
constexpr std::uint32_t kFramesOfAnotherEngine = 4096;  // beside those of the first
constexpr Duration kCounterInterval = seconds(1);
constexpr std::uint64_t kPort = 1;  // what a port event names

// As far as it may be. Returns how many descriptors there may be.
std::uint32_t raise_descriptor_limit() {
  rlimit limit{};
  URDMA_CHECK(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  const bool is_raised = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
  if (!is_raised) spdlog::warn("cannot raise the number of open files");
  return static_cast<std::uint32_t>(std::min<rlim_t>(is_raised ? limit.rlim_max : before, INT32_MAX));
}

// Signals become readable on a descriptor; before any thread is started, so that all of them block these.
UniqueFd watch_signals() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

// Locked by this thread for life (abi/pages.hpp): its kernel mark is what clients see when we die.
void lock_for_life(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  URDMA_CHECK(pthread_mutex_init(&mutex, &attributes) == 0);
  pthread_mutexattr_destroy(&attributes);
  URDMA_CHECK(pthread_mutex_lock(&mutex) == 0);
}

Status check_ports(const std::vector<io::PortSpec>& ports) {
  if (ports.size() > kMostPorts) return fail(EINVAL, fmt::format("a node has at most {} ports", kMostPorts));
  for (std::size_t i = 0; i < ports.size(); ++i) {
    for (std::size_t j = i + 1; j < ports.size(); ++j) {
      if (ports[i].text == ports[j].text)
        return fail(EINVAL, fmt::format("port {} is there twice", ports[i].text));
      for (const io::PortAddress& address : ports[i].addresses) {
        const bool is_shared =
            std::any_of(ports[j].addresses.begin(), ports[j].addresses.end(),
                        [&](const io::PortAddress& other) { return other.gid == address.gid; });
        if (is_shared)
          return fail(EINVAL, fmt::format("two ports have the address {}", gid_text(address.gid)));
      }
    }
  }
  return {};
}

// The ports for whoever asks for none in particular are the host's.
void read_port_range(rdma_cm::Options& options) {
  std::ifstream setting("/proc/sys/net/ipv4/ip_local_port_range");
  std::uint16_t first = 0;
  std::uint16_t last = 0;
  if (!(setting >> first >> last) || first == 0 || first > last) return;
  options.first_port = first;
  options.last_port = last;
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::start(const DaemonOptions& options, NodeDirectory directory) {
  if (auto good = check_ports(options.ports); !good) return tl::make_unexpected(good.error());
  std::unique_ptr<Daemon> daemon(new Daemon(options, std::move(directory)));
  daemon->limits_.max_descriptors = raise_descriptor_limit() / 2;
  daemon->limits_.max_rdma_cm_channels =
      std::min(daemon->limits_.max_rdma_cm_channels, daemon->limits_.max_descriptors / 2);
  daemon->signals_ = watch_signals();
  for (const auto step : {&Daemon::open_ports, &Daemon::make_page, &Daemon::start_engine,
                          &Daemon::make_devices, &Daemon::watch_descriptors, &Daemon::open_sockets}) {
    if (auto done = (daemon.get()->*step)(); !done) return tl::make_unexpected(done.error());
  }
  return daemon;
}

abi::EnginePage& Daemon::page() const { return *reinterpret_cast<abi::EnginePage*>(page_.data()); }

Status Daemon::open_ports() {
  const std::string runtime = directory_.file("dpdk");
  std::error_code failed;
  std::filesystem::remove_all(runtime, failed);  // DPDK leaves a directory of each daemon there
  std::filesystem::create_directories(runtime, failed);
  if (failed) return fail(failed.value(), fmt::format("cannot make {}: {}", runtime, failed.message()));
  io::FramePoolConfig pool;
  pool.frames += (options_.engines - 1) * kFramesOfAnotherEngine;
  io::EalConfig eal;
  eal.runtime_directory = runtime;
  eal.memory_bytes = io::frame_pool_bytes(pool);
  auto started = io::Eal::start(eal);
  if (!started) return tl::make_unexpected(started.error());
  eal_ = std::move(*started);
  auto frames = io::FramePool::create(pool);
  if (!frames) return tl::make_unexpected(frames.error());
  frames_ = std::move(*frames);
  for (const io::PortSpec& spec : options_.ports) {
    auto port = io::Port::open(spec, frames_->get());
    if (!port) return tl::make_unexpected(port.error());
    ports_.push_back(std::move(*port));
  }
  return {};
}

Status Daemon::make_page() {
  auto memory =
      memory::SharedMemory::create("urdma-engines", sizeof(abi::EnginePage), memory::ClientAccess::kReadOnly);
  if (!memory) return tl::make_unexpected(memory.error());
  page_ = std::move(*memory);
  auto* made = new (page_.data()) abi::EnginePage{};
  made->magic = abi::kMagic;
  made->version = abi::kVersion;
  made->engine_count = options_.engines;
  lock_for_life(made->alive);
  return {};
}

Status Daemon::start_engine() {
  reports_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!reports_.is_open()) return fail_errno(errno, "cannot make an eventfd");
  engine::EngineConfig config;
  config.idle = options_.idle;
  config.count = options_.engines;
  config.cores = options_.cores;
  config.convert = options_.converts;
  config.limits = limits_;
  config.page = &page();
  config.frames = frames_->get();
  for (const auto& port : ports_) config.ports.push_back(port.get());
  config.control_eventfd = reports_.get();
  auto made = engine::Engine::create(std::move(config));
  if (!made) return tl::make_unexpected(made.error());
  engine_ = std::move(*made);
  return engine_->start();
}

Status Daemon::make_devices() {
  auto netlink = Netlink::create([this] { follow_interfaces(); });
  if (!netlink) return tl::make_unexpected(netlink.error());
  netlink_ = std::move(*netlink);
  auto devices =
      DeviceSet::create(ports_, directory_.path(), limits_, directory_.file(abi::kSysfsDirectory), *netlink_);
  if (!devices) return tl::make_unexpected(devices.error());
  devices_ = std::move(*devices);
  addressing_ = std::make_unique<Addressing>(*devices_, *netlink_, options_.force_wire);
  for (const Device& device : devices_->all()) {
    tell_engine(device);
    if (device.is_active) tell_link(device);
  }
  return {};
}

Status Daemon::watch_descriptors() {
  auto loop = EventLoop::create();
  if (!loop) return tl::make_unexpected(loop.error());
  loop_ = std::move(*loop);
  if (!signals_.is_open()) return fail(EMFILE, "cannot make a signal descriptor");
  if (auto done = loop_->add(signals_.get(), [this](std::uint32_t) { is_stopping_ = true; }); !done)
    return done;
  if (auto done = loop_->add(reports_.get(), [this](std::uint32_t) { take_reports(); }); !done) return done;
  return loop_->add(netlink_->descriptor(), [this](std::uint32_t) { netlink_->handle(); });
}

void Daemon::make_connection_manager() {
  const auto random = [] { return std::uint64_t{random_u32()} << 32 | random_u32(); };
  cm_network_ = std::make_unique<rdma_cm::NodeNetwork>(*node_, *netlink_, cm::Key{random(), random()});
  node_->qpns.avoid([this](Qpn qpn) { return cm_network_->is_in_use(qpn); });
  rdma_cm::Options with;
  with.supports_af_ib = options_.supports_af_ib;
  with.seed = random();
  with.owner = node_->owner;
  read_port_range(with);
  cm_service_ = std::make_unique<rdma_cm::Service>(*loop_, *cm_network_, limits_, with);
}

Status Daemon::open_sockets() {
  server_ = std::make_unique<Server>(*loop_);
  node_.reset(new Node{.limits = limits_,
                       .converts = options_.converts,
                       .engine = *engine_,
                       .devices = *devices_,
                       .addressing = *addressing_,
                       .sender = *server_,
                       .qpns = QpnAllocator(random_u32(), limits_.max_qp),
                       .srqns = QpnAllocator(random_u32(), limits_.max_srq),
                       .xrc_domains = {},
                       .keys = {},
                       .usage = {},
                       .waits = {},
                       .sessions = {},
                       .failures = {},
                       .groups = {}});
  make_connection_manager();
  const StatusFacts facts{options_.name, directory_.path(), options_.idle_text, options_.force_wire};
  Server::Config config;
  config.engine_page = page_.descriptor();
  config.is_polling = options_.idle == engine::IdlePolicy::kPoll;
  config.status = [this, facts] { return status_json(*node_, facts, *cm_service_, *cm_network_); };
  config.on_channel = [this](UniqueFd fd) { cm_service_->add_channel(std::move(fd)); };
  return server_->start(*node_, directory_, std::move(config));
}

void Daemon::take_reports() {
  std::uint64_t count = 0;
  if (::read(reports_.get(), &count, sizeof(count)) < 0 && errno != EAGAIN) {
    spdlog::error("cannot read the engines' eventfd");
  }
  for (const engine::Report& report : engine_->take_reports()) take_report(report);
  take_heard();
  cm_network_->take_received();
}

void Daemon::take_report(const engine::Report& report) {
  switch (report.kind) {
    case engine::Report::Kind::kQuiesced:
      return node_->waits.finish(report.cookie);
    case engine::Report::Kind::kSessionBroken: {
      ClientSession* session = node_->sessions.find(report.session);
      if (session == nullptr || session->is_ending) return;
      server_->close(session->identity);
      return end_session(*node_, *session, report.reason != nullptr ? report.reason : "broken shared memory");
    }
    case engine::Report::Kind::kWantsConversion: {
      const ClientSession* session = node_->sessions.find(report.session);
      const RegionEntry* entry = session != nullptr ? session->objects.regions.find(report.handle) : nullptr;
      if (entry == nullptr) return;
      const abi::ConvertRange range{report.handle, 0, entry->region.address, entry->region.length};
      return server_->send(session->upcall, abi::MessageType::kConvertRange, bytes_of(range));
    }
    case engine::Report::Kind::kCqOverrun: {
      const ClientSession* session = node_->sessions.find(report.session);
      const CqEntry* entry = session != nullptr ? session->objects.cqs.find(report.handle) : nullptr;
      if (entry != nullptr) engine_->run([&] { engine_->fail_users(*entry->cq); });
      return;
    }
  }
}

// Interfaces, or neighbours, changed.
void Daemon::follow_interfaces() {
  if (devices_ == nullptr) return;
  bool is_any_back = false;
  for (const DeviceChange& change : devices_->refresh()) {
    follow(change);
    if (change.returned) is_any_back |= open_again(devices_->at(change.device));
  }
  if (is_any_back) {
    for (const DeviceChange& change : devices_->refresh()) follow(change);
  }
  if (node_ == nullptr) return;
  for (const Device& device : devices_->all()) {
    if (device.port->is_loopback()) continue;
    renew_paths(*node_, device);
    node_->groups.join_anew(device);
  }
}

// The engine learns what it needs, and programs get events.
void Daemon::follow(const DeviceChange& change) {
  const Device& device = devices_->at(change.device);
  spdlog::info("{}: {}, {} GIDs, MTU {}", device.name, device.is_active ? "active" : "down",
               device.gids.gids().size(), device.mtu);
  tell_engine(device);
  if (change.state && device.is_active) tell_link(device);
  if (node_ == nullptr) return;
  const AsyncEvent state_event = device.is_active ? AsyncEvent::kPortActive : AsyncEvent::kPortErr;
  for (const auto& [id, session] : node_->sessions) {
    if (session->device != change.device || session->is_ending) continue;
    engine_->run([&, to = session->engine_session.get()] {
      if (change.gids) engine_->post_async(*to, kPort, AsyncEvent::kGidChange);
      if (change.state) engine_->post_async(*to, kPort, state_event);
    });
  }
}

// Whoever is on the link now learns of our addresses and groups.
void Daemon::tell_link(const Device& device) {
  if (device.neighbours != nullptr) device.neighbours->on_link_up(monotonic_now());
  if (device.reports != nullptr) device.reports->on_link_up(monotonic_now());
}

void Daemon::tell_engine(const Device& device) {
  const auto gids = device.gids.gids();
  Status watched;
  engine_->run([&] {
    engine_->set_port_gids(device.index, gids);
    engine_->set_port_link(device.index, io::frame_bytes_for(device.mtu), device.neighbours != nullptr);
    if (device.is_interface_gone || device.is_stopped) {
      engine_->detach_port(device.index);
    } else {
      watched = engine_->attach_port(device.index);
    }
  });
  if (!watched) spdlog::error("{}: {}", device.name, watched.error().message);
}

// The interface of a port was removed, and there is one of its name again.
bool Daemon::open_again(Device& device) {
  engine_->run([&] { engine_->detach_port(device.index); });
  Status done = device.port->reopen(frames_->get());
  if (done) engine_->run([&] { done = engine_->attach_port(device.index); });
  if (!done) {
    spdlog::warn("{}: {}", device.name, done.error().message);
    return false;
  }
  spdlog::info("{}: the interface {} is there again", device.name, device.interface);
  device.interface_index = 0;  // the next look takes that of the new one
  return true;
}

// The peer of a memif client has gone: tries whether it is back.
void Daemon::connect_again(Device& device) {
  engine_->run([&] { engine_->detach_port(device.index); });
  device.is_stopped = !device.port->restart();
  if (!device.is_stopped) tell_engine(device);
}

// Messages of address resolution and group membership that engines heard.
void Daemon::take_heard() {
  const Instant now = monotonic_now();
  while (const auto heard = engine_->next_heard()) {
    const Device& device = devices_->at(heard->port);
    if (device.neighbours == nullptr) continue;
    if (const auto* query = std::get_if<wire::MembershipQuery>(&heard->message)) {
      device.reports->on_query(*query, now);
      continue;
    }
    const std::uint64_t conflicts = device.neighbours->counters().conflicts;
    device.neighbours->on_message(std::get<wire::Resolution>(heard->message), now);
    if (conflicts == 0 && device.neighbours->counters().conflicts > 0) {
      spdlog::warn("{}: another station on the link says that it has an address of this port", device.name);
    }
    if (device.neighbours->take_changed() && node_ != nullptr) renew_paths(*node_, device);
  }
}

// What a port without an interface of the kernel has to say itself.
void Daemon::send_waiting(const Device& device) {
  const wire::MacAddress mac = device.port->mac();
  const auto send = [&](std::span<const std::uint8_t> frame) {
    engine_->run([&] { engine_->send_frame(device.index, frame); });
  };
  NeighbourTable::Outgoing outgoing;
  while (device.neighbours->poll_transmit(outgoing)) {
    std::array<std::uint8_t, wire::kMaxResolutionBytes> frame;
    send(std::span(frame).first(wire::write_resolution(outgoing.message, mac, outgoing.dest, frame)));
  }
  wire::MembershipReport report;
  while (device.reports->poll_transmit(report)) {
    std::array<std::uint8_t, wire::kMaxMembershipBytes> frame;
    send(std::span(frame).first(wire::write_membership_report(report, mac, frame)));
  }
}

// What ports without an interface of the kernel need done, and when next.
Instant Daemon::tend_neighbours(Instant now) {
  constexpr Duration kLinkInterval = milliseconds(200);
  constexpr Duration kRestartInterval = seconds(1);
  constexpr Duration kRenewalInterval = seconds(15);  // finds out that a peer in use has moved
  Instant next = Instant::never();
  const bool is_renewal_due = renewal_due_ <= now;
  const bool is_restart_due = restart_due_ <= now;
  for (Device& device : devices_->all()) {
    if (device.neighbours == nullptr) continue;
    if (is_renewal_due) {
      renewal_due_ = now + kRenewalInterval;
      renew_paths(*node_, device);
    }
    if (is_restart_due && device.port->connects_at_start() && !device.port->is_link_up()) {
      restart_due_ = now + kRestartInterval;
      connect_again(device);
    }
    next = earlier(earlier(next, links_due_), renewal_due_);
    next = earlier(next, earlier(device.neighbours->on_time(now), device.reports->on_time(now)));
    send_waiting(device);
  }
  if (next.is_never() || now < links_due_) return next;
  links_due_ = now + kLinkInterval;
  if (devices_->has_link_news()) follow_interfaces();
  return earlier(next, links_due_);
}

// Also sends what the commands and messages since the last time have brought about.
Instant Daemon::tend_connection_manager(Instant now) {
  const Instant resolving = cm_service_->tend(now);
  (void)cm_network_->tend(now);
  cm_network_->pump(
      [this](std::uint32_t device, const cm::Event& event) { cm_service_->on_manager_event(device, event); });
  return earlier(resolving, cm_network_->tend(now));
}

// Does what is due, and returns when something is due next. Nothing is, while no client is there.
Instant Daemon::tend_timers() {
  const Instant now = monotonic_now();
  const Instant waiting = tend_connection_manager(now);
  const Instant resolving = earlier(waiting, earlier(netlink_->expire(now), tend_neighbours(now)));
  if (node_->sessions.size() == 0 && counters_due_.is_never()) return resolving;
  if (counters_due_.is_never()) counters_due_ = now + kCounterInterval;
  if (counters_due_ <= now) {
    devices_->write_counters();
    // Once more after the last client has gone.
    counters_due_ = node_->sessions.size() == 0 ? Instant::never() : now + kCounterInterval;
  }
  return earlier(resolving, counters_due_);
}

void Daemon::run() {
  while (!is_stopping_) {
    const Instant deadline = tend_timers();
    server_->settle();
    loop_->run_once(deadline);
    server_->settle();
  }
  spdlog::info("stopping");
  directory_.remove_sockets();
  page().stopped.store(1, std::memory_order_release);
  engine_->stop();
}

}  // namespace urdma::control
