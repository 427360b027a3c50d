// IDs, addresses, options, queries, groups and events: what programs ask, and what they get.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/rdma_cm/commands.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/unit/control/rdma_cm_fixture.hpp"

namespace urdma::control::rdma_cm {
namespace {

constexpr std::uint32_t kRoom = abi::rdma_cm::kMostResponseBytes;

template <typename Value>
std::span<const std::byte> bytes_of_value(const Value& value) {
  return std::as_bytes(std::span(&value, 1));
}

TEST_F(RdmaCmTest, Execute_ChecksSizes) {
  rdma_ucm_create_id body{};
  body.ps = static_cast<std::uint16_t>(PortSpace::kTcp);
  EXPECT_EQ(run(RDMA_USER_CM_CMD_CREATE_ID, body, 3).error, ENOSPC);
  EXPECT_EQ(run(RDMA_USER_CM_CMD_CREATE_ID, std::uint64_t{1}).error, EINVAL);
  EXPECT_EQ(run(99, body).error, EINVAL);
  EXPECT_EQ(run(RDMA_USER_CM_CMD_GET_OPTION, body).error, ENOSYS);
  EXPECT_TRUE(context.ids.empty());
}

TEST_F(RdmaCmTest, Parse_ChecksSizes) {
  const abi::rdma_cm::Command header{1, 4, 0, 0};
  std::array<std::byte, sizeof(header) + 4> message{};
  std::memcpy(message.data(), &header, sizeof(header));
  EXPECT_TRUE(parse_request(message).has_value());
  EXPECT_FALSE(parse_request(std::span(message).first(sizeof(header) + 3)).has_value());
  EXPECT_FALSE(parse_request(std::span(message).first(sizeof(header) - 1)).has_value());
  message[8] = std::byte{0xFF};  // of what stands behind the body
  EXPECT_FALSE(parse_request(message).has_value());
}

TEST_F(RdmaCmTest, CreateId_KnownSpacesOnly) {
  rdma_ucm_create_id body{};
  body.ps = 0x0107;
  EXPECT_EQ(run(RDMA_USER_CM_CMD_CREATE_ID, body).error, EINVAL);
  body.ps = static_cast<std::uint16_t>(PortSpace::kIb);
  body.qp_type = 77;
  EXPECT_EQ(run(RDMA_USER_CM_CMD_CREATE_ID, body).error, EINVAL);
  EXPECT_NE(create(PortSpace::kUdp), create(PortSpace::kIpoib));
}

TEST_F(RdmaCmTest, CreateId_NoMoreThanThereIsRoomFor) {
  limits.max_rdma_cm_ids = 4;
  Context small(network, limits, Options{.owner = 12345});
  small.channels.emplace(1, std::make_unique<Channel>());
  Channel& own = *small.channels.at(1);
  own.key = 1;
  EXPECT_NE(small.add_id(own), nullptr);
  EXPECT_NE(small.add_id(own), nullptr);
  EXPECT_EQ(small.add_id(own), nullptr) << "half of them is for others";
  own.peer.uid = 12345;
  EXPECT_NE(small.add_id(own), nullptr);
  EXPECT_NE(small.add_id(own), nullptr);
  EXPECT_EQ(small.add_id(own), nullptr);
  small.channels.clear();
}

TEST_F(RdmaCmTest, DestroyId_OnlyOnesOwn) {
  const std::uint32_t id = create();
  Channel* other = make_channel();
  EXPECT_EQ(run(RDMA_USER_CM_CMD_DESTROY_ID, rdma_ucm_destroy_id{0, id, 0}, kRoom, other).error, EINVAL);
  EXPECT_EQ(destroy(id + 1).error, ENOENT);
  EXPECT_EQ(destroy(id).error, 0);
  EXPECT_EQ(destroy(id).error, ENOENT);
}

TEST_F(RdmaCmTest, Bind_FindsTheDevice) {
  const std::uint32_t id = create();
  EXPECT_EQ(bind(id, address_of(ipv4(50), 0)), EADDRNOTAVAIL);
  EXPECT_EQ(bind(id, address_of(ipv4(2), 0)), 0);
  EXPECT_EQ(bind(id, address_of(ipv4(2), 0)), EINVAL) << "it is bound";
  rdma_ucm_query ask{0, id, RDMA_USER_CM_QUERY_ADDR};
  const auto told = body_of<rdma_ucm_query_addr_resp>(run(RDMA_USER_CM_CMD_QUERY, ask));
  EXPECT_EQ(told.node_guid, 2U);
  EXPECT_EQ(told.src_size, 16U);
  EXPECT_NE(read_address(std::as_bytes(std::span(&told.src_addr, 1)))->port, 0);
}

// As Linux has it: libfabric takes an ID that has a device for one whose address others can reach.
TEST_F(RdmaCmTest, Bind_ALoopbackAddressIsOfNoDevice) {
  for (const SocketAddress& loopback : {kLoopbackIpv4, kLoopbackIpv6}) {
    const std::uint32_t id = create();
    EXPECT_EQ(bind(id, loopback), 0);
    const auto told = body_of<rdma_ucm_query_addr_resp>(
        run(RDMA_USER_CM_CMD_QUERY, rdma_ucm_query{0, id, RDMA_USER_CM_QUERY_ADDR}));
    EXPECT_EQ(told.node_guid, 0U);
    EXPECT_EQ(read_address(std::as_bytes(std::span(&told.src_addr, 1)))->gid, loopback.gid);
  }
}

TEST_F(RdmaCmTest, Bind_ChecksTheSizeOfTheAddress) {
  rdma_ucm_bind body{};
  body.id = create();
  body.addr_size = 28;
  write_address(address_of(ipv4(1), 0), std::as_writable_bytes(std::span(&body.addr, 1)));
  EXPECT_EQ(run(RDMA_USER_CM_CMD_BIND, body).error, EINVAL);
  body.addr_size = 16;
  body.reserved = 1;
  EXPECT_EQ(run(RDMA_USER_CM_CMD_BIND, body).error, EINVAL);
  body.reserved = 0;
  EXPECT_EQ(run(RDMA_USER_CM_CMD_BIND, body).error, 0);
}

// What cannot be is said before the ID is looked for, as in Linux.
TEST_F(RdmaCmTest, BindAndResolve_OfOtherFamilies) {
  constexpr std::uint32_t kNobody = 12345;
  rdma_ucm_bind_ip bind{};
  bind.id = kNobody;
  rdma_ucm_resolve_ip resolve{};
  resolve.id = kNobody;
  for (const int family : {AF_UNSPEC, AF_UNIX, 27 /* AF_IB */}) {
    bind.addr.sin6_family = resolve.dst_addr.sin6_family = static_cast<sa_family_t>(family);
    EXPECT_EQ(run(RDMA_USER_CM_CMD_BIND_IP, bind).error, EINVAL) << family;
    EXPECT_EQ(run(RDMA_USER_CM_CMD_RESOLVE_IP, resolve).error, EINVAL) << family;
  }
  bind.addr.sin6_family = resolve.dst_addr.sin6_family = AF_INET;
  EXPECT_EQ(run(RDMA_USER_CM_CMD_BIND_IP, bind).error, ENOENT);
  EXPECT_EQ(run(RDMA_USER_CM_CMD_RESOLVE_IP, resolve).error, ENOENT);
  resolve.src_addr.sin6_family = AF_UNIX;
  EXPECT_EQ(run(RDMA_USER_CM_CMD_RESOLVE_IP, resolve).error, EINVAL);
  rdma_ucm_resolve_addr sized{};
  sized.id = kNobody;
  EXPECT_EQ(run(RDMA_USER_CM_CMD_RESOLVE_ADDR, sized).error, EINVAL) << "no size";
}

SocketAddress ib_service(std::uint64_t service) {
  SocketAddress address = any_address(Family::kIb);
  address.service_id = service;
  address.service_mask = 0xFFFFFFFFFFFF0000;
  return address;
}

TEST_F(RdmaCmTest, Bind_AnswersTheProbeForAfIb) {
  const std::uint32_t id = create(PortSpace::kIb);
  EXPECT_EQ(bind(id, ib_service(0x01070000)), EPROTONOSUPPORT);
  EXPECT_EQ(bind(id, ib_service(0x01060000)), 0);
  const auto told = body_of<rdma_ucm_query_addr_resp>(
      run(RDMA_USER_CM_CMD_QUERY, rdma_ucm_query{0, id, RDMA_USER_CM_QUERY_ADDR}));
  EXPECT_EQ(told.src_size, 48U);
  EXPECT_EQ(told.node_guid, 0U);
  Context without(network, limits, Options{.supports_af_ib = false});
  Id bare;
  EXPECT_EQ(bind_id(without, bare, ib_service(0x01060000)), EAFNOSUPPORT);
}

TEST_F(RdmaCmTest, Listen_StatesAndConflicts) {
  const std::uint32_t id = create();
  EXPECT_EQ(listen(id), 0) << "bound by that, to everything";
  EXPECT_EQ(listen(id), EINVAL);
  make_listener(99);
  const std::uint32_t second = create();
  SocketAddress same = any_address(Family::kIpv4);
  same.port = 99;
  EXPECT_EQ(bind(second, same), EADDRNOTAVAIL);
}

TEST_F(RdmaCmTest, Resolve_FindsSourceAndPort) {
  const std::uint32_t id = create();
  EXPECT_EQ(resolve(id, address_of(ipv4(20), 7)), 0);
  EXPECT_EQ(expect_event(EventType::kAddressResolved).status, 0U);
  const auto told =
      body_of<rdma_ucm_query_route_resp>(run(RDMA_USER_CM_CMD_QUERY_ROUTE, rdma_ucm_query{0, id, 0}));
  EXPECT_EQ(told.node_guid, 1U);
  EXPECT_EQ(told.port_num, 1);
  EXPECT_EQ(told.num_paths, 0U) << "no route yet";
  EXPECT_EQ(std::memcmp(told.ib_route[0].sgid, ipv4(1).data(), 16), 0);
  EXPECT_EQ(std::memcmp(told.ib_route[0].dgid, ipv4(20).data(), 16), 0);
  const auto source = read_address(std::as_bytes(std::span(&told.src_addr, 1)));
  EXPECT_EQ(source->gid, ipv4(1));
  EXPECT_NE(source->port, 0);
  EXPECT_EQ(resolve(id, address_of(ipv4(20), 7)), EINVAL) << "once";
}

TEST_F(RdmaCmTest, Resolve_Fails) {
  const std::uint32_t id = create();
  EXPECT_EQ(resolve(id, address_of(wire::gid_from_ipv4(0x08080808), 7)), ENETUNREACH);
  EXPECT_EQ(resolve_route(id), EINVAL);
  EXPECT_EQ(resolve(id, address_of(ipv6(1), 7)), EINVAL) << "bound to the other family by the first try";
  ASSERT_EQ(resolve(id, address_of(ipv4(99), 7)), 0);
  ASSERT_TRUE(network.late);
  network.late(EHOSTUNREACH);
  EXPECT_EQ(static_cast<int>(expect_event(EventType::kAddressError).status), -EHOSTUNREACH);
  EXPECT_EQ(resolve(id, address_of(ipv4(20), 7)), 0) << "and may be tried again";
  expect_event(EventType::kAddressResolved);
}

TEST_F(RdmaCmTest, Resolve_InTimeOrNotAtAll) {
  const std::uint32_t id = create();
  ASSERT_EQ(resolve(id, address_of(ipv4(99), 7)), 0);
  EXPECT_EQ(expire_resolutions(context, network.time), network.time + milliseconds(2000));
  EXPECT_FALSE(next_event().has_value());
  EXPECT_TRUE(expire_resolutions(context, network.time + milliseconds(2000)).is_never());
  EXPECT_EQ(static_cast<int>(expect_event(EventType::kAddressError).status), -ETIMEDOUT);
  EXPECT_TRUE(network.resolving.empty());
  network.late(0);
  EXPECT_FALSE(next_event().has_value()) << "it came too late";
}

TEST_F(RdmaCmTest, Resolve_OfNoAddressIsHere) {
  for (const Family family : {Family::kIpv4, Family::kIpv6}) {
    const std::uint32_t id = create();
    SocketAddress dest = any_address(family);
    dest.port = 7;
    ASSERT_EQ(resolve(id, dest), 0);
    expect_event(EventType::kAddressResolved);
    const Id& resolved = *context.find(id);
    EXPECT_EQ(resolved.dest.gid, family == Family::kIpv4 ? ipv4(1) : ipv6(1));
    EXPECT_EQ(resolved.remote_gid, resolved.dest.gid);
    EXPECT_EQ(resolved.source.gid, resolved.dest.gid);
  }
}

TEST_F(RdmaCmTest, Bind_AfterAFailureOfTheOtherFamily) {
  SocketAddress taken = any_address(Family::kIpv4);
  taken.port = 7;
  ASSERT_EQ(bind(create(), taken), 0);
  const std::uint32_t both = create();
  EXPECT_EQ(bind(both, taken), EADDRNOTAVAIL);
  SocketAddress dual = any_address(Family::kIpv6);
  dual.port = 8;
  ASSERT_EQ(bind(both, dual), 0);
  taken.port = 8;
  EXPECT_EQ(bind(create(), taken), EADDRNOTAVAIL) << "the other one is of both families";
}

TEST_F(RdmaCmTest, SetOption_OfABoundIdIsOfItsPort) {
  SocketAddress address = address_of(ipv4(1), 7);
  const std::uint32_t first = create();
  const std::uint32_t second = create();
  ASSERT_EQ(bind(first, address), 0);
  const int reuses = 1;
  for (const std::uint32_t id : {first, second}) {
    const rdma_ucm_set_option body{0, id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, sizeof(reuses)};
    EXPECT_EQ(run(RDMA_USER_CM_CMD_SET_OPTION, body, kRoom, nullptr, bytes_of_value(reuses)).error, 0);
  }
  EXPECT_EQ(bind(second, address), 0);
}

TEST_F(RdmaCmTest, Resolve_AfterATimeoutFromTheAddressThatItIsBoundTo) {
  const std::uint32_t id = create();
  ASSERT_EQ(bind(id, address_of(ipv4(2), 0)), 0);
  ASSERT_EQ(resolve(id, address_of(ipv4(99), 7)), 0);
  EXPECT_TRUE(expire_resolutions(context, network.time + milliseconds(2000)).is_never());
  expect_event(EventType::kAddressError);
  ASSERT_EQ(resolve(id, address_of(ipv4(20), 7)), 0);
  expect_event(EventType::kAddressResolved);
  const rdma_ucm_query ask{0, id, RDMA_USER_CM_QUERY_ADDR};
  EXPECT_EQ(body_of<rdma_ucm_query_addr_resp>(run(RDMA_USER_CM_CMD_QUERY, ask)).node_guid, 2U)
      << "the device of 192.0.2.2";
}

TEST_F(RdmaCmTest, Resolve_OfAnIdThatHasGone) {
  const std::uint32_t id = create();
  ASSERT_EQ(resolve(id, address_of(ipv4(99), 7)), 0);
  ASSERT_EQ(destroy(id).error, 0);
  network.late(0);
  EXPECT_FALSE(next_event().has_value());
  EXPECT_TRUE(context.resolving.empty());
  EXPECT_TRUE(network.resolving.empty()) << "nothing is left of an ID";
}

TEST_F(RdmaCmTest, Query_PathAndGids) {
  const std::uint32_t id = make_ready(address_of(ipv4(20), 7));
  const rdma_ucm_query ask{0, id, RDMA_USER_CM_QUERY_PATH};
  struct {
    std::uint32_t count, reserved;
    ib_path_rec_data path;
  } told{};
  told = body_of<decltype(told)>(run(RDMA_USER_CM_CMD_QUERY, ask));
  EXPECT_EQ(told.count, 1U);
  std::array<std::uint8_t, 64> record{};
  std::memcpy(record.data(), told.path.path_rec, record.size());
  EXPECT_EQ(std::memcmp(record.data() + 8, ipv4(20).data(), 16), 0);
  EXPECT_EQ(std::memcmp(record.data() + 24, ipv4(1).data(), 16), 0);
  EXPECT_EQ(record[47], 64) << "hop limit";
  EXPECT_EQ(record[54] & 0x3F, 3) << "MTU";
  EXPECT_EQ(run(RDMA_USER_CM_CMD_QUERY, ask, 8).bytes.size(), 8U) << "no room for a path";
  EXPECT_EQ(run(RDMA_USER_CM_CMD_QUERY, ask, 7).error, ENOSPC);
  EXPECT_EQ(run(RDMA_USER_CM_CMD_QUERY, rdma_ucm_query{0, id, 9}).error, ENOSYS);
  const auto gids = body_of<rdma_ucm_query_addr_resp>(
      run(RDMA_USER_CM_CMD_QUERY, rdma_ucm_query{0, id, RDMA_USER_CM_QUERY_GID}));
  const auto dest = read_address(std::as_bytes(std::span(&gids.dst_addr, 1)));
  EXPECT_EQ(dest->family, Family::kIb);
  EXPECT_EQ(dest->gid, ipv4(20));
  EXPECT_EQ(dest->service_id, 0x01060007U);
}

TEST_F(RdmaCmTest, SetOption_OfAnId) {
  const std::uint32_t id = create();
  const auto set = [&](std::uint32_t option, auto value) {
    const rdma_ucm_set_option body{0, id, RDMA_OPTION_ID, option, sizeof(value)};
    return run(RDMA_USER_CM_CMD_SET_OPTION, body, kRoom, nullptr, bytes_of_value(value)).error;
  };
  EXPECT_EQ(set(RDMA_OPTION_ID_TOS, std::uint8_t{0x20}), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID_TOS, int{0x20}), EINVAL);
  EXPECT_EQ(set(RDMA_OPTION_ID_REUSEADDR, int{1}), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID_AFONLY, int{1}), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID_ACK_TIMEOUT, std::uint8_t{20}), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID_ACK_TIMEOUT, std::uint8_t{32}), EINVAL);
  EXPECT_EQ(set(77, int{1}), ENOSYS);
  EXPECT_EQ(context.find(id)->type_of_service, 0x20);
  EXPECT_TRUE(context.find(id)->reuses_address);
  ASSERT_EQ(resolve(id, address_of(ipv4(20), 7)), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID_REUSEADDR, int{1}), 0) << "also later";
  EXPECT_EQ(set(RDMA_OPTION_ID_REUSEADDR, int{0}), EINVAL);
  const rdma_ucm_set_option lies{0, id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 1};
  EXPECT_EQ(run(RDMA_USER_CM_CMD_SET_OPTION, lies).error, EINVAL) << "there is no value";
}

