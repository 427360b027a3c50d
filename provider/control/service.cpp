// The service thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/control/service.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstdint>

#include "provider/control/session.hpp"
#include "provider/memory/signals_blocked.hpp"

namespace urdma::provider {

Service& Service::instance() {
  static auto* const service = new Service;
  return *service;
}

Service::Service() : wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  ::pthread_atfork(&Service::before_fork, &Service::after_fork_in_parent, &Service::after_fork_in_child);
}

void Service::add(Session& session) {
  const std::lock_guard lock(mutex_);
  sessions_.push_back(&session);
  if (!is_running_) start();
  wake();
}

void Service::remove(Session& session) {
  const std::lock_guard lock(mutex_);
  std::erase(sessions_, &session);
  wake();
}

void Service::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_.get(), &one, sizeof(one));
}

void Service::start() {
  const SignalsBlocked blocked;  // which the thread inherits
  pthread_t thread;
  auto body = [](void* service) -> void* {
    static_cast<Service*>(service)->run();
    return nullptr;
  };
  if (::pthread_create(&thread, nullptr, body, this) == 0) {
    is_running_ = true;
    ::pthread_setname_np(thread, "urdma-service");
    ::pthread_detach(thread);
  }
}

void Service::run() {
  for (;;) serve_once();
}

void Service::serve_once() {
  std::vector<pollfd> waits;
  {
    const std::lock_guard lock(mutex_);
    waits.push_back({wake_fd_.get(), POLLIN, 0});
    for (const Session* session : sessions_)
      if (!session->liveness().is_gone()) waits.push_back({session->upcall_fd(), POLLIN, 0});
  }
  if (::poll(waits.data(), waits.size(), -1) <= 0) return;
  if (waits[0].revents != 0) {
    std::uint64_t count;
    [[maybe_unused]] const ssize_t got = ::read(wake_fd_.get(), &count, sizeof(count));
  }
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 1; i < waits.size(); ++i) {
    if (waits[i].revents == 0) continue;
    // The session may have gone meanwhile, and its number may be another's now: that one then finds
    // nothing to read, which is no harm.
    const auto found = std::find_if(sessions_.begin(), sessions_.end(), [&](const Session* session) {
      return session->upcall_fd() == waits[i].fd;
    });
    if (found != sessions_.end()) (*found)->on_upcall_readable();
  }
}

void Service::before_fork() { instance().mutex_.lock(); }

void Service::after_fork_in_parent() { instance().mutex_.unlock(); }

void Service::after_fork_in_child() {
  Service& service = instance();
  for (Session* session : service.sessions_) session->become_inherited();
  service.sessions_.clear();
  service.is_running_ = false;
  // The parent's eventfd is shared with it: waking ourselves would wake the parent's thread.
  service.wake_fd_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  service.mutex_.unlock();
}

}  // namespace urdma::provider
