// Scenarios in which everything is drawn from the seed: sizes, mixes, faults, times. See scenario.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <algorithm>
#include <array>
#include <memory>

#include "tests/sim/check.hpp"
#include "tests/sim/scenario.hpp"

namespace urdma::sim {

namespace {

constexpr std::uint32_t kInNodePacketBytes = 64U << 10;
constexpr std::uint64_t kRingsPerMessage = 6;
constexpr std::uint64_t kRingSlack = 4096;

std::uint32_t maybe(Random& random, std::uint32_t most_ppm) {
  return random.one_in(2) ? 0 : random.between32(1, most_ppm);
}

LinkConfig faulty_link(Random& random, std::uint32_t most_ppm) {
  LinkConfig link;
  link.loss_ppm = maybe(random, most_ppm);
  link.duplicate_ppm = maybe(random, most_ppm);
  link.corrupt_ppm = maybe(random, most_ppm);
  link.reorder_ppm = maybe(random, most_ppm);
  link.reorder_packets = random.between32(1, 16);
  link.delay = nanoseconds(static_cast<std::int64_t>(random.between(200, 50'000)));
  link.jitter = nanoseconds(static_cast<std::int64_t>(random.pick<std::uint64_t>({0, 500, 20'000})));
  link.bytes_per_us = random.pick<std::uint64_t>({0, 125, 1250, 12500});
  return link;
}

WorkloadConfig random_load(Random& random, std::uint32_t packet_bytes) {
  WorkloadConfig load;
  load.requests = random.between32(20, 150);
  load.largest_message =
      std::max<std::uint64_t>(packet_bytes + 1U, random.pick<std::uint64_t>({1024, 8192, 32768}));
  load.most_pieces = random.between32(1, kMaxPieces);
  for (std::uint32_t& weight : load.weights) weight = random.between32(0, 4);
  load.weights[2] += 1;  // never all zero
  load.signaled_ppm = random.pick<std::uint32_t>({0, 100'000, 500'000, 1'000'000});
  load.most_burst = random.between32(1, 32);
  load.longest_pause = microseconds(random.pick<std::int64_t>({0, 5, 100}));
  load.receives_ahead = random.between32(1, 32);
  load.receive_late_ppm = random.pick<std::uint32_t>({0, 0, 50'000, 500'000});
  return load;
}

void add_lateness(EndpointConfig& config, Random& random) {
  config.operations.ppm = random.pick<std::uint32_t>({0, 0, 100'000, 1'000'000});
  config.gathers.ppm = random.pick<std::uint32_t>({0, 0, 100'000, 1'000'000});
  config.operations.longest = config.gathers.longest = microseconds(random.pick<std::int64_t>({1, 20}));
}

// A connection with both ends alike but for their loads, and an application at each.
Connection add_loaded_connection(World& world, EndpointConfig a, const WorkloadConfig& load_a,
                                 const WorkloadConfig& load_b) {
  const std::uint64_t largest = std::max(load_a.largest_message, load_b.largest_message);
  a.ring_bytes = kRingsPerMessage * largest + kRingSlack;
  WorkloadConfig first = load_a;
  WorkloadConfig second = load_b;
  first.largest_message = second.largest_message = largest;
  EndpointConfig b = a;
  b.qp.send_slots = 1U << world.random().between32(0, 7);
  b.qp.signal_all = world.random().one_in(4);
  const Connection connection = world.connect(a, b);
  world.add_actor(std::make_unique<Workload>(world, *connection.a, first));
  world.add_actor(std::make_unique<Workload>(world, *connection.b, second));
  return connection;
}

void add_random_connections(World& world, std::uint32_t count, std::uint32_t load_scale) {
  Random& random = world.random();
  for (std::uint32_t i = 0; i < count; ++i) {
    EndpointConfig config = ordinary_endpoint(random);
    add_lateness(config, random);
    WorkloadConfig loads[2] = {random_load(random, config.attributes.packet_bytes),
                               random_load(random, config.attributes.packet_bytes)};
    for (WorkloadConfig& load : loads) load.requests = std::max(1U, load.requests / load_scale);
    if (random.one_in(4)) loads[1].requests = 0;  // one direction only
    add_loaded_connection(world, config, loads[0], loads[1]);
  }
}

void run_chaos(Run& run) {
  Random draw(run.seed);
  World world(run.seed, faulty_link(draw, 20'000));
  const std::uint32_t connections = draw.one_in(3) ? draw.between32(2, 6) : 1;
  add_random_connections(world, connections, connections);
  world.run_to_completion(kLongRun);
  world.finish();
  run.packets = world.packets();
}

// Nothing goes wrong on the link and receives are always there: then nothing may be sent twice.
void run_clean(Run& run) {
  Random draw(run.seed);
  World world(run.seed, faulty_link(draw, 0 + 1));
  world.stop_faults();
  EndpointConfig config = ordinary_endpoint(world.random());
  config.attributes.timeout = 14;
  WorkloadConfig load = random_load(world.random(), config.attributes.packet_bytes);
  load.receives_ahead = 64;
  load.receive_late_ppm = 0;
  config.ring_bytes = 0;
  load.largest_message = std::min<std::uint64_t>(load.largest_message, 8192);
  const Connection connection = add_loaded_connection(world, config, load, load);
  world.run_to_completion(kLongRun);
  for (const Endpoint* endpoint : {connection.a, connection.b}) {
    const transport::QpCounters counters = endpoint->qp().counters();
    const bool is_rnr_free = counters.rnr_naks_sent + counters.rnr_naks_received == 0;
    require(counters.sequence_naks_sent == 0 || !is_rnr_free, "sequence NAKs on a clean link");
    require(counters.ack_timeouts == 0, "timeouts on a clean link");
    require(counters.dropped_invalid == 0, "invalid packets on a clean link");
    require(counters.packets_retransmitted == 0 || !is_rnr_free, "{} packets sent again on a clean link",
            counters.packets_retransmitted);
    require(counters.duplicates_received == 0 || !is_rnr_free, "duplicates on a clean link");
    require(counters.packets_sent == endpoint->packets_sent(), "{} packets counted, {} sent",
            counters.packets_sent, endpoint->packets_sent());
    require(counters.packets_received == endpoint->packets_received(), "{} packets counted, {} received",
            counters.packets_received, endpoint->packets_received());
  }
  world.finish();
  run.packets = world.packets();
}

// The link inside a node: decoded packets of up to 64 KiB, none lost; one that cannot be taken waits.
void run_in_node(Run& run) {
  Random draw(run.seed);
  LinkConfig link;
  link.delay = nanoseconds(static_cast<std::int64_t>(draw.between(1, 2000)));
  World world(run.seed, link);
  for (std::uint32_t left = draw.between32(1, 3); left > 0; --left) {
    EndpointConfig config = ordinary_endpoint(world.random());
    add_lateness(config, world.random());
    config.is_encoded = false;
    config.attributes.packet_bytes = draw.one_in(3) ? config.attributes.packet_bytes : kInNodePacketBytes;
    WorkloadConfig load = random_load(world.random(), config.attributes.packet_bytes);
    load.requests = std::min(load.requests, 60U);
    add_loaded_connection(world, config, load, load);
  }
  world.run_to_completion(kLongRun);
  world.finish();
  run.packets = world.packets();
}

// Large messages, and rings too small to hold many of them.
void run_large(Run& run) {
  Random draw(run.seed);
  World world(run.seed, faulty_link(draw, 2'000));
  EndpointConfig config = ordinary_endpoint(world.random());
  add_lateness(config, world.random());
  WorkloadConfig load = random_load(world.random(), config.attributes.packet_bytes);
  load.requests = 8;
  load.largest_message = 1U << draw.between32(18, 21);
  add_loaded_connection(world, config, load, load);
  world.run_to_completion(kLongRun);
  world.finish();
  run.packets = world.packets();
}

// Messages of 2 GiB less a byte, and of 2 GiB: at a path MTU of 256 bytes they are half of all PSNs.
void run_largest(Run& run) {
  Random draw(run.seed);
  LinkConfig link;
  link.delay = microseconds(2);
  World world(run.seed, link);
  EndpointConfig config = ordinary_endpoint(world.random());
  config.attributes.timeout = 14;
  config.is_encoded = false;
  // The first seeds are for the small packets, which take their time.
  config.attributes.packet_bytes =
      run.seed <= 3 ? mtu_bytes(1) : draw.pick({mtu_bytes(5), kInNodePacketBytes});
  const Connection connection = world.connect(config, config);
  std::array<transport::Sge, 2> ends;
  for (std::size_t i = 0; i < 2; ++i) {
    Region& region =
        world.memory_of(i).add(kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead, 1U << 17);
    region.pretended_bytes = transport::kMaxMessageBytes;
    ends[i] = {region.address, static_cast<std::uint32_t>(transport::kMaxMessageBytes - draw.below(2)),
               region.key};
  }
  constexpr WrOpcode kOpcodes[] = {WrOpcode::kRdmaRead, WrOpcode::kRdmaWrite, WrOpcode::kSend};
  transport::SendRequest request;
  request.opcode = kOpcodes[run.seed % 3];
  request.flags = kSendSignaled;
  request.length = ends[0].length;
  request.remote_address = ends[1].address;
  request.rkey = ends[1].lkey;
  connection.b->ledger().distrust_peer();
  ends[1].length = static_cast<std::uint32_t>(transport::kMaxMessageBytes);
  connection.b->post_plain_receive(ends[1]);
  connection.a->ledger().distrust_peer();
  connection.a->post_plain(request, ends[0], world.now());
  world.run_until([&] { return connection.a->ledger().sends_open() == 0; }, kLongRun);
  world.finish();
  run.packets = world.packets();
}

// A link so slow that the answer to a large READ takes longer than the ACK timeout, with losses now and then.
void run_slow_read(Run& run) {
  Random draw(run.seed);
  LinkConfig link = faulty_link(draw, 2'000);
  link.bytes_per_us = draw.between(60, 300);
  World world(run.seed, link);
  EndpointConfig config = ordinary_endpoint(world.random());
  config.attributes.path_mtu_code = 1;
  config.attributes.packet_bytes = mtu_bytes(1);
  config.attributes.timeout = 9;
  WorkloadConfig load;
  load.requests = 4;
  load.largest_message = 1U << 20;
  load.fixed_length = draw.between(load.largest_message / 4, load.largest_message);
  load.weights = {0, 0, 0, 0, 1, 0, 0, 0};
  add_loaded_connection(world, config, load, load);
  world.run_to_completion(kLongRun);
  world.finish();
  run.packets = world.packets();
}

// Moves one QP to ERR at a random time.
class Saboteur final : public Actor {
 public:
  Saboteur(Endpoint& victim, Instant at) : victim_(victim), at_(at) {}

  void act(Instant now) override {
    if (now < at_ || at_.is_never()) return;
    at_ = Instant::never();
    if (victim_.qp().state() != QpState::kErr) victim_.move_to(QpState::kErr, now);
  }
  [[nodiscard]] Instant next_wakeup() const override { return at_; }
  [[nodiscard]] bool is_done() const override { return true; }

 private:
  Endpoint& victim_;
  Instant at_;
};

// Faults so heavy, and patience so small, that requests do fail: they must fail in order, and once.
void run_wild(Run& run) {
  Random draw(run.seed);
  LinkConfig link = faulty_link(draw, 300'000);
  if (draw.one_in(4)) {
    link.bottleneck_bytes_per_us = draw.between(20, 1000);
    link.queue_bytes = draw.between(2'000, 100'000);
  }
  World world(run.seed, link);
  Random& random = world.random();
  for (std::uint32_t left = random.between32(1, 3); left > 0; --left) {
    EndpointConfig config = ordinary_endpoint(random);
    add_lateness(config, random);
    config.attributes.timeout = static_cast<std::uint8_t>(random.between(1, 9));
    config.attributes.retry_count = static_cast<std::uint8_t>(random.between(0, 7));
    config.attributes.rnr_retry = static_cast<std::uint8_t>(random.between(0, 7));
    const WorkloadConfig load = random_load(random, config.attributes.packet_bytes);
    const Connection connection = add_loaded_connection(world, config, load, load);
    for (Endpoint* endpoint : {connection.a, connection.b}) {
      endpoint->ledger().allow_send_errors(
          {WcStatus::kRetryExcErr, WcStatus::kRnrRetryExcErr, WcStatus::kWrFlushErr});
      endpoint->ledger().allow_receive_errors({WcStatus::kWrFlushErr});
    }
    if (random.one_in(2)) {
      const auto after = microseconds(static_cast<std::int64_t>(random.below(2000)));
      world.add_actor(
          std::make_unique<Saboteur>(random.one_in(2) ? *connection.a : *connection.b, world.now() + after));
    }
  }
  world.run_to_completion(kLongRun);
  world.finish();
  run.packets = world.packets();
}

// The link goes away for a while, again and again, but never for longer than the requester is patient. Once
// it stays, everything is done within a bounded time.
class Blackout final : public Actor {
 public:
  Blackout(World& world, Duration longest, std::uint32_t times)
      : world_(world), random_(world.random()), longest_(longest), left_(times * 2), at_(world.now()) {}

  void act(Instant now) override {
    if (left_ == 0 || now < at_) return;
    --left_;
    const bool dead = left_ % 2 == 1;
    world_.link_from(0).set_dead(dead);
    world_.link_from(1).set_dead(dead);
    const auto longest = static_cast<std::uint64_t>(longest_.ns);
    // Away for at most `longest_`, and back for at least as long: nobody's patience ends.
    at_ = now + nanoseconds(static_cast<std::int64_t>(dead ? random_.between(1000, longest)
                                                           : longest + random_.below(longest)));
  }
  [[nodiscard]] Instant next_wakeup() const override { return left_ == 0 ? Instant::never() : at_; }
  [[nodiscard]] bool is_done() const override { return left_ == 0; }

 private:
  World& world_;
  Random& random_;
  Duration longest_;
  std::uint32_t left_;
  Instant at_;
};

void run_blackout(Run& run) {
  Random draw(run.seed);
  World world(run.seed, faulty_link(draw, 10'000));
  EndpointConfig config = ordinary_endpoint(world.random());
  config.attributes.timeout = static_cast<std::uint8_t>(draw.between(9, 12));
  const WorkloadConfig load = random_load(world.random(), config.attributes.packet_bytes);
  add_loaded_connection(world, config, load, load);
  const Duration timeout = ack_timeout(config.attributes.timeout);
  auto blackout = std::make_unique<Blackout>(world, timeout * 2, draw.between32(1, 6));
  const Blackout* phases = blackout.get();
  world.add_actor(std::move(blackout));
  world.run_until([phases] { return phases->is_done(); }, kLongRun);
  world.stop_faults();
  // Four timeouts to notice, RNR waits of late receives, and the transfer itself at 125 bytes a microsecond.
  const Duration bound = timeout * 8 + rnr_delay(config.attributes.min_rnr_timer) * 300 + seconds(2);
  world.run_to_completion(bound);
  world.finish();
  run.packets = world.packets();
}

// As many packets as are asked for, of every size, on a link with a little loss.
void run_throughput(Run& run) {
  constexpr std::uint64_t kDefaultPackets = 10'000'000;
  const std::uint64_t wanted = run.wanted_packets == 0 ? kDefaultPackets : run.wanted_packets;
  for (std::uint64_t round = 0; run.packets < wanted; ++round) {
    LinkConfig link;
    link.loss_ppm = 1000;
    link.reorder_ppm = 500;
    link.duplicate_ppm = 200;
    link.corrupt_ppm = 100;
    World world(run.seed + round, link);
    EndpointConfig config = ordinary_endpoint(world.random());
    config.attributes.path_mtu_code = static_cast<std::uint8_t>(1 + round % 5);
    config.attributes.packet_bytes = mtu_bytes(config.attributes.path_mtu_code);
    WorkloadConfig load;
    load.requests = 10'000;
    load.largest_message = 32'768;
    load.receives_ahead = 32;
    add_loaded_connection(world, config, load, load);
    world.run_to_completion(kLongRun);
    world.finish();
    run.packets += world.packets();
  }
}

constexpr Scenario kScenarios[] = {
    {"chaos", "random loads on a link with up to 2 % of each fault; everything succeeds", run_chaos},
    {"clean", "random loads on a link without faults; nothing is sent twice", run_clean},
    {"in_node", "decoded packets of up to 64 KiB on a link that loses none", run_in_node},
    {"large", "messages of up to 2 MiB", run_large},
    {"largest", "messages of 2 GiB", run_largest},
    {"slow_read", "READs whose answers take longer than the ACK timeout", run_slow_read},
    {"wild", "faults up to 30 %, small patience, sudden errors; requests fail in order", run_wild},
    {"blackout", "the link goes away and comes back; bounded time to the end", run_blackout},
    {"throughput", "as many packets as are asked for (10 million)", run_throughput},
};

}  // namespace

std::span<const Scenario> random_scenarios() { return kScenarios; }

EndpointConfig ordinary_endpoint(Random& random) {
  EndpointConfig config;
  config.qp.send_slots = 1U << random.between32(0, 7);
  config.qp.signal_all = random.one_in(4);
  config.qp.max_send_sge = kMaxPieces;
  config.qp.max_recv_sge = kMaxPieces;
  transport::QpAttributes& attributes = config.attributes;
  attributes.path_mtu_code = static_cast<std::uint8_t>(random.between(1, 5));
  attributes.packet_bytes = mtu_bytes(attributes.path_mtu_code);
  const auto depth = static_cast<std::uint8_t>(random.between(1, 16));
  attributes.max_rd_atomic = depth;
  attributes.max_dest_rd_atomic = static_cast<std::uint8_t>(random.between(depth, 16));
  attributes.min_rnr_timer = static_cast<std::uint8_t>(random.between(1, 12));
  attributes.timeout = static_cast<std::uint8_t>(random.between(8, 12));
  attributes.retry_count = 7;
  attributes.rnr_retry = 7;
  attributes.access_flags = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;
  config.ring_bytes = 64U << 10;
  return config;
}

}  // namespace urdma::sim
