// The daemon's end of a program's completion channel or async event descriptor: a pipe that the program
// made. The kernel copies to a pipe's reader under the pipe's lock, and a reader can withhold the memory
// that is copied to: so nothing that takes this lock (open, write, close) is done on an engine or the control
// thread. Writes are made by the program's own copier, which it may hold up as it likes.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "datapath/memory/copier.hpp"
#include "urdma/base/result.hpp"

namespace urdma::engine {

// The daemon's descriptor of such a pipe, shared by all channels into it. One thread at a time writes: a
// copier does its jobs one by one.
class EventPipe {
 public:
  // For the pipe behind `descriptor`, which stays the caller's. It is opened anew at the first write, for
  // writing without blocking, so that the program cannot change the flags. EINVAL if it is no pipe. Control
  // thread.
  [[nodiscard]] static Result<std::shared_ptr<EventPipe>> open(int descriptor);
  ~EventPipe();
  EventPipe(const EventPipe&) = delete;
  EventPipe& operator=(const EventPipe&) = delete;

  // False when the pipe is full. A pipe without a reader takes everything.
  [[nodiscard]] bool write(std::span<const std::byte> event);

 private:
  explicit EventPipe(int passed) : passed_(passed) {}

  int passed_;     // as it came from the program, until it has been opened anew
  int pipe_ = -1;  // opened anew
};

class EventChannel {
 public:
  static constexpr std::size_t kMostBytes = 16;  // of an event

  EventChannel() = default;
  explicit EventChannel(std::shared_ptr<EventPipe> pipe);

  // Into a pipe of its own, as EventPipe::open.
  [[nodiscard]] static Result<EventChannel> open(int descriptor);
  // Has writes made by `copier`, which outlives the channel's use, and is that of all channels into the pipe.
  // Before the first write. Without it they are made by the caller.
  void carry_by(memory::Copier& copier);

  [[nodiscard]] bool is_open() const { return state_ != nullptr; }
  // True once the event has been written. False when the pipe is full or the write is under way: call again
  // later with the same event. A pipe without a reader takes everything. One engine at a time, whose lane of
  // the copier is used.
  [[nodiscard]] bool write(std::span<const std::byte> event, std::uint32_t lane = 0);
  // A write is with the copier. Engine.
  [[nodiscard]] bool is_busy() const;
  // A copier is done with a job of kind kCall that a channel, perhaps gone by now, has submitted. The engine
  // of the job's lane, whatever others do.
  static void finish(memory::CopyJob& job);

 private:
  struct State;
  std::shared_ptr<State> state_;  // the copier's, too, while it writes
};

}  // namespace urdma::engine
