// The InfiniBand connection manager of one device (IBTA 1, 12): the state machines of its connections and
// datagram resolutions, over management datagrams of QP 1.
//
// Owner: the daemon's control thread, or the simulator; one thread at a time. Datagrams and the time go in;
// datagrams, events and the next deadline come out. It does no I/O, reads no clock, and knows neither IP
// addresses nor listeners: what is above it (datapath/control/rdma_cm) judges requests by their service
// and private data. Memory: one entry a connection, at most Config::most_connections; a storm of requests
// beyond that is turned away with REJ "no resources", from no state.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "datapath/cm/random.hpp"
#include "datapath/cm/types.hpp"

namespace urdma::cm {

struct Config {
  Key secret{};  // of all that peers must not guess: IDs, transaction IDs, how tables hash
  std::uint64_t channel_adapter_guid = 0;  // network order, as verbs has it; local CA GUID of REQ and REP
  std::uint32_t most_connections = 0;
  std::uint8_t most_responder_resources = 0;   // of the device; larger requests of peers are cut down to it
  std::uint8_t most_retries = 15;              // of each message (Max CM Retries)
  Duration response_time = milliseconds(500);  // an answer is waited for so long, then the message is sent
                                               // again; rounded up to 4.096 us << n for the wire
  Duration service_time = seconds(60);         // what MRA asks of the peer while a program decides
  Duration time_wait = seconds(4);  // after a connection, before its IDs and QP are free (12.9.8.4)
};

class Manager {
 public:
  explicit Manager(const Config& config);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // ---- Commands. An errno where the state does not allow it is EINVAL; ENOMEM where a table is full.
  // Private data longer than its message carries is EINVAL. What they send comes out of poll_transmit. ----

  // Active side. Then kReplied, kRejected or kUnreachable comes.
  [[nodiscard]] int connect(const Request& request, Instant now, ConnectionId& connection);
  // After kReplied: RTU. The connection is established here; a repeated REP is answered again.
  [[nodiscard]] int confirm(ConnectionId connection, std::span<const std::uint8_t> data, Instant now);
  // Passive side, after kRequested: REP. Then kEstablished (or kUnreachable, kRejected) comes.
  [[nodiscard]] int accept(ConnectionId connection, const Reply& reply, Instant now);
  // Before it is established, on either side: REJ. The connection is over, and no event of it comes.
  [[nodiscard]] int reject(ConnectionId connection, RejectReason reason, std::span<const std::uint8_t> info,
                           std::span<const std::uint8_t> data, Instant now);
  // A packet of the peer's QP has arrived before its RTU (IBTA 1, 12.9.7.2, RC communication established):
  // kEstablished comes if it was still waited for. EISCONN: the connection is established already.
  [[nodiscard]] int on_traffic(ConnectionId connection, Instant now);
  // The program may take its time with kRequested or kReplied: when the peer repeats its message, it is told
  // by MRA to wait for service_time. A program that is quick costs no message.
  void delay(ConnectionId connection, Instant now);
  // DREQ, from an established connection, on either side; then kDisconnected comes, and kTimeWaitOver. In any
  // other state nothing changes (EINVAL): what was waited for still comes.
  [[nodiscard]] int disconnect(ConnectionId connection, std::span<const std::uint8_t> data, Instant now);
  // Datagram services. Then kResolved or kUnreachable comes.
  [[nodiscard]] int resolve(const Resolve& resolve, Instant now, ConnectionId& connection);
  // After kResolveRequested: SIDR_REP.
  [[nodiscard]] int answer(ConnectionId connection, const Resolved& resolved, Instant now);
  // Whoever had it is gone, maybe killed: the peer is told what fits (REJ, DREQ), repeats are
  // answered and time-wait is kept, and no event of it comes any more. In every state, also after its last
  // event; each connection is forgotten once.
  void forget(ConnectionId connection, Instant now);

  // ---- Input ----
  // A datagram that came to QP 1 of this device: `ends` as the addresses of its packet, seen from here.
  void on_mad(const Ends& ends, std::span<const std::uint8_t> mad, Instant now);
  void on_deadline(Instant now);

  // ---- Output ----
  [[nodiscard]] Instant next_deadline() const;
  [[nodiscard]] bool poll_transmit(OutgoingMad& out);
  [[nodiscard]] bool poll_event(Event& event);
  // Whether the QP number is of a connection that is alive or in time-wait: it is not to be given to a new
  // QP.
  [[nodiscard]] bool is_in_use(Qpn local) const;
  [[nodiscard]] const Counters& counters() const;
  [[nodiscard]] std::uint32_t connections() const;  // entries, those in time-wait too

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace urdma::cm
