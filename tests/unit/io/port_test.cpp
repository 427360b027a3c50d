// Tests of ports that need nothing of the machine: loopback and vdev.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/io/port.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <vector>

#include "tests/unit/io/frames.hpp"

namespace urdma::io {
namespace {

TEST(PathMtuCodeFor, Boundaries) {
  constexpr std::uint32_t kHeaders = 40 + 8 + 44 + 4;
  EXPECT_EQ(path_mtu_code_for(0), 0);
  EXPECT_EQ(path_mtu_code_for(256 + kHeaders - 1), 0);
  EXPECT_EQ(path_mtu_code_for(256 + kHeaders), 1);
  EXPECT_EQ(path_mtu_code_for(1280), 3);
  EXPECT_EQ(path_mtu_code_for(1500), 3);
  EXPECT_EQ(path_mtu_code_for(2048 + kHeaders - 1), 3);
  EXPECT_EQ(path_mtu_code_for(2048 + kHeaders), 4);
  EXPECT_EQ(path_mtu_code_for(4096 + kHeaders - 1), 4);
  EXPECT_EQ(path_mtu_code_for(4096 + kHeaders), 5);
  EXPECT_EQ(path_mtu_code_for(9000), 5);
  EXPECT_EQ(path_mtu_code_for(65536), 5);
}

TEST(FramePool, HoldsTheLargestFrame) {
  rte_mbuf* frame = rte_pktmbuf_alloc(EalEnvironment::frames().get());
  ASSERT_NE(frame, nullptr);
  EXPECT_GE(rte_pktmbuf_tailroom(frame), kLargestFrameBytes);
  rte_pktmbuf_free(frame);
}

// Of a real-time engine and a thread that has lost its core with half a frame given back.
TEST(FramePool, NobodySpinsOnAnotherThread) {
  const auto* ring = static_cast<const rte_ring*>(EalEnvironment::frames().get()->pool_data);
  EXPECT_EQ(rte_ring_get_prod_sync_type(ring), RTE_RING_SYNC_MT_RTS);
  EXPECT_EQ(rte_ring_get_cons_sync_type(ring), RTE_RING_SYNC_MT_RTS);
}

TEST(FramePool, TooLargeIsRefused) {
  const auto pool = FramePool::create({.name = "huge", .frames = 1U << 20});
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().code, EINVAL);
}

TEST(FramePool, WithoutMemoryIsRefused) {
  const auto pool = FramePool::create({.name = "more", .frames = 150'000});
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().code, ENOMEM) << pool.error().message;
}

TEST(Eal, SecondStartIsRefused) {
  const auto second = Eal::start({.runtime_directory = "/tmp"});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, EALREADY);
}

TEST(Eal, LeavesThreadsUnpinned) {
  cpu_set_t now{};
  ASSERT_EQ(sched_getaffinity(0, sizeof now, &now), 0);
  EXPECT_TRUE(CPU_EQUAL(&now, &EalEnvironment::affinity()));
}

TEST(Eal, KeepsItsFilesWhereItWasTold) {
  for (const char* elsewhere : {"/var/run/dpdk", "/run/dpdk", "/tmp/dpdk"}) {
    EXPECT_FALSE(std::filesystem::exists(fmt::format("{}/urdma-{}", elsewhere, getpid()))) << elsewhere;
  }
}

TEST(Loopback, ReturnsTheVeryFrames) {
  const auto port = open_port("loopback");
  ASSERT_NE(port, nullptr);
  EXPECT_TRUE(port->is_loopback());
  EXPECT_GE(port->mtu(), 4200U);
  EXPECT_NE(port->mac(), wire::MacAddress{});

  std::array<rte_mbuf*, 32> received{};
  EXPECT_EQ(port->receive(received), 0U);
  std::array<rte_mbuf*, 3> sent = {make_frame(60, 1), make_frame(1514, 2), make_frame(kLargestFrameBytes, 3)};
  ASSERT_EQ(port->send(sent), 3U);
  EXPECT_FALSE(port->flush());
  ASSERT_EQ(port->receive(received), 3U);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(received[i], sent[i]);
    EXPECT_EQ(*rte_pktmbuf_mtod(received[i], std::uint8_t*), i + 1);
  }
  rte_pktmbuf_free_bulk(received.data(), 3);
  EXPECT_EQ(port->counters().sent, 3U);
  EXPECT_EQ(port->counters().received, 3U);
}

