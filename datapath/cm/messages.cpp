// Messages of communication management, made and read. See messages.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/cm/messages.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace urdma::cm {

using namespace wire;  // NOLINT: this file is about nothing else

namespace {

constexpr std::uint16_t kPkeyMask = 0x7FFF;  // without the bit of full membership

// What a message carries of private data, padded with the zeros that are there.
template <std::size_t kRoom>
void put(ByteArray<kRoom>& room, Bytes bytes) {
  std::copy_n(bytes.begin(), std::min(bytes.size(), room.size()), room.begin());
}

template <typename Body>
Mad mad_of(CmAttribute attribute, std::uint64_t transaction_id, const Body& body) {
  const MadOf<Body> whole{make_cm_header({attribute, transaction_id}), body};
  static_assert(sizeof(whole) == sizeof(Mad));
  return std::bit_cast<Mad>(whole);
}

template <typename Body>
Body addressed(const Address& address) {
  Body body{};
  body.local_comm_id = address.local_id;
  body.remote_comm_id = address.remote_id;
  return body;
}

std::uint8_t joined(unsigned first, unsigned second, unsigned third = 0) {
  return static_cast<std::uint8_t>(first | second | third);
}

// A GUID in network order, as verbs has it.
be64 guid_of(std::uint64_t network_order) { return std::bit_cast<be64>(network_order); }

CmPathWire path_of(const Ends& ends, std::uint8_t ack_timeout) {
  CmPathWire path{};
  path.local_lid = kPermissiveLid;
  path.remote_lid = kPermissiveLid;
  path.local_gid = ends.local;
  path.remote_gid = ends.remote;
  path.flow_label_and_rate = ends.flow_label << kCmFlowLabelShift;
  path.traffic_class = ends.traffic_class;
  path.hop_limit = ends.hop_limit;
  path.ack_timeout = kFiveBits.with(ack_timeout);
  return path;
}

void put_transport(QpType type, CmReqWire& req) {
  switch (type) {
    case QpType::kRc:
    case QpType::kUd:
    case QpType::kXrcRecv:  // neither asks for connections: Manager::connect refuses them
      req.remote_timeout_and_service |= kTransport.with(kTransportRc);
      break;
    case QpType::kUc:
      req.remote_timeout_and_service |= kTransport.with(kTransportUc);
      break;
    case QpType::kXrcSend:
      req.remote_timeout_and_service |= kTransport.with(kTransportExtended);
      req.retries_and_srq |= kExtendedTransport.with(kExtendedTransportXrc);
      break;
  }
}

std::optional<QpType> transport_of(const CmReqWire& req) {
  switch (kTransport.of(req.remote_timeout_and_service)) {
    case kTransportRc:
      return QpType::kRc;
    case kTransportUc:
      return QpType::kUc;
    case kTransportExtended:
      if (kExtendedTransport.of(req.retries_and_srq) == kExtendedTransportXrc) return QpType::kXrcSend;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace

PrivateData private_data_of(Bytes bytes) {
  PrivateData data;
  data.size = static_cast<std::uint8_t>(std::min(bytes.size(), PrivateData::kMost));
  std::copy_n(bytes.begin(), data.size, data.bytes.begin());
  return data;
}

Address address_of(const Connection& connection) {
  return {connection.id.value, connection.remote_id, connection.transaction_id};
}

Mad make_req(const Connection& connection, const Request& request, const Config& config) {
  const std::uint8_t timeout = timeout_code(config.response_time);
  CmReqWire req{};
  req.local_comm_id = connection.id.value;
  req.service_id = request.service.value;
  req.local_ca_guid = guid_of(config.channel_adapter_guid);
  req.local_qkey = request.qkey;
  req.local_qpn = request.qp.qpn.value;
  req.responder_resources = connection.responder_resources;
  req.initiator_depth = connection.initiator_depth;
  req.remote_timeout_and_service =
      joined(kFiveBits.with(timeout), kFlowControl.with(request.qp.has_end_to_end_flow_control));
  req.starting_psn = request.qp.starting_psn.value();
  req.local_timeout_and_retries = joined(kFiveBits.with(timeout), kRetryCount.with(request.retry_count));
  req.pkey = kDefaultPkey;
  req.mtu_and_rnr =
      joined(kPathMtu.with(request.path_mtu), kReqRnrRetryCount.with(request.qp.rnr_retry_count));
  req.retries_and_srq = joined(kMaxCmRetries.with(config.most_retries), kReqHasSrq.with(request.qp.has_srq));
  put_transport(request.type, req);
  req.primary = path_of(connection.ends, request.ack_timeout);
  put(req.private_data, request.data.view());
  return mad_of(CmAttribute::kReq, connection.transaction_id, req);
}

Mad make_rep(const Connection& connection, const Reply& reply, const Config& config) {
  auto rep = addressed<CmRepWire>(address_of(connection));
  rep.starting_psn = reply.qp.starting_psn.value();
  rep.responder_resources = reply.qp.responder_resources;
  rep.ack_delay_and_failover = kFiveBits.with(reply.target_ack_delay);
  if (connection.wants_failover) rep.ack_delay_and_failover |= kFailover.with(kFailoverUnsupported);
  rep.rnr_and_srq = kRepRnrRetryCount.with(reply.qp.rnr_retry_count);
  rep.local_ca_guid = guid_of(config.channel_adapter_guid);
  if (connection.type == QpType::kXrcSend) {  // the target of XRC asks for nothing, and has an SRQ (A14)
    rep.local_eecn = reply.qp.qpn.value;
    rep.rnr_and_srq |= kRepHasSrq.with(1);
  } else {
    rep.local_qpn = reply.qp.qpn.value;
    rep.initiator_depth = reply.qp.initiator_depth;
    rep.ack_delay_and_failover |= kFlowControl.with(reply.qp.has_end_to_end_flow_control);
    rep.rnr_and_srq |= kRepHasSrq.with(reply.qp.has_srq);
  }
  put(rep.private_data, reply.data.view());
  return mad_of(CmAttribute::kRep, connection.transaction_id, rep);
}

Mad make_rtu(const Connection& connection, Bytes data) {
  auto rtu = addressed<CmRtuWire>(address_of(connection));
  put(rtu.private_data, data);
  return mad_of(CmAttribute::kRtu, connection.transaction_id, rtu);
}

Mad make_mra(const Connection& connection, CmSubject subject, Duration service_time) {
  auto mra = addressed<CmMraWire>(address_of(connection));
  mra.subject = kSubject.with(static_cast<unsigned>(subject));
  mra.service_timeout = kFiveBits.with(timeout_code(service_time));
  return mad_of(CmAttribute::kMra, connection.transaction_id, mra);
}

Mad make_dreq(const Connection& connection, Bytes data) {
  auto dreq = addressed<CmDreqWire>(address_of(connection));
  dreq.remote_qpn = connection.remote_qpn.value;
  put(dreq.private_data, data);
  return mad_of(CmAttribute::kDreq, connection.transaction_id, dreq);
}

Mad make_rej(const Address& address, const Refusal& refusal) {
  auto rej = addressed<CmRejWire>(address);
  rej.subject = kSubject.with(static_cast<unsigned>(refusal.subject));
  rej.info_length = kRejectInfoLength.with(static_cast<unsigned>(refusal.info.size()));
  rej.reason = static_cast<std::uint16_t>(refusal.reason);
  put(rej.info, refusal.info);
  put(rej.private_data, refusal.data);
  return mad_of(CmAttribute::kRej, address.transaction_id, rej);
}

Mad rej_of_req(const Mad& rej) {
  auto whole = std::bit_cast<MadOf<CmRejWire>>(rej);
  whole.body.subject = kSubject.with(static_cast<unsigned>(CmSubject::kReq));
  return std::bit_cast<Mad>(whole);
}

Mad make_drep(const Address& address) {
  return mad_of(CmAttribute::kDrep, address.transaction_id, addressed<CmDrepWire>(address));
}

Mad make_sidr_req(const Connection& connection, const Resolve& resolve) {
  CmSidrReqWire req{};
  req.request_id = connection.id.value;
  req.pkey = kDefaultPkey;
  req.service_id = resolve.service.value;
  put(req.private_data, resolve.data.view());
  return mad_of(CmAttribute::kSidrReq, connection.transaction_id, req);
}

Mad make_sidr_rep(const Connection& connection, const Resolved& resolved) {
  CmSidrRepWire rep{};
  rep.request_id = connection.remote_id;
  rep.status = static_cast<std::uint8_t>(resolved.status);
  rep.service_id = connection.service.value;
  if (resolved.status == ResolveStatus::kValid) {
    rep.qpn = resolved.qpn.value;
    rep.qkey = resolved.qkey;
  }
  put(rep.private_data, resolved.data.view());
  return mad_of(CmAttribute::kSidrRep, connection.transaction_id, rep);
}

Mad make_sidr_refusal(const CmSidrReqWire& request, std::uint64_t transaction_id, ResolveStatus status) {
  CmSidrRepWire rep{};
  rep.request_id = request.request_id;
  rep.status = static_cast<std::uint8_t>(status);
  rep.service_id = request.service_id;
  return mad_of(CmAttribute::kSidrRep, transaction_id, rep);
}

// The path must be the way that the message itself took: who names another GID would have this side send to a
// stranger.
std::optional<RejectReason> fault_of(const CmReqWire& wire, const Ends& ends) {
  if (!transport_of(wire)) return RejectReason::kInvalidTransport;
  if (wire.primary.local_gid != ends.remote || wire.primary.remote_gid != ends.local)
    return RejectReason::kInvalidGid;
  if (!is_mtu_code(kPathMtu.of(wire.mtu_and_rnr))) return RejectReason::kInvalidPathMtu;
  if ((wire.pkey.get() & kPkeyMask) != (kDefaultPkey & kPkeyMask)) return RejectReason::kUnsupported;
  return std::nullopt;
}

Request read_req(const CmReqWire& wire, const Ends& ends) {
  Request request;
  request.type = transport_of(wire).value_or(QpType::kRc);
  request.ends = ends;
  request.ends.flow_label = wire.primary.flow_label_and_rate.get() >> kCmFlowLabelShift;
  request.ends.traffic_class = wire.primary.traffic_class;
  if (wire.primary.hop_limit != 0) request.ends.hop_limit = wire.primary.hop_limit;
  request.service = {wire.service_id.get()};
  request.qp.qpn = Qpn{wire.local_qpn.get()};
  request.qp.starting_psn = Psn(wire.starting_psn.get());
  request.qp.responder_resources = wire.responder_resources;
  request.qp.initiator_depth = wire.initiator_depth;
  request.qp.rnr_retry_count = kReqRnrRetryCount.of(wire.mtu_and_rnr);
  request.qp.has_srq = kReqHasSrq.of(wire.retries_and_srq) != 0;
  request.qp.has_end_to_end_flow_control = kFlowControl.of(wire.remote_timeout_and_service) != 0;
  request.path_mtu = kPathMtu.of(wire.mtu_and_rnr);
  request.retry_count = kRetryCount.of(wire.local_timeout_and_retries);
  request.ack_timeout = kFiveBits.of(wire.primary.ack_timeout);
  request.qkey = wire.local_qkey.get();
  request.data = private_data_of(wire.private_data);
  return request;
}

std::optional<Reply> read_rep(const CmRepWire& wire, QpType type) {
  const Qpn qpn{type == QpType::kXrcSend ? wire.local_eecn.get() : wire.local_qpn.get()};
  if (!is_connectable(qpn)) return std::nullopt;
  Reply reply;
  reply.qp.qpn = qpn;
  reply.qp.starting_psn = Psn(wire.starting_psn.get());
  reply.qp.responder_resources = wire.responder_resources;
  reply.qp.initiator_depth = wire.initiator_depth;
  reply.qp.rnr_retry_count = kRepRnrRetryCount.of(wire.rnr_and_srq);
  reply.qp.has_srq = kRepHasSrq.of(wire.rnr_and_srq) != 0;
  reply.qp.has_end_to_end_flow_control = kFlowControl.of(wire.ack_delay_and_failover) != 0;
  reply.target_ack_delay = kFiveBits.of(wire.ack_delay_and_failover);
  reply.data = private_data_of(wire.private_data);
  return reply;
}

Resolve read_sidr_req(const CmSidrReqWire& wire, const Ends& ends) {
  return {ends, {wire.service_id.get()}, private_data_of(wire.private_data)};
}

std::optional<Resolved> read_sidr_rep(const CmSidrRepWire& wire) {
  constexpr auto kLastStatus = static_cast<std::uint8_t>(ResolveStatus::kUnsupportedVersion);
  Resolved resolved;
  resolved.status =
      wire.status <= kLastStatus ? static_cast<ResolveStatus>(wire.status) : ResolveStatus::kRejected;
  resolved.qpn = Qpn{wire.qpn.get()};
  resolved.qkey = wire.qkey.get();
  resolved.data = private_data_of(wire.private_data);
  if (resolved.status == ResolveStatus::kValid && !is_connectable(resolved.qpn)) return std::nullopt;
  return resolved;
}

}  // namespace urdma::cm
