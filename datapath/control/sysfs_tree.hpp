// The files that stand for /sys/class/infiniband and its kin, and for the listing of /dev/infiniband:
// written by the daemon into NODE_DIRECTORY/sysfs, read by programs through the stub's path redirection.
// Entries of real devices of the host are shown beside urdma's, as links to the real ones. Files change by
// rename, so that a reader sees the old or the new. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "urdma/base/result.hpp"
#include "urdma/wire/frame.hpp"

namespace urdma::control {

struct SysfsDevice {
  std::string name;             // urdma0
  std::uint32_t uverbs = 0;     // N of uverbsN: one that no real device has
  std::uint64_t node_guid = 0;  // host order of the number that is shown big-endian
  std::uint64_t system_image_guid = 0;
  std::string firmware;
  std::string board_id;
  std::string hca_type;
  std::uint32_t vendor_id = 0;
  std::uint32_t vendor_part_id = 0;
  std::string interface;  // the network interface of its port; empty: none
  std::uint32_t gid_table_length = 0;
};

struct SysfsPort {
  bool is_active = false;
  std::string rate;  // as the kernel has it: "10 Gb/sec (1X QDR)"
};

struct SysfsGid {
  std::uint32_t index = 0;
  wire::Gid gid{};
  std::string interface;  // for gid_attrs/ndevs
};

class SysfsTree {
 public:
  // Makes the whole tree below `directory` (which may hold an old one), unused GID entries included:
  // `gids/N` reads as zeros, `gid_attrs/{types,ndevs}/N` are empty files, to which the stub answers EINVAL.
  [[nodiscard]] static Result<SysfsTree> create(const std::string& directory,
                                                std::span<const SysfsDevice> devices);

  // The numbers N of uverbsN that real devices of this host have.
  [[nodiscard]] static std::vector<std::uint32_t> taken_uverbs();

  [[nodiscard]] Status update_port(std::size_t device, const SysfsPort& port);
  // All GIDs in use; the others become unused.
  [[nodiscard]] Status update_gids(std::size_t device, std::span<const SysfsGid> gids);
  // Replaces ports/1/{counters,hw_counters}/NAME.
  [[nodiscard]] Status update_counter(std::size_t device, const std::string& name, std::uint64_t value);

 private:
  SysfsTree(std::string directory, std::vector<SysfsDevice> devices)
      : directory_(std::move(directory)), devices_(std::move(devices)) {}

  std::string directory_;
  std::vector<SysfsDevice> devices_;
  std::vector<std::vector<SysfsGid>> gids_;
};

}  // namespace urdma::control
