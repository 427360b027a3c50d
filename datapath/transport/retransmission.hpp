// When a requester sends again, and when it gives up: the ACK timer, the RNR timer, and the retry
// counters (IBTA 9.7.6.1.3, 9.7.5.2.8). It says that something is to be sent again, and never what.
//
// Owner: a Requester. One thread at a time. Time is an argument.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstdint>

#include "urdma/base/time.hpp"

namespace urdma::transport {

enum class Timer : std::uint8_t { kAck, kRnr };

// When each timer is due.
class Deadlines {
 public:
  void set(Timer timer, Instant at) { at_[index(timer)] = at; }
  void stop(Timer timer) { at_[index(timer)] = Instant::never(); }
  [[nodiscard]] bool is_running(Timer timer) const { return !at_[index(timer)].is_never(); }
  // Whether the timer has run out; if so it is stopped.
  [[nodiscard]] bool take_expired(Timer timer, Instant now);
  [[nodiscard]] Instant next_deadline() const { return earlier(at_[0], at_[1]); }

 private:
  static constexpr std::size_t index(Timer timer) { return static_cast<std::size_t>(timer); }
  std::array<Instant, 2> at_ = {Instant::never(), Instant::never()};
};

inline constexpr std::uint8_t kMaxTimerCode = 31;
inline constexpr std::uint8_t kMaxRetryCount = 7;
inline constexpr std::uint8_t kRnrRetryForEver = 7;

// 4.096 us x 2^code; code 0 means that the timer never runs.
[[nodiscard]] Duration ack_timeout(std::uint8_t code);
// What an RNR NAK with this code asks to wait (IBTA table 45). `code` is at most 31.
[[nodiscard]] Duration rnr_delay(std::uint8_t code);

class Retransmission {
 public:
  // ---- Getters ----
  [[nodiscard]] Instant next_deadline() const { return deadlines_.next_deadline(); }
  // Whether the receiver was not ready, and its wait is not over: nothing is sent.
  [[nodiscard]] bool is_waiting_for_receiver() const { return deadlines_.is_running(Timer::kRnr); }

  // ---- Commands ----
  // `timeout` is a code; retry counts are 0 to 7. Counters that are running keep what they have used.
  void configure(std::uint8_t timeout, std::uint8_t retry_count, std::uint8_t rnr_retry);
  // Stops both timers.
  void stop();
  // Stops both timers and forgets what was used of the counters.
  void reset();

  // ---- Input ----
  // Something that has to be acknowledged was sent.
  void on_sent(Instant now);
  // Something was acknowledged for the first time. `is_outstanding`: something else still is.
  void on_progress(bool is_outstanding, Instant now);
  // A NAK for a sequence error. `made_progress` when it acknowledged something; else it counts as a retry,
  // but each of the `packets_in_flight` at that time may cause one more that does not count: they may have
  // been under way out of order. False: give up.
  [[nodiscard]] bool on_sequence_nak(bool made_progress, std::uint32_t packets_in_flight);
  // An RNR NAK with timer `code`. False: give up.
  [[nodiscard]] bool on_rnr_nak(std::uint8_t code, Instant now);

  enum class Expiry : std::uint8_t { kNone, kSendAgain, kResume, kGiveUp };
  // kSendAgain: the ACK timer ran out. kResume: the wait for the receiver is over.
  [[nodiscard]] Expiry on_deadline(Instant now);

 private:
  [[nodiscard]] bool take_retry();

  Deadlines deadlines_;
  Duration timeout_{};
  std::uint8_t retry_count_ = 0;
  std::uint8_t rnr_retry_ = 0;
  std::uint8_t retries_used_ = 0;
  std::uint8_t rnr_retries_used_ = 0;
  std::uint32_t uncounted_naks_ = 0;
};

}  // namespace urdma::transport
