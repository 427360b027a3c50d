// Reads /proc/self/maps and smaps.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/memory/vma.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>

namespace urdma::provider {

namespace {

// Parses a line that begins a mapping; false for the others (smaps has many).
bool parse_mapping(const char* line, Vma& vma) {
  char permissions[5] = {};
  int name_at = 0;
  const int fields = std::sscanf(
      line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %" SCNx32 ":%" SCNx32 " %" SCNu64 " %n", &vma.start,
      &vma.end, permissions, &vma.offset, &vma.device_major, &vma.device_minor, &vma.inode, &name_at);
  if (fields != 7) return false;
  vma.is_readable = permissions[0] == 'r';
  vma.is_writable = permissions[1] == 'w';
  vma.is_executable = permissions[2] == 'x';
  vma.is_shared = permissions[3] == 's';
  vma.path.assign(line + name_at, std::strcspn(line + name_at, "\n"));
  vma.is_stack = vma.path.starts_with("[stack");
  return true;
}

void parse_flags(const char* line, Vma& vma) {
  for (const char* flag = std::strchr(line, ' '); flag != nullptr; flag = std::strchr(flag, ' ')) {
    while (*flag == ' ') ++flag;
    vma.is_locked |= std::strncmp(flag, "lo", 2) == 0;
    vma.is_dont_fork |= std::strncmp(flag, "dc", 2) == 0;
    vma.is_dont_dump |= std::strncmp(flag, "dd", 2) == 0;
  }
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

std::vector<Vma> mappings_of(std::uint64_t start, std::uint64_t end, bool with_flags) {
  std::vector<Vma> found;
  const std::unique_ptr<std::FILE, CloseFile> file(
      std::fopen(with_flags ? "/proc/self/smaps" : "/proc/self/maps", "re"));
  if (file == nullptr) return found;
  char line[512];
  bool is_wanted = false;
  bool is_at_line_start = true;
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    const bool begins_line = is_at_line_start;  // else it is the rest of a long path
    is_at_line_start = std::strchr(line, '\n') != nullptr;
    Vma vma;
    if (begins_line && parse_mapping(line, vma)) {
      if (vma.start >= end) break;
      is_wanted = vma.end > start;
      if (is_wanted) found.push_back(vma);
    } else if (is_wanted && std::strncmp(line, "VmFlags:", 8) == 0) {
      parse_flags(line, found.back());
    }
  }
  return found;
}

}  // namespace urdma::provider
