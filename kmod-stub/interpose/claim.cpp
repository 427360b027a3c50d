// From a program's path to what stands for it.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "interpose/claim.hpp"

#include <fcntl.h>

#include "interpose/device_socket.hpp"
#include "interpose/node.hpp"
#include "interpose/raw.hpp"
#include "rdma_cm/channel.hpp"
#include "sysfs/tree_reader.hpp"
#include "uverbs/device.hpp"

namespace urdma::stub {
namespace {

constexpr std::string_view kSys = "/sys";
constexpr std::string_view kDevices = "/dev/infiniband";
constexpr std::string_view kSysPlaces[] = {"/sys/class/infiniband", "/sys/class/infiniband_verbs",
                                           "/sys/class/urdma", "/sys/class/misc/rdma_cm",
                                           "/sys/devices/virtual/urdma"};

bool is_below(std::string_view path, std::string_view place) {
  return path.starts_with(place) && (path.size() == place.size() || path[place.size()] == '/');
}

bool is_sys_claimed(std::string_view path) {
  for (const std::string_view place : kSysPlaces)
    if (is_below(path, place)) return true;
  return false;
}

// Where a relative path starts, as the program would name it. False: unknown, or too long to matter.
bool append_base(int directory, PathBuffer& path) {
  PathBuffer link;
  if (directory == AT_FDCWD) {
    link.append("/proc/self/cwd");
  } else {
    link.append("/proc/self/fd/").append(static_cast<std::uint32_t>(directory));
  }
  char base[PATH_MAX];
  const long size =
      directory >= 0 || directory == AT_FDCWD ? raw::readlink(link.c_str(), base, sizeof(base)) : -1;
  if (size <= 0 || size == static_cast<long>(sizeof(base)) || base[0] != '/') return false;
  const std::size_t public_size = to_public(base, static_cast<std::size_t>(size));
  path.append({base, public_size});
  if (public_size > 1) path.append("/");
  return true;
}

Claim claim_tree(std::string_view below_tree, PathBuffer& buffer) {
  buffer.append(node_directory()).append("/sysfs").append(below_tree);
  return {ClaimKind::kTree, 0, AT_FDCWD, buffer.c_str()};
}

// /dev/infiniband itself is the tree's; of what is in it, only the uverbs devices of the node, and rdma_cm.
Claim claim_device(std::string_view path, const Claim& unclaimed, PathBuffer& buffer) {
  std::string_view name = rest_of(path, kDevices.size());
  while (name.starts_with('/')) name.remove_prefix(1);
  if (name.empty()) return claim_tree(kDevices, buffer);
  if (name == kRdmaCm) {
    append_device_path(name, buffer);
    return {ClaimKind::kRdmaCm, 0, AT_FDCWD, buffer.c_str()};
  }
  std::uint32_t uverbs = 0;
  if (!parse_uverbs(name, uverbs) || !is_ours(uverbs)) return unclaimed;
  append_socket_path(uverbs, buffer);
  return {ClaimKind::kDevice, uverbs, AT_FDCWD, buffer.c_str()};
}

Claim claim_absolute(std::string_view path, const Claim& unclaimed, PathBuffer& buffer) {
  const bool is_sys = is_sys_claimed(path);
  if ((!is_sys && !is_below(path, kDevices)) || !is_node_present()) return unclaimed;
  const Claim claim =
      is_sys ? claim_tree(rest_of(path, kSys.size()), buffer) : claim_device(path, unclaimed, buffer);
  return buffer.is_too_long() ? unclaimed : claim;
}

Claim resolve_relative(const Claim& unclaimed, PathBuffer& buffer) {
  PathBuffer absolute;
  if (!append_base(unclaimed.directory, absolute)) return unclaimed;
  absolute.append(unclaimed.path);
  return absolute.is_too_long() ? unclaimed : claim_absolute(absolute.view(), unclaimed, buffer);
}

}  // namespace

Claim resolve(int directory, const char* path, PathBuffer& buffer) {
  const Claim unclaimed{ClaimKind::kNone, 0, directory, path};
  if (node_directory().empty()) return unclaimed;
  return path[0] == '/' ? claim_absolute(path, unclaimed, buffer) : resolve_relative(unclaimed, buffer);
}

Claim resolve_pattern(const char* pattern, PathBuffer& buffer) {
  const Claim unclaimed{ClaimKind::kNone, 0, AT_FDCWD, pattern};
  const std::string_view path = pattern;
  // A node directory that would itself be read as a pattern has to do without.
  if (node_directory().find_first_of("*?[\\") != std::string_view::npos) return unclaimed;
  const bool is_sys = is_sys_claimed(path);
  if ((!is_sys && !is_below(path, kDevices)) || !is_node_present()) return unclaimed;
  const Claim claim = claim_tree(is_sys ? rest_of(path, kSys.size()) : path, buffer);
  return buffer.is_too_long() ? unclaimed : claim;
}

}  // namespace urdma::stub
