// The node's uverbs devices by number.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "uverbs/device.hpp"

#include <sys/sysmacros.h>

#include "interpose/device_socket.hpp"
#include "sysfs/tree_reader.hpp"

namespace urdma::stub {
namespace {

constexpr std::string_view kPrefix = "uverbs";
constexpr unsigned kUverbsMajor = 231;  // as the kernel numbers them, should the tree be gone
constexpr unsigned kUverbsFirstMinor = 192;

}  // namespace

bool parse_uverbs(std::string_view name, std::uint32_t& uverbs) {
  constexpr std::size_t kMaxDigits = 7;  // a minor number has 20 bits
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  if (name.empty() || name.size() > kMaxDigits || (name.size() > 1 && name[0] == '0')) return false;
  uverbs = 0;
  for (const char digit : name) {
    if (digit < '0' || digit > '9') return false;
    uverbs = uverbs * 10 + static_cast<std::uint32_t>(digit - '0');
  }
  return true;
}

void append_socket_path(std::uint32_t uverbs, PathBuffer& path) {
  append_device_path(kPrefix, path);
  path.append(uverbs);
}

int open_device(std::uint32_t uverbs, int flags) {
  PathBuffer name;
  name.append(kPrefix).append(uverbs);
  return open_device_socket(name.view(), flags);
}

bool is_device(int fd, std::uint32_t& uverbs) {
  sockaddr_un address;
  return parse_uverbs(device_name(fd, address), uverbs);
}

dev_t device_number(std::uint32_t uverbs) {
  unsigned major_number = kUverbsMajor;
  unsigned minor_number = kUverbsFirstMinor + uverbs;
  read_device_number(uverbs, major_number, minor_number);
  return makedev(major_number, minor_number);
}

}  // namespace urdma::stub
