// Where nodes are (see node_location.hpp). Single-threaded.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/node_location.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "urdma/abi/control.hpp"

namespace urdma::tools {
namespace {

constexpr const char* kRootState = "/run/urdma";
constexpr std::size_t kMaxNameBytes = 48;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
constexpr int kFieldsBeforeFlags = 5;    // of /proc/PID/stat, behind the state
constexpr unsigned long kExiting = 0x4;  // PF_EXITING of the kernel

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

std::string state_directory() {
  if (const std::string own = variable("URDMA_DIR"); !own.empty()) return own;
  if (::geteuid() == 0) return kRootState;
  if (const std::string runtime = variable("XDG_RUNTIME_DIR"); !runtime.empty()) return runtime + "/urdma";
  return fmt::format("/tmp/urdma-{}", ::geteuid());
}

Status prepare_state_directory(const std::string& directory) {
  // One that a person named is that person's to protect; the others are in places where anybody may write.
  const bool is_named = !variable("URDMA_DIR").empty();
  const bool is_private = !is_named && ::geteuid() != 0;
  std::error_code failed;
  if (is_named) std::filesystem::create_directories(std::filesystem::path(directory).parent_path(), failed);
  if (::mkdir(directory.c_str(), is_private ? S_IRWXU : 0755) != 0 && errno != EEXIST) {
    return fail(errno, fmt::format("cannot make the directory {}: {}; name another one in URDMA_DIR",
                                   directory, std::strerror(errno)));
  }
  struct stat info {};
  const int looked = is_named ? ::stat(directory.c_str(), &info) : ::lstat(directory.c_str(), &info);
  if (looked != 0 || !S_ISDIR(info.st_mode))
    return fail(ENOTDIR, fmt::format("{} is not a directory", directory));
  if (is_named) return {};
  if (info.st_uid != ::geteuid()) {
    return fail(EPERM,
                fmt::format("{} belongs to another user; name another directory in URDMA_DIR", directory));
  }
  if (is_private && (info.st_mode & kOthers) != 0) {
    return fail(EPERM, fmt::format("{} is open to other users; make it private with 'chmod 700 {}'",
                                   directory, directory));
  }
  return {};
}

Status check_name(const std::string& name) {
  const auto is_good = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  };
  const bool is_name = !name.empty() && name.size() <= kMaxNameBytes &&
                       std::isalnum(static_cast<unsigned char>(name[0])) != 0 &&
                       std::all_of(name.begin(), name.end(), is_good);
  if (is_name) return {};
  return fail(EINVAL, fmt::format("'{}' is no name for a node: use letters, digits, '.', '_' and '-'", name));
}

std::optional<RunningNode> find_in(const std::string& state, const std::string& name) {
  std::error_code failed;
  const std::string directory = std::filesystem::canonical(state + "/" + name, failed).string();
  if (failed) return std::nullopt;
  const int fd = ::open((directory + "/" + abi::kLockFile).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  // A shared lock that is refused says that a daemon holds the exclusive one; one that is granted goes at
  // once.
  const bool is_held = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  char text[32] = "";
  const bool is_read = ::pread(fd, text, sizeof(text) - 1, 0) > 0;
  ::close(fd);
  const pid_t pid = std::atoi(text);
  if (!is_held || !is_read || pid <= 0) return std::nullopt;
  return RunningNode{directory, pid};
}

Result<RunningNode> find_node(const std::string& name) {
  if (auto good = check_name(name); !good) return tl::make_unexpected(good.error());
  if (const auto own = find_in(state_directory(), name)) return *own;
  if (::geteuid() != 0 && variable("URDMA_DIR").empty()) {
    const auto roots = find_in(kRootState, name);
    const bool may_use = roots && ::access((roots->directory + "/" + abi::kControlSocket).c_str(), W_OK) == 0;
    if (may_use) return *roots;
  }
  const std::string lock = state_directory() + "/" + name + "/" + abi::kLockFile;
  if (::access(lock.c_str(), R_OK) != 0 && errno == EACCES) {
    return fail(
        EACCES,
        fmt::format("the node '{}' in {} is not for this user; start an own one, with another URDMA_DIR",
                    name, state_directory()));
  }
  const std::string option = name == "default" ? "" : " --name " + name;
  return fail(ESRCH, fmt::format("no node named '{}' runs in {}; start one with 'urdma up{}'", name,
                                 state_directory(), option));
}

bool is_ending(pid_t pid) {
  std::ifstream stat_file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(stat_file, line)) return true;
  // Behind the name in parentheses: state, five numbers, flags.
  std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
  std::string state;
  std::string skipped;
  unsigned long flags = 0;
  fields >> state;
  for (int i = 0; i < kFieldsBeforeFlags; ++i) fields >> skipped;
  fields >> flags;
  if (state == "Z" || state == "X" || (flags & kExiting) != 0) return true;
  std::ifstream status_file(fmt::format("/proc/{}/status", pid));
  while (std::getline(status_file, line)) {
    if (line.rfind("SigPnd:", 0) != 0 && line.rfind("ShdPnd:", 0) != 0) continue;
    const unsigned long pending = std::strtoul(line.c_str() + line.find(':') + 1, nullptr, 16);
    if ((pending & 1UL << (SIGKILL - 1)) != 0) return true;
  }
  return false;
}

std::string own_directory() {
  std::error_code failed;
  return std::filesystem::read_symlink("/proc/self/exe", failed).parent_path().string();
}

std::string find_part(std::initializer_list<const char*> relative_paths) {
  for (const char* relative : relative_paths) {
    std::error_code failed;
    const auto path = std::filesystem::canonical(own_directory() + "/" + relative, failed);
    if (!failed) return path.string();
  }
  return "";
}

}  // namespace urdma::tools
