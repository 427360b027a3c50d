// A node's directory: NODE/pid (the lock), NODE/log, NODE/control.sock, NODE/dev/uverbsN, NODE/sysfs. Made
// and checked here; whoever holds the lock on NODE/pid is the node's daemon, and what a dead one left behind
// is taken over. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "urdma/base/result.hpp"
#include "urdma/base/unique_fd.hpp"

namespace urdma::control {

class NodeDirectory {
 public:
  // Makes `path` if it is not there, checks that it is this user's and closed to others, and takes the lock.
  // `group`: a node of root that this group may use. EBUSY when a daemon has the lock.
  [[nodiscard]] static Result<NodeDirectory> open(const std::string& path,
                                                  const std::optional<std::string>& group);
  NodeDirectory(NodeDirectory&&) noexcept = default;
  NodeDirectory& operator=(NodeDirectory&&) noexcept = default;
  ~NodeDirectory() = default;

  // Absolute, without symbolic links: the name that clients see of the sockets.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  // A listening SOCK_SEQPACKET socket NODE/`name`, which the node's users may connect to.
  [[nodiscard]] Result<UniqueFd> listen(const std::string& name) const;
  // Takes away the sockets. The lock stays until the process ends.
  void remove_sockets() const;

 private:
  NodeDirectory(std::string path, UniqueFd lock, std::optional<gid_t> group)
      : path_(std::move(path)), lock_(std::move(lock)), group_(group) {}

  std::string path_;
  UniqueFd lock_;
  std::optional<gid_t> group_;
};

}  // namespace urdma::control
