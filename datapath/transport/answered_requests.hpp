// The READs and atomics that a requester may still ask for again: as many as it may have outstanding
// (IBTA 9.4.7, 9.7.5.1.2). A duplicate READ is read again, a duplicate atomic is answered from here.
//
// Owner: a Responder. One thread at a time. Allocated by reserve(); the newest overwrites the oldest.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "urdma/base/ids.hpp"

namespace urdma::transport {

struct AnsweredRequest {
  Psn first_psn;
  std::uint32_t packets = 0;  // of the response; 0: the entry is empty
  bool is_atomic = false;
  bool has_original = false;  // an atomic that has been carried out
  std::uint64_t original = 0;

  [[nodiscard]] bool covers(Psn psn) const {
    const std::int32_t offset = psn.distance_from(first_psn);
    return offset >= 0 && static_cast<std::uint32_t>(offset) < packets;
  }
};

class AnsweredRequests {
 public:
  AnsweredRequests() { reserve(1); }
  // Sees to room for as many. Those that are there stay.
  void reserve(std::uint32_t max_dest_rd_atomic) {
    if (max_dest_rd_atomic <= count_) return;
    auto slots = std::make_unique<AnsweredRequest[]>(max_dest_rd_atomic);
    for (std::uint32_t i = 0; i < count_; ++i) slots[i] = slots_[(next_ + i) % count_];
    slots_ = std::move(slots);
    next_ = count_;
    count_ = max_dest_rd_atomic;
  }

  void add(const AnsweredRequest& request) {
    slots_[next_] = request;
    next_ = (next_ + 1) % count_;
  }
  // The one whose response has this PSN; null if it is not there any more. From the newest: an atomic that
  // has just been carried out is looked for by each answer.
  [[nodiscard]] AnsweredRequest* find(Psn psn) {
    std::uint32_t at = next_;
    for (std::uint32_t i = 0; i < count_; ++i) {
      at = (at == 0 ? count_ : at) - 1;
      if (slots_[at].covers(psn)) return &slots_[at];
    }
    return nullptr;
  }
  void clear() { std::fill_n(slots_.get(), count_, AnsweredRequest{}); }

 private:
  std::uint32_t count_ = 0;
  std::uint32_t next_ = 0;
  std::unique_ptr<AnsweredRequest[]> slots_;
};

}  // namespace urdma::transport
