// What tests of the connection manager share: one manager, and a peer that is played by hand, with messages
// made of its own view of the connection. Everything that comes out is read as one line of words.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "datapath/cm/manager.hpp"
#include "datapath/cm/messages.hpp"

namespace urdma::cm {

inline const wire::Gid kHere = wire::gid_from_ipv4(0xC0000201);
inline const wire::Gid kThere = wire::gid_from_ipv4(0xC0000202);
inline const wire::Gid kElsewhere = wire::gid_from_ipv4(0xC0000203);
inline constexpr Qpn kOurQpn{0x111};
inline constexpr Qpn kPeerQpn{0x222};
inline constexpr std::uint32_t kPeerId = 0xB0B0B0B0;
inline constexpr ServiceId kService{0x0000000001061234};

inline Ends ends_here() { return {kHere, kThere}; }
inline Ends ends_there() { return {kThere, kHere}; }

inline Config config_here() {
  Config config;
  config.secret = {7, 7};
  config.channel_adapter_guid = 0x0102030405060708;
  config.most_connections = 16;
  config.most_responder_resources = 16;
  config.most_retries = 3;
  return config;
}

inline PrivateData data_of(const std::string& text) {
  return private_data_of(Bytes(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}
// The text that private data begins with.
inline std::string text_of(const PrivateData& data) {
  return std::string(reinterpret_cast<const char*>(data.bytes.data()));
}

inline const char* name_of(wire::CmAttribute attribute) {
  static constexpr const char* kNames[] = {"REQ",  "MRA",  "REJ",      "REP",     "RTU",
                                           "DREQ", "DREP", "SIDR_REQ", "SIDR_REP"};
  return kNames[static_cast<unsigned>(attribute) - static_cast<unsigned>(wire::CmAttribute::kReq)];
}

inline const char* name_of(EventKind kind) {
  static constexpr const char* kNames[] = {
      "Requested",     "Replied",      "Established",  "Rejected",         "Unreachable",
      "Disconnecting", "Disconnected", "TimeWaitOver", "ResolveRequested", "Resolved"};
  return kNames[static_cast<unsigned>(kind)];
}

template <typename Body>
const Body& body_of(const Mad& mad) {
  return wire::overlay<wire::MadOf<Body>>(mad.data()).body;
}

inline std::string words_of(const Mad& mad) {
  const auto header = wire::parse_cm_header(mad);
  if (!header) return "malformed";
  std::string words = name_of(header->attribute);
  if (header->attribute == wire::CmAttribute::kRej)
    words += "(" + std::to_string(body_of<wire::CmRejWire>(mad).reason.get()) + ")";
  return words;
}

inline std::string words_of(const Event& event) {
  std::string words = name_of(event.kind);
  if (event.kind == EventKind::kRejected) words += "(" + std::to_string(static_cast<int>(event.reason)) + ")";
  return words;
}

class CmTest : public testing::Test {
 protected:
  explicit CmTest(const Config& config = config_here()) : config_(config), manager_(config) {
    peer_.id = {kPeerId};
    peer_.ends = ends_there();
    peer_.local_qpn = kPeerQpn;
    peer_.transaction_id = 0x7777;
    peer_.responder_resources = peer_.initiator_depth = 4;
    peer_.service = kService;
  }

  static Request request(Qpn qpn, const Ends& ends) {
    Request request;
    request.ends = ends;
    request.service = kService;
    request.qp.qpn = qpn;
    request.qp.starting_psn = Psn(0x1000);
    request.qp.responder_resources = request.qp.initiator_depth = 4;
    request.path_mtu = 3;
    return request;
  }
  static Reply reply(Qpn qpn) {
    Reply reply;
    reply.qp.qpn = qpn;
    reply.qp.starting_psn = Psn(0x2000);
    reply.qp.responder_resources = reply.qp.initiator_depth = 4;
    return reply;
  }

  // ---- What the peer would send ----
  Mad req() const { return make_req(peer_, request(kPeerQpn, ends_there()), config_); }
  Mad rep() const { return make_rep(peer_, reply(kPeerQpn), config_); }
  Mad rtu() const { return make_rtu(peer_, {}); }
  Mad rej(RejectReason reason = RejectReason::kConsumer) const {
    return make_rej(address_of(peer_), {reason, {}, {}, {}});
  }
  Mad dreq() const {
    Connection peer = peer_;
    peer.remote_qpn = kOurQpn;
    return make_dreq(peer, {});
  }
  Mad drep() const { return make_drep(address_of(peer_)); }
  Mad mra(wire::CmSubject subject, Duration time = seconds(1)) const {
    return make_mra(peer_, subject, time);
  }
  Mad sidr_req() const { return make_sidr_req(peer_, {ends_there(), kService, {}}); }
  Mad sidr_rep() const { return make_sidr_rep(peer_, {ResolveStatus::kValid, kPeerQpn, 0x1357, {}}); }

  void give(const Mad& mad) { give(mad, ends_here()); }
  void give(const Mad& mad, const Ends& ends) { manager_.on_mad(ends, mad, now_); }
  void pass(Duration time) {
    now_ = now_ + time;
    manager_.on_deadline(now_);
  }
  // Until the next deadline.
  void pass_deadline() { pass(manager_.next_deadline() - now_); }

  // Everything that has come out since: "REP REJ(3) | Requested".
  std::string drained() {
    mads_.clear();
    events_.clear();
    std::string words;
    const auto add = [&words](const std::string& word) { words += (words.empty() ? "" : " ") + word; };
    for (OutgoingMad out; manager_.poll_transmit(out);) {
      mads_.push_back(out);
      add(words_of(out.mad));
    }
    for (Event event; manager_.poll_event(event);) {
      if (events_.empty()) add("|");
      events_.push_back(event);
      add(words_of(event));
    }
    return words;
  }
  std::string given(const Mad& mad) {
    give(mad);
    return drained();
  }

  // ---- States, each reached with nothing left to drain ----
  void be_request_sent() {
    ASSERT_EQ(manager_.connect(request(kOurQpn, ends_here()), now_, id_), 0);
    peer_.remote_id = id_.value;
    ASSERT_EQ(drained(), "REQ");
  }
  void be_replied() {
    be_request_sent();
    ASSERT_EQ(given(rep()), "| Replied");
  }
  void be_established_active() {
    be_replied();
    ASSERT_EQ(manager_.confirm(id_, {}, now_), 0);
    ASSERT_EQ(drained(), "RTU");
  }
  void be_requested() {
    ASSERT_EQ(given(req()), "| Requested");
    id_ = events_.at(0).connection;
    peer_.remote_id = id_.value;
  }
  void be_reply_sent() {
    be_requested();
    ASSERT_EQ(manager_.accept(id_, reply(kOurQpn), now_), 0);
    ASSERT_EQ(drained(), "REP");
  }
  void be_established_passive() {
    be_reply_sent();
    ASSERT_EQ(given(rtu()), "| Established");
  }
  void be_disconnect_sent() {
    be_established_active();
    ASSERT_EQ(manager_.disconnect(id_, {}, now_), 0);
    ASSERT_EQ(drained(), "DREQ");
  }
  void be_in_time_wait() {
    be_established_passive();
    ASSERT_EQ(given(dreq()), "DREP | Disconnecting");
  }
  void be_resolve_sent() {
    ASSERT_EQ(manager_.resolve({ends_here(), kService, {}}, now_, id_), 0);
    peer_.remote_id = id_.value;
    ASSERT_EQ(drained(), "SIDR_REQ");
  }
  void be_resolve_requested() {
    ASSERT_EQ(given(sidr_req()), "| ResolveRequested");
    id_ = events_.at(0).connection;
  }
  void be_resolve_answered() {
    be_resolve_requested();
    ASSERT_EQ(manager_.answer(id_, {ResolveStatus::kValid, kOurQpn, 1, {}}, now_), 0);
    ASSERT_EQ(drained(), "SIDR_REP");
  }

  Config config_;
  Manager manager_;
  Connection peer_;  // as the peer sees it: its own ID, QP and GID are the local ones
  ConnectionId id_;
  Instant now_ = Instant{} + seconds(1000);
  std::vector<OutgoingMad> mads_;  // of the last drained()
  std::vector<Event> events_;
};

}  // namespace urdma::cm
