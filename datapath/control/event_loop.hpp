// The control thread's loop: descriptors with what to do when they are readable, over one epoll.
// Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "urdma/base/result.hpp"
#include "urdma/base/time.hpp"
#include "urdma/base/unique_fd.hpp"

namespace urdma::control {

class EventLoop {
 public:
  // Called with the epoll events. It may add and remove any descriptor, its own too.
  using Handler = std::function<void(std::uint32_t events)>;

  [[nodiscard]] static Result<std::unique_ptr<EventLoop>> create();

  // `fd` stays the caller's, who removes it before closing it. Watches for EPOLLIN, hang-ups and errors.
  [[nodiscard]] Status add(int fd, Handler handler);
  void remove(int fd);
  // Waits until something is ready or `deadline` has come, and calls the handlers of what is ready.
  void run_once(Instant deadline);

 private:
  explicit EventLoop(UniqueFd epoll) : epoll_(std::move(epoll)) {}

  UniqueFd epoll_;
  std::unordered_map<int, std::shared_ptr<Handler>> handlers_;
};

// The clock of the control thread: CLOCK_MONOTONIC.
[[nodiscard]] Instant monotonic_now();

}  // namespace urdma::control
