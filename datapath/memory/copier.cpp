// The copier thread: jobs come by one intrusive stack and go by one for each lane. Each has one reader, which
// takes all of it at once and turns it round.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/copier.hpp"

#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "datapath/memory/bus_error.hpp"
#include "datapath/memory/realtime.hpp"

namespace urdma::memory {

namespace {

constexpr std::size_t kMostVectors = 64;   // of one system call
constexpr std::uint32_t kMostRun = 32;     // reads that become one call
constexpr std::uint32_t kMostUntold = 16;  // jobs that are done before the submitter is woken
constexpr std::int64_t kFirstPauseUs = 200;
constexpr std::int64_t kMostPauseUs = 10'000;
constexpr std::int64_t kPatienceUs = 500'000;

CopyJob* reversed(CopyJob* job) {
  CopyJob* first = nullptr;
  while (job != nullptr) {
    CopyJob* next = job->next;
    job->next = first;
    first = job;
    job = next;
  }
  return first;
}

void push(std::atomic<CopyJob*>& stack, CopyJob& job) {
  CopyJob* top = stack.load(std::memory_order_relaxed);
  do {
    job.next = top;
  } while (!stack.compare_exchange_weak(top, &job, std::memory_order_release, std::memory_order_relaxed));
}

// Moves exactly `length` bytes; false if the memory is not there.
bool move_exactly(int fd, bool write, std::byte* local, std::size_t length, std::uint64_t address) {
  while (length > 0) {
    const auto offset = static_cast<off_t>(address);
    const ssize_t moved = write ? ::pwrite(fd, local, length, offset) : ::pread(fd, local, length, offset);
    if (moved <= 0) return false;
    local += moved;
    length -= static_cast<std::size_t>(moved);
    address += static_cast<std::uint64_t>(moved);
  }
  return true;
}

// Segments from `first` that follow one another in the program, as one vector; returns how many.
std::size_t gather_run(std::span<const CopySegment> segments, std::size_t first,
                       std::array<iovec, kMostVectors>& pieces, std::size_t& bytes) {
  std::size_t count = 0;
  bytes = 0;
  while (first + count < segments.size() && count < kMostVectors) {
    const CopySegment& segment = segments[first + count];
    if (count > 0 && segment.address != segments[first].address + bytes) break;
    pieces[count++] = {segment.local, segment.length};
    bytes += segment.length;
  }
  return count;
}

bool move_segments(int fd, bool write, std::span<const CopySegment> segments) {
  for (std::size_t first = 0; first < segments.size();) {
    std::array<iovec, kMostVectors> pieces;
    std::size_t bytes = 0;
    const std::size_t count = gather_run(segments, first, pieces, bytes);
    const auto offset = static_cast<off_t>(segments[first].address);
    const auto vectors = static_cast<int>(count);
    const ssize_t moved =
        write ? ::pwritev(fd, pieces.data(), vectors, offset) : ::preadv(fd, pieces.data(), vectors, offset);
    if (moved < 0) return false;
    if (static_cast<std::size_t>(moved) != bytes) {  // rare: stopped in the middle; go piece by piece
      for (std::size_t i = first; i < first + count; ++i) {
        const CopySegment& segment = segments[i];
        if (!move_exactly(fd, write, segment.local, segment.length, segment.address)) return false;
      }
    }
    first += count;
  }
  return true;
}

// A write whose last byte becomes visible after all the others: programs poll on it.
bool write_last_byte_last(int fd, std::span<CopySegment> segments) {
  if (segments.empty()) return true;
  CopySegment& last = segments.back();
  if (last.length == 0) return move_segments(fd, true, segments);
  last.length -= 1;
  const bool body = move_segments(fd, true, segments);
  last.length += 1;
  const std::uint32_t offset = last.length - 1;
  return body && move_exactly(fd, true, last.local + offset, 1, last.address + offset);
}

bool do_atomic(int fd, CopyJob& job) {
  std::uint64_t value = 0;
  if (!move_exactly(fd, false, reinterpret_cast<std::byte*>(&value), sizeof value, job.address)) return false;
  job.original = value;
  if (job.kind == CopyJob::Kind::kFetchAdd) {
    value += job.operand;
  } else if (value == job.compare) {
    value = job.operand;
  }
  return move_exactly(fd, true, reinterpret_cast<std::byte*>(&value), sizeof value, job.address);
}

bool try_job(int fd, CopyJob& job) {
  switch (job.kind) {
    case CopyJob::Kind::kRead:
      return move_segments(fd, false, job.segments);
    case CopyJob::Kind::kWrite:
      return job.ends_message ? write_last_byte_last(fd, job.segments)
                              : move_segments(fd, true, job.segments);
    case CopyJob::Kind::kCompareSwap:
    case CopyJob::Kind::kFetchAdd:
      return do_atomic(fd, job);
    case CopyJob::Kind::kFence:
      if (job.errand != nullptr) job.errand(job.argument);
      return true;
    case CopyJob::Kind::kCall:
      return job.call(job.owner);
  }
  return false;
}

// Whether there are pages at all where a job that failed writes. Looks at a byte of each: cold.
bool is_mapped(int fd, std::uint64_t address, std::uint64_t length) {
  constexpr std::uint64_t kPageBytes = 4096;
  const std::uint64_t last = address + length - 1;
  for (std::uint64_t at = address; at <= last && at >= address; at = (at | (kPageBytes - 1)) + 1) {
    std::byte unused{};
    if (!move_exactly(fd, false, &unused, 1, at)) return false;
  }
  return true;
}

[[gnu::cold]] bool is_target_mapped(int fd, const CopyJob& job) {
  if (job.is_atomic()) return is_mapped(fd, job.address, sizeof(std::uint64_t));
  return std::all_of(job.segments.begin(), job.segments.end(), [fd](const CopySegment& segment) {
    return segment.length == 0 || is_mapped(fd, segment.address, segment.length);
  });
}

Instant now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return {time.tv_sec * 1'000'000'000 + time.tv_nsec};
}

void nap(std::int64_t microseconds) {
  const timespec time{0, microseconds * 1000};
  ::nanosleep(&time, nullptr);
}

}  // namespace

struct Copier::State {
  int mem = -1;
  std::vector<int> wake;  // by lane
  std::atomic<CopyJob*> submitted{nullptr};
  std::array<std::atomic<CopyJob*>, kMostLanes> done{};
  std::atomic<std::uint32_t> ticket{0};  // raised with each submission and at the end
  std::atomic<bool> stop{false};
  bool is_patient = true;          // the thread's, from here
  std::uint32_t untold = 0;        // jobs that are done and whose lanes have not been woken
  std::uint32_t untold_lanes = 0;  // a bit each
  RealtimeShare realtime;
  std::thread thread;

