// Scenarios in which packets are forged: well formed to the last bit of the ICRC, and senseless. The QP may
// fail, and must do so in order; it may not crash, hang, or write where its program did not ask for it. See
// scenario.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <memory>

#include "tests/sim/bench.hpp"

namespace urdma::sim {

namespace {

constexpr std::initializer_list<WcStatus> kAnyError = {
    WcStatus::kLocLenErr,   WcStatus::kLocQpOpErr,    WcStatus::kLocProtErr, WcStatus::kWrFlushErr,
    WcStatus::kBadRespErr,  WcStatus::kRemInvReqErr,  WcStatus::kRemOpErr,   WcStatus::kRemAccessErr,
    WcStatus::kRetryExcErr, WcStatus::kRnrRetryExcErr};

// Sends forged packets to one end, as if they came from the other.
class Forger final : public Actor {
 public:
  Forger(World& world, Endpoint& as, std::uint32_t packets)
      : world_(world), random_(world.random()), as_(as), left_(packets), at_(world.now()) {}

  void act(Instant now) override {
    if (left_ == 0 || now < at_) return;
    --left_;
    world_.inject(as_, forge());
    at_ = now + nanoseconds(static_cast<std::int64_t>(random_.between(1, 30'000)));
  }
  [[nodiscard]] Instant next_wakeup() const override { return left_ == 0 ? Instant::never() : at_; }
  [[nodiscard]] bool is_done() const override { return left_ == 0; }

 private:
  // Close to what the receiver waits for, on either of its sides; or anything.
  [[nodiscard]] Psn draw_psn() {
    const transport::QpAttributes& attributes = as_.config().attributes;
    const Psn base = random_.one_in(2) ? attributes.sq_psn : attributes.rq_psn;
    if (random_.one_in(20)) return Psn(random_.between32(0, Psn::kMask));
    return base.plus(random_.between32(0, 60)).minus(random_.between32(0, 4));
  }

  [[nodiscard]] wire::Headers forge() {
    wire::Headers headers;
    do headers.opcode = static_cast<wire::Opcode>(random_.below(0x18));
    while (!headers.info().is_valid());
    const std::uint32_t mtu = as_.config().attributes.packet_bytes;
    headers.psn = draw_psn();
    headers.solicited = random_.one_in(2);
    headers.ack_request = random_.one_in(2);
    const Region& target = as_.peer().arena().target.region();
    headers.rkey = random_.one_in(4) ? MemoryKey{static_cast<std::uint32_t>(random_.next())} : target.key;
    headers.address = target.address + random_.below(target.bytes.size());
    headers.dma_length =
        static_cast<std::uint32_t>(random_.one_in(8) ? random_.next() : random_.below(4 * mtu));
    headers.swap_or_add = random_.next();
    headers.compare = random_.next();
    headers.aeth_kind = static_cast<wire::AethKind>(random_.below(4));
    headers.aeth_value = static_cast<std::uint8_t>(random_.below(32));
    headers.msn = random_.between32(0, Psn::kMask);
    headers.atomic_original = random_.next();
    headers.immediate = static_cast<std::uint32_t>(random_.next());
    if (headers.info().has_payload)
      headers.payload_bytes = static_cast<std::uint32_t>(random_.one_in(2) ? mtu : random_.below(mtu + 8));
    return headers;
  }

  World& world_;
  Random& random_;
  Endpoint& as_;
  std::uint32_t left_;
  Instant at_;
};

void run_forged(Run& run) {
  Random draw(run.seed);
  Bench bench(run.seed, [&](EndpointConfig& a, EndpointConfig& b) {
    for (EndpointConfig* end : {&a, &b}) {
      end->operations.ppm = end->gathers.ppm = draw.pick<std::uint32_t>({0, 500'000});
      end->attributes.timeout = 6;
      end->attributes.rnr_retry = 3;
    }
  });
  WorkloadConfig load;
  load.requests = draw.between32(0, 60);
  load.longest_pause = microseconds(100);
  for (Endpoint* end : {&bench.a(), &bench.b()}) {
    end->ledger().distrust_peer();
    end->ledger().allow_send_errors(kAnyError);
    end->ledger().allow_receive_errors(kAnyError);
    bench.world.add_actor(std::make_unique<Workload>(bench.world, *end, load));
    bench.world.add_actor(std::make_unique<Forger>(bench.world, *end, draw.between32(1, 80)));
  }
  bench.world.run_for(milliseconds(20));
  for (Endpoint* end : {&bench.a(), &bench.b()})
    if (end->qp().state() != QpState::kErr) end->move_to(QpState::kErr, bench.world.now());
  bench.world.run_to_completion(seconds(60));
  bench.finish(run);
}

constexpr Scenario kScenarios[] = {
    {"forged", "packets that no QP has sent, correct in form", run_forged},
};

}  // namespace

std::span<const Scenario> hostile_scenarios() { return kScenarios; }

}  // namespace urdma::sim
