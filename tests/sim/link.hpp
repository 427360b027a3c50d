// One direction of a faulty link on the virtual clock: it loses, duplicates, corrupts, delays and
// reorders frames, and has a bandwidth and a queue. Also the pool of frames that all links share.
//
// Owner: a World. Frames that come out are those that went in, but for the faults asked for.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "tests/sim/random.hpp"
#include "urdma/base/time.hpp"
#include "urdma/wire/headers.hpp"

namespace urdma::sim {

// A frame on its way: whole bytes from Ethernet to ICRC, or, on a link inside a node, decoded headers and
// the payload.
struct Frame {
  Instant arrival;
  bool is_encoded = false;
  wire::Headers headers;
  std::uint32_t size = 0;
  std::vector<std::uint8_t> bytes;  // at least `size`; grows, and never shrinks

  [[nodiscard]] std::span<std::uint8_t> content() { return std::span(bytes).first(size); }
  void resize(std::size_t wanted) {
    if (bytes.size() < wanted) bytes.resize(wanted);
    size = static_cast<std::uint32_t>(wanted);
  }
};

using FramePtr = std::unique_ptr<Frame>;

class FramePool {
 public:
  [[nodiscard]] FramePtr take();
  void give(FramePtr frame);
  [[nodiscard]] std::uint64_t frames_out() const { return out_; }

 private:
  std::vector<FramePtr> free_;
  std::uint64_t out_ = 0;
};

struct LinkConfig {
  std::uint32_t loss_ppm = 0;
  std::uint32_t duplicate_ppm = 0;
  std::uint32_t corrupt_ppm = 0;
  std::uint32_t reorder_ppm = 0;
  std::uint32_t reorder_packets = 1;  // a frame is overtaken by at most this many
  Duration delay = microseconds(5);
  Duration jitter = nanoseconds(0);           // added to the delay, without reordering
  std::uint64_t bytes_per_us = 0;             // of the sender's port, which waits; 0: no limit
  std::uint64_t bottleneck_bytes_per_us = 0;  // of a switch behind it, which drops; 0: none
  std::uint64_t queue_bytes = 0;              // that the switch holds
};

struct LinkStats {
  std::uint64_t sent = 0;
  std::uint64_t lost = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t reordered = 0;
  std::uint64_t overflowed = 0;
  std::uint64_t delivered = 0;
};

class Link {
 public:
  Link(const LinkConfig& config, FramePool& pool, Random& random)
      : config_(config), pool_(pool), random_(random) {}

  // From now on no frame is lost, duplicated, corrupted or reordered.
  void stop_faults();
  // From now on every frame is lost, or none but by chance.
  void set_dead(bool dead) { is_dead_ = dead; }

  // When the port takes another frame: `now` or later.
  [[nodiscard]] Instant ready_at(Instant now) const;
  void send(FramePtr frame, Instant now);
  [[nodiscard]] Instant next_arrival() const;
  // The oldest frame that has arrived at `now`; empty if there is none.
  [[nodiscard]] FramePtr receive(Instant now);
  [[nodiscard]] const LinkStats& stats() const { return stats_; }

 private:
  struct Held {
    FramePtr frame;
    std::uint64_t overtaken_by = 0;  // frames that still may pass it
  };

  void queue(FramePtr frame, Instant departure);
  void release_held();
  [[nodiscard]] bool overflows(std::uint64_t bytes, Instant departure);
  void corrupt(Frame& frame);
  [[nodiscard]] FramePtr copy(const Frame& frame);

  LinkConfig config_;
  FramePool& pool_;
  Random& random_;
  bool is_dead_ = false;
  Instant port_free_;
  Instant bottleneck_free_;
  Instant last_arrival_;
  std::deque<FramePtr> flying_;
  std::vector<Held> held_;
  LinkStats stats_;
};

}  // namespace urdma::sim
