// Two hosts with a connection manager each, a program on each that connects, refuses, disconnects and dies,
// and faulty links between, on one virtual clock. Real managers, real frames.
//
// Owner: a scenario. One thread. A promise that does not hold ends the run (Failure).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "datapath/cm/manager.hpp"
#include "tests/sim/link.hpp"
#include "tests/sim/random.hpp"
#include "urdma/wire/frame.hpp"

namespace urdma::sim {

struct CmConfig {
  std::uint32_t attempts = 30;   // connections and resolutions, of either host
  Duration span = seconds(10);   // in which they begin
  bool is_orderly = false;       // everybody accepts, nobody dies or refuses, and no attempt may fail
  std::uint32_t late_ppm = 0;    // of datagrams: delivered once more, up to three seconds later
  std::uint32_t forged_ppm = 0;  // of datagrams: a copy with changed bytes is delivered, too
  std::uint32_t most_connections = 256;
  LinkConfig link;
};

class CmWorld {
 public:
  CmWorld(std::uint64_t seed, const CmConfig& config);
  CmWorld(const CmWorld&) = delete;
  CmWorld& operator=(const CmWorld&) = delete;

  // Everything begins, ends, and is forgotten; then the managers must be empty.
  void run();
  [[nodiscard]] std::uint64_t packets() const;

 private:
  static constexpr std::size_t kHosts = 2;

  // How far a program has come with its side of an attempt.
  enum class Phase : std::uint8_t { kIdle, kAsking, kDeciding, kAnswered, kEstablished, kOver, kForgotten };

  struct Side {
    std::size_t host = 0;
    cm::ConnectionId id;
    Qpn qpn{};
    Phase phase = Phase::kIdle;
    bool was_established = false;
    bool has_ended_it = false;   // disconnected or forgotten by its program, after it was established
    bool was_told = false;       // Disconnecting or Disconnected has come
    std::uint32_t outcomes = 0;  // established, rejected, unreachable, resolved: one at most
    Instant over_since{};        // kOver, kForgotten
  };

  struct Attempt {
    std::uint32_t number = 0;
    bool is_resolution = false;
    Side active;
    Side passive;
  };

  struct Whose {
    std::size_t attempt = 0;
    bool is_active = false;
  };

  struct Host {
    std::unique_ptr<cm::Manager> manager;
    wire::Gid gid{};
    std::unordered_map<std::uint32_t, Whose> mine;  // connections that were not forgotten
    std::set<std::uint32_t> ids;                    // all there ever were
    std::set<std::uint32_t> qpns;                   // of QPs that exist
    std::map<std::uint32_t, Instant> free_again;  // QPs that were connected: end of time-wait at the earliest
    std::array<std::unique_ptr<Link>, kHosts> links;  // to each host; to itself without faults
  };

  // cm_world.cpp: the network and time
  void run_until_quiet();
  [[nodiscard]] bool step();
  bool hear();
  [[nodiscard]] bool deliver();
  [[nodiscard]] bool transmit(Host& host);
  void take(Host& host, const wire::FrameView& view);
  void harm(std::size_t host, const cm::Ends& ends, const cm::Mad& mad);
  [[nodiscard]] Instant next_wakeup() const;
  void later(Duration delay, std::function<void()> act);
  void check_empty();

  // cm_program.cpp: the programs
  void begin(std::size_t index);
  void begin_resolution(Attempt& attempt);
  [[nodiscard]] bool take_event(Host& host);
  void handle(std::size_t host, const cm::Event& event);
  void on_requested(std::size_t host, const cm::Event& event);
  void decide(std::size_t index);
  void on_replied(std::size_t index);
  void on_established(Whose whose);
  void on_failed(Whose whose, const cm::Event& event);
  void on_ended(Whose whose);
  void on_resolve_requested(std::size_t host, const cm::Event& event);
  void on_resolved(Whose whose, const cm::Event& event);
  void plan_end(std::size_t index);
  void disconnect(Whose whose);
  void forget(Whose whose);
  void adopt(Side& side, Whose whose);
  void outcome(Side& side);
  void sweep();
  void check_attempts();
  [[nodiscard]] Side& side_of(Whose whose);
  [[nodiscard]] cm::Manager& manager_of(const Side& side) { return *hosts_[side.host].manager; }
  [[nodiscard]] Qpn new_qpn(Host& host);
  [[nodiscard]] Duration pause();
  [[nodiscard]] bool is_forged() const { return config_.forged_ppm != 0; }
  [[nodiscard]] bool is_lossy() const;

  CmConfig config_;
  Random random_;
  FramePool pool_;
  std::array<Host, kHosts> hosts_;
  std::vector<Attempt> attempts_;
  std::multimap<Instant, std::function<void()>> acts_;
  std::uint64_t stale_ = 0;
  Instant now_{1'000'000};
};

}  // namespace urdma::sim