TEST_F(RdmaCmTest, SetOption_APathIsARoute) {
  const std::uint32_t id = create();
  ib_path_rec_data path{};
  const rdma_ucm_set_option body{0, id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, sizeof(path)};
  const auto set = [&] {
    return run(RDMA_USER_CM_CMD_SET_OPTION, body, kRoom, nullptr, bytes_of_value(path)).error;
  };
  EXPECT_EQ(set(), EINVAL);
  path.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  EXPECT_EQ(set(), EINVAL) << "no address";
  ASSERT_EQ(resolve(id, address_of(ipv4(20), 7)), 0);
  expect_event(EventType::kAddressResolved);
  EXPECT_EQ(set(), 0);
  expect_event(EventType::kRouteResolved);
}

TEST_F(RdmaCmTest, Join_TellsTheGroup) {
  const std::uint32_t id = create(PortSpace::kUdp);
  const SocketAddress group = address_of(wire::gid_from_ipv4(0xEF010203), 0);
  rdma_ucm_join_mcast body{};
  body.id = id;
  body.uid = 0x77;
  body.addr_size = 16;
  write_address(group, std::as_writable_bytes(std::span(&body.addr, 1)));
  EXPECT_EQ(run(RDMA_USER_CM_CMD_JOIN_MCAST, body).error, EINVAL) << "not bound";
  body.id = create(PortSpace::kUdp);
  ASSERT_EQ(bind(body.id, any_address(Family::kIpv4)), 0);
  EXPECT_EQ(run(RDMA_USER_CM_CMD_JOIN_MCAST, body).error, EINVAL) << "of no device";
  body.id = id;
  ASSERT_EQ(bind(id, address_of(ipv4(1), 0)), 0);
  const auto joined = body_of<rdma_ucm_create_id_resp>(run(RDMA_USER_CM_CMD_JOIN_MCAST, body));
  const auto event = expect_event(EventType::kMulticastJoin);
  EXPECT_EQ(event.uid, 0x77U);
  EXPECT_EQ(event.param.ud.qp_num, 0xFFFFFFU);
  EXPECT_EQ(event.param.ud.qkey, 0x01234567U);
  EXPECT_EQ(std::memcmp(event.param.ud.ah_attr.grh.dgid, group.gid.data(), 16), 0);
  const rdma_ucm_destroy_id leave{0, joined.id, 0};
  EXPECT_EQ(run(RDMA_USER_CM_CMD_LEAVE_MCAST, leave, kRoom, make_channel()).error, EINVAL)
      << "the group is another channel's";
  const auto left = body_of<rdma_ucm_destroy_id_resp>(
      run(RDMA_USER_CM_CMD_LEAVE_MCAST, rdma_ucm_destroy_id{0, joined.id, 0}));
  EXPECT_EQ(left.events_reported, 1U);
  EXPECT_EQ(run(RDMA_USER_CM_CMD_LEAVE_MCAST, rdma_ucm_destroy_id{0, joined.id, 0}).error, ENOENT);
  body.join_flags = 2;
  EXPECT_EQ(run(RDMA_USER_CM_CMD_JOIN_MCAST, body).error, EINVAL);
}

