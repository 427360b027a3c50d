// The timers and retry counters of a requester; see the header.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/retransmission.hpp"

#include "urdma/base/check.hpp"

namespace urdma::transport {

namespace {

// IBTA table 45, in units of 10 us.
constexpr std::array<std::uint32_t, 32> kRnrDelays = {
    65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
    256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

}  // namespace

bool Deadlines::take_expired(Timer timer, Instant now) {
  if (!is_running(timer) || at_[index(timer)] > now) return false;
  stop(timer);
  return true;
}

Duration ack_timeout(std::uint8_t code) {
  if (code == 0) return {};
  return nanoseconds(std::int64_t{4096} << code);
}

Duration rnr_delay(std::uint8_t code) {
  URDMA_CHECK(code < kRnrDelays.size());
  return microseconds(std::int64_t{kRnrDelays[code]} * 10);
}

void Retransmission::configure(std::uint8_t timeout, std::uint8_t retry_count, std::uint8_t rnr_retry) {
  timeout_ = ack_timeout(timeout);
  retry_count_ = retry_count;
  rnr_retry_ = rnr_retry;
}

void Retransmission::stop() {
  deadlines_.stop(Timer::kAck);
  deadlines_.stop(Timer::kRnr);
}

void Retransmission::reset() {
  stop();
  retries_used_ = 0;
  rnr_retries_used_ = 0;
  uncounted_naks_ = 0;
}

void Retransmission::on_sent(Instant now) {
  if (timeout_ == Duration{} || deadlines_.is_running(Timer::kAck)) return;
  deadlines_.set(Timer::kAck, now + timeout_);
}

void Retransmission::on_progress(bool is_outstanding, Instant now) {
  reset();
  if (is_outstanding) on_sent(now);
}

bool Retransmission::on_sequence_nak(bool made_progress, std::uint32_t packets_in_flight) {
  if (made_progress) return true;
  if (uncounted_naks_ > 0) {
    --uncounted_naks_;
    return true;
  }
  uncounted_naks_ = packets_in_flight;
  return take_retry();
}

bool Retransmission::on_rnr_nak(std::uint8_t code, Instant now) {
  if (rnr_retry_ != kRnrRetryForEver) {
    if (rnr_retries_used_ >= rnr_retry_) return false;
    ++rnr_retries_used_;
  }
  // The peer is alive: what has been used up waiting for it does not count any more.
  retries_used_ = 0;
  deadlines_.stop(Timer::kAck);
  deadlines_.set(Timer::kRnr, now + rnr_delay(code));
  return true;
}

Retransmission::Expiry Retransmission::on_deadline(Instant now) {
  if (deadlines_.take_expired(Timer::kRnr, now)) return Expiry::kResume;
  if (!deadlines_.take_expired(Timer::kAck, now)) return Expiry::kNone;
  uncounted_naks_ = 0;
  return take_retry() ? Expiry::kSendAgain : Expiry::kGiveUp;
}

bool Retransmission::take_retry() {
  if (retries_used_ >= retry_count_) return false;
  ++retries_used_;
  return true;
}

}  // namespace urdma::transport
