// What scenarios with one connection and hand-made requests share.
//
// Owner: a scenario.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <initializer_list>

#include "tests/sim/check.hpp"
#include "tests/sim/scenario.hpp"

namespace urdma::sim {

// A requester A and a responder B on a clean link of a few microseconds.
struct Bench {
  explicit Bench(std::uint64_t seed) : Bench(seed, [](EndpointConfig&, EndpointConfig&) {}) {}

  // `change` adjusts the two ends before they are connected.
  template <typename Change>
  Bench(std::uint64_t seed, Change change, const LinkConfig& wire = link()) : world(seed, wire) {
    EndpointConfig a = ordinary_endpoint(world.random());
    a.qp.send_slots = kSlots;
    a.ring_bytes = kRingBytes;
    EndpointConfig b = a;
    change(a, b);
    connection = world.connect(a, b);
  }

  static LinkConfig link() {
    LinkConfig config;
    config.delay = microseconds(3);
    return config;
  }

  [[nodiscard]] Endpoint& a() const { return *connection.a; }
  [[nodiscard]] Endpoint& b() const { return *connection.b; }

  void post(const SendSpec& spec, std::uint32_t times = 1) {
    for (std::uint32_t i = 0; i < times; ++i) require(a().post(spec, world.now()), "no room for a request");
  }
  void post_receives(std::uint32_t times, std::uint64_t capacity = kSmall) {
    for (std::uint32_t i = 0; i < times; ++i) require(b().post_receive(capacity, 1), "no room for a receive");
  }
  // Until all sends of A have completed, well or badly.
  void run_sends(Duration limit = seconds(60)) {
    world.run_until([this] { return a().ledger().sends_open() == 0; }, limit);
  }
  void require_send_error(std::initializer_list<WcStatus> statuses, std::uint64_t succeeded,
                          std::uint64_t flushed) {
    const Ledger& ledger = a().ledger();
    require(ledger.send_error().has_value(), "the request did not fail");
    bool is_expected = false;
    for (const WcStatus status : statuses) is_expected |= ledger.send_error()->status == status;
    require(is_expected, "the request failed with status {}", static_cast<int>(ledger.send_error()->status));
    require(ledger.sends_succeeded() == succeeded, "{} requests succeeded, not {}", ledger.sends_succeeded(),
            succeeded);
    require(ledger.sends_flushed() == flushed, "{} requests were flushed, not {}", ledger.sends_flushed(),
            flushed);
    require(a().qp().state() == QpState::kErr, "A is in state {}", static_cast<int>(a().qp().state()));
  }
  void require_reason(transport::FailureReason reason) {
    const auto seen = a().ledger().send_error()->reason;
    require(seen == reason, "the reason is {}, not {}", static_cast<int>(seen), static_cast<int>(reason));
  }
  void finish(Run& run) {
    world.finish();
    run.packets = world.packets();
  }

  static constexpr std::uint32_t kSlots = 32;
  static constexpr std::uint64_t kSmall = 512;
  static constexpr std::uint64_t kRingBytes = 256U << 10;

  World world;
  Connection connection;
};

}  // namespace urdma::sim
