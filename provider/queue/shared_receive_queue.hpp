// A shared receive queue, the client's side: a ring of receive requests that the engine takes from for any of
// the QPs that use it. A slot is free again as soon as the engine has taken it.
//
// All methods are thread-safe.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "provider/control/mapping.hpp"
#include "urdma/abi/control.hpp"
#include "urdma/abi/queues.hpp"
#include "urdma/base/unique_fd.hpp"

namespace urdma::provider {

class SharedReceiveQueue {
 public:
  // Whether a reply's geometry lies within its memory, and holds what it grants.
  [[nodiscard]] static bool is_sound(const abi::CreateSrqReply& reply);

  // `memory` is laid out as `reply` says, which has been checked by is_sound(). `cookie` comes back in the
  // completions.
  SharedReceiveQueue(Mapping memory, const abi::CreateSrqReply& reply, std::uint32_t cookie);

  [[nodiscard]] std::uint32_t cookie() const { return cookie_; }

  // As ibv_post_srq_recv: 0 or a positive errno, with `*bad` the first request that was not taken.
  [[nodiscard]] int post(ibv_recv_wr* list, ibv_recv_wr** bad);

  // Goes over to another ring. `request` asks the daemon for it: int(CreateSrqReply&, vector<UniqueFd>&), 0
  // or a positive errno. Nothing is posted meanwhile. 0 or a positive errno.
  template <typename Request>
  [[nodiscard]] int resize(Request&& request) {
    const std::lock_guard lock(mutex_);
    abi::CreateSrqReply reply{};
    std::vector<UniqueFd> fds;
    const int error = request(reply, fds);
    return error != 0 ? error : take_over(reply, fds);
  }

 private:
  [[nodiscard]] int post_one(const ibv_recv_wr& request);
  [[nodiscard]] int take_over(const abi::CreateSrqReply& reply, const std::vector<UniqueFd>& fds);
  [[nodiscard]] abi::SrqPage& page() const { return *reinterpret_cast<abi::SrqPage*>(memory_.data()); }

  const std::uint32_t cookie_;
  std::mutex mutex_;
  Mapping memory_;  // guarded, and all below
  abi::CreateSrqReply shape_;
  std::uint32_t head_ = 0;      // the next slot to write
  std::uint32_t consumer_ = 0;  // a copy of the page's, refreshed when the ring looks full
};

}  // namespace urdma::provider
