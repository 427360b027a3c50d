// A node's directory (see node_directory.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/node_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "urdma/abi/control.hpp"

namespace urdma::control {
namespace {

constexpr int kBacklog = 64;
constexpr int kLockAttempts = 4;
constexpr useconds_t kLockRetryUs = 10'000;

Result<std::optional<gid_t>> find_group(const std::optional<std::string>& name) {
  if (!name.has_value()) return std::optional<gid_t>{};
  if (::geteuid() != 0) return fail(EPERM, "only a node that root starts can belong to a group");
  const struct group* entry = ::getgrnam(name->c_str());
  if (entry == nullptr) return fail(EINVAL, fmt::format("there is no group named {}", *name));
  return std::optional<gid_t>{entry->gr_gid};
}

Status make_directory(const std::string& path, mode_t mode, std::optional<gid_t> group) {
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST) return fail_errno(errno, "cannot make " + path);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.is_open()) return fail_errno(errno, "cannot open the directory " + path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return fail_errno(errno, "cannot look at " + path);
  if (info.st_uid != ::geteuid()) {
    return fail(EPERM, fmt::format("{} belongs to another user: name another directory in URDMA_DIR", path));
  }
  if (group.has_value() && ::fchown(fd.get(), static_cast<uid_t>(-1), *group) != 0) {
    return fail_errno(errno, "cannot give " + path + " to the group");
  }
  if (::fchmod(fd.get(), mode) != 0) return fail_errno(errno, "cannot set the mode of " + path);
  return {};
}

Result<UniqueFd> take_lock(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd.is_open()) return fail_errno(errno, "cannot open the lock file " + path);
  // A tool that looks whether a daemon is there holds a shared lock for a moment: so try more than once.
  int locked = ::flock(fd.get(), LOCK_EX | LOCK_NB);
  for (int attempt = 1; locked != 0 && errno == EWOULDBLOCK && attempt < kLockAttempts; ++attempt) {
    ::usleep(kLockRetryUs);
    locked = ::flock(fd.get(), LOCK_EX | LOCK_NB);
  }
  if (locked != 0) {
    if (errno != EWOULDBLOCK) return fail_errno(errno, "cannot lock " + path);
    char text[32] = "";
    if (::pread(fd.get(), text, sizeof(text) - 1, 0) < 0) text[0] = '\0';
    return fail(EBUSY, fmt::format("a daemon already runs this node (process {})", std::atoi(text)));
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) {
    return fail_errno(errno, "cannot write " + path);
  }
  return fd;
}

}  // namespace

Result<NodeDirectory> NodeDirectory::open(const std::string& path, const std::optional<std::string>& group) {
  const auto group_id = find_group(group);
  if (!group_id) return tl::make_unexpected(group_id.error());
  const mode_t mode = group_id->has_value() ? 0750 : 0700;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  if (auto made = make_directory(path, mode, *group_id); !made) return tl::make_unexpected(made.error());
  const std::string real = std::filesystem::canonical(path, ignored).string();
  if (real.empty()) return fail(ENOENT, "cannot find " + path);
  auto lock = take_lock(real + "/" + abi::kLockFile);
  if (!lock) return tl::make_unexpected(lock.error());
  if (auto made = make_directory(real + "/" + abi::kDeviceDirectory, mode, *group_id); !made) {
    return tl::make_unexpected(made.error());
  }
  NodeDirectory directory(real, std::move(*lock), *group_id);
  directory.remove_sockets();
  return directory;
}

Result<UniqueFd> NodeDirectory::listen(const std::string& name) const {
  const std::string where = file(name);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (where.size() >= sizeof(address.sun_path)) {
    return fail(ENAMETOOLONG,
                fmt::format("the path {} is too long for a socket: choose a shorter URDMA_DIR", where));
  }
  where.copy(address.sun_path, where.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return fail_errno(errno, "cannot make a socket");
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return fail_errno(errno, "cannot bind " + where);
  }
  const mode_t mode = group_.has_value() ? 0660 : 0600;
  if (group_.has_value() && ::chown(where.c_str(), static_cast<uid_t>(-1), *group_) != 0) {
    return fail_errno(errno, "cannot give " + where + " to the group");
  }
  if (::chmod(where.c_str(), mode) != 0) return fail_errno(errno, "cannot set the mode of " + where);
  if (::listen(fd.get(), kBacklog) != 0) return fail_errno(errno, "cannot listen on " + where);
  return fd;
}

void NodeDirectory::remove_sockets() const {
  std::error_code ignored;
  std::filesystem::remove(file(abi::kControlSocket), ignored);
  for (const auto& entry : std::filesystem::directory_iterator(file(abi::kDeviceDirectory), ignored)) {
    std::filesystem::remove(entry.path(), ignored);
  }
}

}  // namespace urdma::control
