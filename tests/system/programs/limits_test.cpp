// Each limit that ibv_query_device and ibv_query_port tell: what is made up to it works, one more is refused,
// and what is given back can be had again.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "datagram.hpp"
#include "verbs_test.hpp"

namespace urdma::system_test {
namespace {

class LimitsTest : public testing::Test {
 protected:
  LimitsTest() : cq(ibv_create_cq(device.context, 16, nullptr, nullptr, 0)) {
    if (cq == nullptr) fail("ibv_create_cq");
  }
  ~LimitsTest() override { ibv_destroy_cq(cq); }

  // Makes objects until there are `most`, of which `already` are there; the next is ENOMEM.
  template <typename Make, typename Destroy>
  static void expect_objects(int most, int already, Make make, Destroy destroy) {
    ASSERT_GT(most, already);
    std::vector<decltype(make())> made;
    for (int count = already; count < most; ++count) {
      made.push_back(make());
      ASSERT_NE(made.back(), nullptr) << "number " << count << " of " << most << ": " << std::strerror(errno);
    }
    errno = 0;
    EXPECT_EQ(make(), nullptr) << "more than " << most;
    EXPECT_EQ(errno, ENOMEM);
    ASSERT_EQ(destroy(made.back()), 0);
    made.back() = make();
    EXPECT_NE(made.back(), nullptr) << "the room of one that is gone";
    for (auto* object : made) EXPECT_EQ(destroy(object), 0);
  }

  [[nodiscard]] ibv_qp_init_attr smallest_qp(ibv_qp_type type = IBV_QPT_RC) const {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq;
    wanted.qp_type = type;
    wanted.cap = {1, 1, 1, 1, 0};
    return wanted;
  }
  // The errno of creating such a queue pair, 0 if it was made.
  [[nodiscard]] int error_of(ibv_qp_init_attr wanted) const {
    errno = 0;
    ibv_qp* qp = ibv_create_qp(device.pd, &wanted);
    const int error = errno;
    if (qp == nullptr) return error;
    ibv_destroy_qp(qp);
    return 0;
  }

