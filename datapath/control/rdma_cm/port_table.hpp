// Who has which port of which port space, by the rules of rdma_cm (those of bind(2), but for their errors).
// Owner: the service; control thread. Pure.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "datapath/control/rdma_cm/socket_address.hpp"

namespace urdma::control::rdma_cm {

// IBTA 1, annex A11, and what rdma_cm adds for InfiniBand services.
enum class PortSpace : std::uint16_t { kIpoib = 0x0002, kTcp = 0x0106, kUdp = 0x0111, kIb = 0x013F };

struct PortUser {
  std::uint32_t id = 0;
  SocketAddress address;
  bool reuses_address = false;
  bool is_family_only = false;
};

class PortTable {
 public:
  // Ports from `first` to `last` are given to whoever asks for none in particular; `seed` says with which it
  // begins.
  PortTable(std::uint16_t first, std::uint16_t last, std::uint32_t seed);

  // Gives `user` the port of its address, or one that nobody has where that is 0, which it sets.
  // EADDRINUSE, or EADDRNOTAVAIL where the others have it for every address (as Linux).
  [[nodiscard]] int take(PortSpace space, PortUser& user);
  // Whether the user may listen: nobody else has the address, also where both said that they reuse it.
  [[nodiscard]] int check_listen(PortSpace space, const PortUser& user) const;
  // The user listens from now on, which check_listen() allows: one at each address.
  void note_listener(PortSpace space, std::uint16_t port, std::uint32_t id);
  // What the user says of its port from now on.
  void change(PortSpace space, const PortUser& user);
  void give_back(PortSpace space, std::uint16_t port, std::uint32_t id);
  // Those who listen at the port, in the order in which they began.
  [[nodiscard]] std::span<const std::uint32_t> listeners(PortSpace space, std::uint16_t port) const;
  [[nodiscard]] std::size_t size() const { return ports_.size(); }

 private:
  // Users who are the same to all others. However many have a port, they are of a few kinds: the host has not
  // so many addresses.
  struct Kind {
    explicit Kind(const PortUser& user);
    auto operator<=>(const Kind&) const = default;

    Family family;
    bool is_of_all_devices;
    wire::Gid gid{};  // and the scope, where it is one address
    std::uint32_t scope = 0;
    bool reuses_address;
    bool is_family_only;
  };
  struct Port {
    std::map<std::uint32_t, Kind> users;  // by ID
    std::map<Kind, std::uint32_t> kinds;  // and how many are of it
    std::vector<std::uint32_t> listeners;

    void add(const PortUser& user);
    void remove(std::uint32_t id);
  };
  // Whether the user may have the port beside those who have it. Itself is not in its way.
  [[nodiscard]] int check(PortSpace space, const PortUser& user, bool reuses_address) const;
  [[nodiscard]] int find_free(PortSpace space, std::uint16_t& port);
  [[nodiscard]] bool is_given(std::uint16_t port) const { return port >= first_ && port - first_ < count_; }

  std::uint16_t first_;
  std::uint16_t count_;
  std::uint32_t next_;
  std::map<std::pair<PortSpace, std::uint16_t>, Port> ports_;
  std::map<PortSpace, std::uint32_t> taken_;  // of those that are given: how many somebody has
};

}  // namespace urdma::control::rdma_cm
