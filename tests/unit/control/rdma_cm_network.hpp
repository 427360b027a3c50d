// A network of two devices for the connection manager, without a node: managers of communication speak to one
// another at once. For tests and fuzzers.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "datapath/control/rdma_cm/manager_events.hpp"
#include "datapath/control/rdma_cm/network.hpp"

namespace urdma::control::rdma_cm {

inline wire::Gid ipv4(std::uint8_t last) { return wire::gid_from_ipv4(0xC0000200U | last); }  // 192.0.2.0/24

inline wire::Gid ipv6(std::uint8_t last) {
  wire::Gid gid{0x20, 0x01, 0x0D, 0xB8};
  gid[15] = last;
  return gid;
}

inline const SocketAddress kLoopbackIpv4 = address_of(wire::gid_from_ipv4(0x7F000001), 0);
inline const SocketAddress kLoopbackIpv6 =
    address_of(wire::Gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 0);

inline constexpr std::uint8_t kMostReads = 16;  // of a QP, under way or answered at once

// Two devices, 192.0.2.1 with 2001:db8::1, and 192.0.2.2. Everything else of 192.0.2.0/24 is on the link of
// the first, and 192.0.2.99 does not answer; the rest is nowhere.
class FakeNetwork final : public Network {
 public:
  FakeNetwork() {
    for (std::uint64_t device = 0; device < 2; ++device) {
      cm::Config config;
      config.secret = {7, device};
      config.channel_adapter_guid = 1 + device;
      config.most_connections = 100;
      config.most_responder_resources = kMostReads;
      managers.push_back(std::make_unique<cm::Manager>(config));
    }
  }

  Instant now() const override { return time; }
  Result<LocalEnd> find_local(const SocketAddress& address) const override {
    if (address.is_loopback()) return LocalEnd{0, address.family == Family::kIpv4 ? ipv4(1) : ipv6(1)};
    if (address.gid == ipv4(1) || address.gid == ipv6(1)) return LocalEnd{0, address.gid};
    if (address.gid == ipv4(2)) return LocalEnd{1, address.gid};
    return fail(EADDRNOTAVAIL, "not here");
  }
  Result<LocalEnd> find_source(const SocketAddress& dest) override {
    if (const auto own = find_local(dest)) return *own;
    const wire::Gid network = ipv4(0);
    if (!std::equal(network.begin(), network.end() - 1, dest.gid.begin()))
      return fail(ENETUNREACH, "no route");
    return LocalEnd{0, ipv4(1)};
  }
  void resolve(std::uint32_t id, const LocalEnd&, const wire::Gid& dest, const Done& done) override {
    if (dest == ipv4(99)) {
      late = done;
      resolving.insert(id);
    } else {
      done(0);
    }
  }
  void stop_resolving(std::uint32_t id) override { resolving.erase(id); }
  DeviceFacts facts(std::uint32_t device) const override { return {1 + device, path_mtu[device], 3}; }
  std::optional<std::uint8_t> gid_index(const LocalEnd& end) const override {
    return end.gid == ipv6(1) ? std::uint8_t{1} : std::uint8_t{0};
  }
  cm::Manager& manager(std::uint32_t device) override { return *managers[device]; }

  // Everything that there is to say is said, and heard.
  void run(Context& context) {
    for (bool is_anything = true; is_anything;) {
      is_anything = false;
      for (std::uint32_t device = 0; device < managers.size(); ++device) {
        cm::OutgoingMad outgoing;
        cm::Event event;
        while (managers[device]->poll_transmit(outgoing)) is_anything |= deliver(outgoing);
        while (managers[device]->poll_event(event)) {
          on_manager_event(context, device, event);
          is_anything = true;
        }
      }
    }
  }
  bool deliver(const cm::OutgoingMad& outgoing) {
    SocketAddress dest = address_of(outgoing.ends.remote, 0);
    const auto owner = find_local(dest);
    if (!owner || is_cut) return false;
    cm::Ends ends = outgoing.ends;
    std::swap(ends.local, ends.remote);
    managers[owner->device]->on_mad(ends, outgoing.mad, time);
    return true;
  }
  void pass(Context& context, Duration duration) {
    for (Instant end = time + duration; time < end;) {
      time = earlier(end, time + milliseconds(100));
      for (const auto& manager : managers) manager->on_deadline(time);
      run(context);
    }
  }

  Instant time{1'000'000'000};
  std::array<std::uint8_t, 2> path_mtu{3, 3};  // codes
  std::vector<std::unique_ptr<cm::Manager>> managers;
  Done late;
  bool is_cut = false;                // nothing that is sent arrives
  std::set<std::uint32_t> resolving;  // who asked for what is late, and has not stopped
};

}  // namespace urdma::control::rdma_cm
