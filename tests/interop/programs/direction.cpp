// One direction of the relay's wire; see relay.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "relay.hpp"

namespace urdma::interop {

namespace {

constexpr std::size_t kEthernetBytes = 14;

}  // namespace

void Direction::pass(Packet packet, const Send& send) {
  if (!packet.is_roce()) {
    send(packet);
    return;
  }
  ++seen_;
  if (must_drop(packet)) {
    ++dropped_;
    return;
  }
  if (happens(impairment_.corrupt)) corrupt(packet);
  if (happens(impairment_.duplicate)) {
    ++duplicated_;
    forward(packet, send);
  }
  forward(std::move(packet), send);
}

bool Direction::must_drop(const Packet& packet) {
  unsigned& wanted = drops_[packet.frame()[packet.bth_offset()]];
  if (wanted > 0) {
    --wanted;
    return true;
  }
  return happens(impairment_.loss);
}

// One bit anywhere behind the Ethernet header.
void Direction::corrupt(Packet& packet) {
  ++corrupted_;
  const auto frame = packet.frame();
  const std::size_t bit = random_() % ((frame.size() - kEthernetBytes) * 8);
  frame[kEthernetBytes + bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
}

void Direction::forward(Packet packet, const Send& send) {
  if (happens(impairment_.reorder)) {
    ++reordered_;
    held_.push_back(
        {std::move(packet), 1 + static_cast<unsigned>(random_() % kReorderDistance), Clock::now()});
    return;
  }
  send(packet);
  count_overtaken(send);
}

void Direction::count_overtaken(const Send& send) {
  for (auto held = held_.begin(); held != held_.end();) {
    if (--held->to_overtake > 0) {
      ++held;
      continue;
    }
    send(held->packet);
    held = held_.erase(held);
  }
}

void Direction::release_old(const Send& send) {
  if (held_.empty()) return;
  const auto limit = Clock::now() - kHoldLimit;
  while (!held_.empty() && held_.front().since <= limit) {
    send(held_.front().packet);
    held_.pop_front();
  }
}

std::string Direction::stats() const {
  return "seen=" + std::to_string(seen_) + " dropped=" + std::to_string(dropped_) +
         " duplicated=" + std::to_string(duplicated_) + " corrupted=" + std::to_string(corrupted_) +
         " reordered=" + std::to_string(reordered_);
}

}  // namespace urdma::interop
