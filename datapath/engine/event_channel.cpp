// The daemon's end of a program's event pipes.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/event_channel.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "urdma/base/check.hpp"

namespace urdma::engine {

namespace {

void close_both(int first, int second) {
  if (first >= 0) ::close(first);
  if (second >= 0) ::close(second);
}

}  // namespace

Result<std::shared_ptr<EventPipe>> EventPipe::open(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISFIFO(status.st_mode)) {
    return fail(EINVAL, "the event channel of the client is not a pipe");
  }
  const int passed = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (passed < 0) return fail_errno(errno, "cannot keep the event channel of the client");
  return std::shared_ptr<EventPipe>(new EventPipe(passed));
}

EventPipe::~EventPipe() {
  if (passed_ < 0 && pipe_ < 0) return;
  // On a thread of its own, since it may take as long as the program likes.
  try {
    std::thread([first = passed_, second = pipe_] { close_both(first, second); }).detach();
  } catch (const std::system_error&) {
    // There is no thread to be had: better a descriptor that stays open than an engine that waits.
  }
}

bool EventPipe::write(std::span<const std::byte> event) {
  if (pipe_ < 0) {
    const std::string path = "/proc/self/fd/" + std::to_string(passed_);
    pipe_ = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (pipe_ < 0) return errno != EAGAIN && errno != EINTR;  // no reader: nobody waits for events
    ::close(std::exchange(passed_, -1));
  }
  const ssize_t written = ::write(pipe_, event.data(), event.size());
  return written >= 0 || errno != EAGAIN;
}

struct EventChannel::State {
  explicit State(std::shared_ptr<EventPipe> into) : pipe(std::move(into)) {}

  std::shared_ptr<EventPipe> pipe;
  std::array<std::byte, kMostBytes> event{};
  std::size_t event_bytes = 0;
  memory::Copier* copier = nullptr;
  memory::CopyJob job;
  std::atomic<bool> is_busy{false};  // the copier has the job; what follows is then its submitter's
  bool is_done = false;              // and has given it back
  bool was_full = false;
  std::shared_ptr<State> held;  // itself, while the copier has it

  // False when the pipe is full.
  bool perform() { return pipe->write(std::span(event).first(event_bytes)); }

  static bool perform_call(void* state) { return static_cast<State*>(state)->perform(); }

  [[nodiscard]] bool holds(std::span<const std::byte> other) const {
    return event_bytes == other.size() && std::equal(other.begin(), other.end(), event.begin());
  }

  void keep(std::span<const std::byte> other) {
    std::copy(other.begin(), other.end(), event.begin());
    event_bytes = other.size();
  }
};

EventChannel::EventChannel(std::shared_ptr<EventPipe> pipe)
    : state_(std::make_shared<State>(std::move(pipe))) {}

Result<EventChannel> EventChannel::open(int descriptor) {
  auto pipe = EventPipe::open(descriptor);
  if (!pipe) return tl::make_unexpected(pipe.error());
  return EventChannel(std::move(*pipe));
}

void EventChannel::carry_by(memory::Copier& copier) {
  if (state_ != nullptr) state_->copier = &copier;
}

bool EventChannel::is_busy() const {
  return state_ != nullptr && state_->is_busy.load(std::memory_order_acquire);
}

bool EventChannel::write(std::span<const std::byte> event, std::uint32_t lane) {
  if (state_ == nullptr) return true;
  URDMA_CHECK(event.size() <= kMostBytes);
  State& state = *state_;
  if (state.copier == nullptr) {
    state.keep(event);
    return state.perform();
  }
  if (state.is_busy.load(std::memory_order_acquire)) return false;  // pairs with finish()
  // What was written may be the event of an object that is gone: then this one still has its turn to come.
  const bool is_written = std::exchange(state.is_done, false) && !state.was_full && state.holds(event);
  if (is_written) return true;
  state.keep(event);
  state.is_busy.store(true, std::memory_order_relaxed);
  state.held = state_;
  state.job.kind = memory::CopyJob::Kind::kCall;
  state.job.call = State::perform_call;
  state.job.owner = &state;
  state.copier->submit(state.job, lane);
  return false;
}

void EventChannel::finish(memory::CopyJob& job) {
  State& state = *static_cast<State*>(job.owner);
  const std::shared_ptr<State> last = std::move(state.held);
  state.is_done = true;
  state.was_full = job.failed;
  state.is_busy.store(false, std::memory_order_release);  // last: another engine may write again now
}

}  // namespace urdma::engine