  void work() {
    block_signals_of_thread();
    // As the engine, which waits for what is copied and for events that are written: otherwise each would
    // take its turn among the programs that spin. Not allowed everywhere.
    (void)realtime.become_realtime();
    while (!stop.load(std::memory_order_acquire)) {
      const std::uint32_t seen = ticket.load(std::memory_order_acquire);
      CopyJob* job = reversed(submitted.exchange(nullptr, std::memory_order_acquire));
      if (job == nullptr) {
        ticket.wait(seen, std::memory_order_acquire);
        continue;
      }
      do_all(job);
    }
  }

  // Runs of reads that follow one another in the program are one system call: the packets of a message. The
  // submitter is told once in a while, since each time may cost it a wake-up.
  void do_all(CopyJob* job) {
    while (job != nullptr) {
      CopyJob* next = job->next;
      if (do_read_run(job, next) == 0) {
        job->failed = !do_job(*job);
        give_back(*job);
      }
      if (next == nullptr || untold >= kMostUntold) {
        tell_submitters();
        (void)realtime.look(now());
      }
      job = next;
    }
  }

  void give_back(CopyJob& job) {
    ++untold;
    untold_lanes |= 1U << job.lane;
    push(done[job.lane], job);
  }

  // Carries out the reads at the head of a list in one call and returns how many; `next` becomes what
  // follows. 0 if there are not at least two of one segment each, or if the call did not read all of it.
  std::uint32_t do_read_run(CopyJob* first, CopyJob*& next) {
    std::array<CopySegment, kMostRun> segments;
    std::uint32_t count = 0;
    CopyJob* behind = first;
    while (behind != nullptr && count < kMostRun && behind->kind == CopyJob::Kind::kRead &&
           behind->segments.size() == 1) {
      segments[count++] = behind->segments[0];
      behind = behind->next;
    }
    if (count < 2 || !move_segments(mem, false, {segments.data(), count})) return 0;
    for (CopyJob* job = first; job != behind;) {
      CopyJob* following = job->next;
      job->failed = false;
      give_back(*job);
      job = following;
    }
    next = behind;
    return count;
  }

