// Reads files of the node's tree.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "sysfs/tree_reader.hpp"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>
#include <string_view>

#include "interpose/node.hpp"
#include "interpose/path_buffer.hpp"
#include "interpose/raw.hpp"

namespace urdma::stub {
namespace {

constexpr std::size_t kMaxText = 128;

// The first line of a small file. -1: it cannot be read.
struct Line {
  char text[kMaxText];
  long size = -1;

  [[nodiscard]] bool is_read() const { return size >= 0; }
  [[nodiscard]] std::string_view view() const {
    return {text, static_cast<std::size_t>(size > 0 ? size : 0)};
  }
};

void read_line(const PathBuffer& path, Line& line) {
  const int fd = raw::open(path.c_str(), O_RDONLY);
  if (fd < 0) return;
  line.size = raw::read(fd, line.text, sizeof(line.text));
  raw::close(fd);
  const std::size_t end = line.view().find('\n');
  if (end != std::string_view::npos) line.size = static_cast<long>(end);
}

PathBuffer& append_uverbs(std::uint32_t uverbs, PathBuffer& path) {
  return path.append(node_directory()).append("/sysfs/class/infiniband_verbs/uverbs").append(uverbs);
}

// NODE/sysfs/class/infiniband/DEVICE/ports/1/KIND/INDEX, through the link that uverbsN/device is.
void read_port_file(std::uint32_t uverbs, std::string_view kind, std::uint32_t index, Line& line) {
  PathBuffer name_path;
  append_uverbs(uverbs, name_path).append("/ibdev");
  Line name;
  read_line(name_path, name);
  if (!name.is_read()) return;
  PathBuffer path;
  path.append(node_directory()).append("/sysfs/class/infiniband/").append(name.view());
  path.append("/ports/1/").append(kind).append("/").append(index);
  read_line(path, line);
}

std::string_view parse_number(std::string_view text, unsigned& number) {
  number = 0;
  while (!text.empty() && text[0] >= '0' && text[0] <= '9') {
    number = number * 10 + static_cast<unsigned>(text[0] - '0');
    text.remove_prefix(1);
  }
  return text;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// "fe80:0000:...": eight groups of four digits.
bool parse_gid(std::string_view text, std::uint8_t* gid) {
  constexpr std::size_t kTextBytes = 39;
  if (text.size() != kTextBytes) return false;
  for (std::size_t i = 0; i < 16; ++i) {
    const std::size_t at = i * 2 + i / 2;
    const int high = hex_digit(text[at]);
    const int low = hex_digit(text[at + 1]);
    if (high < 0 || low < 0) return false;
    gid[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return true;
}

std::uint32_t interface_index(std::string_view name) {
  ifreq request{};
  if (name.empty() || name.size() >= sizeof(request.ifr_name)) return 0;
  std::memcpy(request.ifr_name, name.data(), name.size());
  const long fd = raw::call(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return 0;
  const long result = raw::call(SYS_ioctl, fd, SIOCGIFINDEX, &request);
  raw::close(static_cast<int>(fd));
  return result < 0 ? 0 : static_cast<std::uint32_t>(request.ifr_ifindex);
}

}  // namespace

bool is_ours(std::uint32_t uverbs) {
  constexpr std::string_view kOurs = "../../devices/virtual/urdma/";
  PathBuffer path;
  append_uverbs(uverbs, path);
  char target[kMaxText];
  const long size = raw::readlink(path.c_str(), target, sizeof(target));
  return size > 0 && std::string_view{target, static_cast<std::size_t>(size)}.starts_with(kOurs);
}

namespace {

// "10:58", of a file named dev.
void read_number(const PathBuffer& path, unsigned& major_number, unsigned& minor_number) {
  Line line;
  read_line(path, line);
  unsigned first = 0;
  const std::string_view rest = parse_number(line.view(), first);
  if (!rest.starts_with(':')) return;
  major_number = first;
  parse_number(rest_of(rest, 1), minor_number);
}

}  // namespace

void read_device_number(std::uint32_t uverbs, unsigned& major_number, unsigned& minor_number) {
  PathBuffer path;
  append_uverbs(uverbs, path).append("/dev");
  read_number(path, major_number, minor_number);
}

void read_rdma_cm_number(unsigned& major_number, unsigned& minor_number) {
  PathBuffer path;
  path.append(node_directory()).append("/sysfs/class/misc/rdma_cm/dev");
  read_number(path, major_number, minor_number);
}

GidState read_gid(std::uint32_t uverbs, std::uint32_t index, TreeGid& entry) {
  Line type;
  read_port_file(uverbs, "gid_attrs/types", index, type);
  if (!type.is_read()) return GidState::kNoSuchIndex;
  if (type.view().empty()) return GidState::kUnused;
  Line gid;
  read_port_file(uverbs, "gids", index, gid);
  if (!parse_gid(gid.view(), entry.gid)) return GidState::kUnused;
  Line interface;
  read_port_file(uverbs, "gid_attrs/ndevs", index, interface);
  entry.interface_index = interface_index(interface.view());
  return GidState::kInUse;
}

}  // namespace urdma::stub
