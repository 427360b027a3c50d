// The connection manager: finds whom a command or a message is for, and hands it to the state machines. See
// manager.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/cm/manager.hpp"

#include <cerrno>

#include "datapath/cm/machine.hpp"

namespace urdma::cm {

namespace {

constexpr unsigned kCounterMask = 0xF;

template <typename Body>
Incoming<Body> incoming(const Ends& ends, const wire::CmHeader& header, Bytes mad, Instant now) {
  return {ends, header.transaction_id, wire::overlay<wire::MadOf<Body>>(mad.data()).body, now};
}

}  // namespace

Connection* find_local(Core& core, const Ends& ends, std::uint32_t local_id) {
  Connection* connection = core.table().find(local_id);
  if (connection == nullptr || is_resolution(*connection)) return nullptr;
  return connection->ends.remote == ends.remote ? connection : nullptr;
}

struct Manager::Inside {
  explicit Inside(const Config& config) : core(config) {}

  // Null for an ID that is not known, or that nobody has any more.
  [[nodiscard]] Connection* find(ConnectionId id) const {
    Connection* connection = core.table().find(id.value);
    return connection == nullptr || connection->is_forgotten ? nullptr : connection;
  }

  Core core;
};

Manager::Manager(const Config& config) : inside_(std::make_unique<Inside>(config)) {}
Manager::~Manager() = default;

int Manager::connect(const Request& request, Instant now, ConnectionId& connection) {
  return cm::connect(inside_->core, request, now, connection);
}

int Manager::confirm(ConnectionId connection, std::span<const std::uint8_t> data, Instant now) {
  Connection* found = inside_->find(connection);
  return found == nullptr ? EINVAL : cm::confirm(inside_->core, *found, data, now);
}

int Manager::accept(ConnectionId connection, const Reply& reply, Instant now) {
  Connection* found = inside_->find(connection);
  return found == nullptr ? EINVAL : cm::accept(inside_->core, *found, reply, now);
}

int Manager::reject(ConnectionId connection, RejectReason reason, std::span<const std::uint8_t> info,
                    std::span<const std::uint8_t> data, Instant now) {
  Connection* found = inside_->find(connection);
  return found == nullptr ? EINVAL : cm::reject(inside_->core, *found, {reason, {}, info, data}, now);
}

int Manager::on_traffic(ConnectionId connection, Instant) {
  Connection* found = inside_->find(connection);
  return found == nullptr ? EINVAL : cm::on_traffic(inside_->core, *found);
}

void Manager::delay(ConnectionId connection, Instant) {
  if (Connection* found = inside_->find(connection)) cm::delay(*found);
}

int Manager::disconnect(ConnectionId connection, std::span<const std::uint8_t> data, Instant now) {
  Connection* found = inside_->find(connection);
  return found == nullptr ? EINVAL : cm::disconnect(inside_->core, *found, data, now);
}

int Manager::resolve(const Resolve& resolve, Instant now, ConnectionId& connection) {
  return cm::resolve(inside_->core, resolve, now, connection);
}

int Manager::answer(ConnectionId connection, const Resolved& resolved, Instant now) {
  Connection* found = inside_->find(connection);
  return found == nullptr ? EINVAL : cm::answer(inside_->core, *found, resolved, now);
}

void Manager::forget(ConnectionId connection, Instant now) {
  if (Connection* found = inside_->find(connection)) cm::forget(inside_->core, *found, now);
}

void Manager::on_mad(const Ends& ends, std::span<const std::uint8_t> mad, Instant now) {
  Core& core = inside_->core;
  const auto header = wire::parse_cm_header(mad);
  if (!header) {
    ++core.counters().malformed;
    return;
  }
  ++core.counters().received[static_cast<unsigned>(header->attribute) & kCounterMask];
  switch (header->attribute) {
    case wire::CmAttribute::kReq:
      return on_req(core, incoming<wire::CmReqWire>(ends, *header, mad, now));
    case wire::CmAttribute::kMra:
      return on_mra(core, incoming<wire::CmMraWire>(ends, *header, mad, now));
    case wire::CmAttribute::kRej:
      return on_rej(core, incoming<wire::CmRejWire>(ends, *header, mad, now));
    case wire::CmAttribute::kRep:
      return on_rep(core, incoming<wire::CmRepWire>(ends, *header, mad, now));
    case wire::CmAttribute::kRtu:
      return on_rtu(core, incoming<wire::CmRtuWire>(ends, *header, mad, now));
    case wire::CmAttribute::kDreq:
      return on_dreq(core, incoming<wire::CmDreqWire>(ends, *header, mad, now));
    case wire::CmAttribute::kDrep:
      return on_drep(core, incoming<wire::CmDrepWire>(ends, *header, mad, now));
    case wire::CmAttribute::kSidrReq:
      return on_sidr_req(core, incoming<wire::CmSidrReqWire>(ends, *header, mad, now));
    case wire::CmAttribute::kSidrRep:
      return on_sidr_rep(core, incoming<wire::CmSidrRepWire>(ends, *header, mad, now));
  }
}

void Manager::on_deadline(Instant now) {
  Core& core = inside_->core;
  while (Connection* due = core.take_due(now)) on_due(core, *due, now);
}

Instant Manager::next_deadline() const { return inside_->core.next_deadline(); }
bool Manager::poll_transmit(OutgoingMad& out) { return inside_->core.poll_transmit(out); }
bool Manager::poll_event(Event& event) { return inside_->core.poll_event(event); }
bool Manager::is_in_use(Qpn local) const { return inside_->core.table().is_in_use(local); }
const Counters& Manager::counters() const { return inside_->core.counters(); }
std::uint32_t Manager::connections() const { return inside_->core.table().size(); }

}  // namespace urdma::cm
