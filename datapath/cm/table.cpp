// The connections of one manager. See table.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/cm/table.hpp"

#include <cstring>

namespace urdma::cm {

namespace {

constexpr std::size_t index_of(PeerNumber kind) { return static_cast<std::size_t>(kind); }

}  // namespace

std::size_t Table::PeerHash::operator()(const PeerKey& key) const {
  std::array<std::uint64_t, 3> words{};
  static_assert(sizeof(key.peer) == 2 * sizeof(words[0]));
  std::memcpy(words.data(), key.peer.data(), sizeof(key.peer));
  words[2] = key.number;
  return siphash(secret, words);
}

Table::Table(std::uint32_t most, Random& random)
    : most_(most),
      random_(random),
      by_peer_{PeerMap(0, PeerHash{random.next_key()}), PeerMap(0, PeerHash{random.next_key()}),
               PeerMap(0, PeerHash{random.next_key()})} {}

Connection* Table::add(const Ends& ends, State state) {
  if (by_id_.size() >= most_) return nullptr;
  std::uint32_t id = 0;
  while (id == 0 || by_id_.contains(id)) id = static_cast<std::uint32_t>(random_.next());
  auto connection = std::make_unique<Connection>();
  connection->id = {id};
  connection->serial = next_serial_++;
  connection->ends = ends;
  connection->state = state;
  return by_id_.emplace(id, std::move(connection)).first->second.get();
}

void Table::remove(Connection& connection) {
  for (const PeerNumber kind : {PeerNumber::kRequest, PeerNumber::kResolve, PeerNumber::kQp})
    unlist(kind, connection);
  free_qpn(connection);
  by_id_.erase(connection.id.value);
}

Connection* Table::find(std::uint32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second.get();
}

Table::PeerKey Table::key_of(PeerNumber kind, const Connection& connection) {
  const bool is_qp = kind == PeerNumber::kQp;
  return {connection.ends.remote, is_qp ? connection.remote_qpn.value : connection.remote_id};
}

Connection* Table::find_peer(PeerNumber kind, const wire::Gid& peer, std::uint32_t number) const {
  const PeerMap& map = by_peer_[index_of(kind)];
  const auto found = map.find(PeerKey{peer, number});
  return found == map.end() ? nullptr : found->second;
}

void Table::list(PeerNumber kind, Connection& connection) {
  by_peer_[index_of(kind)].emplace(key_of(kind, connection), &connection);
  connection.is_listed[index_of(kind)] = true;
}

void Table::unlist(PeerNumber kind, Connection& connection) {
  if (!connection.is_listed[index_of(kind)]) return;
  by_peer_[index_of(kind)].erase(key_of(kind, connection));
  connection.is_listed[index_of(kind)] = false;
}

void Table::hold_qpn(Connection& connection) {
  ++qpns_[connection.local_qpn.value];
  connection.holds_qpn = true;
}

void Table::free_qpn(Connection& connection) {
  if (!connection.holds_qpn) return;
  connection.holds_qpn = false;
  const auto held = qpns_.find(connection.local_qpn.value);
  if (--held->second == 0) qpns_.erase(held);
}

}  // namespace urdma::cm
