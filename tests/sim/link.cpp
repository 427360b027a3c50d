// One direction of a faulty link. See link.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/link.hpp"

#include <algorithm>

namespace urdma::sim {

namespace {

constexpr std::size_t kMostHeld = 4;
constexpr Duration kPortBacklog = microseconds(2);  // what a port holds before it makes its sender wait
constexpr Duration kLongestHold = microseconds(100);
constexpr std::uint64_t kNsPerUs = 1000;

Duration transfer_time(std::uint64_t bytes, std::uint64_t bytes_per_us) {
  if (bytes_per_us == 0) return {0};
  return nanoseconds(static_cast<std::int64_t>(bytes * kNsPerUs / bytes_per_us));
}

}  // namespace

FramePtr FramePool::take() {
  ++out_;
  if (free_.empty()) return std::make_unique<Frame>();
  FramePtr frame = std::move(free_.back());
  free_.pop_back();
  return frame;
}

void FramePool::give(FramePtr frame) {
  --out_;
  free_.push_back(std::move(frame));
}

void Link::stop_faults() {
  config_.loss_ppm = 0;
  config_.duplicate_ppm = 0;
  config_.corrupt_ppm = 0;
  config_.reorder_ppm = 0;
  config_.bottleneck_bytes_per_us = 0;
  is_dead_ = false;
}

Instant Link::ready_at(Instant now) const { return std::max(now, Instant{port_free_.ns - kPortBacklog.ns}); }

FramePtr Link::copy(const Frame& frame) {
  FramePtr twin = pool_.take();
  twin->is_encoded = frame.is_encoded;
  twin->headers = frame.headers;
  twin->resize(frame.size);
  std::copy_n(frame.bytes.begin(), frame.size, twin->bytes.begin());
  return twin;
}

// Up to three single bits, or one burst of at most 32: what a CRC-32 is certain to detect at these lengths.
// The fields that a router may change are not under the ICRC, and are as good as any other.
void Link::corrupt(Frame& frame) {
  const std::uint64_t bits = std::uint64_t{frame.size} * 8;
  if (random_.one_in(2)) {
    for (std::uint64_t left = random_.between(1, 3); left > 0; --left) {
      const std::uint64_t bit = random_.below(bits);
      frame.bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    }
    return;
  }
  const std::uint64_t first = random_.below(frame.size - 3U);
  for (std::uint64_t i = first; i < first + 4; ++i)
    frame.bytes[i] ^= static_cast<std::uint8_t>(random_.below(256));
}

bool Link::overflows(std::uint64_t bytes, Instant departure) {
  if (config_.bottleneck_bytes_per_us == 0) return false;
  const Instant start = std::max(departure, bottleneck_free_);
  const auto waiting_us = static_cast<std::uint64_t>((start - departure).ns) / kNsPerUs;
  if (waiting_us * config_.bottleneck_bytes_per_us > config_.queue_bytes) return true;
  bottleneck_free_ = start + transfer_time(bytes, config_.bottleneck_bytes_per_us);
  return false;
}

void Link::send(FramePtr frame, Instant now) {
  ++stats_.sent;
  port_free_ = std::max(port_free_, now) + transfer_time(frame->size, config_.bytes_per_us);
  const Instant departure = port_free_;
  if (is_dead_ || random_.chance(config_.loss_ppm)) {
    ++stats_.lost;
    return pool_.give(std::move(frame));
  }
  if (overflows(frame->size, departure)) {
    ++stats_.overflowed;
    return pool_.give(std::move(frame));
  }
  FramePtr twin;
  if (random_.chance(config_.duplicate_ppm)) {
    ++stats_.duplicated;
    twin = copy(*frame);
  }
  if (random_.chance(config_.corrupt_ppm)) {
    ++stats_.corrupted;
    corrupt(*frame);
  }
  queue(std::move(frame), departure);
  if (twin) queue(std::move(twin), departure);
}

void Link::queue(FramePtr frame, Instant departure) {
  const Instant leaves =
      std::max(departure, config_.bottleneck_bytes_per_us == 0 ? departure : bottleneck_free_);
  const auto jitter = static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(config_.jitter.ns)));
  frame->arrival = std::max(leaves + config_.delay + nanoseconds(jitter), last_arrival_);
  if (held_.size() < kMostHeld && random_.chance(config_.reorder_ppm)) {
    ++stats_.reordered;
    frame->arrival = frame->arrival + kLongestHold;
    held_.push_back({std::move(frame), random_.between(1, config_.reorder_packets)});
    return;
  }
  last_arrival_ = frame->arrival;
  flying_.push_back(std::move(frame));
  release_held();
}

// A frame has passed the held ones: those that have been passed by enough follow it.
void Link::release_held() {
  for (auto held = held_.begin(); held != held_.end();) {
    if (--held->overtaken_by > 0) {
      ++held;
      continue;
    }
    held->frame->arrival = last_arrival_;
    flying_.push_back(std::move(held->frame));
    held = held_.erase(held);
  }
}

Instant Link::next_arrival() const {
  Instant next = flying_.empty() ? Instant::never() : flying_.front()->arrival;
  for (const Held& held : held_) next = earlier(next, held.frame->arrival);
  return next;
}

FramePtr Link::receive(Instant now) {
  FramePtr frame;
  if (!flying_.empty() && flying_.front()->arrival <= now) {
    frame = std::move(flying_.front());
    flying_.pop_front();
  } else {
    const auto due = std::find_if(held_.begin(), held_.end(),
                                  [now](const Held& held) { return held.frame->arrival <= now; });
    if (due == held_.end()) return nullptr;
    frame = std::move(due->frame);
    held_.erase(due);
  }
  ++stats_.delivered;
  return frame;
}

}  // namespace urdma::sim
