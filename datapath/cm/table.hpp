// All connections of one manager, bounded, and the numbers by which messages find them.
//
// Owner: a Core. One thread. References stay valid until remove(). Keys of peers are hashed with a secret
// that nothing on the wire tells, so that nobody can choose numbers that collide.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "datapath/cm/connection.hpp"
#include "datapath/cm/random.hpp"

namespace urdma::cm {

class Table {
 public:
  // `random` outlives the table.
  Table(std::uint32_t most, Random& random);

  // A new connection with an ID that no other has; null when there is no room.
  [[nodiscard]] Connection* add(const Ends& ends, State state);
  // Takes it out of every list, and frees it.
  void remove(Connection& connection);

  [[nodiscard]] Connection* find(std::uint32_t id) const;
  [[nodiscard]] Connection* find_peer(PeerNumber kind, const wire::Gid& peer, std::uint32_t number) const;
  // From now on found by the number, which is in the connection: remote_id, or remote_qpn.
  void list(PeerNumber kind, Connection& connection);
  void unlist(PeerNumber kind, Connection& connection);

  // local_qpn counts as in use, or does not any more.
  void hold_qpn(Connection& connection);
  void free_qpn(Connection& connection);
  [[nodiscard]] bool is_in_use(Qpn local) const { return qpns_.contains(local.value); }

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(by_id_.size()); }
  // More than half full: what is kept out of courtesy goes.
  [[nodiscard]] bool is_crowded() const { return by_id_.size() > most_ / 2; }

 private:
  struct PeerKey {
    wire::Gid peer{};
    std::uint32_t number = 0;
    friend bool operator==(const PeerKey&, const PeerKey&) = default;
  };
  struct PeerHash {
    Key secret;
    std::size_t operator()(const PeerKey& key) const;
  };
  using PeerMap = std::unordered_map<PeerKey, Connection*, PeerHash>;

  [[nodiscard]] static PeerKey key_of(PeerNumber kind, const Connection& connection);

  std::uint32_t most_;
  Random& random_;
  std::uint64_t next_serial_ = 1;
  std::unordered_map<std::uint32_t, std::unique_ptr<Connection>> by_id_;  // IDs are ours, and random
  std::array<PeerMap, kPeerNumbers> by_peer_;
  std::unordered_map<std::uint32_t, std::uint32_t> qpns_;  // local QP number -> connections that hold it
};

}  // namespace urdma::cm
