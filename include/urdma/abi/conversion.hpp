// The control messages about turning private pages of programs into shared ones: see
// docs/design/0008-memory-and-conversion.md. Part of urdma/abi/control.hpp, with the same rules.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

namespace urdma::abi {

// Daemon to client, on the upcall connection: traffic has earned these whole pages a shared mapping.
struct ConvertRange {
  std::uint32_t mr;  // handle
  std::uint32_t reserved;
  std::uint64_t address;
  std::uint64_t length;
};

// Client to daemon: make a file for these pages. Reply: Handle of the extent. Fds: its memory, sealed
// against a change of size, already mapped by the daemon.
struct ConvertBegin {
  std::uint64_t address;  // page-aligned
  std::uint64_t length;   // whole pages
};

// Client to daemon: the pages now are that file (`converted`), or conversion failed and the extent is
// to be forgotten. With the reply the daemon has sealed the file and uses its mapping.
struct ConvertDone {
  std::uint32_t extent;
  std::uint32_t converted;
};

// Client to daemon: stop using an extent's mapping. After the reply the client may convert back; the
// daemon has unmapped its side.
struct Revert {
  std::uint32_t extent;
  std::uint32_t reserved;
};

// Client to daemon: these pages already are a shared mapping of the file that is passed, at `offset`.
// Fds: the file, which the daemon takes only if it is shmem or hugetlbfs. Reply: Handle of the extent.
struct ShareMapping {
  std::uint64_t address;
  std::uint64_t length;
  std::uint64_t offset;
};

}  // namespace urdma::abi
