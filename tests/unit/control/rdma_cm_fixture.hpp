// A program and its connection manager without a node: commands are carried out directly.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <gtest/gtest.h>
#include <rdma/ib_user_verbs.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "datapath/control/rdma_cm/commands.hpp"
#include "tests/unit/control/rdma_cm_network.hpp"
#include "urdma/abi/rdma_cm.hpp"

namespace urdma::control::rdma_cm {

class RdmaCmTest : public testing::Test {
 protected:
  RdmaCmTest() { channel = make_channel(); }

  static Limits limits_here() {
    Limits limits;
    limits.max_rd_atomic = limits.max_dest_rd_atomic = kMostReads;
    return limits;
  }

  Channel* make_channel() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    auto made = std::make_unique<Channel>();
    made->key = ++last_key;
    made->fd.reset(ends[0]);
    programs.emplace_back(ends[1]);
    return context.channels.emplace(made->key, std::move(made)).first->second.get();
  }
  // Signs of events that a program can see.
  int tokens(std::size_t of = 0) {
    int count = 0;
    abi::rdma_cm::EventToken token;
    while (::recv(programs[of].get(), &token, sizeof(token), MSG_DONTWAIT) > 0) ++count;
    return count;
  }

  template <typename Body>
  Reply run(std::uint32_t command, const Body& body, std::uint32_t room = abi::rdma_cm::kMostResponseBytes,
            Channel* on = nullptr, std::span<const std::byte> extra = {}) {
    const Request request{command, std::as_bytes(std::span(&body, 1)), extra, room};
    Reply reply = execute(context, on != nullptr ? *on : *channel, request);
    network.run(context);
    return reply;
  }
  template <typename Body>
  static Body body_of(const Reply& reply) {
    Body body{};
    EXPECT_EQ(reply.error, 0);
    EXPECT_GE(reply.bytes.size(), sizeof(body));
    std::memcpy(&body, reply.bytes.data(), std::min(reply.bytes.size(), sizeof(body)));
    return body;
  }

  std::uint32_t create(PortSpace space = PortSpace::kTcp, std::uint64_t uid = 0) {
    rdma_ucm_create_id body{};
    body.uid = uid != 0 ? uid : ++last_uid;
    body.ps = static_cast<std::uint16_t>(space);
    body.qp_type = static_cast<std::uint8_t>(QpType::kRc);
    return body_of<rdma_ucm_create_id_resp>(run(RDMA_USER_CM_CMD_CREATE_ID, body)).id;
  }
  Reply destroy(std::uint32_t id) { return run(RDMA_USER_CM_CMD_DESTROY_ID, rdma_ucm_destroy_id{0, id, 0}); }
  int bind(std::uint32_t id, const SocketAddress& address) {
    rdma_ucm_bind body{};
    body.id = id;
    body.addr_size = static_cast<std::uint16_t>(address_bytes(address.family));
    write_address(address, std::as_writable_bytes(std::span(&body.addr, 1)));
    return run(RDMA_USER_CM_CMD_BIND, body).error;
  }
  int listen(std::uint32_t id) { return run(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 0}).error; }
  int resolve(std::uint32_t id, const SocketAddress& dest) {
    rdma_ucm_resolve_addr body{};
    body.id = id;
    body.timeout_ms = 2000;
    body.dst_size = static_cast<std::uint16_t>(address_bytes(dest.family));
    write_address(dest, std::as_writable_bytes(std::span(&body.dst_addr, 1)));
    return run(RDMA_USER_CM_CMD_RESOLVE_ADDR, body).error;
  }
  int resolve_route(std::uint32_t id) {
    return run(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 2000}).error;
  }
  // The next event; nothing when there is none.
  std::optional<rdma_ucm_event_resp> next_event(Channel* on = nullptr) {
    const Reply reply =
        run(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, sizeof(rdma_ucm_event_resp), on);
    if (reply.error == EAGAIN) return std::nullopt;
    return body_of<rdma_ucm_event_resp>(reply);
  }
  // The next event, which is of this type.
  rdma_ucm_event_resp expect_event(EventType type) {
    const auto event = next_event();
    EXPECT_TRUE(event.has_value()) << "no event, and not " << static_cast<int>(type);
    if (event) {
      EXPECT_EQ(event->event, static_cast<std::uint32_t>(type));
    }
    return event.value_or(rdma_ucm_event_resp{});
  }

  std::uint32_t make_listener(std::uint16_t port, PortSpace space = PortSpace::kTcp) {
    const std::uint32_t id = create(space);
    SocketAddress address = any_address(Family::kIpv4);
    address.port = port;
    EXPECT_EQ(bind(id, address), 0);
    EXPECT_EQ(listen(id), 0);
    return id;
  }
  // An ID that may connect.
  std::uint32_t make_ready(const SocketAddress& dest, PortSpace space = PortSpace::kTcp) {
    const std::uint32_t id = create(space);
    EXPECT_EQ(resolve(id, dest), 0);
    expect_event(EventType::kAddressResolved);
    EXPECT_EQ(resolve_route(id), 0);
    expect_event(EventType::kRouteResolved);
    return id;
  }
  static rdma_ucm_conn_param parameters(std::uint32_t qpn, const char* text) {
    rdma_ucm_conn_param given{};
    given.qp_num = qpn;
    given.responder_resources = 3;
    given.initiator_depth = 5;
    given.retry_count = 6;
    given.rnr_retry_count = 4;
    given.valid = 1;
    given.private_data_len = static_cast<std::uint8_t>(std::strlen(text));
    std::memcpy(given.private_data, text, given.private_data_len);
    return given;
  }
  int connect(std::uint32_t id, const rdma_ucm_conn_param& given) {
    rdma_ucm_connect body{};
    body.id = id;
    body.conn_param = given;
    return run(RDMA_USER_CM_CMD_CONNECT, body).error;
  }
  int accept(std::uint32_t id, const rdma_ucm_conn_param& given, std::uint64_t uid = 0) {
    rdma_ucm_accept body{};
    body.id = id;
    body.uid = uid;
    body.conn_param = given;
    return run(RDMA_USER_CM_CMD_ACCEPT, body).error;
  }
  int disconnect(std::uint32_t id) { return run(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id}).error; }
  ib_uverbs_qp_attr qp_attributes(std::uint32_t id, QpState state) {
    return body_of<ib_uverbs_qp_attr>(
        run(RDMA_USER_CM_CMD_INIT_QP_ATTR, rdma_ucm_init_qp_attr{0, id, static_cast<std::uint32_t>(state)}));
  }

  FakeNetwork network;
  Limits limits = limits_here();
  Context context{network, limits, Options{.seed = 42}};
  std::vector<UniqueFd> programs;  // their ends of the channels
  Channel* channel = nullptr;
  std::uint64_t last_key = 0;
  std::uint64_t last_uid = 0x1000;
};

}  // namespace urdma::control::rdma_cm
