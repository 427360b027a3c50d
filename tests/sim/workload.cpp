// A random application at one endpoint. See workload.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace urdma::sim {

namespace {

constexpr std::array<WrOpcode, 8> kOpcodes = {
    WrOpcode::kRdmaWrite, WrOpcode::kRdmaWriteWithImm, WrOpcode::kSend,     WrOpcode::kSendWithImm,
    WrOpcode::kRdmaRead,  WrOpcode::kCompareSwap,      WrOpcode::kFetchAdd, WrOpcode::kSendWithInv};

bool can_be_inline(WrOpcode opcode) {
  return opcode != WrOpcode::kRdmaRead && opcode != WrOpcode::kCompareSwap && opcode != WrOpcode::kFetchAdd;
}

Duration random_pause(Random& random, Duration longest) {
  return nanoseconds(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(longest.ns) + 1)));
}

}  // namespace

Workload::Workload(World& world, Endpoint& endpoint, const WorkloadConfig& config)
    : random_(world.random()),
      endpoint_(endpoint),
      config_(config),
      next_burst_(world.now()),
      next_receive_(world.now()) {}

void Workload::act(Instant now) {
  if (endpoint_.qp().state() == QpState::kErr) return;
  post_receives(now);
  post_sends(now);
}

Instant Workload::next_wakeup() const {
  if (endpoint_.qp().state() == QpState::kErr) return Instant::never();
  Instant next = Instant::never();
  // A burst that waits for room is woken by the completion that makes it.
  if (posted_ < config_.requests && burst_left_ == 0) next = next_burst_;
  if (endpoint_.ledger().receives_open() < config_.receives_ahead && !is_waiting_for_receive_room_)
    next = earlier(next, next_receive_);
  return next;
}

bool Workload::is_done() const {
  if (endpoint_.qp().state() == QpState::kErr) return !endpoint_.ledger().awaits_send();
  return posted_ == config_.requests && endpoint_.ledger().sends_open() == 0;
}

std::string Workload::describe() const {
  const Ledger& ledger = endpoint_.ledger();
  return fmt::format("{} has posted {} of {}, {} are open, {} receives are open; next opcode {} of {} bytes",
                     ledger.name(), posted_, config_.requests, ledger.sends_open(), ledger.receives_open(),
                     static_cast<int>(spec_.opcode), spec_.length);
}

void Workload::post_receives(Instant now) {
  is_waiting_for_receive_room_ = false;
  while (now >= next_receive_ && endpoint_.ledger().receives_open() < config_.receives_ahead) {
    std::uint64_t capacity = config_.largest_message;
    auto pieces = random_.between32(1, config_.most_pieces);
    // Half of the receives are made to measure, where the message is known already.
    const ExpectedMessage* message = endpoint_.ledger().message_for_next_receive();
    if (message != nullptr && random_.one_in(2)) {
      capacity = message->opcode == WrOpcode::kRdmaWriteWithImm ? 0 : message->length;
      if (capacity == 0) pieces = random_.between32(0, 1);
    }
    if (!endpoint_.post_receive(capacity, pieces)) {
      is_waiting_for_receive_room_ = true;
      return;
    }
    if (random_.chance(config_.receive_late_ppm))
      next_receive_ = now + random_pause(random_, config_.longest_receive_pause);
  }
}

void Workload::post_sends(Instant now) {
  while (posted_ < config_.requests) {
    if (burst_left_ == 0) {
      if (now < next_burst_) return;
      burst_left_ = random_.between32(1, config_.most_burst);
    }
    if (!has_spec_) spec_ = draw();
    has_spec_ = true;
    mark_signaled(spec_);
    if (!endpoint_.post(spec_, now)) return;
    has_spec_ = false;
    const bool is_signaled = (spec_.flags & kSendSignaled) != 0;
    unsignaled_run_ = is_signaled ? 0 : unsignaled_run_ + 1;
    unsignaled_bytes_ = is_signaled ? 0 : unsignaled_bytes_ + endpoint_.ledger().last_open()->request.length;
    ++posted_;
    if (--burst_left_ == 0) next_burst_ = now + random_pause(random_, config_.longest_pause);
  }
}

// Slots and buffers are freed by completions only, so that one must come before half of them are gone, and at
// the end.
void Workload::mark_signaled(SendSpec& spec) {
  const std::uint32_t slots = endpoint_.config().qp.send_slots;
  const bool must = endpoint_.config().qp.signal_all || posted_ + 1 == config_.requests ||
                    unsignaled_run_ + 1 >= slots / 2 || unsignaled_bytes_ >= config_.largest_message;
  if (must) spec.flags |= kSendSignaled;
}

WrOpcode Workload::draw_opcode() {
  const std::uint32_t total = std::accumulate(config_.weights.begin(), config_.weights.end(), 0U);
  std::uint64_t ticket = random_.below(total);
  for (std::size_t i = 0; i < kOpcodes.size(); ++i) {
    if (ticket < config_.weights[i]) return kOpcodes[i];
    ticket -= config_.weights[i];
  }
  return WrOpcode::kSend;
}

// Sizes at the borders come up often: nothing, one byte, and a packet's size and its multiples, give or take
// one.
std::uint64_t Workload::draw_length() {
  if (config_.fixed_length != 0) return config_.fixed_length;
  const std::uint64_t packet = endpoint_.config().attributes.packet_bytes;
  const std::uint64_t largest = config_.largest_message;
  const std::uint64_t packets =
      random_.between(1, std::max<std::uint64_t>(1, std::min<std::uint64_t>(largest / packet, 8)));
  std::uint64_t length = 0;
  switch (random_.below(8)) {
    case 0:
      length = random_.pick<std::uint64_t>({0, 0, 1, 2, 3, 4, 7, 8});
      break;
    case 1:
      length = packet * packets - 1;
      break;
    case 2:
      length = packet * packets;
      break;
    case 3:
      length = packet * packets + 1;
      break;
    case 4:
      length = random_.between(0, largest);
      break;
    case 5:
      length = random_.between(0, packet * packets);
      break;
    default:
      length = random_.between(0, 256);
      break;
  }
  return std::min(length, largest);
}

SendSpec Workload::draw() {
  SendSpec spec;
  spec.opcode = draw_opcode();
  spec.length = draw_length();
  spec.pieces = random_.between32(1, config_.most_pieces);
  spec.flags = random_.chance(config_.signaled_ppm) ? kSendSignaled : std::uint8_t{0};
  if (spec.length == 0) spec.pieces = random_.between32(0, 1);
  if (!can_be_inline(spec.opcode) && spec.opcode != WrOpcode::kRdmaRead) spec.pieces = 1;
  if (random_.chance(config_.fence_ppm)) spec.flags |= kSendFence;
  if (random_.one_in(4)) spec.flags |= kSendSolicited;
  if (spec.length <= config_.inline_bytes && can_be_inline(spec.opcode) && random_.one_in(2))
    spec.flags |= kSendInline;
  spec.cas_matches = !random_.one_in(3);
  spec.to_shared_counter = random_.one_in(2);
  if (random_.chance(config_.follow_ppm) && config_.fixed_length == 0) {
    using Follow = SendSpec::Follow;
    spec.follow = spec.opcode == WrOpcode::kRdmaRead ? Follow::kReadBack
                                                     : random_.pick({Follow::kOverwrite, Follow::kForward});
  }
  return spec;
}

}  // namespace urdma::sim
