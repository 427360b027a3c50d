// What all state machines of a manager share: its configuration, the table, deadlines, and what goes out:
// datagrams and events. It decides nothing.
//
// Owner: a Manager. One thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <utility>

#include "datapath/cm/connection.hpp"
#include "datapath/cm/manager.hpp"
#include "datapath/cm/random.hpp"
#include "datapath/cm/table.hpp"

namespace urdma::cm {

class Core {
 public:
  explicit Core(const Config& config);
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] Table& table() { return table_; }
  [[nodiscard]] const Table& table() const { return table_; }
  [[nodiscard]] Counters& counters() { return counters_; }
  [[nodiscard]] const Counters& counters() const { return counters_; }
  [[nodiscard]] std::uint64_t new_transaction() { return random_.next(); }

  // A new connection; null when there is no room. Where the table is crowded, what is kept for nobody but
  // late packets ends first, the oldest before the others.
  [[nodiscard]] Connection* add(const Ends& ends, State state);
  // It is forgotten, and waits for late packets until time_wait_end.
  void note_lingering(const Connection& connection);

  // ---- Datagrams. When most of the queue's bound is not taken away by poll_transmit, they are lost, as they
  // could be on the wire. ----
  void send(const Ends& ends, const Mad& mad);
  // Sends `mad` and keeps it for repeats.
  void send_and_keep(Connection& connection, const Mad& mad);
  // Sends it and repeats it until the connection's next state: Config::most_retries times.
  void send_until_answered(Connection& connection, const Mad& mad, Instant now);
  // Sends again what was kept, for the peer has sent again.
  void answer_again(Connection& connection);
  [[nodiscard]] bool poll_transmit(OutgoingMad& out);
  // How long an answer is waited for: Config::response_time, as the wire has it.
  [[nodiscard]] Duration period() const { return period_; }

  // ---- Events. Those of a forgotten connection are not raised. ----
  void raise(const Connection& connection, Event event);
  void raise(const Connection& connection, EventKind kind);
  [[nodiscard]] bool poll_event(Event& event);

  // ---- Deadlines ----
  void set_deadline(Connection& connection, Instant at);
  [[nodiscard]] Instant next_deadline() const;
  // The connection whose deadline is the earliest and not after `now`, its deadline removed; or null.
  [[nodiscard]] Connection* take_due(Instant now);

  // ---- Ends. `connection` may be gone when they return. ----
  // Nothing is to be done for it any more. It stays until it is forgotten.
  void finish(Connection& connection);
  // The state in which repeats are answered, and IDs and QP are kept, for Config::time_wait. Whether it is in
  // that state; otherwise it has finished.
  bool enter_time_wait(Connection& connection, Instant now);

 private:
  struct Raised {
    std::uint64_t serial = 0;
    Event event;
  };

  Config config_;
  Duration period_;
  Random random_;
  Table table_;
  Counters counters_;
  std::size_t most_outgoing_;
  std::deque<OutgoingMad> outgoing_;
  std::deque<Raised> events_;                              // a handful a connection at most
  std::set<std::pair<Instant, std::uint32_t>> deadlines_;  // and the connection's ID
  std::set<std::pair<Instant, std::uint32_t>> lingering_;  // time_wait_end and ID of those noted
};

}  // namespace urdma::cm
