// Tests of Netlink against the kernel, in network namespaces of their own.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/netlink.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "tests/unit/io/network_namespace.hpp"

namespace urdma::control {
namespace {

using test::run;

constexpr wire::MacAddress kLeftMac = {2, 0, 0, 0, 9, 1};
constexpr wire::MacAddress kRightMac = {2, 0, 0, 0, 9, 2};

Instant clock_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Instant{} + seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
}

wire::Gid v4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, a, b, c, d};
}
wire::Gid fd09(std::uint8_t host) { return {0xFD, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host}; }

class NetlinkTest : public test::VethPair {
 protected:
  void SetUp() override {
    VethPair::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    auto netlink = Netlink::create([this] { ++changes_; });
    ASSERT_TRUE(netlink) << netlink.error().message;
    netlink_ = std::move(*netlink);
    const auto left = netlink_->interface("left");
    ASSERT_TRUE(left) << left.error().message;
    index_ = left->index;
    // Until the kernel has seen the carrier, it drops what is sent, and asks for neighbours once a second
    // only.
    ASSERT_TRUE(wait_until([&] { return netlink_->interface("left")->is_up; }, 3000));
    ASSERT_TRUE(wait_until([&] { return is_right_up(); }, 3000));
  }

  bool is_right_up() {
    there_.enter();
    const bool is_up = std::system("ip link show right up | grep -q 'state UP'") == 0;
    here_.enter();
    return is_up;
  }

  // Runs the loop that the daemon runs until `is_done`, for `limit_ms` at most.
  bool wait_until(const std::function<bool()>& is_done, int limit_ms = 2000) {
    const Instant end = clock_now() + milliseconds(limit_ms);
    while (!is_done()) {
      if (clock_now() > end) return false;
      pollfd wait = {netlink_->descriptor(), POLLIN, 0};
      if (poll(&wait, 1, 10) == 1) netlink_->handle();
      next_deadline_ = netlink_->expire(clock_now());
    }
    return true;
  }

  // The outcome of one resolve(), and how often `done` was called.
  Result<wire::MacAddress> resolve(const wire::Gid& source, const wire::Gid& dest, int deadline_ms = 1000) {
    std::optional<Result<wire::MacAddress>> outcome;
    int calls = 0;
    const Instant now = clock_now();
    netlink_->resolve(index_, source, dest, now + milliseconds(deadline_ms), [&](auto result) {
      outcome = std::move(result);
      ++calls;
    });
    wait_until([&] { return outcome.has_value(); }, 6000);
    wait_until([] { return false; }, 50);
    EXPECT_EQ(calls, 1);
    return outcome ? *outcome : Result<wire::MacAddress>(fail(EPROTO, "no outcome"));
  }

  bool has_address(const wire::Gid& gid) {
    const auto state = netlink_->interface("left");
    return state && std::any_of(state->addresses.begin(), state->addresses.end(),
                                [&](const auto& address) { return address.gid == gid; });
  }

  std::unique_ptr<Netlink> netlink_;
  int changes_ = 0;
  int index_ = 0;
  Instant next_deadline_ = Instant::never();
};

TEST_F(NetlinkTest, Interface_IsDescribed) {
  const auto left = netlink_->interface("left");
  ASSERT_TRUE(left);
  EXPECT_EQ(left->name, "left");
  EXPECT_EQ(left->mac, kLeftMac);
  EXPECT_EQ(left->mtu, 1500U);
  EXPECT_TRUE(left->is_up);
  const auto lo = netlink_->interface("lo");
  ASSERT_TRUE(lo);
  EXPECT_TRUE(lo->is_up);
  EXPECT_EQ(lo->mac, wire::MacAddress{});
}

TEST_F(NetlinkTest, Interface_ThatIsMissing) {
  const auto missing = netlink_->interface("nosuch");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ENODEV);
  EXPECT_NE(missing.error().message.find("nosuch"), std::string::npos);
}

TEST_F(NetlinkTest, Interfaces_ListsAll) {
  const auto all = netlink_->interfaces();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name, "lo");
  EXPECT_EQ(all[1].name, "left");
}

TEST_F(NetlinkTest, Interface_AddressesAreOrdered) {
  run("ip addr add 10.8.0.1/16 dev left && ip addr add fd08::1/48 dev left nodad");
  ASSERT_TRUE(wait_until([&] { return netlink_->interface("left")->addresses.size() == 5; }, 4000));
  const auto addresses = netlink_->interface("left")->addresses;
  EXPECT_EQ(addresses[0].gid[0], 0xFE);
  EXPECT_EQ(addresses[0].prefix_bits, 64);
  EXPECT_EQ(addresses[1].gid, v4(10, 9, 0, 1));
  EXPECT_EQ(addresses[1].prefix_bits, 96 + 24);
  EXPECT_EQ(addresses[2].gid, v4(10, 8, 0, 1));
  EXPECT_EQ(addresses[2].prefix_bits, 96 + 16);
  for (const std::size_t i : {3, 4}) EXPECT_EQ(addresses[i].gid[0], 0xFD);
  const auto fd08 =
      std::find_if(addresses.begin(), addresses.end(), [](const auto& a) { return a.gid[1] == 0x08; });
  ASSERT_NE(fd08, addresses.end());
  EXPECT_EQ(fd08->prefix_bits, 48);
}