TEST_F(RdmaCmTest, Leave_TakesTheEventAlong) {
  const std::uint32_t id = create(PortSpace::kUdp);
  ASSERT_EQ(bind(id, address_of(ipv4(1), 0)), 0);
  rdma_ucm_join_ip_mcast body{};
  body.id = id;
  body.uid = 0x77;
  write_address(address_of(wire::gid_from_ipv4(0xEF010203), 0),
                std::as_writable_bytes(std::span(&body.addr, 1)));
  const auto joined = body_of<rdma_ucm_create_id_resp>(run(RDMA_USER_CM_CMD_JOIN_IP_MCAST, body));
  const auto left = body_of<rdma_ucm_destroy_id_resp>(
      run(RDMA_USER_CM_CMD_LEAVE_MCAST, rdma_ucm_destroy_id{0, joined.id, 0}));
  EXPECT_EQ(left.events_reported, 0U);
  EXPECT_FALSE(next_event().has_value());
}

TEST_F(RdmaCmTest, GetEvent_TokensSayHowMany) {
  EXPECT_EQ(tokens(), 0);
  make_ready(address_of(ipv4(20), 7));
  EXPECT_EQ(tokens(), 2) << "two events, that were taken";
  const std::uint32_t id = create();
  ASSERT_EQ(resolve(id, address_of(ipv4(20), 7)), 0);
  EXPECT_EQ(tokens(), 1);
  EXPECT_EQ(run(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, 8).error, ENOSPC);
  EXPECT_EQ(tokens(), 1) << "whoever was refused had taken the token";
  EXPECT_EQ(run(RDMA_USER_CM_CMD_GET_EVENT, std::uint32_t{0}).error, EINVAL);
  EXPECT_EQ(tokens(), 1);
  ASSERT_EQ(destroy(id).error, 0);
  EXPECT_FALSE(next_event().has_value()) << "it went with its ID";
  const std::uint32_t next = create();
  ASSERT_EQ(resolve(next, address_of(ipv4(20), 7)), 0);
  EXPECT_EQ(tokens(), 1) << "the token of the lost event was taken";
}

