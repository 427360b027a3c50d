// From an address vector to a path: which source address, whether the peer is on this node, and if not its
// link address. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <functional>

#include "datapath/control/device.hpp"
#include "datapath/control/netlink.hpp"
#include "datapath/engine/path.hpp"
#include "urdma/abi/control.hpp"
#include "urdma/base/ids.hpp"

namespace urdma::control {

class Addressing {
 public:
  // `force_wire`: ends on one node exchange packets, where their port can carry them (loopback).
  Addressing(DeviceSet& devices, Netlink& netlink, bool force_wire)
      : devices_(devices), netlink_(netlink), force_wire_(force_wire) {}

  // `done` is called once, from here or later: with the path, or with EINVAL (no such source address),
  // ENETUNREACH, EHOSTUNREACH or ETIMEDOUT in words.
  using Done = std::function<void(Result<engine::Path>)>;
  void find_path(const Device& device, const abi::AddressVector& address, Qpn own, Qpn peer,
                 const Done& done);

  // The link address that frames from `source`, an entry of the device's table, to `dest` are to go to.
  // `done` is called once, from here or later: with the address, or with ENETUNREACH, EHOSTUNREACH or
  // ETIMEDOUT.
  using LinkDone = std::function<void(const Result<wire::MacAddress>&)>;
  void find_link(const Device& device, const PortGid& source, const wire::Gid& dest, const LinkDone& done);

 private:
  DeviceSet& devices_;
  Netlink& netlink_;
  bool force_wire_;
};

using engine::flow_port;

}  // namespace urdma::control