TEST_F(NetlinkTest, Interface_TentativeAddressesAreLeftOut) {
  run("echo 1 > /proc/sys/net/ipv6/conf/left/accept_dad");
  run("ip addr add fd09::77/64 dev left");
  EXPECT_FALSE(has_address(fd09(0x77)));
  EXPECT_TRUE(wait_until([&] { return has_address(fd09(0x77)); }, 4000));
}

// The other end has the address, so duplicate address detection refuses it.
TEST_F(NetlinkTest, Interface_DuplicateAddressesAreLeftOut) {
  run("echo 1 > /proc/sys/net/ipv6/conf/left/accept_dad");
  run("ip addr add fd09::2/64 dev left");
  EXPECT_FALSE(wait_until([&] { return has_address(fd09(2)); }, 1500));
}

TEST_F(NetlinkTest, Handle_TellsOfAddresses) {
  wait_until([] { return false; }, 50);
  changes_ = 0;
  run("ip addr add 10.8.0.1/16 dev left");
  EXPECT_TRUE(wait_until([&] { return changes_ > 0 && has_address(v4(10, 8, 0, 1)); }));
  changes_ = 0;
  run("ip addr del 10.8.0.1/16 dev left");
  EXPECT_TRUE(wait_until([&] { return changes_ > 0 && !has_address(v4(10, 8, 0, 1)); }));
}

TEST_F(NetlinkTest, Handle_TellsOfLinks) {
  wait_until([] { return false; }, 50);
  changes_ = 0;
  there_.enter();
  run("ip link set right down");
  here_.enter();
  EXPECT_TRUE(wait_until([&] { return changes_ > 0 && !netlink_->interface("left")->is_up; }));
  changes_ = 0;
  run("ip link set left mtu 9000");
  EXPECT_TRUE(wait_until([&] { return changes_ > 0 && netlink_->interface("left")->mtu == 9000; }));
}

TEST_F(NetlinkTest, Handle_IsQuietWithoutChange) {
  ASSERT_TRUE(wait_until([&] { return netlink_->interface("left")->addresses.size() == 3; }, 4000));
  wait_until([] { return false; }, 100);
  changes_ = 0;
  wait_until([] { return false; }, 300);
  EXPECT_EQ(changes_, 0);
}

TEST_F(NetlinkTest, Resolve_UnknownNeighbours) {
  const auto by_v4 = resolve(v4(10, 9, 0, 1), v4(10, 9, 0, 2));
  ASSERT_TRUE(by_v4) << by_v4.error().message;
  EXPECT_EQ(*by_v4, kRightMac);
  const auto by_v6 = resolve(fd09(1), fd09(2));
  ASSERT_TRUE(by_v6) << by_v6.error().message;
  EXPECT_EQ(*by_v6, kRightMac);
}

TEST_F(NetlinkTest, Resolve_KnownNeighbourAtOnce) {
  run("ip neigh add 10.9.0.9 lladdr 02:00:00:00:00:99 dev left");
  run("ip neigh add 10.9.0.8 lladdr 02:00:00:00:00:88 dev left nud stale");
  int calls = 0;
  for (const auto& [host, last] : {std::pair{9, 0x99}, std::pair{8, 0x88}}) {
    const auto dest = v4(10, 9, 0, static_cast<std::uint8_t>(host));
    netlink_->resolve(index_, v4(10, 9, 0, 1), dest, clock_now(), [&, byte = last](const auto& mac) {
      ++calls;
      EXPECT_EQ(mac, (wire::MacAddress{2, 0, 0, 0, 0, static_cast<std::uint8_t>(byte)}));
    });
  }
  EXPECT_EQ(calls, 2);
}

TEST_F(NetlinkTest, HopLimit_IsTheRoutesElseTheHosts) {
  run("echo 61 > /proc/sys/net/ipv4/ip_default_ttl && echo 62 > /proc/sys/net/ipv6/conf/left/hop_limit");
  EXPECT_EQ(netlink_->hop_limit(index_, v4(10, 9, 0, 1), v4(10, 9, 0, 2)), 61);
  EXPECT_EQ(netlink_->hop_limit(index_, fd09(1), fd09(2)), 62);
  run("ip route add 198.51.100.0/24 via 10.9.0.2 hoplimit 17");
  run("ip route add 2001:db8::/32 via fd09::2 hoplimit 18");
  EXPECT_EQ(netlink_->hop_limit(index_, v4(10, 9, 0, 1), v4(198, 51, 100, 7)), 17);
  const wire::Gid far = {0x20, 0x01, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7};
  EXPECT_EQ(netlink_->hop_limit(index_, fd09(1), far), 18);
}

