// The GIDs of one port. An entry keeps its index for as long as its address is there, since programs
// name a source address by index. Pure; control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "datapath/control/netlink.hpp"
#include "urdma/wire/frame.hpp"

namespace urdma::control {

struct PortGid {
  wire::Gid gid{};
  int ifindex = 0;        // 0: no interface of the kernel has it
  std::string interface;  // for gid_attrs/ndevs
  wire::MacAddress mac{};
  friend bool operator==(const PortGid&, const PortGid&) = default;
};

class GidTable {
 public:
  explicit GidTable(std::uint32_t capacity) : entries_(capacity) {}

  // Makes the table hold `wanted` (the first of equal GIDs counts; what does not fit is left out).
  // Returns whether anything changed.
  bool update(std::span<const PortGid> wanted);
  // Null when the entry is not in use.
  [[nodiscard]] const PortGid* at(std::uint32_t index) const;
  [[nodiscard]] const PortGid* find(const wire::Gid& gid) const;
  [[nodiscard]] std::uint32_t capacity() const { return static_cast<std::uint32_t>(entries_.size()); }
  [[nodiscard]] std::vector<wire::Gid> gids() const;

 private:
  std::vector<std::optional<PortGid>> entries_;
};

// The GIDs of a port that stands for every interface of the host (the embedded default): the addresses of
// all interfaces that are up, without the loopback interface's; 127.0.0.1 where there are none.
[[nodiscard]] std::vector<PortGid> host_gids(std::span<const InterfaceState> interfaces);
// The GIDs of a port on one interface.
[[nodiscard]] std::vector<PortGid> interface_gids(const InterfaceState& interface);
// As text: 10.0.0.1, or fe80::1.
[[nodiscard]] std::string gid_text(const wire::Gid& gid);

}  // namespace urdma::control
