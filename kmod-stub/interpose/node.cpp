// Which node this process belongs to.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "interpose/node.hpp"

#include <stdlib.h>

#include <cstring>

#include "interpose/path_buffer.hpp"
#include "interpose/raw.hpp"
#include "urdma/abi/control.hpp"

namespace urdma::stub {
namespace {

constexpr std::size_t kMaxNodeBytes = 1024;

// A directory's path. Written by start() only, before the process has a second thread.
struct Directory {
  char path[kMaxNodeBytes];
  std::size_t size;

  [[nodiscard]] std::string_view view() const { return {path, size}; }
  void set(std::string_view text) {
    size = text.size() < sizeof(path) ? text.size() : 0;
    std::memcpy(path, text.data(), size);
  }
};

constinit Directory given{};      // as the variable has it
constinit Directory canonical{};  // as the kernel tells it, without symbolic links
constinit bool is_started = false;

std::string_view without_trailing_slashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

void find_canonical() {
  canonical = given;
  const int fd = raw::open(given.path, O_PATH | O_DIRECTORY);
  if (fd < 0) return;
  PathBuffer link;
  link.append("/proc/self/fd/").append(static_cast<std::uint32_t>(fd));
  char path[kMaxNodeBytes];
  const long size = raw::readlink(link.c_str(), path, sizeof(path));
  if (size > 0 && size < static_cast<long>(sizeof(path)))
    canonical.set({path, static_cast<std::size_t>(size)});
  raw::close(fd);
}

// Before libc itself has started there is no environment yet; so the answer is kept only when there is one,
// or when the constructor asks.
void find_node() {
  const char* name = ::secure_getenv(abi::kNodeVariable);
  if (name == nullptr || name[0] != '/') return;
  given.set(without_trailing_slashes(name));
  if (given.size == 0) return;
  find_canonical();
  is_started = true;
}

[[gnu::constructor]] void start() {
  if (!is_started) find_node();
  is_started = true;
}

// The size of the part of `path` that is DIRECTORY/sysfs; 0 when it is not below it.
std::size_t tree_prefix(std::string_view path, const Directory& directory) {
  constexpr std::string_view kTree = "/sysfs";
  const std::string_view node = directory.view();
  if (node.empty() || !path.starts_with(node) || !rest_of(path, node.size()).starts_with(kTree)) return 0;
  const std::size_t size = node.size() + kTree.size();
  return path.size() == size || path[size] == '/' ? size : 0;
}

}  // namespace

std::string_view node_directory() {
  if (!is_started) [[unlikely]]
    find_node();
  return given.view();
}

bool is_node_present() {
  const std::string_view node = node_directory();
  if (node.empty()) return false;
  PathBuffer tree;
  tree.append(node).append("/").append(abi::kSysfsDirectory);
  return raw::exists(tree.c_str());
}

std::size_t to_public(char* path, std::size_t size) {
  constexpr std::string_view kDevices = "/dev/infiniband";
  constexpr std::string_view kSys = "/sys";
  std::size_t prefix = tree_prefix({path, size}, given);
  if (prefix == 0) prefix = tree_prefix({path, size}, canonical);
  if (prefix == 0) return size;
  const std::string_view rest{path + prefix, size - prefix};
  const std::string_view top = rest.starts_with(kDevices) ? std::string_view{} : kSys;
  std::memmove(path + top.size(), rest.data(), rest.size());
  std::memcpy(path, top.data(), top.size());
  return top.size() + size - prefix;
}

}  // namespace urdma::stub