TEST_F(NetlinkTest, HopLimit_WithoutARouteOrInterfaceIsTheUsual) {
  EXPECT_EQ(netlink_->hop_limit(0, fd09(1), fd09(2)), 64) << "a port that the kernel does not know";
  EXPECT_EQ(netlink_->hop_limit(index_, v4(10, 9, 0, 1), v4(192, 0, 2, 1)), 64);
}

TEST_F(NetlinkTest, HopLimit_OfGroupsIsTheSenders) {
  EXPECT_EQ(netlink_->hop_limit(index_, v4(10, 9, 0, 1), v4(224, 0, 0, 9)), std::nullopt);
  EXPECT_EQ(netlink_->hop_limit(index_, fd09(1), {0xFF, 0x02}), std::nullopt);
}

TEST_F(NetlinkTest, Resolve_LinkLocal) {
  there_.enter();
  run("ip addr add fe80::2/64 dev right nodad");
  here_.enter();
  wire::Gid source{};
  ASSERT_TRUE(wait_until([&] { return netlink_->interface("left")->addresses.size() == 3; }, 4000));
  source = netlink_->interface("left")->addresses[0].gid;
  const wire::Gid dest = {0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  const auto mac = resolve(source, dest);
  ASSERT_TRUE(mac) << mac.error().message;
  EXPECT_EQ(*mac, kRightMac);
}

TEST_F(NetlinkTest, Resolve_ByTheGateway) {
  run("ip route add 198.51.100.0/24 via 10.9.0.2 && ip route add 2001:db8::/32 via fd09::2");
  run("ip route add 203.0.113.0/24 via inet6 fd09::2");
  for (const auto& dest : {v4(198, 51, 100, 7), v4(203, 0, 113, 7)}) {
    const auto mac = resolve(v4(10, 9, 0, 1), dest);
    ASSERT_TRUE(mac) << mac.error().message;
    EXPECT_EQ(*mac, kRightMac);
  }
  const auto mac = resolve(fd09(1), {0x20, 0x01, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7});
  ASSERT_TRUE(mac) << mac.error().message;
  EXPECT_EQ(*mac, kRightMac);
}

// A source that the kernel does not have: a port whose address is in its specification.
TEST_F(NetlinkTest, Resolve_FromAForeignSource) {
  const auto mac = resolve(v4(10, 9, 0, 77), v4(10, 9, 0, 2));
  ASSERT_TRUE(mac) << mac.error().message;
  EXPECT_EQ(*mac, kRightMac);
}

TEST_F(NetlinkTest, Resolve_WithoutARoute) {
  for (const auto& [source, dest] :
       {std::pair{v4(10, 9, 0, 1), v4(198, 51, 100, 7)},
        std::pair{fd09(1), wire::Gid{0x20, 0x01, 0x0D, 0xB8, 1}}, std::pair{fd09(1), v4(10, 9, 0, 2)}}) {
    const auto mac = resolve(source, dest);
    ASSERT_FALSE(mac);
    EXPECT_EQ(mac.error().code, ENETUNREACH) << mac.error().message;
  }
}

TEST_F(NetlinkTest, Resolve_ARouteOutOfAnotherInterface) {
  run("ip link add other type veth peer name other-peer && ip addr add 10.7.0.1/24 dev other && "
      "ip link set other up && ip link set other-peer up");
  const auto mac = resolve(v4(10, 9, 0, 1), v4(10, 7, 0, 2));
  ASSERT_FALSE(mac);
  EXPECT_EQ(mac.error().code, ENETUNREACH) << mac.error().message;
}

TEST_F(NetlinkTest, Resolve_OwnAddress) {
  for (const auto& gid : {v4(10, 9, 0, 1), fd09(1)}) {
    const auto mac = resolve(gid, gid);
    ASSERT_TRUE(mac) << mac.error().message;
    EXPECT_EQ(*mac, kLeftMac);
  }
}

TEST_F(NetlinkTest, Resolve_OnLo) {
  index_ = netlink_->interface("lo")->index;
  const auto mac = resolve(v4(127, 0, 0, 1), v4(127, 0, 0, 1));
  ASSERT_TRUE(mac) << mac.error().message;
  EXPECT_EQ(*mac, wire::MacAddress{});
}

TEST_F(NetlinkTest, Resolve_Multicast) {
  const auto by_v4 = resolve(v4(10, 9, 0, 1), v4(239, 0x85, 2, 3));
  ASSERT_TRUE(by_v4);
  EXPECT_EQ(*by_v4, (wire::MacAddress{0x01, 0x00, 0x5E, 0x05, 2, 3}));
  const auto by_v6 = resolve(fd09(1), {0xFF, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xAA, 1, 2, 3});
  ASSERT_TRUE(by_v6);
  EXPECT_EQ(*by_v6, (wire::MacAddress{0x33, 0x33, 0xAA, 1, 2, 3}));
}

TEST_F(NetlinkTest, Resolve_DeadAddressTimesOut) {
  const Instant start = clock_now();
  const auto mac = resolve(v4(10, 9, 0, 1), v4(10, 9, 0, 200), 300);
  ASSERT_FALSE(mac);
  EXPECT_EQ(mac.error().code, ETIMEDOUT) << mac.error().message;
  EXPECT_GE(clock_now() - start, milliseconds(300));
}

TEST_F(NetlinkTest, Resolve_DeadAddressFails) {
  run("echo 50 > /proc/sys/net/ipv4/neigh/left/retrans_time_ms");
  for (int attempt = 0; attempt < 2; ++attempt) {  // the second finds a failed entry, and asks again
    const Instant start = clock_now();
    const auto mac = resolve(v4(10, 9, 0, 1), v4(10, 9, 0, 201), 5000);
    ASSERT_FALSE(mac);
    EXPECT_EQ(mac.error().code, EHOSTUNREACH) << mac.error().message;
    EXPECT_GE(clock_now() - start, milliseconds(100));
  }
}

TEST_F(NetlinkTest, Resolve_AfterAFailureThePeerIsFound) {
  run("echo 50 > /proc/sys/net/ipv4/neigh/left/retrans_time_ms");
  ASSERT_FALSE(resolve(v4(10, 9, 0, 1), v4(10, 9, 0, 202), 5000));
  there_.enter();
  run("ip addr add 10.9.0.202/24 dev right");
  here_.enter();
  const auto mac = resolve(v4(10, 9, 0, 1), v4(10, 9, 0, 202));
  ASSERT_TRUE(mac) << mac.error().message;
  EXPECT_EQ(*mac, kRightMac);
}

TEST_F(NetlinkTest, Resolve_WithoutCarrierTimesOut) {
  there_.enter();
  run("ip link set right down");
  here_.enter();
  const auto mac = resolve(v4(10, 9, 0, 1), v4(10, 9, 0, 2), 200);
  ASSERT_FALSE(mac);
  EXPECT_TRUE(mac.error().code == ETIMEDOUT || mac.error().code == ENETUNREACH) << mac.error().message;
}

TEST_F(NetlinkTest, Expire_NamesTheNextDeadline) {
  const Instant now = clock_now();
  EXPECT_TRUE(netlink_->expire(now).is_never());
  int calls = 0;
  const auto count = [&](const auto&) { ++calls; };
  netlink_->resolve(index_, v4(10, 9, 0, 1), v4(10, 9, 0, 210), now + seconds(60), count);
  netlink_->resolve(index_, v4(10, 9, 0, 1), v4(10, 9, 0, 211), now + seconds(50), count);
  EXPECT_EQ(netlink_->expire(now), now + seconds(50));
  EXPECT_EQ(netlink_->expire(now + seconds(50)), now + seconds(60));
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(netlink_->expire(now + seconds(60)).is_never());
  EXPECT_EQ(calls, 2);
}

TEST_F(NetlinkTest, Resolve_FromWithinDone) {
  std::optional<wire::MacAddress> second;
  const Instant now = clock_now();
  const Instant deadline = now + seconds(2);
  netlink_->resolve(index_, v4(10, 9, 0, 1), v4(10, 9, 0, 2), deadline, [&](const auto& first) {
    ASSERT_TRUE(first);
    netlink_->resolve(index_, fd09(1), fd09(2), deadline, [&](const auto& mac) {
      ASSERT_TRUE(mac);
      second = *mac;
    });
  });
  EXPECT_TRUE(wait_until([&] { return second.has_value(); }));
  EXPECT_EQ(second, kRightMac);
}

TEST_F(NetlinkTest, Handle_TellsWhenAGivenNeighbourChanges) {
  ASSERT_TRUE(resolve(v4(10, 9, 0, 1), v4(10, 9, 0, 2)));
  ASSERT_TRUE(wait_until([&] { return netlink_->interface("left")->addresses.size() == 3; }, 4000));
  wait_until([] { return false; }, 100);
  changes_ = 0;
  run("ip neigh replace 10.9.0.2 lladdr 02:00:00:00:00:77 dev left");
  EXPECT_TRUE(wait_until([&] { return changes_ > 0; }));
}

}  // namespace
}  // namespace urdma::control
