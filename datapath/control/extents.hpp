// Pages of a client's program that are mapped in the daemon: private memory that was converted, and mappings
// that were shared already. Owner: the process of the client; control thread. An extent is the engine's to
// use between publishing it (memory::AddressSpace::add_extent) and withdrawing it.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <map>

#include "datapath/limits.hpp"
#include "datapath/memory/address_space.hpp"
#include "urdma/base/result.hpp"
#include "urdma/base/unique_fd.hpp"

namespace urdma::control {

class ExtentTable {
 public:
  struct Entry {
    memory::Extent extent;
    std::uint64_t mapped_bytes = 0;  // extent.length, rounded up to whole huge pages where it is of these
    UniqueFd file;                   // open while the client still fills it
    bool is_sealing = false;         // the copier has the file
    bool is_published = false;       // the engine uses it
  };
  // A mapping of a client's own file, made by map_file(); unmapped unless take_over() has taken it.
  struct Mapped {
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
  };

  ExtentTable() = default;
  // Unmaps everything: when no engine uses any of it.
  ~ExtentTable();
  ExtentTable(const ExtentTable&) = delete;
  ExtentTable& operator=(const ExtentTable&) = delete;

  // A new file for the whole pages [address, address + length) of the program, mapped here. ENOMEM when the
  // client would have more bytes or extents than `limits` allow it.
  [[nodiscard]] Result<Entry*> make(std::uint64_t address, std::uint64_t length, const Limits& limits);
  // Null when there is none.
  [[nodiscard]] Entry* find(std::uint32_t id);
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

  // A file that the client can write to is locked for as long as the client likes: by a write from memory
  // that it withholds. So the client's own copier seals and maps such files (the static functions), between
  // two steps on the control thread. Until the second step it counts as an extent in the making.

  // Gives the file of make() away, to be sealed.
  [[nodiscard]] UniqueFd begin_seal(Entry& entry);
  // Ends all changes of a file of make(), and closes it: both sides have it mapped. Copier.
  [[nodiscard]] static Status seal(UniqueFd file);
  // It is sealed.
  void end_seal(Entry& entry);

  // Whether the client may have this mapping, as far as can be told without its file. The same limits.
  [[nodiscard]] Status begin_take_over(std::uint64_t address, std::uint64_t length, const Limits& limits);
  // Maps the client's own `file` at `offset`, if it is of shmem or hugetlbfs, and closes it. Copier.
  [[nodiscard]] static Result<Mapped> map_file(UniqueFd file, std::uint64_t length, std::uint64_t offset);
  // It is mapped, or was not to be.
  [[nodiscard]] Result<Entry*> take_over(const Result<Mapped>& mapped, std::uint64_t address,
                                         std::uint64_t length, const Limits& limits);
  // Unmaps it. The engine does not use it.
  void erase(std::uint32_t id);

 private:
  [[nodiscard]] Status check_room(std::uint64_t mapped_bytes, const Limits& limits) const;
  [[nodiscard]] Status check_making(const Limits& limits) const;
  // `entry` has all but its id.
  [[nodiscard]] Entry* add(Entry entry);

  std::map<std::uint32_t, Entry> entries_;
  std::uint32_t last_id_ = 0;
  std::uint64_t total_bytes_ = 0;
  std::uint32_t in_making_ = 0;  // for which a file is open, here or at the copier
};

}  // namespace urdma::control
