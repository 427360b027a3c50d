// DPDK's environment: started once a process, before any frame pool or port, by the thread that then
// makes them. Needs no huge pages, no privilege and no configuration; leaves threads unpinned.
// Does not open devices.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "urdma/base/result.hpp"

namespace urdma::io {

struct EalConfig {
  // Where DPDK may keep its run-time files: an existing directory that is this process's to write.
  std::string runtime_directory;
  // What frame pools and devices take together, bytes: see frame_pool_bytes().
  std::size_t memory_bytes = 0;
  bool use_pci = false;     // look for PCI devices
  bool is_verbose = false;  // DPDK's log to stderr; otherwise only its last line is kept, for error messages
};

class Eal {
 public:
  // EALREADY when it was started before, even if it has ended since: DPDK does not start twice.
  [[nodiscard]] static Result<std::unique_ptr<Eal>> start(const EalConfig& config);
  // After the ports and the frame pools.
  ~Eal();
  Eal(const Eal&) = delete;
  Eal& operator=(const Eal&) = delete;

  // Memory is in huge pages.
  [[nodiscard]] bool uses_huge_pages() const { return uses_huge_pages_; }

 private:
  explicit Eal(bool uses_huge_pages) : uses_huge_pages_(uses_huge_pages) {}

  bool uses_huge_pages_;
};

// The latest line of DPDK's log, "" if there was none: why a call to DPDK failed, in its words. Any thread.
[[nodiscard]] std::string last_eal_message();

}  // namespace urdma::io
