// Which paths the stub answers for, and what stands for them: the first thing that every hook asks. A path
// that is not claimed costs a few comparisons. No allocation, no lock; usable from any thread and from
// signal handlers.
//
// Paths are compared as they are written: /sys/class/infiniband and /sys/class/infiniband_verbs,
// /sys/class/urdma, /sys/class/misc/rdma_cm, /sys/devices/virtual/urdma, and /dev/infiniband. Nothing
// collapses "//" or "..".
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <cstring>

#include "interpose/path_buffer.hpp"

namespace urdma::stub {

enum class ClaimKind : std::uint8_t {
  kNone,    // the caller's own path and directory
  kTree,    // a file below NODE/sysfs
  kDevice,  // NODE/dev/uverbsN, which is to look like a character device
  kRdmaCm,  // NODE/dev/rdma_cm, too
};

constexpr bool is_character_device(ClaimKind kind) {
  return kind == ClaimKind::kDevice || kind == ClaimKind::kRdmaCm;
}

struct Claim {
  ClaimKind kind = ClaimKind::kNone;
  std::uint32_t uverbs = 0;  // kDevice only
  int directory = 0;         // to which `path` is relative, as of openat()
  const char* path = nullptr;
};

// Pointers that cannot be paths are the kernel's to refuse.
inline bool is_readable_pointer(const void* pointer) {
  constexpr std::uintptr_t kFirstPage = 4096;
  return reinterpret_cast<std::uintptr_t>(pointer) >= kFirstPage;
}

// Whether a relative path is worth asking where it leads.
inline bool is_candidate_relative(const char* path) {
  return std::strstr(path, "infiniband") != nullptr || std::strstr(path, "uverbs") != nullptr ||
         std::strstr(path, "gid_attrs") != nullptr || std::strstr(path, "rdma_cm") != nullptr;
}

// False for nearly every path of nearly every program.
inline bool is_candidate(const char* path) {
  if (!is_readable_pointer(path)) return false;
  if (path[0] != '/') return path[0] != '\0' && is_candidate_relative(path);
  if (path[1] == 's')
    return std::strncmp(path, "/sys/class/infiniband", 21) == 0 ||
           std::strncmp(path, "/sys/class/urdma", 16) == 0 ||
           std::strncmp(path, "/sys/class/misc/rdma_cm", 23) == 0 ||
           std::strncmp(path, "/sys/devices/virtual/urdma", 26) == 0;
  return path[1] == 'd' && std::strncmp(path, "/dev/infiniband", 15) == 0;
}

// What a candidate stands for. `buffer` holds the path of a claim.
[[nodiscard]] Claim resolve(int directory, const char* path, PathBuffer& buffer);

// The same for a pattern of glob(), which must be absolute: below /dev/infiniband the whole listing is
// the tree's.
[[nodiscard]] Claim resolve_pattern(const char* pattern, PathBuffer& buffer);

template <typename Function>
[[gnu::noinline, gnu::cold]] auto route_candidate(int directory, const char* path, Function& function) {
  PathBuffer buffer;
  return function(resolve(directory, path, buffer));
}

// Calls `function(claim)` for `path`, which may be relative to `directory`.
template <typename Function>
auto route(int directory, const char* path, Function function) {
  if (!is_candidate(path)) [[likely]]
    return function(Claim{ClaimKind::kNone, 0, directory, path});
  return route_candidate(directory, path, function);
}

}  // namespace urdma::stub