// A program takes the tokens of events that have gone out of its channel, so that it does not come for
// nothing.
TEST_F(RdmaCmTest, ReturnTokens_ThoseOfEventsThatAreThereComeBack) {
  const std::uint32_t gone = create();
  ASSERT_EQ(resolve(gone, address_of(ipv4(20), 7)), 0);
  ASSERT_EQ(resolve(create(), address_of(ipv4(20), 7)), 0);
  ASSERT_EQ(destroy(gone).error, 0);
  const auto taken = static_cast<std::uint32_t>(tokens());
  EXPECT_EQ(taken, 2U);
  EXPECT_EQ(run(abi::rdma_cm::kReturnTokens, abi::rdma_cm::ReturnTokens{taken}).error, 0);
  EXPECT_EQ(tokens(), 1);
  EXPECT_EQ(run(abi::rdma_cm::kReturnTokens, abi::rdma_cm::ReturnTokens{~0U}).error, 0) << "a lie";
  EXPECT_EQ(tokens(), 1);
}

TEST_F(RdmaCmTest, GetEvent_TokensAreFew) {
  for (std::uint32_t i = 0; i < abi::rdma_cm::kMostTokens + 10; ++i)
    ASSERT_EQ(resolve(create(), address_of(ipv4(20), 7)), 0);
  EXPECT_EQ(tokens(), static_cast<int>(abi::rdma_cm::kMostTokens));
  ASSERT_TRUE(next_event().has_value());
  EXPECT_EQ(tokens(), 1) << "another one for the one that was taken";
}