  Device device;
  ibv_cq* cq;
};

TEST_F(LimitsTest, ProtectionDomains_UpToMaxPd) {
  expect_objects(
      device.limits.max_pd, 1, [&] { return ibv_alloc_pd(device.context); }, ibv_dealloc_pd);
}

TEST_F(LimitsTest, Regions_UpToMaxMr) {
  const Memory memory(4096);
  const auto make = [&] { return ibv_reg_mr(device.pd, memory.data(), 64, IBV_ACCESS_LOCAL_WRITE); };
  expect_objects(device.limits.max_mr, 0, make, ibv_dereg_mr);
}

TEST_F(LimitsTest, Windows_UpToMaxMw) {
  const auto make = [&] { return ibv_alloc_mw(device.pd, IBV_MW_TYPE_2); };
  expect_objects(device.limits.max_mw, 0, make, ibv_dealloc_mw);
}

TEST_F(LimitsTest, CompletionQueues_UpToMaxCq) {
  const auto make = [&] { return ibv_create_cq(device.context, 1, nullptr, nullptr, 0); };
  expect_objects(device.limits.max_cq, 1, make, ibv_destroy_cq);
}

// Each of them is a descriptor of the daemon.
TEST_F(LimitsTest, CompletionQueues_UpToMaxCqOnOneChannel) {
  ibv_comp_channel* channel = ibv_create_comp_channel(device.context);
  ASSERT_NE(channel, nullptr);
  const auto make = [&] { return ibv_create_cq(device.context, 1, nullptr, channel, 0); };
  expect_objects(device.limits.max_cq, 1, make, ibv_destroy_cq);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(LimitsTest, QueuePairs_UpToMaxQp) {
  const auto make = [&] {
    ibv_qp_init_attr wanted = smallest_qp();
    return ibv_create_qp(device.pd, &wanted);
  };
  expect_objects(device.limits.max_qp, 0, make, ibv_destroy_qp);
}

TEST_F(LimitsTest, SharedReceiveQueues_UpToMaxSrq) {
  const auto make = [&] {
    ibv_srq_init_attr wanted{};
    wanted.attr = {1, 1, 0};
    return ibv_create_srq(device.pd, &wanted);
  };
  expect_objects(device.limits.max_srq, 0, make, ibv_destroy_srq);
}

TEST_F(LimitsTest, AddressHandles_UpToMaxAh) {
  const auto make = [&] {
    ibv_ah_attr wanted{};
    wanted.is_global = 1;
    wanted.port_num = 1;
    wanted.grh.dgid = device.gid;
    wanted.grh.hop_limit = 1;
    return ibv_create_ah(device.pd, &wanted);
  };
  expect_objects(device.limits.max_ah, 0, make, ibv_destroy_ah);
}

// Verbs have no name for this limit; docs/limits.md has.
TEST_F(LimitsTest, XrcDomains_UpTo1024) {
  constexpr int kMost = 1024;
  const auto make = [&] {
    ibv_xrcd_init_attr wanted{};
    wanted.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    wanted.fd = -1;
    wanted.oflags = O_CREAT;
    return ibv_open_xrcd(device.context, &wanted);
  };
  expect_objects(kMost, 0, make, ibv_close_xrcd);
}

TEST_F(LimitsTest, DeviceMemory_UpToMaxDmSize) {
  ibv_device_attr_ex extended{};
  ASSERT_EQ(ibv_query_device_ex(device.context, nullptr, &extended), 0);
  ASSERT_GT(extended.max_dm_size, 0U);
  const auto alloc = [&](std::size_t bytes) {
    ibv_alloc_dm_attr wanted{.length = bytes, .log_align_req = 0, .comp_mask = 0};
    errno = 0;
    return ibv_alloc_dm(device.context, &wanted);
  };
  EXPECT_EQ(alloc(extended.max_dm_size + 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_dm* all = alloc(extended.max_dm_size);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(alloc(1), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(ibv_free_dm(all), 0);
}

// ---- Multicast ----

ibv_gid group(int number) {
  ibv_gid gid = gid_of("ff12::8:0");
  gid.raw[14] = static_cast<std::uint8_t>(number >> 8);
  gid.raw[15] = static_cast<std::uint8_t>(number);
  return gid;
}

int attach(const DatagramEnd& end, int number) {
  const ibv_gid gid = group(number);
  return ibv_attach_mcast(end.qp, &gid, 0);
}

int detach(const DatagramEnd& end, int number) {
  const ibv_gid gid = group(number);
  return ibv_detach_mcast(end.qp, &gid, 0);
}

TEST_F(LimitsTest, MulticastGroups_UpToMaxMcastGrp) {
  const int most = device.limits.max_mcast_grp;
  ASSERT_GT(most, 0);
  const DatagramEnd end(device, kQkey, 1);
  const DatagramEnd other(device, kQkey, 1);
  for (int number = 0; number < most; ++number) ASSERT_EQ(attach(end, number), 0) << number;
  EXPECT_EQ(attach(end, most), ENOMEM);
  EXPECT_EQ(attach(other, 0), 0) << "into a group that is there";
  EXPECT_EQ(detach(end, 1), 0);
  EXPECT_EQ(attach(end, most), 0);
}

TEST_F(LimitsTest, MulticastMembers_UpToMaxMcastQpAttachAndInAll) {
  const auto of_group = static_cast<std::size_t>(device.limits.max_mcast_qp_attach);
  const auto in_all = static_cast<std::size_t>(device.limits.max_total_mcast_qp_attach);
  ASSERT_EQ(in_all % of_group, 0U);
  std::vector<std::unique_ptr<DatagramEnd>> ends;
  for (std::size_t i = 0; i <= of_group; ++i) {
    ends.push_back(std::make_unique<DatagramEnd>(device, kQkey, 1));
  }
  const DatagramEnd& last = *ends.back();
  for (int number = 0; number < static_cast<int>(in_all / of_group); ++number) {
    for (std::size_t i = 0; i < of_group; ++i) ASSERT_EQ(attach(*ends[i], number), 0) << number << ", " << i;
    ASSERT_EQ(attach(last, number), ENOMEM) << "one more of group " << number;
  }
  EXPECT_EQ(detach(*ends[0], 0), 0);
  EXPECT_EQ(attach(last, 1000), 0) << "the last one in all";
  EXPECT_EQ(attach(last, 1001), ENOMEM);
}

// ---- Sizes of one object ----

TEST_F(LimitsTest, QueuePair_RequestsUpToMaxQpWr) {
  const int most = device.limits.max_qp_wr;
  Region region(device, 4096);
  End end(device, {.receive_depth = most, .sges = 1});
  end.to_init();
  ibv_sge piece = region.sge(0, 8);
  ibv_recv_wr receive{};
  receive.sg_list = &piece;
  receive.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  for (int i = 0; i < most; ++i) ASSERT_EQ(ibv_post_recv(end.qp, &receive, &bad), 0) << i;
  EXPECT_EQ(ibv_post_recv(end.qp, &receive, &bad), ENOMEM);

  ibv_qp_init_attr wanted = smallest_qp();
  wanted.cap.max_send_wr = static_cast<std::uint32_t>(most) + 1;
  EXPECT_EQ(error_of(wanted), EINVAL);
  wanted = smallest_qp();
  wanted.cap.max_recv_wr = static_cast<std::uint32_t>(most) + 1;
  EXPECT_EQ(error_of(wanted), EINVAL);
}

// As many requests to send as the queue holds are there at once: they wait for a receive.
TEST_F(LimitsTest, QueuePair_SendsUpToMaxQpWr) {
  const int most = device.limits.max_qp_wr;
  Region region(device, 4096);
  Link link(device, {.send_depth = most, .receive_depth = 16, .cq_depth = 2 * most, .sges = 1});
  ibv_sge piece = region.sge(0, 8);
  auto request = send_request(IBV_WR_SEND, 1, {&piece, 1});
  for (int i = 0; i < most; ++i) link.a.post_send(request);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(link.a.qp, &request, &bad), ENOMEM);
  link.a.to_error();
  for (int i = 0; i < most; ++i) ASSERT_EQ(wait_for(link.a.send_cq).status, IBV_WC_WR_FLUSH_ERR) << i;
}

// A message of as many pieces as there may be, gathered, scattered, and read.
TEST_F(LimitsTest, Request_PiecesUpToMaxSge) {
  const auto most = static_cast<std::size_t>(device.limits.max_sge);
  ASSERT_EQ(device.limits.max_sge_rd, device.limits.max_sge);
  constexpr std::uint32_t kPiece = 40;
  constexpr std::size_t kStride = 64;
  Region source(device, most * kStride);
  Region target(device, most * kStride);
  fill(source.memory.bytes(), 3);
  Link link(device, {.sges = static_cast<int>(most)});
  std::vector<ibv_sge> from;
  std::vector<ibv_sge> to;
  for (std::size_t i = 0; i < most; ++i) {
    from.push_back(source.sge(i * kStride, kPiece));
    to.push_back(target.sge(i * kStride, kPiece));
  }
  const auto expect_pieces = [&] {
    for (std::size_t i = 0; i < most; ++i) {
      EXPECT_EQ(first_difference(target.memory.bytes(i * kStride, kPiece), 3, i * kStride), -1) << i;
    }
  };
  link.b.post_receive(1, to);
  auto request = send_request(IBV_WR_SEND, 1, from);
  link.a.post_send(request);
  wait_for_success(link.a.send_cq);
  expect_pieces();

  std::memset(target.memory.data(), 0, most * kStride);
  auto read = rdma_request(IBV_WR_RDMA_READ, 2, to, source.address(), source.registration.rkey());
  link.a.post_send(read);
  wait_for_success(link.a.send_cq);
  const std::size_t last = (most - 1) * kStride;
  EXPECT_EQ(first_difference(target.memory.bytes(last, kPiece), 3, (most - 1) * kPiece), -1);

  ibv_qp_init_attr wanted = smallest_qp();
  wanted.cap.max_send_sge = static_cast<std::uint32_t>(most) + 1;
  EXPECT_EQ(error_of(wanted), EINVAL);
  wanted = smallest_qp();
  wanted.cap.max_recv_sge = static_cast<std::uint32_t>(most) + 1;
  EXPECT_EQ(error_of(wanted), EINVAL);
}

// Verbs tell it by refusing more; docs/limits.md has the number.
TEST_F(LimitsTest, Request_InlineUpTo1024Bytes) {
  constexpr std::uint32_t kMost = 1024;
  Region target(device, kMost);
  const Memory source(kMost);
  fill(source.bytes(), 4);
  Link link(device, {.inline_bytes = kMost});
  ibv_sge piece{reinterpret_cast<std::uint64_t>(source.data()), kMost, 0};
  auto request = rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, target.address(), target.registration.rkey(),
                              IBV_SEND_SIGNALED | IBV_SEND_INLINE);
  link.a.post_send(request);
  wait_for_success(link.a.send_cq);
  EXPECT_EQ(first_difference(target.memory.bytes(), 4), -1);
  ibv_qp_init_attr wanted = smallest_qp();
  wanted.cap.max_inline_data = kMost + 1;
  EXPECT_EQ(error_of(wanted), EINVAL);
}

TEST_F(LimitsTest, CompletionQueue_EntriesUpToMaxCqe) {
  const int most = device.limits.max_cqe;
  ibv_cq* large = ibv_create_cq(device.context, most, nullptr, nullptr, 0);
  ASSERT_NE(large, nullptr);
  EXPECT_GE(large->cqe, most);
  EXPECT_EQ(ibv_destroy_cq(large), 0);
  errno = 0;
  EXPECT_EQ(ibv_create_cq(device.context, most + 1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_resize_cq(cq, most + 1), EINVAL);
  EXPECT_EQ(ibv_resize_cq(cq, most), 0);
}

TEST_F(LimitsTest, CompletionQueue_VectorsUpToNumCompVectors) {
  const int vectors = device.context->num_comp_vectors;
  ASSERT_GT(vectors, 0);
  for (int vector = 0; vector < vectors; ++vector) {
    ibv_cq* made = ibv_create_cq(device.context, 1, nullptr, nullptr, vector);
    ASSERT_NE(made, nullptr) << vector;
    EXPECT_EQ(ibv_destroy_cq(made), 0);
  }
  errno = 0;
  EXPECT_EQ(ibv_create_cq(device.context, 1, nullptr, nullptr, vectors), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(LimitsTest, SharedReceiveQueue_RequestsUpToMaxSrqWrAndSge) {
  const auto most = static_cast<std::uint32_t>(device.limits.max_srq_wr);
  const auto sges = static_cast<std::uint32_t>(device.limits.max_srq_sge);
  const Region region(device, 4096);
  const auto make = [&](std::uint32_t max_wr, std::uint32_t max_sge) {
    ibv_srq_init_attr wanted{};
    wanted.attr = {max_wr, max_sge, 0};
    errno = 0;
    return ibv_create_srq(device.pd, &wanted);
  };
  ibv_srq* srq = make(most, sges);
  ASSERT_NE(srq, nullptr);
  std::vector<ibv_sge> pieces(sges, region.sge(0, 8));
  ibv_recv_wr request{};
  request.sg_list = pieces.data();
  request.num_sge = static_cast<int>(sges);
  ibv_recv_wr* bad = nullptr;
  for (std::uint32_t i = 0; i < most; ++i) ASSERT_EQ(ibv_post_srq_recv(srq, &request, &bad), 0) << i;
  EXPECT_EQ(ibv_post_srq_recv(srq, &request, &bad), ENOMEM);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(make(most + 1, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(make(1, sges + 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(LimitsTest, Region_BytesUpToMaxMrSize) {
  const std::uint64_t most = device.limits.max_mr_size;
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND;
  void* memory = ::mmap(nullptr, most + 4096, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ibv_mr* region = ibv_reg_mr(device.pd, memory, most, kAccess);
  ASSERT_NE(region, nullptr) << std::strerror(errno);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(device.pd, memory, most + 1, kAccess), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ::munmap(memory, most + 4096);
}

// READs under way up to max_qp_rd_atom and max_qp_init_rd_atom, and no more can be asked for.
TEST_F(LimitsTest, QueuePair_ReadsUpToMaxQpRdAtom) {
  const int most = std::min(device.limits.max_qp_rd_atom, device.limits.max_qp_init_rd_atom);
  ASSERT_LT(most, 256);
  constexpr int kReads = 500;
  Region source(device, 8 * kReads);
  Region target(device, 8 * kReads);
  fill(source.memory.bytes(), 5);
  Link link(device, {.send_depth = kReads, .cq_depth = kReads, .rd_atomic = static_cast<std::uint8_t>(most)});
  for (std::size_t i = 0; i < kReads; ++i) {
    ibv_sge piece = target.sge(8 * i, 8);
    auto request =
        rdma_request(IBV_WR_RDMA_READ, i, {&piece, 1}, source.address(8 * i), source.registration.rkey());
    link.a.post_send(request);
  }
  for (std::size_t i = 0; i < kReads; ++i) EXPECT_EQ(wait_for_success(link.a.send_cq).wr_id, i);
  EXPECT_EQ(first_difference(target.memory.bytes(), 5), -1);

  const auto beyond = static_cast<std::uint8_t>(most + 1);
  End responder(device, {.rd_atomic = beyond});
  responder.to_init();
  EXPECT_THROW(responder.to_rtr(link.a.address()), std::runtime_error);
  End requester(device, {.rd_atomic = static_cast<std::uint8_t>(most)});
  requester.to_init();
  requester.to_rtr(link.a.address());
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.max_rd_atomic = beyond;
  EXPECT_EQ(ibv_modify_qp(requester.qp, &attributes,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
            EINVAL);
  requester.to_rts();
}

// ---- Of the port ----

TEST_F(LimitsTest, Port_GidsUpToGidTblLen) {
  ibv_gid gid{};
  EXPECT_EQ(ibv_query_gid(device.context, 1, device.port.gid_tbl_len - 1, &gid), 0);
  EXPECT_NE(ibv_query_gid(device.context, 1, device.port.gid_tbl_len, &gid), 0);
  ibv_gid_entry entry{};
  EXPECT_EQ(ibv_query_gid_ex(device.context, 1, 0, &entry, 0), 0);
  EXPECT_NE(
      ibv_query_gid_ex(device.context, 1, static_cast<std::uint32_t>(device.port.gid_tbl_len), &entry, 0), 0);
}

TEST_F(LimitsTest, Port_PkeysUpToPkeyTblLenAndMaxPkeys) {
  ASSERT_EQ(device.limits.max_pkeys, device.port.pkey_tbl_len);
  for (int index = 0; index < device.port.pkey_tbl_len; ++index) {
    __be16 pkey = 0;
    EXPECT_EQ(ibv_query_pkey(device.context, 1, index, &pkey), 0);
    EXPECT_EQ(pkey, htons(0xFFFF));
  }
  __be16 pkey = 0;
  EXPECT_NE(ibv_query_pkey(device.context, 1, device.port.pkey_tbl_len, &pkey), 0);
}

TEST_F(LimitsTest, Port_NumbersUpToPhysPortCnt) {
  ibv_port_attr attributes{};
  for (std::uint8_t port = 1; port <= device.limits.phys_port_cnt; ++port) {
    EXPECT_EQ(ibv_query_port(device.context, port, &attributes), 0);
  }
  const auto next = static_cast<std::uint8_t>(device.limits.phys_port_cnt + 1);
  EXPECT_NE(ibv_query_port(device.context, next, &attributes), 0);
}

// A message of more bytes than max_msg_sz ends in a completion; large_test moves one of as many.
TEST_F(LimitsTest, Port_MessagesUpToMaxMsgSz) {
  const std::uint64_t most = device.port.max_msg_sz;
  constexpr int kPieces = 32;
  const std::size_t bytes = most / kPieces + 1;
  Region region(device, 4096);
  void* memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  {
    const Registration large(device.pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    const ibv_sge piece{reinterpret_cast<std::uint64_t>(memory), static_cast<std::uint32_t>(bytes),
                        large.lkey()};
    std::vector<ibv_sge> pieces(kPieces, piece);
    Link link(device, {.sges = kPieces});
    auto request = send_request(IBV_WR_SEND, 1, pieces);
    link.a.post_send(request);
    EXPECT_EQ(wait_for(link.a.send_cq).status, IBV_WC_LOC_LEN_ERR);
  }
  ::munmap(memory, bytes);
}

}  // namespace
}  // namespace urdma::system_test
