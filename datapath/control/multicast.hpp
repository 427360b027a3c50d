// Which multicast groups the node's queue pairs are in, and the memberships that make the network bring their
// frames: the kernel joins a group on the port's interface (IGMP, MLD), and the interface takes its frames.
// Where the kernel has none, the device's GroupReports tell the network.
// Owner: the node; control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "datapath/control/device.hpp"
#include "urdma/base/unique_fd.hpp"
#include "urdma/wire/frame.hpp"

namespace urdma::control {

class MulticastGroups {
 public:
  // One more queue pair of the device is in the group. The first one makes the port join: what the kernel
  // does not let us do is logged, since frames may come all the same.
  void join(const Device& device, const wire::Gid& group);
  // One less. The last one makes the port leave.
  void leave(const Device& device, const wire::Gid& group);
  // The interface of the device's port was made anew: joins the groups there.
  void join_anew(const Device& device);
  // Queue pairs in the group.
  [[nodiscard]] std::uint32_t members(const Device& device, const wire::Gid& group) const;
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(groups_.size()); }

 private:
  // A membership lasts as long as its socket.
  struct Group {
    std::uint32_t members = 0;
    int interface = 0;  // on which the sockets are members
    UniqueFd kernel;    // joins by IP
    UniqueFd link;      // makes the interface take the group's frames
  };

  static void join_network(const Device& device, const wire::Gid& group, Group& entry);

  std::map<std::pair<std::uint32_t, wire::Gid>, Group> groups_;  // by device and GID
};

}  // namespace urdma::control
