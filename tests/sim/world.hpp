// Two hosts, a link in each direction, any number of connections between them, and one virtual clock that
// jumps from one wake-up to the next. Everything in it follows from the seed.
//
// Owner: a scenario. One thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/sim/endpoint.hpp"
#include "tests/sim/link.hpp"
#include "tests/sim/memory.hpp"
#include "tests/sim/random.hpp"

namespace urdma::sim {

// What acts on the endpoints as time passes: posts requests and receives.
class Actor {
 public:
  virtual ~Actor() = default;
  // Called whenever something may have changed, and at next_wakeup.
  virtual void act(Instant now) = 0;
  [[nodiscard]] virtual Instant next_wakeup() const = 0;
  [[nodiscard]] virtual bool is_done() const = 0;
  // What it is at, for the message of a failed run.
  [[nodiscard]] virtual std::string describe() const { return {}; }
};

struct Connection {
  Endpoint* a = nullptr;  // on the first host
  Endpoint* b = nullptr;
};

class World {
 public:
  World(std::uint64_t seed, const LinkConfig& link);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Makes two connected QPs in RTS. Destination, PSNs and ports of the attributes are filled in.
  Connection connect(EndpointConfig a, EndpointConfig b);
  // Connects a pair whose QPs are in RESET again, with new PSNs.
  void reconnect(const Connection& connection);
  void add_actor(std::unique_ptr<Actor> actor) { actors_.push_back(std::move(actor)); }

  // Sends a packet that no QP has made, as if `from` had.
  void inject(const Endpoint& from, wire::Headers headers);

  // Runs until `is_over` holds, which is asked at every instant. Ends the run if that takes longer than
  // `limit` of virtual time, or if nothing is left that could ever happen.
  void run_until(const std::function<bool()>& is_over, Duration limit);
  void run_for(Duration time);
  // Until all actors are done and all their requests have completed; afterwards until the links are empty.
  void run_to_completion(Duration limit);
  void drain_links();
  // Moves every QP to ERR, takes the flushed completions, and makes all checks of a finished run.
  void finish();

  // ---- Parts ----
  [[nodiscard]] Random& random() { return random_; }
  [[nodiscard]] Instant now() const { return now_; }
  [[nodiscard]] Link& link_from(std::size_t host) { return hosts_[host]->link; }
  [[nodiscard]] Memory& memory_of(std::size_t host) { return hosts_[host]->memory; }
  [[nodiscard]] const std::vector<std::unique_ptr<Endpoint>>& endpoints() const { return endpoints_; }
  [[nodiscard]] std::uint64_t packets() const;
  void stop_faults();

 private:
  struct Host {
    Host(const LinkConfig& config, FramePool& pool, Random& random)
        : memory(random), link(config, pool, random) {}

    Memory memory;
    Link link;  // to the other host
    SharedCounter counter;
    FramePtr waiting;  // arrived, and its QP takes no packet now
    std::vector<Endpoint*> endpoints;
    std::size_t next_sender = 0;
  };

  void pump();
  [[nodiscard]] bool deliver(std::size_t from);
  [[nodiscard]] bool deliver_frame(FramePtr frame, Host& to);
  [[nodiscard]] bool transmit(Host& host);
  [[nodiscard]] Instant next_wakeup() const;
  [[nodiscard]] std::string describe_actors() const;
  void check_counters(const Endpoint& endpoint) const;
  void check_atomics(Endpoint& endpoint) const;

  Random random_;
  FramePool pool_;
  Instant now_{1'000'000};
  std::array<std::unique_ptr<Host>, 2> hosts_;
  std::array<wire::FlowTemplate, 2> flows_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::unordered_map<std::uint32_t, Endpoint*> by_qpn_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::uint64_t frames_refused_ = 0;
};

// IBTA table 45, for expectations.
[[nodiscard]] Duration rnr_delay(std::uint8_t code);
// 4.096 us x 2^code.
[[nodiscard]] Duration ack_timeout(std::uint8_t code);

}  // namespace urdma::sim
