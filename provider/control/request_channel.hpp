// The request connection of a context: one request, then its reply.
//
// Any thread; calls are serialised. A call blocks until the daemon answers or is gone.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "provider/control/liveness.hpp"
#include "urdma/abi/client.hpp"
#include "urdma/abi/control.hpp"
#include "urdma/base/unique_fd.hpp"

namespace urdma::provider {

class RequestChannel {
 public:
  explicit RequestChannel(Liveness& liveness) : liveness_(liveness) {}

  void attach(UniqueFd socket) { socket_ = std::move(socket); }
  [[nodiscard]] UniqueFd detach() { return std::move(socket_); }
  // For a child that inherited the connection by fork: it must never speak on it.
  void abandon() { socket_.reset(); }

  // Returns 0 or a positive errno: the daemon's, or EIO once it is gone. `reply_fds` may be null where
  // the reply has none.
  template <typename Request, typename Reply>
  [[nodiscard]] int call(abi::MessageType type, const Request& request, Reply& reply,
                         std::span<const int> fds = {}, std::vector<UniqueFd>* reply_fds = nullptr) {
    return exchange(type, abi::bytes_of(request), fds, std::as_writable_bytes(std::span<Reply, 1>(&reply, 1)),
                    reply_fds);
  }
  // A request whose reply has no body.
  template <typename Request>
  [[nodiscard]] int call(abi::MessageType type, const Request& request) {
    return exchange(type, abi::bytes_of(request), {}, {}, nullptr);
  }

 private:
  int exchange(abi::MessageType type, std::span<const std::byte> request, std::span<const int> fds,
               std::span<std::byte> reply, std::vector<UniqueFd>* reply_fds);

  Liveness& liveness_;
  std::mutex mutex_;
  UniqueFd socket_;             // guarded by mutex_ after attach()
  std::uint64_t sequence_ = 0;  // guarded by mutex_
};

// Prints the daemon's reason for a failed request, if the person asked for it (URDMA_LOG).
void log_refusal(abi::MessageType type, const abi::Received& reply);

}  // namespace urdma::provider
