// The pipes that carry events to the program.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/control/event_pipe.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

namespace urdma::provider {

namespace {

UniqueFd reopen(int fd, int flags) {
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  return UniqueFd(::open(path, flags | O_CLOEXEC));
}

// Everything that stands in the pipe now.
std::vector<std::byte> read_all(int fd, std::size_t event_bytes) {
  std::vector<std::byte> events;
  std::vector<std::byte> chunk(event_bytes * 512);
  for (;;) {
    const ssize_t got = ::read(fd, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return events;
    events.insert(events.end(), chunk.begin(), chunk.begin() + got);
  }
}

bool write_whole(int fd, std::span<const std::byte> event) {
  ssize_t written;
  do {
    written = ::write(fd, event.data(), event.size());
  } while (written < 0 && errno == EINTR);
  return written == static_cast<ssize_t>(event.size());
}

// The daemon may have filled the room of the events that were taken out: an event that is lost leaves a
// program asleep for ever, so the pipe is made larger then.
void write_back(int fd, std::span<const std::byte> event) {
  if (write_whole(fd, event)) return;
  const int room = ::fcntl(fd, F_GETPIPE_SZ);
  if (room <= 0 || ::fcntl(fd, F_SETPIPE_SZ, room * 2) < 0 || !write_whole(fd, event))
    std::fputs("urdma: an event was lost, since its channel is full and cannot grow\n", stderr);
}

}  // namespace

UniqueFd make_event_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return UniqueFd();
  const UniqueFd read_end(ends[0]);
  const UniqueFd write_end(ends[1]);
  return reopen(read_end.get(), O_RDWR);
}

bool write_event(int fd, std::span<const std::byte> event) {
  const UniqueFd pipe = reopen(fd, O_RDWR | O_NONBLOCK);
  return pipe.is_open() && write_whole(pipe.get(), event);
}

void remove_events(int fd, std::size_t event_bytes, std::uint64_t object) {
  const UniqueFd pipe = reopen(fd, O_RDWR | O_NONBLOCK);
  if (!pipe.is_open()) return;
  const std::vector<std::byte> events = read_all(pipe.get(), event_bytes);
  for (std::size_t at = 0; at + event_bytes <= events.size(); at += event_bytes) {
    std::uint64_t owner;
    std::memcpy(&owner, events.data() + at, sizeof(owner));
    if (owner != object) write_back(pipe.get(), std::span(events).subspan(at, event_bytes));
  }
}

}  // namespace urdma::provider
