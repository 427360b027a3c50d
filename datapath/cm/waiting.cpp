// Time: repeats, MRA both ways, and the end of waiting (IBTA 1, 12.9.8.1, 12.9.8.2, 12.9.8.4).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <algorithm>

#include "datapath/cm/machine.hpp"

namespace urdma::cm {

namespace {

// However long a peer says that it will take (a code can mean two hours), no longer is waited for it.
constexpr Duration kMostServiceTime = seconds(300);

// Every repeat was in vain.
void give_up(Core& core, Connection& connection, Instant now) {
  ++core.counters().given_up;
  switch (connection.state) {
    case State::kRequestSent:
    case State::kReplySent:
      core.raise(connection, EventKind::kUnreachable);
      return refuse_silent_peer(core, connection, now);
    case State::kDisconnectSent: {
      Event event;
      event.kind = EventKind::kDisconnected;
      event.is_timed_out = true;
      core.raise(connection, std::move(event));
      core.enter_time_wait(connection, now);
      return;
    }
    case State::kResolveSent:
      core.raise(connection, EventKind::kUnreachable);
      return core.finish(connection);
    case State::kReplied:
    case State::kRequested:
    case State::kEstablished:
    case State::kTimeWait:
    case State::kResolveRequested:
    case State::kResolveAnswered:
    case State::kOver:
      return;
  }
}

void repeat(Core& core, Connection& connection, Instant now) {
  if (connection.retries_left == 0) return give_up(core, connection, now);
  --connection.retries_left;
  ++core.counters().repeated;
  core.send(connection.ends, connection.message);
  core.set_deadline(connection, now + core.period());
}

// RTU or REJ, of which nobody says that they have come. `end` is the deadline behind the last.
void repeat_unasked(Core& core, Connection& connection, Instant now, Instant end) {
  --connection.retries_left;
  ++core.counters().repeated;
  core.send(connection.ends, connection.message);
  core.set_deadline(connection, connection.retries_left == 0 ? end : earlier(now + core.period(), end));
}

void wait_on(Core& core, Connection& connection, Instant now) {
  if (now < connection.time_wait_end) return repeat_unasked(core, connection, now, connection.time_wait_end);
  if (connection.has_been_established) core.raise(connection, EventKind::kTimeWaitOver);
  core.finish(connection);
}

}  // namespace

void delay(Connection& connection) {
  if (connection.state == State::kRequested || connection.state == State::kReplied)
    connection.may_delay = true;
}

void answer_impatience(Core& core, Connection& connection) {
  ++core.counters().duplicates;
  if (!connection.may_delay) return;
  connection.has_delayed = true;
  const bool is_request = connection.state == State::kRequested;
  const auto subject = is_request ? wire::CmSubject::kReq : wire::CmSubject::kRep;
  core.send(connection.ends, make_mra(connection, subject, core.config().service_time));
}

void on_mra(Core& core, const Incoming<wire::CmMraWire>& mra) {
  Connection* connection = find_local(core, mra.ends, mra.body.remote_comm_id.get());
  const bool is_meant = connection != nullptr && (!connection->knows_remote_id ||
                                                  connection->remote_id == mra.body.local_comm_id.get());
  if (!is_meant) {
    ++core.counters().unmatched;
    return;
  }
  const auto subject = static_cast<wire::CmSubject>(wire::kSubject.of(mra.body.subject));
  const bool is_waited_for = (connection->state == State::kRequestSent && subject == wire::CmSubject::kReq) ||
                             (connection->state == State::kReplySent && subject == wire::CmSubject::kRep);
  if (!is_waited_for) return;  // late: what was waited for has come
  const Duration service = timeout_of(wire::kFiveBits.of(mra.body.service_timeout));
  core.set_deadline(*connection, mra.now + std::min(service, kMostServiceTime) + core.period());
}

void on_due(Core& core, Connection& connection, Instant now) {
  switch (connection.state) {
    case State::kRequestSent:
    case State::kReplySent:
    case State::kDisconnectSent:
    case State::kResolveSent:
      return repeat(core, connection, now);
    case State::kEstablished:
      return repeat_unasked(core, connection, now, Instant::never());
    case State::kTimeWait:
      return wait_on(core, connection, now);
    case State::kResolveAnswered:
      return core.finish(connection);
    case State::kReplied:
    case State::kRequested:
    case State::kResolveRequested:
    case State::kOver:
      return;
  }
}

}  // namespace urdma::cm
