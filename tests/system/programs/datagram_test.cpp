// Datagrams between queue pairs of this process, and of a child: payload, GRH, and what is dropped.
// Unreliable connections at the end.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "datagram.hpp"
#include "verbs_test.hpp"

namespace urdma::system_test {
namespace {

constexpr std::size_t kOffset = 4093;
constexpr std::size_t kRegionSize = std::size_t{2} << 20;
constexpr int kQuietMs = 300;  // longer than a datagram waits for a receive

std::size_t mtu_of(const Device& device) { return std::size_t{128} << device.port.active_mtu; }

class DatagramTest : public testing::Test {
 protected:
  DatagramTest() : source(device, kRegionSize), target(device, kRegionSize), a(device), b(device) {}

  void post_receive(std::size_t size) { b.post_receive(5, target.sge(kOffset, kGrhBytes + size)); }
  [[nodiscard]] const std::uint8_t* grh() const { return target.memory.data() + kOffset; }
  void expect_payload(std::size_t size, std::uint32_t seed) const {
    EXPECT_EQ(first_difference(target.memory.bytes(kOffset + kGrhBytes, size), seed), -1) << size << " bytes";
    EXPECT_EQ(target.memory.data()[kOffset + kGrhBytes + size], 0) << "a stray byte behind " << size;
  }
  // A datagram arrives, so nothing that was sent before it is on its way any more.
  void expect_still_working(ibv_ah* to) {
    post_receive(100);
    fill(source.memory.bytes(kOffset, 100), 99);
    std::memset(target.memory.data(), 0, kRegionSize);
    a.send(to, b.qp->qp_num, source.sge(kOffset, 100));
    wait_for_success(a.send_cq());
    EXPECT_EQ(wait_for_success(b.receive_cq()).byte_len, kGrhBytes + 100);
    expect_payload(100, 99);
    EXPECT_TRUE(stays_empty(b.receive_cq(), 1));
  }

