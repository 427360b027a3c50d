// Which pages are shared, who uses them, and their way there and back.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/memory/converted_map.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "provider/control/request_channel.hpp"
#include "provider/memory/page_swap.hpp"
#include "provider/memory/signals_blocked.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace urdma::provider {

namespace {

// Writers wait while a piece changes: short windows.
constexpr std::uint64_t kPieceBytes = std::uint64_t{2} << 20;
// The lock is held while an extent is made.
constexpr std::uint64_t kMostExtentBytes = std::uint64_t{32} << 20;

bool contains(std::uint64_t start, std::uint64_t end, const void* address) {
  const auto value = reinterpret_cast<std::uint64_t>(address);
  return value >= start && value < end;
}

// The calling thread's stack and thread-local storage: protecting them would stop the thread for good.
bool holds_this_thread(std::uint64_t start, std::uint64_t end) {
  const char here = 0;
  return contains(start, end, &here) || contains(start, end, __builtin_thread_pointer()) ||
         contains(start, end, &errno);
}

bool can_convert(const Vma& vma) {
  return vma.is_readable && vma.is_writable && !vma.is_executable && !vma.is_shared && vma.inode == 0 &&
         !vma.is_stack;
}

bool can_share(const Vma& vma) {
  return vma.is_readable && vma.is_writable && vma.is_shared && vma.inode != 0;
}

// The file behind a mapping. The link in map_files names it for certain, and needs a right that most
// processes lack; a path may have been taken by another file, which is checked.
UniqueFd open_mapped_file(const Vma& vma) {
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/map_files/%lx-%lx", vma.start, vma.end);
  UniqueFd file(::open(link, O_RDWR | O_CLOEXEC));
  if (file.is_open()) return file;
  file = UniqueFd(::open(vma.path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return UniqueFd();
  const bool is_same = status.st_ino == vma.inode && major(status.st_dev) == vma.device_major &&
                       minor(status.st_dev) == vma.device_minor;
  return is_same ? std::move(file) : UniqueFd();
}

// The program may have forbidden itself all access since: to copy the pages takes some.
void make_readable(const Vma& vma, std::uint64_t start, std::uint64_t end) {
  if (!vma.is_readable) ::mprotect(reinterpret_cast<void*>(start), end - start, PROT_READ);  // NOLINT
}

// What the replacement of a mapping has lost.
void restore(const Vma& vma, std::uint64_t start, std::uint64_t end) {
  auto* at = reinterpret_cast<void*>(start);  // NOLINT: an address of /proc
  const std::size_t length = end - start;
  if (vma.is_locked) ::mlock(at, length);
  if (vma.is_dont_fork) ::madvise(at, length, MADV_DONTFORK);
  if (vma.is_dont_dump) ::madvise(at, length, MADV_DONTDUMP);
  const int protection = (vma.is_readable ? PROT_READ : 0) | (vma.is_writable ? PROT_WRITE : 0) |
                         (vma.is_executable ? PROT_EXEC : 0);
  if (protection != (PROT_READ | PROT_WRITE)) ::mprotect(at, length, protection);
}

bool same_file(const Vma& vma, std::uint64_t inode, std::uint32_t major, std::uint32_t minor) {
  return vma.is_shared && vma.inode == inode && vma.device_major == major && vma.device_minor == minor;
}

}  // namespace

ConvertedMap& ConvertedMap::instance() {
  static auto& map = *new ConvertedMap;  // never destroyed: the service thread may outlive main()
  return map;
}

ConvertedMap::ConvertedMap() { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }

bool ConvertedMap::has_user(const RegionUser& user) const {
  return std::any_of(uses_.begin(), uses_.end(), [&](const Use& use) { return use.user == user; });
}

std::vector<RegionUser> ConvertedMap::users_of(std::uint64_t start, std::uint64_t end) const {
  std::vector<RegionUser> users;
  for (const Use& use : uses_) {
    if (use.start < end && start < use.end) users.push_back(use.user);
  }
  return users;
}

// Whether all of an extent's pages still are its file's, at the right place.
bool ConvertedMap::is_intact(const Extent& extent) const {
  std::uint64_t covered = extent.address;
  for (const Vma& vma : mappings_of(extent.address, extent.end(), false)) {
    const bool is_ours = same_file(vma, extent.inode, extent.device_major, extent.device_minor) &&
                         vma.start <= covered &&
                         vma.offset + (covered - vma.start) == extent.offset + (covered - extent.address);
    if (!is_ours) return false;
    covered = vma.end;
  }
  return covered >= extent.end();
}

void ConvertedMap::begin_use(RequestChannel& requests, const RegionUser& user, std::uint64_t start,
                             std::uint64_t end) {
  const std::lock_guard guard(mutex_);
  uses_.push_back({user, start, end});
  std::vector<Extent> kept;
  for (Extent& extent : extents_) {
    const bool overlaps = extent.address < end && start < extent.end();
    if (overlaps && !is_intact(extent)) {
      // Other memory stands there now: the daemon must not take its own pages for it. What is left of
      // the extent must not stay shared unknown to us: a child would share it, too.
      give_back(requests, extent);
      continue;
    }
    if (overlaps) extent.users.push_back(user);
    kept.push_back(std::move(extent));
  }
  extents_ = std::move(kept);
}

std::vector<ConvertedMap::Gap> ConvertedMap::gaps_in(std::uint64_t start, std::uint64_t end) const {
  std::vector<Gap> gaps;
  for (const Vma& vma : mappings_of(start, end, true)) {
    if (!can_convert(vma) && !can_share(vma)) continue;
    std::uint64_t from = std::max(start, vma.start);
    const std::uint64_t to = std::min(end, vma.end);
    while (from < to) {
      const std::uint64_t piece_end = std::min(to, from + kMostExtentBytes);
      const bool is_taken = std::any_of(extents_.begin(), extents_.end(), [&](const Extent& extent) {
        return extent.address < piece_end && from < extent.end();
      });
      if (!is_taken) gaps.push_back({from, piece_end, vma});
      from = piece_end;
    }
  }
  return gaps;
}

void ConvertedMap::convert(RequestChannel& requests, const RegionUser& user, std::uint64_t start,
                           std::uint64_t end) {
  std::vector<Gap> gaps;
  {
    const std::lock_guard guard(mutex_);
    gaps = gaps_in(start, end);
  }
  for (const Gap& gap : gaps) {
    const std::lock_guard guard(mutex_);  // let go between extents: others register, and fork
    if (!has_user(user)) return;
    if (gap.vma.is_shared) {
      share_gap(requests, gap);
    } else if (!convert_gap(requests, gap)) {
      return;
    }
  }
}

bool ConvertedMap::convert_gap(RequestChannel& requests, const Gap& gap) {
  if (!PageSwap::instance().is_usable() || holds_this_thread(gap.start, gap.end)) return true;
  // The mapping may have changed since the gaps were found.
  const std::vector<Vma> now = mappings_of(gap.start, gap.end, false);
  const bool is_same =
      now.size() == 1 && can_convert(now[0]) && now[0].start <= gap.start && now[0].end >= gap.end;
  if (!is_same) return true;
  abi::Handle handle{};
  std::vector<UniqueFd> files;
  const abi::ConvertBegin begin{gap.start, gap.end - gap.start};
  if (requests.call(abi::MessageType::kConvertBegin, begin, handle, {}, &files) != 0 || files.empty())
    return false;
  struct stat status {};
  bool converted = ::fstat(files[0].get(), &status) == 0;
  std::uint64_t done = gap.start;
  {
    const SignalsBlocked blocked;  // a handler that writes to a protected page would wait for this thread
    while (converted && done < gap.end) {
      const std::uint64_t bytes = std::min(kPieceBytes, gap.end - done);
      converted = PageSwap::instance().to_shared(done, bytes, files[0].get(), done - gap.start);
      if (converted) done += bytes;
    }
  }
  restore(gap.vma, gap.start, done);
  if (converted) {
    // The client's touch, so that the pages are charged to it.
    ::madvise(reinterpret_cast<void*>(gap.start), gap.end - gap.start, MADV_POPULATE_WRITE);  // NOLINT
  }
  Extent extent;
  extent.id = handle.handle;
  extent.address = gap.start;
  extent.length = gap.end - gap.start;
  extent.inode = status.st_ino;
  extent.device_major = major(status.st_dev);
  extent.device_minor = minor(status.st_dev);
  extent.users = users_of(gap.start, gap.end);
  const abi::ConvertDone report{handle.handle, converted ? 1U : 0U};
  const bool accepted = requests.call(abi::MessageType::kConvertDone, report) == 0;
  if (!converted || !accepted) {
    extent.length = done - gap.start;
    give_back(requests, extent);
    return false;
  }
  keep(std::move(extent));
  return true;
}

void ConvertedMap::keep(Extent extent) {
  const auto at = std::find_if(extents_.begin(), extents_.end(),
                               [&](const Extent& other) { return other.address > extent.address; });
  extents_.insert(at, std::move(extent));
}

// Passes the file of a mapping that the program itself has shared.
void ConvertedMap::share_gap(RequestChannel& requests, const Gap& gap) {
  const UniqueFd file = open_mapped_file(gap.vma);
  if (!file.is_open()) return;
  const std::uint64_t offset = gap.vma.offset + (gap.start - gap.vma.start);
  const abi::ShareMapping wanted{gap.start, gap.end - gap.start, offset};
  const int fd = file.get();
  abi::Handle handle{};
  if (requests.call(abi::MessageType::kShareMapping, wanted, handle, std::span(&fd, 1)) != 0) return;
  Extent extent;
  extent.id = handle.handle;
  extent.address = gap.start;
  extent.length = gap.end - gap.start;
  extent.inode = gap.vma.inode;
  extent.device_major = gap.vma.device_major;
  extent.device_minor = gap.vma.device_minor;
  extent.offset = offset;
  extent.is_programs = true;
  extent.users = users_of(gap.start, gap.end);
  // Only now: what the program has put there instead in the meantime must not be taken for the file.
  if (is_intact(extent)) {
    keep(std::move(extent));
  } else {
    (void)requests.call(abi::MessageType::kRevert, abi::Revert{extent.id, 0});
  }
}

// Makes an extent's pages private again, where they still are its pages.
void ConvertedMap::give_back(RequestChannel& requests, const Extent& extent) {
  (void)requests.call(abi::MessageType::kRevert, abi::Revert{extent.id, 0});
  if (extent.is_programs) return;
  for (const Vma& vma : mappings_of(extent.address, extent.end(), true)) {
    if (!same_file(vma, extent.inode, extent.device_major, extent.device_minor)) continue;
    const std::uint64_t start = std::max(extent.address, vma.start);
    const std::uint64_t end = std::min(extent.end(), vma.end);
    if (holds_this_thread(start, end)) continue;  // they stay shared, with this process alone
    make_readable(vma, start, end);
    std::uint64_t done = start;
    {
      const SignalsBlocked blocked;
      while (done < end) {
        const std::uint64_t bytes = std::min(kPieceBytes, end - done);
        if (!PageSwap::instance().to_private(done, bytes)) break;
        done += bytes;
      }
    }
    restore(vma, start, done);
  }
}

void ConvertedMap::drop_unused(RequestChannel& requests) {
  std::vector<Extent> unused;
  std::erase_if(extents_, [&](Extent& extent) {
    if (!extent.users.empty()) return false;
    unused.push_back(std::move(extent));
    return true;
  });
  for (const Extent& extent : unused) give_back(requests, extent);
}

void ConvertedMap::end_use(RequestChannel& requests, const RegionUser& user) {
  const std::lock_guard guard(mutex_);
  std::erase_if(uses_, [&](const Use& use) { return use.user == user; });
  for (Extent& extent : extents_) std::erase(extent.users, user);
  drop_unused(requests);
}

void ConvertedMap::end_session(RequestChannel& requests, const void* session) {
  const std::lock_guard guard(mutex_);
  const auto is_of_session = [session](const RegionUser& user) { return user.session == session; };
  std::erase_if(uses_, [&](const Use& use) { return is_of_session(use.user); });
  for (Extent& extent : extents_) std::erase_if(extent.users, is_of_session);
  drop_unused(requests);
}

void ConvertedMap::before_fork() {
  ConvertedMap& map = instance();
  map.mutex_.lock();
  if (map.extents_.empty() || ::pipe2(map.fork_pipe_, O_CLOEXEC) != 0)
    map.fork_pipe_[0] = map.fork_pipe_[1] = -1;
}

// Waits until the child has its copies and says so, or dies: its end of the pipe closes then. Its word is
// needed, since programs that other threads start meanwhile have that end open, too, until they exec.
void ConvertedMap::after_fork_in_parent() {
  ConvertedMap& map = instance();
  if (map.fork_pipe_[0] >= 0) {
    ::close(map.fork_pipe_[1]);
    char unused = 0;
    while (::read(map.fork_pipe_[0], &unused, 1) < 0 && errno == EINTR) {
    }
    ::close(map.fork_pipe_[0]);
  }
  map.mutex_.unlock();
}

// The child is alone: no page needs protection. What it did not inherit (MADV_DONTFORK), or what the program
// has put in place of shared pages, is left alone.
void ConvertedMap::copy_for_child(const Extent& extent) {
  for (const Vma& vma : mappings_of(extent.address, extent.end(), false)) {
    if (!same_file(vma, extent.inode, extent.device_major, extent.device_minor)) continue;
    const std::uint64_t start = std::max(extent.address, vma.start);
    const std::uint64_t end = std::min(extent.end(), vma.end);
    make_readable(vma, start, end);
    for (std::uint64_t at = start; at < end; at += kPieceBytes) {
      PageSwap::copy_alone(at, std::min(kPieceBytes, end - at));
    }
    restore(vma, start, end);
  }
}

void ConvertedMap::after_fork_in_child() {
  ConvertedMap& map = instance();
  for (const Extent& extent : map.extents_) {
    if (!extent.is_programs) copy_for_child(extent);  // the program's own are shared on purpose
  }
  map.extents_.clear();
  map.uses_.clear();
  PageSwap::instance().forget();
  if (map.fork_pipe_[0] >= 0) {
    [[maybe_unused]] const ssize_t said = ::write(map.fork_pipe_[1], "", 1);
    ::close(map.fork_pipe_[0]);
    ::close(map.fork_pipe_[1]);
  }
  map.mutex_.unlock();
}

}  // namespace urdma::provider
