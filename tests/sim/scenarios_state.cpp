// Scenarios in which the QP's state changes while it works. See scenario.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <memory>

#include "tests/sim/bench.hpp"

namespace urdma::sim {

namespace {

SendSpec random_request(Random& random) {
  SendSpec spec;
  spec.opcode = random.pick({WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead, WrOpcode::kSend, WrOpcode::kFetchAdd,
                             WrOpcode::kRdmaWriteWithImm});
  spec.length = random.between(0, 3000);
  spec.pieces = random.between32(1, 4);
  if (spec.opcode == WrOpcode::kFetchAdd) spec.pieces = 1;
  spec.flags = random.one_in(2) ? kSendSignaled : std::uint8_t{0};
  return spec;
}

constexpr std::uint32_t kRequests = 12;
constexpr std::uint64_t kLargest = 3000;

void add_all_lateness(EndpointConfig& a, EndpointConfig& b) {
  for (EndpointConfig* end : {&a, &b}) {
    end->operations.ppm = 700'000;
    end->gathers.ppm = 700'000;
  }
}

void allow_flush(Bench& bench) {
  for (Endpoint* end : {&bench.a(), &bench.b()}) {
    end->ledger().allow_send_errors({WcStatus::kWrFlushErr});
    end->ledger().allow_receive_errors({WcStatus::kWrFlushErr});
  }
}

// A move to ERR (or a fault outside of the QP) in the middle of transfers whose memory answers come later:
// everything is flushed in order, what is posted afterwards, too, and no byte arrives late.
void run_error_midway(Run& run) {
  Random draw(run.seed);
  Bench bench(run.seed, add_all_lateness);
  allow_flush(bench);
  bench.b().ledger().allow_send_errors({WcStatus::kWrFlushErr, WcStatus::kRetryExcErr});
  bench.a().ledger().allow_send_errors({WcStatus::kWrFlushErr, WcStatus::kRetryExcErr});
  bench.post_receives(kRequests, kLargest);
  for (std::uint32_t i = 0; i < kRequests; ++i)
    require(bench.a().post_receive(kLargest, 2), "no room for a receive");
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    for (Endpoint* end : {&bench.a(), &bench.b()}) {
      SendSpec spec = random_request(draw);
      if (i + 1 == kRequests) spec.flags |= kSendSignaled;  // so that the end is seen
      require(end->post(spec, bench.world.now()), "no room for a request");
    }
  }
  bench.world.run_for(nanoseconds(static_cast<std::int64_t>(draw.below(60'000))));
  Endpoint& victim = draw.one_in(2) ? bench.a() : bench.b();
  if (draw.one_in(2)) {
    victim.move_to(QpState::kErr, bench.world.now());
  } else {
    victim.qp().fail(transport::FailureReason::kCqOverrun);
    victim.service(bench.world.now());
    require(victim.qp().state() == QpState::kErr, "fail() leads to state {}",
            static_cast<int>(victim.qp().state()));
  }
  bench.world.run_for(nanoseconds(static_cast<std::int64_t>(draw.below(60'000))));
  const std::uint64_t flushed = victim.ledger().sends_flushed();
  const auto late = static_cast<std::uint32_t>(draw.between(1, 4));
  for (std::uint32_t i = 0; i < late; ++i) {
    require(victim.post(random_request(draw), bench.world.now()), "ERR takes no request");
    require(victim.post_receive(kLargest, 1), "no room for a receive");
  }
  bench.world.run_until([&] { return victim.ledger().sends_open() + victim.ledger().receives_open() == 0; },
                        seconds(1));
  require(victim.ledger().sends_flushed() >= flushed + late, "requests posted in ERR were not flushed");
  bench.world.run_until([&] { return victim.peer().ledger().sends_open() == 0; }, seconds(60));
  bench.world.drain_links();
  bench.finish(run);
}

LinkConfig lossy_link(Random& random) {
  LinkConfig link = Bench::link();
  if (random.one_in(2)) return link;
  link.loss_ppm = link.duplicate_ppm = link.reorder_ppm = link.corrupt_ppm = 20'000;
  link.reorder_packets = 8;
  return link;
}

// SQD: what has begun is finished, then the event comes; what is posted meanwhile waits for RTS.
void run_drain(Run& run) {
  Random draw(run.seed);
  Bench bench(
      run.seed,
      [&](EndpointConfig& a, EndpointConfig& b) {
        if (draw.one_in(2)) add_all_lateness(a, b);
      },
      lossy_link(draw));
  bench.post_receives(2 * kRequests, kLargest);
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    SendSpec spec = random_request(draw);
    spec.flags |= kSendSignaled;
    bench.post(spec);
  }
  bench.world.run_for(nanoseconds(static_cast<std::int64_t>(draw.below(40'000))));
  transport::QpAttributes attributes;
  attributes.state = QpState::kSqd;
  attributes.sqd_notify = true;
  bench.a().modify(kAttrState | kAttrSqdNotify, attributes, bench.world.now());
  bench.world.run_until([&] { return bench.a().has_seen(AsyncEvent::kSqDrained); }, seconds(1));
  require(!bench.a().qp().is_sq_draining(), "drained, and still draining");
  bench.world.drain_links();
  const std::uint64_t done = bench.a().ledger().sends_succeeded();
  const std::uint64_t packets = bench.a().packets_sent();
  SendSpec waiting = random_request(draw);
  waiting.flags |= kSendSignaled;
  bench.post(waiting);
  bench.world.run_for(milliseconds(50));
  require(bench.a().ledger().sends_succeeded() == done, "a request was carried out in SQD");
  require(bench.a().packets_sent() == packets, "a packet was sent in SQD");
  bench.a().move_to(QpState::kRts, bench.world.now());
  bench.run_sends();
  require(bench.a().ledger().sends_succeeded() == kRequests + 1, "{} requests succeeded",
          bench.a().ledger().sends_succeeded());
  require(bench.a().count(AsyncEvent::kSqDrained) == 1, "{} events of the drained queue",
          bench.a().count(AsyncEvent::kSqDrained));
  bench.finish(run);
}

// RESET in the middle drops everything without completions; connected again, the QPs are as good as new.
void run_reset_reuse(Run& run) {
  Random draw(run.seed);
  Bench bench(run.seed, add_all_lateness, lossy_link(draw));
  for (std::uint32_t round = 0; round < 4; ++round) {
    bench.post_receives(kRequests, kLargest);
    for (std::uint32_t i = 0; i < kRequests; ++i) {
      SendSpec spec = random_request(draw);
      if (spec.opcode == WrOpcode::kFetchAdd)
        spec.opcode = WrOpcode::kRdmaRead;  // its count would be unknown
      spec.flags |= kSendSignaled;
      bench.post(spec);
    }
    if (round == 3) break;
    bench.world.run_for(nanoseconds(static_cast<std::int64_t>(draw.below(60'000))));
    for (Endpoint* end : {&bench.a(), &bench.b()}) end->move_to(QpState::kReset, bench.world.now());
    bench.world.drain_links();
    for (Endpoint* end : {&bench.a(), &bench.b()}) end->ledger().release_orphans();
    bench.world.reconnect(bench.connection);
  }
  bench.run_sends();
  bench.finish(run);
}

constexpr Scenario kScenarios[] = {
    {"error_midway", "ERR in the middle, memory answers afterwards, posts afterwards", run_error_midway},
    {"drain", "SQD in the middle, and back to RTS", run_drain},
    {"reset_reuse", "RESET in the middle, and connected again", run_reset_reuse},
};

}  // namespace

std::span<const Scenario> state_scenarios() { return kScenarios; }

}  // namespace urdma::sim