  Device device;
  Region source;
  Region target;
  DatagramEnd a;
  DatagramEnd b;
};

TEST_F(DatagramTest, Send_EverySizeToEveryGid) {
  for (int index = 0; index < device.port.gid_tbl_len; ++index) {
    ibv_gid gid{};
    if (ibv_query_gid(device.context, 1, index, &gid) != 0) break;
    if (gid.global.interface_id == 0 && gid.global.subnet_prefix == 0) break;
    device.gid_index = index;
    AddressHandle to(device, gid);
    const std::size_t mtu = mtu_of(device);
    for (std::uint32_t seed = 1; const std::size_t size : {std::size_t{0}, std::size_t{1}, mtu - 1, mtu}) {
      fill(source.memory.bytes(kOffset, size), ++seed);
      std::memset(target.memory.data(), 0, kRegionSize);
      post_receive(size + 1);
      a.send(to.get(), b.qp->qp_num, source.sge(kOffset, size), kQkey, seed);
      EXPECT_EQ(wait_for_success(a.send_cq()).opcode, IBV_WC_SEND);
      const ibv_wc received = wait_for_success(b.receive_cq());
      EXPECT_EQ(received.opcode, IBV_WC_RECV);
      EXPECT_EQ(received.byte_len, kGrhBytes + size);
      EXPECT_EQ(received.src_qp, a.qp->qp_num);
      EXPECT_EQ(received.qp_num, b.qp->qp_num);
      EXPECT_EQ(received.wc_flags, unsigned{IBV_WC_GRH} | IBV_WC_WITH_IMM);
      EXPECT_EQ(ntohl(received.imm_data), seed);
      EXPECT_EQ(received.slid, 0);
      EXPECT_EQ(received.sl, is_ipv4(gid) ? 2 : 1) << "the kind of network header";
      EXPECT_EQ(grh_fault(grh(), gid, gid), "");
      expect_payload(size, seed);
    }
  }
}

TEST_F(DatagramTest, AddressHandleFromCompletion_ReachesTheSender) {
  for (int index = 0; index < device.port.gid_tbl_len; ++index) {
    ibv_gid gid{};
    if (ibv_query_gid(device.context, 1, index, &gid) != 0) break;
    if (gid.global.interface_id == 0 && gid.global.subnet_prefix == 0) break;
    device.gid_index = index;
    AddressHandle to(device, gid);
    post_receive(100);
    a.send(to.get(), b.qp->qp_num, source.sge(0, 100));
    const ibv_wc received = wait_for_success(b.receive_cq());
    AddressHandle back(device, received, target.memory.data() + kOffset);
    fill(target.memory.bytes(0, 50), 31);
    a.post_receive(6, source.sge(kOffset, kGrhBytes + 50));
    b.send(back.get(), received.src_qp, target.sge(0, 50));
    EXPECT_EQ(wait_for_success(a.receive_cq()).byte_len, kGrhBytes + 50);
    EXPECT_EQ(first_difference(source.memory.bytes(kOffset + kGrhBytes, 50), 31), -1);
    EXPECT_EQ(grh_fault(source.memory.data() + kOffset, gid, gid), "");
    wait_for_success(a.send_cq());
    wait_for_success(b.send_cq());
  }
}

TEST_F(DatagramTest, WrongQkey_IsDropped) {
  AddressHandle to(device, device.gid);
  post_receive(100);
  a.send(to.get(), b.qp->qp_num, source.sge(0, 100), kQkey + 1);
  wait_for_success(a.send_cq());  // an unreliable service tells the sender nothing
  EXPECT_TRUE(stays_empty(b.receive_cq(), kQuietMs));
}

TEST_F(DatagramTest, NoReceive_IsDropped) {
  AddressHandle to(device, device.gid);
  a.send(to.get(), b.qp->qp_num, source.sge(0, 10));
  wait_for_success(a.send_cq());
  EXPECT_TRUE(stays_empty(b.receive_cq(), kQuietMs));
  expect_still_working(to.get());
}

TEST_F(DatagramTest, UnknownQp_IsDropped) {
  AddressHandle to(device, device.gid);
  a.send(to.get(), b.qp->qp_num ^ 0x800000, source.sge(0, 10));
  a.send(to.get(), 1, source.sge(0, 10));
  wait_for_success(a.send_cq());
  wait_for_success(a.send_cq());
  expect_still_working(to.get());
}

TEST_F(DatagramTest, LongerThanMtu_Fails) {
  AddressHandle to(device, device.gid);
  a.send(to.get(), b.qp->qp_num, source.sge(0, mtu_of(device) + 1));
  EXPECT_EQ(wait_for(a.send_cq()).status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(a.state(), IBV_QPS_SQE);
  a.to_rts();
  expect_still_working(to.get());
}

TEST_F(DatagramTest, DestroyedAddressHandle_Fails) {
  AddressHandle gone(device, device.gid);
  ibv_ah copy = *gone.get();
  gone.destroy();
  a.send(&copy, b.qp->qp_num, source.sge(0, 10));
  EXPECT_EQ(wait_for(a.send_cq()).status, IBV_WC_LOC_QP_OP_ERR);
  a.to_rts();
  AddressHandle to(device, device.gid);
  expect_still_working(to.get());
}

TEST_F(DatagramTest, AddressHandleOfAnotherDomain_Fails) {
  Device other(device.gid_index);
  ibv_pd* pd = ibv_alloc_pd(device.context);
  ASSERT_NE(pd, nullptr);
  std::swap(device.pd, pd);
  {
    AddressHandle foreign(device, device.gid);
    std::swap(device.pd, pd);
    EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
    a.send(foreign.get(), b.qp->qp_num, source.sge(0, 10));
    EXPECT_EQ(wait_for(a.send_cq()).status, IBV_WC_LOC_QP_OP_ERR);
  }
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(DatagramTest, Burst_ArrivesWhole) {
  constexpr int kBurst = 48;
  AddressHandle to(device, device.gid);
  for (int i = 0; i < kBurst; ++i) b.post_receive(1, target.sge(static_cast<std::size_t>(i) * 2048, 1024));
  for (int i = 0; i < kBurst; ++i) {
    fill(source.memory.bytes(static_cast<std::size_t>(i) * 1024, 900), 500U + static_cast<std::uint32_t>(i));
    a.send(to.get(), b.qp->qp_num, source.sge(static_cast<std::size_t>(i) * 1024, 900));
  }
  for (int i = 0; i < kBurst; ++i) {
    wait_for_success(a.send_cq());
    wait_for_success(b.receive_cq());
    const auto at = static_cast<std::size_t>(i) * 2048 + kGrhBytes;
    EXPECT_EQ(first_difference(target.memory.bytes(at, 900), 500U + static_cast<std::uint32_t>(i)), -1) << i;
  }
}

TEST_F(DatagramTest, Multicast_JoinsAndLeaves) {
  const ibv_gid group = gid_of("ff12::7:1");
  EXPECT_EQ(ibv_attach_mcast(a.qp, &device.gid, 0), EINVAL);
  EXPECT_EQ(ibv_detach_mcast(b.qp, &group, 0), EINVAL);
  AddressHandle to(device, group);
  ASSERT_EQ(ibv_attach_mcast(b.qp, &group, 0), 0);
  ASSERT_EQ(ibv_attach_mcast(b.qp, &group, 0), 0);  // once more says nothing new
  post_receive(100);
  fill(source.memory.bytes(0, 100), 8);
  a.send(to.get(), kMulticastQpn, source.sge(0, 100));
  EXPECT_EQ(wait_for_success(b.receive_cq()).src_qp, a.qp->qp_num);
  expect_payload(100, 8);
  EXPECT_EQ(grh_fault(grh(), device.gid, group), "");
  ASSERT_EQ(ibv_detach_mcast(b.qp, &group, 0), 0);
  post_receive(100);
  a.send(to.get(), kMulticastQpn, source.sge(0, 100));
  EXPECT_TRUE(stays_empty(b.receive_cq(), kQuietMs));
}

// ---- Three members in two processes ----

constexpr const char* kGroup = "::ffff:239.1.2.3";

// The source address is one of IPv4 in both processes.
void use_ipv4(Device& device) {
  for (int index = 0; index < device.port.gid_tbl_len && !is_ipv4(device.gid); ++index) {
    device.gid_index = index;
    if (ibv_query_gid(device.context, 1, index, &device.gid) != 0) break;
  }
}

// In the child: one member. Tells by a byte that it is there. 0 when the datagram came as it should.
int be_member(int ready) {
  Device device;
  use_ipv4(device);
  Region memory(device, 4096);
  DatagramEnd end(device);
  const ibv_gid group = gid_of(kGroup);
  end.post_receive(1, memory.sge(0, 1024));
  if (ibv_attach_mcast(end.qp, &group, 0) != 0 || ::write(ready, "r", 1) != 1) return 2;
  const ibv_wc received = wait_for_success(end.receive_cq());
  if (received.byte_len != kGrhBytes + 700 || (received.wc_flags & IBV_WC_GRH) == 0) return 3;
  if (!grh_fault(memory.memory.data(), device.gid, group).empty()) return 4;
  return first_difference(memory.memory.bytes(kGrhBytes, 700), 77) == -1 ? 0 : 5;
}

TEST(MulticastTest, Send_ReachesThreeMembersOfTwoProcesses) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    int result = 9;
    try {
      result = be_member(ready[1]);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "the child: %s\n", error.what());
    }
    ::_exit(result);
  }
  Device device;
  use_ipv4(device);
  Region memory(device, 65536);
  DatagramEnd sender(device);
  DatagramEnd other(device);
  const ibv_gid group = gid_of(kGroup);
  ASSERT_EQ(ibv_attach_mcast(sender.qp, &group, 0), 0);
  ASSERT_EQ(ibv_attach_mcast(other.qp, &group, 0), 0);
  sender.post_receive(1, memory.sge(8192, 1024));
  other.post_receive(1, memory.sge(16384, 1024));
  fill(memory.memory.bytes(0, 700), 77);
  char byte = 0;
  ::close(ready[1]);
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  AddressHandle to(device, group);
  sender.send(to.get(), kMulticastQpn, memory.sge(0, 700));
  wait_for_success(sender.send_cq());
  EXPECT_EQ(wait_for_success(sender.receive_cq()).src_qp,
            sender.qp->qp_num);  // the sender is a member as well
  EXPECT_EQ(wait_for_success(other.receive_cq()).src_qp, sender.qp->qp_num);
  EXPECT_EQ(first_difference(memory.memory.bytes(8192 + kGrhBytes, 700), 77), -1);
  EXPECT_EQ(first_difference(memory.memory.bytes(16384 + kGrhBytes, 700), 77), -1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ::close(ready[0]);
}

// ---- Unreliable connections ----

class UnreliableTest : public testing::Test {
 protected:
  UnreliableTest() : source(device, kRegionSize), target(device, kRegionSize) {}
  Device device;
  Region source;
  Region target;
};

TEST_F(UnreliableTest, SendAndWrite_EverySize) {
  Link link(device, {.type = IBV_QPT_UC});
  for (std::uint32_t seed = 1;
       const std::size_t size : {0U, 1U, 1023U, 1024U, 1025U, 4097U, 65537U, 300'000U}) {
    for (const ibv_wr_opcode opcode :
         {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE}) {
      fill(source.memory.bytes(kOffset, size), ++seed);
      std::memset(target.memory.data(), 0, kRegionSize);
      if (opcode != IBV_WR_RDMA_WRITE) link.b.post_receive(seed, target.sge(kOffset, size));
      ibv_sge piece = source.sge(kOffset, size);
      auto request =
          rdma_request(opcode, seed, {&piece, 1}, target.address(kOffset), target.registration.rkey());
      request.imm_data = htonl(seed);
      link.a.post_send(request);
      wait_for_success(link.a.send_cq);
      if (opcode != IBV_WR_RDMA_WRITE) {
        const ibv_wc received = wait_for_success(link.b.receive_cq);
        EXPECT_EQ(received.byte_len, size);
        EXPECT_EQ(opcode == IBV_WR_SEND ? seed : ntohl(received.imm_data), seed);
      } else {
        // Nothing says that a WRITE has arrived; what is behind it on the same connection does.
        link.b.post_receive(1, target.sge(0, 8));
        ibv_sge none = source.sge(0, 0);
        auto behind = send_request(IBV_WR_SEND, 1, {&none, 1});
        link.a.post_send(behind);
        wait_for_success(link.a.send_cq);
        wait_for_success(link.b.receive_cq);
      }
      EXPECT_EQ(first_difference(target.memory.bytes(kOffset, size), seed), -1)
          << size << " bytes, " << opcode;
    }
  }
}

TEST_F(UnreliableTest, NoReceive_LosesThatMessageAlone) {
  Link link(device, {.type = IBV_QPT_UC});
  ibv_sge piece = source.sge(0, 5000);
  auto request = send_request(IBV_WR_SEND, 1, {&piece, 1});
  link.a.post_send(request);
  wait_for_success(link.a.send_cq);
  EXPECT_TRUE(stays_empty(link.b.receive_cq, kQuietMs));
  fill(source.memory.bytes(0, 5000), 3);
  link.b.post_receive(2, target.sge(0, 5000));
  link.a.post_send(request);
  wait_for_success(link.a.send_cq);
  EXPECT_EQ(wait_for_success(link.b.receive_cq).wr_id, 2U);
  EXPECT_EQ(first_difference(target.memory.bytes(0, 5000), 3), -1);
}

TEST_F(UnreliableTest, Read_IsRefused) {
  Link link(device, {.type = IBV_QPT_UC});
  ibv_sge piece = source.sge(0, 8);
  auto request = rdma_request(IBV_WR_RDMA_READ, 1, {&piece, 1}, target.address(), target.registration.rkey());
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(link.a.qp, &request, &bad), EINVAL);
}

}  // namespace
}  // namespace urdma::system_test