TEST(Loopback, FullTakesWhatFits) {
  const auto before = EalEnvironment::frames().free_frames();
  {
    const auto port = open_port("loopback");
    ASSERT_NE(port, nullptr);
    std::vector<rte_mbuf*> frames(2048);
    for (rte_mbuf*& frame : frames) frame = make_frame(64, 0);
    std::uint32_t taken = 0;
    while (taken < frames.size()) {
      const std::uint32_t more = port->send(std::span(frames).subspan(taken, 32));
      if (more == 0) break;
      taken += more;
    }
    EXPECT_GT(taken, 1000U);
    EXPECT_LT(taken, frames.size());
    rte_pktmbuf_free_bulk(frames.data() + taken, static_cast<unsigned>(frames.size() - taken));
  }
  EXPECT_EQ(EalEnvironment::frames().free_frames(), before) << "a closed port keeps frames";
}

TEST(Loopback, WakeDescriptorIsQuiet) {
  const auto port = open_port("loopback");
  ASSERT_NE(port, nullptr);
  EXPECT_FALSE(is_readable(port->wake_descriptor(), 0));
}

TEST(Loopback, SegmentedFramesAreDropped) {
  const auto port = open_port("loopback");
  ASSERT_NE(port, nullptr);
  std::array<rte_mbuf*, 2> frames = {make_frame(100, 1), make_frame(100, 2)};
  ASSERT_EQ(rte_pktmbuf_chain(frames[0], make_frame(100, 9)), 0);
  ASSERT_EQ(port->send(frames), 2U);
  std::array<rte_mbuf*, 4> received{};
  ASSERT_EQ(port->receive(received), 1U);
  EXPECT_EQ(received[0], frames[1]);
  EXPECT_EQ(port->counters().receive_missed, 1U);
  rte_pktmbuf_free(received[0]);
}

TEST(Loopback, TwoPortsAreApart) {
  const auto one = open_port("loopback");
  const auto other = open_port("loopback,ip=127.0.0.1/8");
  ASSERT_TRUE(one && other);
  std::array<rte_mbuf*, 1> frame = {make_frame(64, 1)};
  ASSERT_EQ(one->send(frame), 1U);
  EXPECT_EQ(other->receive(frame), 0U);
  ASSERT_EQ(one->receive(frame), 1U);
  rte_pktmbuf_free(frame[0]);
}

TEST(Vdev, NullDeviceOpens) {
  const auto port = open_port("vdev:net_null7,size=64,ip=192.0.2.1/24");
  ASSERT_NE(port, nullptr);
  EXPECT_EQ(port->mtu(), 1500U);
  EXPECT_NE(port->mac(), wire::MacAddress{});
  EXPECT_EQ(port->wake_descriptor(), -1);
}

// Two memif devices of one process, which DPDK's own thread connects.
TEST(Vdev, MemifPairCarriesFrames) {
  const std::string socket = ",socket-abstract=no,socket=" + EalEnvironment::directory() + "/memif.sock";
  const auto server = open_port("vdev:net_memif0,role=server" + socket + ",ip=192.0.2.1/24");
  const auto client = open_port("vdev:net_memif1,role=client" + socket + ",ip=192.0.2.2/24");
  ASSERT_TRUE(server && client);
  std::array<rte_mbuf*, 1> sent = {make_frame(1514, 7)};
  std::array<rte_mbuf*, 4> received{};
  std::uint32_t taken = 0;
  std::uint32_t count = 0;
  for (int i = 0; i < 3000 && count == 0; ++i) {
    if (taken == 0) taken = client->send(sent);
    count = server->receive(received);
    usleep(1000);
  }
  ASSERT_EQ(taken, 1U) << "the pair did not connect";
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(bytes_of(received[0]).size(), 1514U);
  EXPECT_EQ(bytes_of(received[0])[1513], 7);
  rte_pktmbuf_free(received[0]);
}

TEST(Vdev, UnknownDeviceIsRefused) {
  const auto spec = parse_port_spec("vdev:no_such_driver0,ip=192.0.2.1/24");
  ASSERT_TRUE(spec);
  const auto port = Port::open(*spec, EalEnvironment::frames().get());
  ASSERT_FALSE(port);
  EXPECT_NE(port.error().message.find("no_such_driver0"), std::string::npos) << port.error().message;
}

}  // namespace
}  // namespace urdma::io