  // While the client turns pages into shared ones they are write-protected, and where it may not hold
  // system calls a write here fails for that moment (provider/memory/page_swap). So a failed write is
  // tried again for a while, unless the last such while was in vain. That holds for pages which can still be
  // read, as protected ones always can: memory that is gone is told at once, or a peer would take the
  // silence for loss, and give up with the wrong error.
  bool do_job(CopyJob& job) {
    std::int64_t pause_us = kFirstPauseUs;
    std::int64_t waited_us = 0;
    while (!try_job(mem, job)) {
      if (job.kind == CopyJob::Kind::kRead || job.kind == CopyJob::Kind::kCall) return false;
      if (!is_target_mapped(mem, job)) return false;
      if (!is_patient || waited_us >= kPatienceUs) {
        is_patient = false;
        return false;
      }
      tell_submitters();  // of what was done before
      nap(pause_us);
      waited_us += pause_us;
      pause_us = std::min(pause_us * 2, kMostPauseUs);
    }
    is_patient = true;
    return true;
  }

  void tell_submitters() {
    const std::uint64_t one = 1;
    for (std::uint32_t lane = 0; lane < wake.size(); ++lane) {
      if ((untold_lanes >> lane & 1) == 0) continue;
      // A counter that is already large enough to wake needs no more: the result does not matter.
      [[maybe_unused]] const ssize_t written = ::write(wake[lane], &one, sizeof one);
    }
    untold = 0;
    untold_lanes = 0;
  }
};

Copier::Copier(int mem_descriptor, const std::vector<int>& wake_descriptors)
    : state_(std::make_unique<State>()) {
  state_->mem = mem_descriptor;
  state_->wake = wake_descriptors;
  state_->thread = std::thread([state = state_.get()] { state->work(); });
}

Copier::~Copier() {
  state_->stop.store(true, std::memory_order_release);
  state_->ticket.fetch_add(1, std::memory_order_release);
  state_->ticket.notify_one();
  state_->thread.join();
}

void Copier::submit(CopyJob& job, std::uint32_t lane) {
  job.lane = lane;
  ++lanes_[lane].outstanding;
  outstanding_.fetch_add(1, std::memory_order_relaxed);
  if (job.is_atomic()) outstanding_atomics_.fetch_add(1, std::memory_order_relaxed);
  push(state_->submitted, job);
  state_->ticket.fetch_add(1, std::memory_order_release);
  state_->ticket.notify_one();
}

CopyJob* Copier::take_done(std::uint32_t lane) {
  Lane& own = lanes_[lane];
  if (own.outstanding == 0) return nullptr;
  if (own.taken == nullptr) {
    std::atomic<CopyJob*>& done = state_->done[lane];
    if (done.load(std::memory_order_relaxed) == nullptr) return nullptr;
    own.taken = reversed(done.exchange(nullptr, std::memory_order_acquire));
  }
  CopyJob* job = own.taken;
  own.taken = job->next;
  --own.outstanding;
  outstanding_.fetch_sub(1, std::memory_order_relaxed);
  if (job->is_atomic()) outstanding_atomics_.fetch_sub(1, std::memory_order_relaxed);
  return job;
}

}  // namespace urdma::memory
