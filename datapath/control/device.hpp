// The verbs devices of the node, one a port: identity, port state, GIDs, and their following of the
// kernel's interfaces. Owner: the daemon; control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "datapath/control/gid_table.hpp"
#include "datapath/control/group_reports.hpp"
#include "datapath/control/neighbour_table.hpp"
#include "datapath/control/netlink.hpp"
#include "datapath/control/sysfs_tree.hpp"
#include "datapath/io/port.hpp"
#include "datapath/limits.hpp"
#include "urdma/abi/control.hpp"

namespace urdma::control {

// Legal values of ibv_port_attr, and what sysfs says of them.
struct LinkRate {
  std::uint8_t width = 0;
  std::uint8_t speed = 0;
  const char* text = "";
};
// The rate whose figure is nearest below an interface's speed, as the kernel has it for Ethernet.
[[nodiscard]] LinkRate link_rate(std::uint32_t megabits_per_second);

// Whether a port can carry packets, and its path MTU, which is a legal one also where it cannot.
struct PortCondition {
  bool is_active = false;
  std::uint8_t active_mtu_code = 0;
};
// `own` is the port's interface, null when it is gone; a port that never had one has nothing that could go
// down.
[[nodiscard]] PortCondition judge_port(bool has_interface, const InterfaceState* own, std::uint32_t port_mtu);

struct Device {
  std::uint32_t index = 0;
  std::string name;          // urdma0
  std::uint32_t uverbs = 0;  // N of uverbsN
  io::Port* port = nullptr;
  std::string interface;    // of the kernel, for its one port; empty: the host's (loopback), or none
  int interface_index = 0;  // of that interface when the port was opened on it; 0: none
  wire::MacAddress mac{};   // now
  std::uint32_t mtu = 0;    // of the interface now; the port carries this much at most
  // Of a port that the kernel has no interface for, null for others: link addresses are its own to find.
  std::unique_ptr<NeighbourTable> neighbours;
  std::unique_ptr<GroupReports> reports;  // of the same ports, and null for others
  GidTable gids;
  std::uint64_t node_guid = 0;  // host order of the number that is shown big-endian
  bool is_active = false;
  std::uint8_t active_mtu_code = 0;
  LinkRate rate;

  // Its interface was removed, or its device could not be started again: the port carries nothing.
  bool is_interface_gone = false;
  bool is_stopped = false;

  explicit Device(std::uint32_t gid_table_length) : gids(gid_table_length) {}
  [[nodiscard]] abi::DeviceInfo info(const Limits& limits) const;
  [[nodiscard]] abi::QueryPortReply port_info() const;
};

// What refresh() saw change.
struct DeviceChange {
  std::uint32_t device = 0;
  bool gids = false;
  bool state = false;     // active or down
  bool link = false;      // MTU or MAC
  bool returned = false;  // its interface was made anew: the port is to be opened on it
  [[nodiscard]] bool is_any() const { return gids || state || link || returned; }
};

class DeviceSet {
 public:
  // One device for each of `ports`, in their order; `node` names the node for GUIDs. Writes the sysfs tree
  // below `sysfs_directory`.
  [[nodiscard]] static Result<std::unique_ptr<DeviceSet>> create(
      std::span<const std::unique_ptr<io::Port>> ports, const std::string& node, const Limits& limits,
      const std::string& sysfs_directory, Netlink& netlink);

  // Looks at the interfaces again, and brings GID tables, port states and sysfs up to date.
  [[nodiscard]] std::vector<DeviceChange> refresh();
  // Whether the link of a port that the kernel does not watch has come up or gone down since.
  [[nodiscard]] bool has_link_news() const;
  // Puts the ports' frame counters into sysfs.
  void write_counters();

  [[nodiscard]] Device& at(std::uint32_t index) { return devices_[index]; }
  [[nodiscard]] std::span<Device> all() { return devices_; }
  // The device that has this GID; null when none of the node has.
  [[nodiscard]] const Device* find_by_gid(const wire::Gid& gid) const;

 private:
  DeviceSet(std::vector<Device> devices, Netlink& netlink)
      : devices_(std::move(devices)), netlink_(netlink) {}
  [[nodiscard]] DeviceChange refresh(Device& device, std::span<const InterfaceState> interfaces);
  void write_sysfs(const Device& device);

  std::vector<Device> devices_;
  Netlink& netlink_;
  std::optional<SysfsTree> sysfs_;
};

// EUI-64 of a MAC, as a GUID.
[[nodiscard]] std::uint64_t guid_from_mac(const wire::MacAddress& mac);
// The same for the same text, different for others, never 0; marked as locally administered.
[[nodiscard]] std::uint64_t guid_from_text(const std::string& text);

}  // namespace urdma::control
