// The control thread's loop (see event_loop.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/event_loop.hpp"

#include <sys/epoll.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <utility>

namespace urdma::control {
namespace {

constexpr int kMaxEvents = 32;
constexpr std::int64_t kMaxWaitMs = 60'000;

int wait_ms(Instant deadline) {
  if (deadline.is_never()) return -1;
  const std::int64_t left_ns = (deadline - monotonic_now()).ns;
  return static_cast<int>(std::clamp<std::int64_t>((left_ns + 999'999) / 1'000'000, 0, kMaxWaitMs));
}

}  // namespace

Instant monotonic_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return {now.tv_sec * 1'000'000'000 + now.tv_nsec};
}

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.is_open()) return fail_errno(errno, "cannot make an epoll descriptor");
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll)));
}

Status EventLoop::add(int fd, Handler handler) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return fail_errno(errno, "cannot watch a descriptor");
  handlers_[fd] = std::make_shared<Handler>(std::move(handler));
  return {};
}

void EventLoop::remove(int fd) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  handlers_.erase(fd);
}

void EventLoop::run_once(Instant deadline) {
  std::array<epoll_event, kMaxEvents> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), kMaxEvents, wait_ms(deadline));
  std::array<std::pair<std::shared_ptr<Handler>, std::uint32_t>, kMaxEvents> ready;
  for (int i = 0; i < count; ++i) {
    const auto& event = events[static_cast<std::size_t>(i)];
    const auto found = handlers_.find(event.data.fd);
    if (found != handlers_.end()) ready[static_cast<std::size_t>(i)] = {found->second, event.events};
  }
  for (int i = 0; i < count; ++i) {
    auto& [handler, what] = ready[static_cast<std::size_t>(i)];
    // The only other owner is the table: a handler that another one has removed is not called any more.
    if (handler && handler.use_count() > 1) (*handler)(what);
  }
}

}  // namespace urdma::control
