// Scenarios with one fault each, which must end with the right status on both sides. See scenario.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <array>

#include "tests/sim/bench.hpp"

namespace urdma::sim {

namespace {

using transport::FailureReason;

constexpr std::uint32_t kBefore = 3;  // good requests before the bad one
constexpr std::uint32_t kAfter = 4;   // and behind it

SendSpec random_write(Random& random) {
  SendSpec spec;
  spec.opcode = WrOpcode::kRdmaWrite;
  spec.length = random.between(1, 3000);
  return spec;
}

// The peer falls silent: the timer runs out retry_count + 1 times, each of one to four timeouts
// (IBTA 9.7.6.1.3).
void run_dead_link(Run& run) {
  Random draw(run.seed);
  const auto timeout_code = static_cast<std::uint8_t>(draw.between(4, 16));
  const auto retries = static_cast<std::uint8_t>(draw.between(0, 7));
  Bench bench(run.seed, [&](EndpointConfig& a, EndpointConfig&) {
    a.attributes.timeout = timeout_code;
    a.attributes.retry_count = retries;
  });
  const bool answers_before = draw.one_in(2);
  if (answers_before) {
    bench.post(random_write(draw), kBefore);
    bench.run_sends();
  }
  bench.world.link_from(draw.below(2)).set_dead(true);
  const Instant start = bench.world.now();
  const WrOpcode opcode = draw.pick({WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead, WrOpcode::kFetchAdd});
  bench.a().ledger().allow_send_errors({WcStatus::kRetryExcErr});
  SendSpec spec = random_write(draw);
  spec.opcode = opcode;
  bench.post(spec, 1 + kAfter);
  bench.run_sends(seconds(600));
  bench.require_send_error({WcStatus::kRetryExcErr}, answers_before ? kBefore : 0, kAfter);
  bench.require_reason(answers_before ? FailureReason::kAnswersStopped : FailureReason::kNoAnswer);
  const Duration waited = bench.a().ledger().send_error_at() - start;
  const Duration least = ack_timeout(timeout_code) * (retries + 1);
  require(waited >= least, "gave up after {} ns, before {} ns", waited.ns, least.ns);
  require(waited <= least * 4 + milliseconds(1), "gave up after {} ns, timeouts are {} ns", waited.ns,
          least.ns);
  require(bench.a().qp().counters().ack_timeouts == retries + 1U, "{} timeouts with retry_count {}",
          bench.a().qp().counters().ack_timeouts, retries);
  bench.world.stop_faults();
  bench.finish(run);
}

// No receive ever comes: rnr_retry + 1 RNR NAKs, and the wait that the responder asks for between them.
void run_receiver_never_ready(Run& run) {
  Random draw(run.seed);
  const auto retries = static_cast<std::uint8_t>(draw.between(0, 6));
  const auto timer = static_cast<std::uint8_t>(draw.between(1, 20));
  Bench bench(run.seed, [&](EndpointConfig& a, EndpointConfig& b) {
    a.attributes.rnr_retry = retries;
    b.attributes.min_rnr_timer = timer;
  });
  bench.a().ledger().allow_send_errors({WcStatus::kRnrRetryExcErr});
  bench.post(random_write(draw), kBefore);
  const Instant start = bench.world.now();
  SendSpec spec;
  spec.opcode = draw.pick({WrOpcode::kSend, WrOpcode::kSendWithImm, WrOpcode::kRdmaWriteWithImm});
  spec.length = draw.between(0, 2000);
  bench.post(spec);
  bench.post(random_write(draw), kAfter);
  bench.run_sends();
  bench.require_send_error({WcStatus::kRnrRetryExcErr}, kBefore, kAfter);
  bench.require_reason(FailureReason::kReceiverNotReady);
  const Duration waited = bench.a().ledger().send_error_at() - start;
  require(waited >= rnr_delay(timer) * retries, "gave up after {} ns of RNR", waited.ns);
  require(waited <= rnr_delay(timer) * (2 * retries) + milliseconds(2), "gave up only after {} ns",
          waited.ns);
  const std::uint64_t naks = bench.a().qp().counters().rnr_naks_received;
  require(naks == retries + 1U, "{} RNR NAKs with rnr_retry {}", naks, retries);
  bench.finish(run);
}

// rnr_retry 7 is for ever: a receive that comes late is taken, and the SEND succeeds.
void run_receiver_late(Run& run) {
  Random draw(run.seed);
  Bench bench(run.seed, [](EndpointConfig&, EndpointConfig& b) { b.attributes.min_rnr_timer = 14; });
  SendSpec spec;
  spec.length = draw.between(0, 2000);
  bench.post(spec, kBefore);
  bench.world.run_for(rnr_delay(14) * 30);
  require(bench.a().qp().counters().rnr_naks_received > 10, "the requester does not try again");
  bench.post_receives(kBefore, 2000);
  bench.run_sends();
  require(bench.a().ledger().sends_succeeded() == kBefore, "the late receive did not help");
  bench.finish(run);
}

enum class RemoteMistake : std::uint8_t { kKey, kBounds, kAccess, kPermission };

void check_remote_error(Bench& bench, RemoteMistake mistake) {
  if (mistake == RemoteMistake::kPermission) {
    bench.require_send_error({WcStatus::kRemAccessErr, WcStatus::kRemInvReqErr}, kBefore, kAfter);
  } else {
    bench.require_send_error({WcStatus::kRemAccessErr}, kBefore, kAfter);
    bench.require_reason(FailureReason::kRemoteAccess);
    require(bench.b().count(AsyncEvent::kQpAccessErr) == 1, "no access error event at the responder");
  }
  require(bench.b().qp().state() == QpState::kErr, "the responder is in state {}",
          static_cast<int>(bench.b().qp().state()));
  require(bench.a().qp().counters().error_naks_received == 1, "{} error NAKs received",
          bench.a().qp().counters().error_naks_received);
}

// A bad key, range or permission at the responder: it is NAKed, and both QPs are in ERR.
void run_remote_access(Run& run) {
  Random draw(run.seed);
  const auto mistake = static_cast<RemoteMistake>(draw.below(4));
  const WrOpcode opcode = draw.pick({WrOpcode::kRdmaWrite, WrOpcode::kRdmaWriteWithImm, WrOpcode::kRdmaRead,
                                     WrOpcode::kCompareSwap, WrOpcode::kFetchAdd});
  Bench bench(run.seed, [&](EndpointConfig&, EndpointConfig& b) {
    if (mistake == RemoteMistake::kPermission) b.attributes.access_flags = kAccessLocalWrite;
    if (draw.one_in(2)) b.operations.ppm = 500'000;
  });
  SendSpec good;
  good.length = draw.between(0, Bench::kSmall);
  SendSpec bad = good;
  bad.opcode = opcode;
  bad.length = draw.between(1, 5000);
  const Region& target = bench.b().arena().target.region();
  const Region& unfit = bench.b().arena().receive.region();
  if (mistake == RemoteMistake::kKey) bad.remote_key = MemoryKey{target.key.value ^ 1U};
  if (mistake == RemoteMistake::kBounds)
    bad.remote_shift = draw.pick<std::uint64_t>({0, 1ULL << 63}) + Bench::kRingBytes;
  if (mistake == RemoteMistake::kAccess) {
    bad.remote_key = unfit.key;
    bad.remote_shift = unfit.address - target.address;
    if (opcode == WrOpcode::kCompareSwap || opcode == WrOpcode::kFetchAdd)
      bad.remote_shift = unfit.address + 8 - unfit.address % 8 - bench.a().cells()[0].region->address -
                         bench.a().cells()[0].offset;
  }
  bench.a().ledger().allow_send_errors({WcStatus::kRemAccessErr, WcStatus::kRemInvReqErr});
  bench.b().ledger().allow_receive_errors({WcStatus::kWrFlushErr});
  bench.post_receives(kBefore + 1 + kAfter);
  bench.post(good, kBefore);
  bench.post(bad);
  bench.post(good, kAfter);
  bench.run_sends();
  check_remote_error(bench, mistake);
  bench.finish(run);
}

// Nothing is checked for a message of no bytes (IBTA 9.7.4.1.5).
void run_zero_length_unchecked(Run& run) {
  Random draw(run.seed);
  Bench bench(run.seed);
  SendSpec spec;
  spec.opcode = draw.pick({WrOpcode::kRdmaWrite, WrOpcode::kRdmaWriteWithImm, WrOpcode::kRdmaRead});
  spec.pieces = 0;
  spec.remote_key = MemoryKey{static_cast<std::uint32_t>(draw.next())};
  spec.remote_shift = draw.next();
  bench.post_receives(kBefore);
  bench.post(spec, kBefore);
  bench.run_sends();
  require(bench.a().ledger().sends_succeeded() == kBefore, "a message of no bytes failed");
  bench.finish(run);
}

// A bad local key of a request: it alone fails, the peer's QP goes on.
void run_local_protection(Run& run) {
  Random draw(run.seed);
  Bench bench(run.seed, [&](EndpointConfig& a, EndpointConfig&) {
    if (draw.one_in(2)) a.gathers.ppm = 500'000;
    if (draw.one_in(2)) a.operations.ppm = 500'000;
  });
  SendSpec good = random_write(draw);
  SendSpec bad = good;
  bad.opcode = draw.pick({WrOpcode::kSend, WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead, WrOpcode::kFetchAdd});
  bad.length = draw.between(1, 3000);
  bad.local_key = MemoryKey{static_cast<std::uint32_t>(draw.next()) | 0x8000'0000U};
  bench.a().ledger().allow_send_errors({WcStatus::kLocProtErr});
  bench.post_receives(1, 3000);
  bench.post(good, kBefore);
  bench.post(bad);
  bench.post(good, kAfter);
  bench.run_sends();
  bench.require_send_error({WcStatus::kLocProtErr}, kBefore, kAfter);
  bench.require_reason(FailureReason::kLocalProtection);
  require(bench.b().qp().state() == QpState::kRts, "the responder is in state {}",
          static_cast<int>(bench.b().qp().state()));
  bench.finish(run);
}

// A bad local key of a receive: the receive fails with a protection error, the SEND with a remote one.
void run_receive_protection(Run& run) {
  Random draw(run.seed);
  Bench bench(run.seed);
  SendSpec spec;
  spec.length = draw.between(1, Bench::kSmall);
  bench.a().ledger().allow_send_errors({WcStatus::kRemOpErr});
  bench.b().ledger().allow_receive_errors({WcStatus::kLocProtErr});
  bench.post_receives(kBefore);
  require(bench.b().post_receive(spec.length, 1, MemoryKey{0x8000'0000U}), "no room");
  bench.post_receives(kAfter);
  bench.post(spec, kBefore + 1 + kAfter);
  bench.run_sends();
  bench.require_send_error({WcStatus::kRemOpErr}, kBefore, kAfter);
  bench.require_reason(FailureReason::kRemoteOperation);
  const auto& error = bench.b().ledger().receive_error();
  require(error && error->status == WcStatus::kLocProtErr,
          "the receive did not fail with a protection error");
  bench.finish(run);
}

// A SEND larger than the receive: a length error at the responder, an invalid request at the requester.
void run_send_too_long(Run& run) {
  Random draw(run.seed);
  Bench bench(run.seed);
  SendSpec good;
  good.length = draw.between(0, Bench::kSmall);
  SendSpec bad;
  const std::uint64_t capacity = draw.between(0, 9000);
  bad.length = capacity + draw.between(1, 5000);
  bench.a().ledger().allow_send_errors({WcStatus::kRemInvReqErr});
  bench.b().ledger().allow_receive_errors({WcStatus::kLocLenErr});
  bench.post_receives(kBefore);
  bench.post_receives(1, capacity);
  bench.post_receives(kAfter);
  bench.post(good, kBefore);
  bench.post(bad);
  bench.post(good, kAfter);
  bench.run_sends();
  bench.require_send_error({WcStatus::kRemInvReqErr}, kBefore, kAfter);
  bench.require_reason(FailureReason::kRemoteInvalidRequest);
  const auto& error = bench.b().ledger().receive_error();
  require(error && error->status == WcStatus::kLocLenErr, "the receive did not fail with a length error");
  require(bench.b().ledger().receives_succeeded() == kBefore, "{} receives succeeded",
          bench.b().ledger().receives_succeeded());
  bench.finish(run);
}

// A request that is bad in itself completes with its verdict when it is first in order.
void run_bad_request(Run& run) {
  Random draw(run.seed);
  Bench bench(run.seed);
  SendSpec good = random_write(draw);
  SendSpec bad = good;
  bad.verdict = draw.pick({WcStatus::kLocLenErr, WcStatus::kLocQpOpErr, WcStatus::kLocProtErr});
  bench.a().ledger().allow_send_errors({bad.verdict});
  bench.post(good, kBefore);
  bench.post(bad);
  bench.post(good, kAfter);
  bench.run_sends();
  bench.require_send_error({bad.verdict}, kBefore, kAfter);
  bench.finish(run);
}

// Memory that is registered and gone: of the request's source or landing, of a WRITE's target, of a READ's
// source.
void run_memory_gone(Run& run) {
  Random draw(run.seed);
  Bench bench(run.seed);
  const bool is_local = draw.one_in(2);
  SendSpec spec = random_write(draw);
  spec.opcode = draw.pick({WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead});
  bench.post(spec, kBefore);
  bench.run_sends();
  const bool is_read = spec.opcode == WrOpcode::kRdmaRead;
  Arena& local = bench.a().arena();
  Region& gone = !is_local ? bench.b().arena().target.region()
                 : is_read ? local.landing.region()
                           : local.source.region();
  gone.is_faulty = true;
  bench.a().ledger().allow_send_errors(
      {WcStatus::kLocProtErr, WcStatus::kLocQpOpErr, WcStatus::kRemOpErr, WcStatus::kRemAccessErr});
  bench.post(spec, 1 + kAfter);
  bench.run_sends();
  if (is_local)
    bench.require_send_error({WcStatus::kLocProtErr, WcStatus::kLocQpOpErr}, kBefore, kAfter);
  else
    bench.require_send_error({WcStatus::kRemOpErr, WcStatus::kRemAccessErr}, kBefore, kAfter);
  bench.finish(run);
}

constexpr Scenario kScenarios[] = {
    {"dead_link", "no answer: kRetryExcErr after the right time, the rest flushed", run_dead_link},
    {"receiver_never_ready", "kRnrRetryExcErr after rnr_retry + 1 NAKs", run_receiver_never_ready},
    {"receiver_late", "rnr_retry 7 waits for ever", run_receiver_late},
    {"remote_access", "bad key, bounds, access or permission at the responder", run_remote_access},
    {"zero_length_unchecked", "no bytes, no check of key and address", run_zero_length_unchecked},
    {"local_protection", "a bad local key of a request", run_local_protection},
    {"receive_protection", "a bad local key of a receive", run_receive_protection},
    {"send_too_long", "a SEND larger than its receive", run_send_too_long},
    {"bad_request", "a request with a verdict", run_bad_request},
    {"memory_gone", "memory that faults on either side", run_memory_gone},
};

}  // namespace

std::span<const Scenario> failure_scenarios() { return kScenarios; }

}  // namespace urdma::sim