TEST_F(RdmaCmTest, Post_WhatIsLostIsCounted) {
  constexpr std::uint64_t kMost = 64;
  const std::uint32_t id = create();
  for (std::uint64_t i = 0; i < kMost + 3; ++i)
    context.post(*context.find(id), Context::event_of(*context.find(id), EventType::kAddressChange, 0));
  EXPECT_EQ(channel->events.size(), kMost);
  EXPECT_EQ(context.lost_events, 3U);
}

// A program of many IDs that dies must not keep the others waiting: each goes without a look at the rest.
TEST_F(RdmaCmTest, DestroyId_OfManyWithEventsTakesNoTime) {
  constexpr std::uint32_t kMany = 20'000;
  const auto begun = std::chrono::steady_clock::now();
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    all.push_back(create());
    ASSERT_EQ(resolve(all.back(), address_of(ipv4(20), 7)), 0);
    ASSERT_EQ(run(abi::rdma_cm::kOfferId, abi::rdma_cm::OfferId{all.back()}).error, 0);
  }
  EXPECT_EQ(channel->events.size(), kMany);
  for (const std::uint32_t id : all) context.destroy(*context.find(id));
  EXPECT_TRUE(channel->events.empty());
  EXPECT_TRUE(context.offers.empty());
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
}

TEST_F(RdmaCmTest, MigrateId_TakesItsEventsAlong) {
  const std::uint32_t id = create();
  ASSERT_EQ(resolve(id, address_of(ipv4(20), 7)), 0);
  Channel* other = make_channel();
  rdma_ucm_migrate_id move{0, id, 0};
  EXPECT_EQ(run(RDMA_USER_CM_CMD_MIGRATE_ID, move, kRoom, other).error, EINVAL) << "no ticket";
  const auto offer =
      body_of<abi::rdma_cm::OfferIdResponse>(run(abi::rdma_cm::kOfferId, abi::rdma_cm::OfferId{id}));
  const std::uint64_t wrong = offer.ticket + 1;
  EXPECT_EQ(run(RDMA_USER_CM_CMD_MIGRATE_ID, move, kRoom, other, bytes_of_value(wrong)).error, EINVAL);
  const auto moved = body_of<rdma_ucm_migrate_resp>(
      run(RDMA_USER_CM_CMD_MIGRATE_ID, move, kRoom, other, bytes_of_value(offer.ticket)));
  EXPECT_EQ(moved.events_reported, 0U);
  EXPECT_FALSE(next_event().has_value());
  EXPECT_EQ(next_event(other)->id, id);
  EXPECT_EQ(destroy(id).error, EINVAL) << "it is of the other channel now";
  EXPECT_EQ(run(RDMA_USER_CM_CMD_MIGRATE_ID, move, kRoom, other, bytes_of_value(offer.ticket)).error, EINVAL)
      << "a ticket is of one use";
}

