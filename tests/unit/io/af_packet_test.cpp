// Tests of ports on kernel interfaces: a veth pair between two network namespaces, a port at each end.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/io/af_packet.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "tests/unit/io/frames.hpp"
#include "tests/unit/io/network_namespace.hpp"
#include "urdma/wire/frame.hpp"

namespace urdma::io {
namespace {

constexpr wire::MacAddress kLeftMac = {2, 0, 0, 0, 9, 1};
constexpr wire::MacAddress kRightMac = {2, 0, 0, 0, 9, 2};
constexpr wire::Gid kLeftV6 = {0xFD, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
constexpr wire::Gid kRightV6 = {0xFD, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
constexpr int kQuietMs = 100;

wire::FlowTemplate flow_to_right(bool is_ipv6) {
  wire::FlowAddress address;
  address.source_mac = kLeftMac;
  address.dest_mac = kRightMac;
  address.source_gid = is_ipv6 ? kLeftV6 : wire::gid_from_ipv4(0x0A090001);
  address.dest_gid = is_ipv6 ? kRightV6 : wire::gid_from_ipv4(0x0A090002);
  return wire::make_flow(address);
}

class AfPacket : public test::VethPair {
 protected:
  void open_both() {
    left_ = open_port("af_packet:left");
    there_.enter();
    right_ = open_port("af_packet:right");
    here_.enter();
    ASSERT_TRUE(left_ && right_);
  }
  // Sends all, kicking as an engine would; false when it took longer than a few thousand tries.
  bool send_all(std::vector<rte_mbuf*>& frames) {
    std::size_t sent = 0;
    for (int tries = 0; tries < 5000; ++tries) {
      sent += left_->send(std::span(frames).subspan(sent));
      const bool is_left = left_->flush();
      if (sent == frames.size() && !is_left) return true;
      if (is_left) usleep(100);
    }
    return false;
  }
  void TearDown() override {
    left_.reset();
    right_.reset();
    VethPair::TearDown();
  }

  std::unique_ptr<Port> left_;
  std::unique_ptr<Port> right_;
};

void expect_arrival(rte_mbuf* frame, std::uint32_t payload_bytes, std::uint8_t fill) {
  wire::FrameView view;
  ASSERT_EQ(wire::parse_frame(bytes_of(frame), wire::IcrcPolicy::kCheck, view), wire::ParseError::kNone);
  ASSERT_EQ(view.payload.size(), payload_bytes);
  for (const std::uint8_t byte : view.payload) ASSERT_EQ(byte, fill);
}

TEST_F(AfPacket, FramesArriveWhole) {
  open_both();
  EXPECT_EQ(left_->mtu(), 1500U);
  EXPECT_EQ(left_->mac(), kLeftMac);
  EXPECT_EQ(right_->mac(), kRightMac);
  for (const bool is_ipv6 : {false, true}) {
    for (const std::uint32_t bytes : {0U, 1U, 64U, 1024U}) {
      std::vector<rte_mbuf*> frames = {make_roce_frame(flow_to_right(is_ipv6), bytes, 0x5A)};
      ASSERT_TRUE(send_all(frames));
      auto received = receive_all(*right_, 1, 1000);
      ASSERT_EQ(received.size(), 1U);
      expect_arrival(received[0], bytes, 0x5A);
      release(received);
    }
  }
}

TEST_F(AfPacket, JumboFramesArriveWhole) {
  set_mtu(9000);
  open_both();
  EXPECT_EQ(path_mtu_code_for(left_->mtu()), 5);
  for (const std::uint32_t bytes : {2048U, 4095U, 4096U}) {
    std::vector<rte_mbuf*> frames = {make_roce_frame(flow_to_right(true), bytes, 0xC3)};
    ASSERT_TRUE(send_all(frames));
    auto received = receive_all(*right_, 1, 1000);
    ASSERT_EQ(received.size(), 1U);
    expect_arrival(received[0], bytes, 0xC3);
    release(received);
  }
}

// More than the rings hold: nothing blocks, and nothing is lost between send() and the other ring.
TEST_F(AfPacket, ManyFramesAllArrive) {
  set_mtu(9000);
  open_both();
  const auto flow = flow_to_right(false);
  std::size_t arrived = 0;
  constexpr std::size_t kRounds = 20;
  constexpr std::size_t kFramesOfRound = 500;
  for (std::size_t round = 0; round < kRounds; ++round) {
    std::vector<rte_mbuf*> frames(kFramesOfRound);
    for (rte_mbuf*& frame : frames) frame = make_roce_frame(flow, 4096, 1);
    ASSERT_TRUE(send_all(frames));
    auto received = receive_all(*right_, kFramesOfRound, kQuietMs);
    arrived += received.size();
    release(received);
  }
  EXPECT_EQ(arrived, kRounds * kFramesOfRound);
  EXPECT_EQ(left_->counters().sent, kRounds * kFramesOfRound);
  EXPECT_EQ(right_->counters().receive_missed, 0U);
}

// A receiver that does not keep up: the sender is not held, and what the ring had no room for is counted.
TEST_F(AfPacket, FullReceiveRingIsCounted) {
  open_both();
  constexpr std::size_t kFrames = 3000;
  std::vector<rte_mbuf*> frames(kFrames);
  for (rte_mbuf*& frame : frames) frame = make_roce_frame(flow_to_right(false), 64, 1);
  ASSERT_TRUE(send_all(frames));
  usleep(50'000);
  auto received = receive_all(*right_, kFrames, kQuietMs);
  EXPECT_LT(received.size(), kFrames);
  EXPECT_EQ(received.size() + right_->counters().receive_missed, kFrames);
  release(received);
}

TEST_F(AfPacket, TooLongFramesAreNotSent) {
  open_both();
  std::vector<rte_mbuf*> frames = {make_frame(4000, 1), make_roce_frame(flow_to_right(false), 8, 2),
                                   make_frame(4000, 1), make_roce_frame(flow_to_right(false), 8, 2)};
  ASSERT_TRUE(send_all(frames));
  auto received = receive_all(*right_, 4, kQuietMs);
  EXPECT_EQ(received.size(), 2U) << "the kernel drops them, and goes on with what is behind";
  release(received);
}

TEST_F(AfPacket, EpollWakesForEachFrame) {
  open_both();
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  epoll_event interest{};
  interest.events = EPOLLIN;
  ASSERT_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, right_->wake_descriptor(), &interest), 0);
  epoll_event event{};
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(epoll_wait(epoll, &event, 1, 0), 0) << "woken without a frame";
    std::vector<rte_mbuf*> frames = {make_roce_frame(flow_to_right(false), 64, 1)};
    ASSERT_TRUE(send_all(frames));
    ASSERT_EQ(epoll_wait(epoll, &event, 1, 1000), 1);
    auto received = receive_all(*right_, 1, 0);
    ASSERT_EQ(received.size(), 1U);
    release(received);
  }
  close(epoll);
}

// A UDP socket in the current namespace, connected to `port` of the right end.
int udp_to_right(std::uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(0x0A090002);
  EXPECT_EQ(connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return socket;
}

TEST_F(AfPacket, NothingButRoceArrives) {
  open_both();
  const int other = udp_to_right(4790);
  const int roce = udp_to_right(wire::kRocePort);
  ASSERT_EQ(send(other, "x", 1, 0), 1);
  ASSERT_EQ(send(roce, "12345", 5, 0), 5);
  auto received = receive_all(*right_, 100, kQuietMs);
  ASSERT_EQ(received.size(), 1U) << "ARP, neighbour discovery or another port came through";
  EXPECT_GE(bytes_of(received[0]).size(), wire::kEthernetBytes + wire::kIpv4Bytes + wire::kUdpBytes + 5);
  release(received);
  // What the right end itself sends is not its own to receive.
  std::array<rte_mbuf*, 1> out = {make_roce_frame(flow_to_right(false), 8, 1)};
  ASSERT_EQ(right_->send(out), 1U);
  EXPECT_FALSE(is_readable(right_->wake_descriptor(), kQuietMs));
  close(other);
  close(roce);
}

TEST_F(AfPacket, TaggedFramesDoNotArrive) {
  open_both();
  constexpr std::array<std::uint8_t, 4> kTag = {0x81, 0x00, 0x00, 0x05};
  constexpr std::size_t kMacBytes = 12;
  rte_mbuf* frame = make_roce_frame(flow_to_right(false), 8, 1);
  auto* start = reinterpret_cast<std::uint8_t*>(rte_pktmbuf_prepend(frame, kTag.size()));
  std::memmove(start, start + kTag.size(), kMacBytes);
  std::memcpy(start + kMacBytes, kTag.data(), kTag.size());
  std::vector<rte_mbuf*> frames = {frame};
  ASSERT_TRUE(send_all(frames));
  EXPECT_FALSE(is_readable(right_->wake_descriptor(), kQuietMs));
}

// The driver's sockets put fragments together; what does not fit a slot is cut, and the parser sees it.
TEST_F(AfPacket, CutFramesAreRecognised) {
  open_both();
  const int roce = udp_to_right(wire::kRocePort);
  const std::string large(6000, 'x');
  ASSERT_EQ(send(roce, large.data(), large.size(), 0), 6000);
  auto received = receive_all(*right_, 2, kQuietMs);
  ASSERT_FALSE(received.empty());
  for (const rte_mbuf* frame : received) {
    wire::FrameView view;
    EXPECT_EQ(wire::parse_frame(bytes_of(frame), wire::IcrcPolicy::kTrusted, view),
              wire::ParseError::kTruncated);
  }
  release(received);
  close(roce);
}

// Without the guard the kernel answers with port unreachable, which the next send reports.
TEST_F(AfPacket, KernelDoesNotAnswer) {
  open_both();
  const int roce = udp_to_right(wire::kRocePort);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(send(roce, "x", 1, 0), 1) << std::strerror(errno);
    usleep(10'000);
  }
  const int other = udp_to_right(4790);
  ASSERT_EQ(send(other, "x", 1, 0), 1);
  usleep(50'000);
  EXPECT_EQ(send(other, "x", 1, 0), -1) << "the check itself does not see an ICMP error";
  close(roce);
  close(other);
}

TEST_F(AfPacket, SecondDaemonInTheNamespace) {
  open_both();
  test::run("ip link add extra type veth peer name extra-peer && ip link set extra up");
  const auto second = open_port("af_packet:extra");
  ASSERT_NE(second, nullptr);
  const int guard = open_guard_socket("left");
  EXPECT_GE(guard, 0) << "a second guard on one interface";
  close(guard);
}

// An interface that goes down wakes the engine for a moment only, and works again when it is back.
TEST_F(AfPacket, SurvivesTheInterfaceGoingDown) {
  open_both();
  there_.enter();
  test::run("ip link set right down");
  here_.enter();
  pollfd wait = {right_->wake_descriptor(), POLLIN, 0};
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(right_->flush());
  EXPECT_EQ(poll(&wait, 1, 0), 0) << "still an event: " << wait.revents;
  std::array<rte_mbuf*, 1> late = {make_roce_frame(flow_to_right(false), 8, 1)};
  EXPECT_EQ(left_->send(late), 1U);
  for (int i = 0; i < 1000; ++i) (void)left_->flush();
  EXPECT_FALSE(left_->flush()) << "an engine would not sleep while there is no carrier";

  there_.enter();
  test::run("ip link set right up");
  here_.enter();
  usleep(50'000);
  std::vector<rte_mbuf*> frames = {make_roce_frame(flow_to_right(false), 8, 2)};
  ASSERT_TRUE(send_all(frames));
  auto received = receive_all(*right_, 10, kQuietMs);
  ASSERT_FALSE(received.empty());
  release(received);
}

TEST_F(AfPacket, UnusableInterfacesAreRefused) {
  const auto error_of = [](const std::string& text) {
    const auto port = Port::open(*parse_port_spec(text), EalEnvironment::frames().get());
    EXPECT_FALSE(port) << text;
    return port ? Error{} : port.error();
  };
  EXPECT_EQ(error_of("af_packet:nosuch").code, ENODEV);
  test::run("ip link add asleep type veth peer name asleep-peer");
  const Error down = error_of("af_packet:asleep");
  EXPECT_EQ(down.code, ENETDOWN);
  EXPECT_NE(down.message.find("ip link set asleep up"), std::string::npos) << down.message;
  const auto left = open_port("af_packet:left");
  EXPECT_EQ(error_of("af_packet:left").code, EEXIST);
}

// Takes a capability from the calling thread for a while.
class WithoutNetRaw {
 public:
  WithoutNetRaw() {
    syscall(SYS_capget, &header_, sets_.data());
    auto less = sets_;
    less[0].effective &= ~(1U << CAP_NET_RAW);
    EXPECT_EQ(syscall(SYS_capset, &header_, less.data()), 0);
  }
  ~WithoutNetRaw() { EXPECT_EQ(syscall(SYS_capset, &header_, sets_.data()), 0); }

 private:
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> sets_{};
};

TEST_F(AfPacket, MissingPrivilegeIsNamed) {
  const WithoutNetRaw without;
  const auto port = Port::open(*parse_port_spec("af_packet:left"), EalEnvironment::frames().get());
  ASSERT_FALSE(port);
  EXPECT_EQ(port.error().code, EPERM);
  EXPECT_NE(port.error().message.find("CAP_NET_RAW"), std::string::npos) << port.error().message;
}

TEST_F(AfPacket, ClosedPortsLeaveNothing) {
  const auto frames_before = EalEnvironment::frames().free_frames();
  const auto sockets_before = packet_sockets();
  open_both();
  std::vector<rte_mbuf*> frames = {make_roce_frame(flow_to_right(false), 8, 1)};
  ASSERT_TRUE(send_all(frames));
  left_.reset();
  right_.reset();
  EXPECT_EQ(packet_sockets(), sockets_before);
  EXPECT_EQ(EalEnvironment::frames().free_frames(), frames_before);
  open_both();
}

TEST(AfPacketRing, HoldsTheFramesOfEveryMtu) {
  for (const std::uint32_t mtu : {576U, 1280U, 1500U, 2044U, 4200U, 9000U, 65536U}) {
    const AfPacketRing ring = AfPacketRing::fit(mtu, 512);
    EXPECT_EQ(ring.block_bytes % 4096, 0U);
    EXPECT_EQ(ring.block_bytes % ring.slot_bytes, 0U);
    EXPECT_EQ(ring.slots % (ring.block_bytes / ring.slot_bytes), 0U);
    EXPECT_GE(ring.slots, 512U);
    EXPECT_GE(ring.send_bytes(), std::min(frame_bytes_for(mtu), kLargestFrameBytes));
  }
}

}  // namespace
}  // namespace urdma::io
