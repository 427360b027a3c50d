// The pages of this process that the daemon has mapped (extents): those that have been turned into shared
// ones, and those that the program had shared itself. One map a process, whatever the number of
// contexts, since regions overlap and outlive one another. The last region that uses an extent turns it back.
//
// Any thread; one lock for all, held while pages change. fork() is followed: the child gets private copies
// of all extents before the parent goes on, as it would of pages that a kernel has pinned.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "provider/memory/vma.hpp"

namespace urdma::provider {

class RequestChannel;

// A registered region as a user of extents.
struct RegionUser {
  const void* session = nullptr;
  std::uint32_t handle = 0;
  friend bool operator==(const RegionUser&, const RegionUser&) = default;
};

class ConvertedMap {
 public:
  // Registers the fork handlers: before those of the service thread, whose lock is taken first.
  static ConvertedMap& instance();

  // A region begins to use what there is in [start, end), page-aligned. Extents whose pages have been
  // replaced by the program in the meantime are given up first.
  void begin_use(RequestChannel& requests, const RegionUser& user, std::uint64_t start, std::uint64_t end);
  // Converts what can be converted of [start, end) and is not yet, for a user that has begun. Returns when
  // done, or when the user has ended.
  void convert(RequestChannel& requests, const RegionUser& user, std::uint64_t start, std::uint64_t end);
  // A region ends; extents without users are turned back into private pages.
  void end_use(RequestChannel& requests, const RegionUser& user);
  // All regions of a session end.
  void end_session(RequestChannel& requests, const void* session);

 private:
  struct Extent {
    std::uint32_t id = 0;
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::uint64_t inode = 0;
    std::uint32_t device_major = 0;
    std::uint32_t device_minor = 0;
    std::uint64_t offset = 0;  // of `address` in the file
    bool is_programs = false;  // the program had it shared: it is not ours to turn into private memory
    std::vector<RegionUser> users;
    [[nodiscard]] std::uint64_t end() const { return address + length; }
  };
  struct Use {
    RegionUser user;
    std::uint64_t start = 0;  // whole pages
    std::uint64_t end = 0;
  };
  struct Gap {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    Vma vma;
  };

  ConvertedMap();
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();
  static void copy_for_child(const Extent& extent);

  [[nodiscard]] bool has_user(const RegionUser& user) const;
  [[nodiscard]] bool is_intact(const Extent& extent) const;
  [[nodiscard]] std::vector<Gap> gaps_in(std::uint64_t start, std::uint64_t end) const;
  bool convert_gap(RequestChannel& requests, const Gap& gap);
  void share_gap(RequestChannel& requests, const Gap& gap);
  void keep(Extent extent);
  [[nodiscard]] std::vector<RegionUser> users_of(std::uint64_t start, std::uint64_t end) const;
  void give_back(RequestChannel& requests, const Extent& extent);
  void drop_unused(RequestChannel& requests);

  std::mutex mutex_;
  std::vector<Extent> extents_;  // by address; guarded by mutex_
  std::vector<Use> uses_;        // guarded by mutex_
  int fork_pipe_[2] = {-1, -1};  // guarded by mutex_
};

}  // namespace urdma::provider