TEST_F(RdmaCmTest, OfferId_TheLastOneCounts) {
  const std::uint32_t id = create();
  Channel* other = make_channel();
  std::array<std::uint64_t, 2> tickets{};
  for (std::uint64_t& ticket : tickets)
    ticket =
        body_of<abi::rdma_cm::OfferIdResponse>(run(abi::rdma_cm::kOfferId, abi::rdma_cm::OfferId{id})).ticket;
  EXPECT_EQ(context.offers.size(), 1U);
  const rdma_ucm_migrate_id move{0, id, 0};
  EXPECT_EQ(run(RDMA_USER_CM_CMD_MIGRATE_ID, move, kRoom, other, bytes_of_value(tickets[0])).error, EINVAL);
  EXPECT_EQ(run(RDMA_USER_CM_CMD_MIGRATE_ID, move, kRoom, other, bytes_of_value(tickets[1])).error, 0);
}

TEST_F(RdmaCmTest, MigrateId_AListenersRequestsGoAlong) {
  const std::uint32_t listener = make_listener(77);
  const std::uint32_t client = make_ready(address_of(ipv4(2), 77));
  ASSERT_EQ(connect(client, parameters(0x101, "")), 0);
  Channel* other = make_channel();
  const auto offer =
      body_of<abi::rdma_cm::OfferIdResponse>(run(abi::rdma_cm::kOfferId, abi::rdma_cm::OfferId{listener}));
  ASSERT_EQ(run(RDMA_USER_CM_CMD_MIGRATE_ID, rdma_ucm_migrate_id{0, listener, 0}, kRoom, other,
                bytes_of_value(offer.ticket))
                .error,
            0);
  const auto request = next_event(other);
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(run(RDMA_USER_CM_CMD_DESTROY_ID, rdma_ucm_destroy_id{0, request->id, 0}, kRoom, other).error, 0);
}

}  // namespace
}  // namespace urdma::control::rdma_cm
