// Extended reliable connections: shared receive queues that their senders name, receive QPs without a
// process of their own, and domains that several processes share.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <vector>

#include "events.hpp"
#include "verbs_test.hpp"

namespace urdma::system_test {
namespace {

constexpr std::size_t kSlot = 8192;  // bytes of a receive
constexpr std::uint32_t kSlots = 16;

struct Domain {
  Domain(ibv_context* context, int fd, int flags) {
    ibv_xrcd_init_attr attributes{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, fd, flags};
    xrcd = ibv_open_xrcd(context, &attributes);
    if (xrcd == nullptr) fail("ibv_open_xrcd");
  }
  ~Domain() { ibv_close_xrcd(xrcd); }
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  ibv_xrcd* xrcd = nullptr;
};

// An XRC SRQ with its CQ.
struct XrcQueue {
  XrcQueue(ibv_context* context, ibv_pd* pd, const Domain& domain, int cq_depth = 256)
      : cq(ibv_create_cq(context, cq_depth, nullptr, nullptr, 0)) {
    ibv_srq_init_attr_ex attributes{};
    attributes.attr = {kSlots, 1, 0};
    attributes.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    attributes.srq_type = IBV_SRQT_XRC;
    attributes.pd = pd;
    attributes.xrcd = domain.xrcd;
    attributes.cq = cq;
    srq = ibv_create_srq_ex(context, &attributes);
    if (srq == nullptr) fail("ibv_create_srq_ex");
    expect_zero(ibv_get_srq_num(srq, &number), "ibv_get_srq_num");
  }
  ~XrcQueue() {
    if (srq != nullptr) ibv_destroy_srq(srq);
    ibv_destroy_cq(cq);
  }
  XrcQueue(const XrcQueue&) = delete;
  XrcQueue& operator=(const XrcQueue&) = delete;

  void post(std::uint64_t wr_id, ibv_sge piece) const {
    ibv_recv_wr request{};
    request.wr_id = wr_id;
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    expect_zero(ibv_post_srq_recv(srq, &request, &bad), "ibv_post_srq_recv");
  }

  ibv_cq* cq;
  ibv_srq* srq = nullptr;
  std::uint32_t number = 0;
};

void modify(ibv_qp* qp, ibv_qp_attr attributes, int mask, const char* what) {
  expect_zero(ibv_modify_qp(qp, &attributes, mask | IBV_QP_STATE), what);
}

// To RTS; the masks are those of the QP's type.
void connect(const Device& device, ibv_qp* qp, std::uint32_t peer) {
  const bool receives = qp->qp_type == IBV_QPT_XRC_RECV;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = kAllAccess;
  modify(qp, attributes, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "to INIT");
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer;
  attributes.max_dest_rd_atomic = 4;
  attributes.min_rnr_timer = 1;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = device.gid;
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(device.gid_index);
  attributes.ah_attr.grh.hop_limit = 64;
  modify(qp, attributes,
         IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             (receives ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0),
         "to RTR");
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.max_rd_atomic = 4;
  modify(qp, attributes,
         IBV_QP_TIMEOUT | IBV_QP_SQ_PSN |
             (receives ? 0 : IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
         "to RTS");
}

struct XrcSender {
  explicit XrcSender(const Device& device) : cq(ibv_create_cq(device.context, 256, nullptr, nullptr, 0)) {
    ibv_qp_init_attr attributes{};
    attributes.qp_type = IBV_QPT_XRC_SEND;
    attributes.send_cq = cq;
    attributes.cap.max_send_wr = 64;
    attributes.cap.max_send_sge = 1;
    qp = ibv_create_qp(device.pd, &attributes);
    if (qp == nullptr) fail("ibv_create_qp for XRC_SEND");
  }
  ~XrcSender() {
    ibv_destroy_qp(qp);
    ibv_destroy_cq(cq);
  }
  XrcSender(const XrcSender&) = delete;
  XrcSender& operator=(const XrcSender&) = delete;

  void post(ibv_send_wr request, std::uint32_t srqn) const {
    request.qp_type.xrc.remote_srqn = srqn;
    ibv_send_wr* bad = nullptr;
    expect_zero(ibv_post_send(qp, &request, &bad), "ibv_post_send");
  }

  ibv_cq* cq;
  ibv_qp* qp = nullptr;
};

ibv_qp* make_receiver(ibv_context* context, const Domain& domain) {
  ibv_qp_init_attr_ex attributes{};
  attributes.qp_type = IBV_QPT_XRC_RECV;
  attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  attributes.xrcd = domain.xrcd;
  ibv_qp* qp = ibv_create_qp_ex(context, &attributes);
  if (qp == nullptr) fail("ibv_create_qp_ex for XRC_RECV");
  return qp;
}

ibv_qp* open_receiver(ibv_context* context, const Domain& domain, std::uint32_t number) {
  ibv_qp_open_attr attributes{};
  attributes.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attributes.qp_num = number;
  attributes.xrcd = domain.xrcd;
  attributes.qp_type = IBV_QPT_XRC_RECV;
  return ibv_open_qp(context, &attributes);
}

class XrcTest : public testing::Test {
 protected:
  XrcTest()
      : domain(device.context, -1, O_CREAT),
        queue(device.context, device.pd, domain),
        sender(device),
        receiver(make_receiver(device.context, domain)),
        source(device, kSlots * kSlot),
        target(device, kSlots * kSlot) {
    connect(device, sender.qp, receiver->qp_num);
    connect(device, receiver, sender.qp->qp_num);
  }
  ~XrcTest() override { ibv_destroy_qp(receiver); }

  void post(const XrcQueue& to, std::uint32_t slot) { to.post(slot, target.sge(slot * kSlot, kSlot)); }
  void send(std::uint32_t seed, std::size_t bytes, std::uint32_t srqn) {
    fill(source.memory.bytes(seed % kSlots * kSlot, bytes), seed);
    ibv_sge piece = source.sge(seed % kSlots * kSlot, bytes);
    sender.post(send_request(IBV_WR_SEND, seed, {&piece, 1}), srqn);
  }
  void expect_received(const XrcQueue& at, std::uint64_t slot, std::uint32_t seed, std::size_t bytes) {
    const ibv_wc received = wait_for_success(at.cq);
    EXPECT_EQ(received.wr_id, slot);
    EXPECT_EQ(received.byte_len, bytes);
    EXPECT_EQ(received.qp_num, receiver->qp_num);
    EXPECT_EQ(first_difference(target.memory.bytes(slot * kSlot, bytes), seed), -1);
  }
  ibv_wc_status access(ibv_wr_opcode opcode, std::uint64_t remote, std::uint32_t rkey) {
    ibv_sge piece = source.sge(0, 3000);
    sender.post(rdma_request(opcode, 1, {&piece, 1}, remote, rkey), queue.number);
    return wait_for(sender.cq).status;
  }

  Device device;
  Domain domain;
  XrcQueue queue;
  XrcSender sender;
  ibv_qp* receiver;
  Region source;
  Region target;
};

TEST_F(XrcTest, Send_ToEachQueueOfTheDomain) {
  const XrcQueue second(device.context, device.pd, domain);
  EXPECT_NE(second.number, queue.number);
  for (std::uint32_t i = 0; i < 200; ++i) {
    const XrcQueue& to = i % 2 == 0 ? queue : second;
    post(to, i % kSlots);
    send(i, 1 + i * 37 % kSlot, to.number);
    expect_received(to, i % kSlots, i, 1 + i * 37 % kSlot);
    (void)wait_for_success(sender.cq);
  }
}

TEST_F(XrcTest, Send_ToAnEmptyQueueIsWaitedFor) {
  send(1, 100, queue.number);
  EXPECT_TRUE(stays_empty(sender.cq, 50));
  post(queue, 4);
  expect_received(queue, 4, 1, 100);
  (void)wait_for_success(sender.cq);
}

TEST_F(XrcTest, Send_ToAQueueOfAnotherDomainEndsTheConnection) {
  const Domain other(device.context, -1, O_CREAT);
  const XrcQueue elsewhere(device.context, device.pd, other);
  post(elsewhere, 1);
  send(1, 100, elsewhere.number);
  EXPECT_EQ(wait_for(sender.cq).status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_TRUE(stays_empty(elsewhere.cq, 50));
}

// The queue is told of, once; the connection, which other queues may use, goes on.
TEST_F(XrcTest, Overrun_IsAnSrqError) {
  const XrcQueue small(device.context, device.pd, domain, 4);
  const auto depth = static_cast<std::uint32_t>(small.cq->cqe);
  for (std::uint32_t i = 0; i <= depth; ++i) {
    post(small, i);
    send(i, 100, small.number);
    (void)wait_for_success(sender.cq);
  }
  EXPECT_EQ(events_until_quiet(device.context),
            (std::vector<Event>{{IBV_EVENT_CQ_ERR, small.cq}, {IBV_EVENT_SRQ_ERR, small.srq}}));
  post(queue, 1);
  send(9, 100, queue.number);
  expect_received(queue, 1, 9, 100);
}

// A connection in ERR that takes no more receives says so at each process that has it, here twice at one.
TEST_F(XrcTest, LastWqeReached_IsToldToEachOpener) {
  ibv_qp* second = open_receiver(device.context, domain, receiver->qp_num);
  ASSERT_NE(second, nullptr);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(receiver, &attributes, IBV_QP_STATE), 0);
  const std::vector<Event> told = events_until_quiet(device.context);
  EXPECT_EQ(told.size(), 2U);
  for (const ibv_qp* opener : {receiver, second}) {
    EXPECT_EQ(std::count(told.begin(), told.end(), Event{IBV_EVENT_QP_LAST_WQE_REACHED, opener}), 1);
  }
  EXPECT_EQ(ibv_destroy_qp(second), 0);
}

TEST_F(XrcTest, Access_WithTheKeysOfTheQueuesProtectionDomain) {
  fill(source.memory.bytes(0, 3000), 9);
  const std::uint32_t rkey = target.registration.rkey();
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, target.address(100), rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(first_difference(target.memory.bytes(100, 3000), 9), -1);
  fill(target.memory.bytes(0, 3000), 10);
  EXPECT_EQ(access(IBV_WR_RDMA_READ, target.address(), rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(first_difference(source.memory.bytes(0, 3000), 10), -1);
}

TEST_F(XrcTest, Access_WithAKeyOfAnotherProtectionDomainIsDenied) {
  ibv_pd* other = ibv_alloc_pd(device.context);
  {
    const Registration elsewhere(other, target.memory.data(), kSlot);
    EXPECT_EQ(access(IBV_WR_RDMA_READ, target.address(), elsewhere.rkey()), IBV_WC_REM_ACCESS_ERR);
  }
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(XrcTest, Destroy_InOrderOnly) {
  EXPECT_EQ(ibv_close_xrcd(domain.xrcd), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(queue.cq), EBUSY);
}

TEST_F(XrcTest, AQueueThatIsGone_TakesItsCompletionsAlong) {
  post(queue, 0);
  send(1, 100, queue.number);
  (void)wait_for_success(sender.cq);
  EXPECT_EQ(ibv_destroy_srq(queue.srq), 0);
  queue.srq = nullptr;
  EXPECT_TRUE(stays_empty(queue.cq, 20));
}

// What two processes tell each other; each has one of them.
struct Words {
  std::uint32_t qpn = 0;
  std::uint32_t srqn = 0;
};

class Pipe {
 public:
  Pipe() { expect_zero(::pipe2(ends_, O_CLOEXEC), "pipe2"); }
  void tell(const Words& words) const {
    if (::write(ends_[1], &words, sizeof words) != sizeof words) fail("write");
  }
  [[nodiscard]] Words hear() const {
    Words words;
    if (::read(ends_[0], &words, sizeof words) != sizeof words) fail("the other process is gone");
    return words;
  }

 private:
  int ends_[2] = {-1, -1};
};

pid_t in_process(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  int result = 0;
  try {
    work();
  } catch (const std::exception& error) {
    ::fprintf(stderr, "child: %s\n", error.what());
    result = 1;
  }
  ::_exit(result);
}

void expect_success_of(pid_t child) {
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// One process makes the receive QP, another has the queue and the memory, and a third one sends. The first
// one goes when the second one has opened the QP, which lives on.
TEST(XrcProcessesTest, ThreeProcesses) {
  char name[] = "/tmp/xrc-test-XXXXXX";
  const int file = ::mkstemp(name);
  ASSERT_GE(file, 0);
  const Pipe to_maker, to_owner, to_sender;
  constexpr std::uint32_t kMessages = 100;

  const pid_t maker = in_process([&] {
    const Device device;
    const Domain domain(device.context, file, O_CREAT);
    ibv_qp* qp = make_receiver(device.context, domain);
    to_sender.tell({qp->qp_num, 0});
    connect(device, qp, to_maker.hear().qpn);
    to_owner.tell({qp->qp_num, 0});
    (void)to_maker.hear();  // the owner has opened it
    ibv_destroy_qp(qp);
  });
  const pid_t owner = in_process([&] {
    Device device;
    const Domain domain(device.context, file, O_CREAT);
    const XrcQueue queue(device.context, device.pd, domain);
    const Region target(device, kSlots * kSlot);
    const std::uint32_t qpn = to_owner.hear().qpn;
    ibv_qp* qp = open_receiver(device.context, domain, qpn);
    if (qp == nullptr || qp->qp_num != qpn) fail("ibv_open_qp");
    for (std::uint32_t i = 0; i < kSlots; ++i) queue.post(i, target.sge(i * kSlot, kSlot));
    to_maker.tell({});
    to_sender.tell({0, queue.number});
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      const ibv_wc received = wait_for_success(queue.cq);
      if (received.qp_num != qpn || received.wr_id != i % kSlots) fail("another completion");
      if (first_difference(target.memory.bytes(i % kSlots * kSlot, 3000), i) != -1) fail("wrong bytes");
      queue.post(i % kSlots, target.sge(i % kSlots * kSlot, kSlot));
    }
    ibv_qp_attr attributes{};
    ibv_qp_init_attr initial{};
    expect_zero(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &initial), "ibv_query_qp");
    if (attributes.qp_state != IBV_QPS_RTS) fail("the QP is in another state");
    expect_zero(ibv_destroy_qp(qp), "ibv_destroy_qp");
    if (open_receiver(device.context, domain, qpn) != nullptr) fail("the QP is still there");
  });
  const pid_t sending = in_process([&] {
    const Device device;
    const XrcSender sender(device);
    const Region source(device, kSlot);
    connect(device, sender.qp, to_sender.hear().qpn);
    to_maker.tell({sender.qp->qp_num, 0});
    const std::uint32_t srqn = to_sender.hear().srqn;
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      fill(source.memory.bytes(0, 3000), i);
      ibv_sge piece = source.sge(0, 3000);
      sender.post(send_request(IBV_WR_SEND, i, {&piece, 1}), srqn);
      (void)wait_for_success(sender.cq);
    }
  });
  expect_success_of(maker);
  expect_success_of(owner);
  expect_success_of(sending);
  ::unlink(name);
  ::close(file);
}

TEST(XrcProcessesTest, Domain_OfAFile) {
  char name[] = "/tmp/xrc-test-XXXXXX";
  const int file = ::mkstemp(name);
  ASSERT_GE(file, 0);
  {
    const Device device;
    ibv_xrcd_init_attr attributes{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, file, 0};
    EXPECT_EQ(ibv_open_xrcd(device.context, &attributes), nullptr);
    EXPECT_EQ(errno, EAGAIN) << "there is none yet";
    const Domain first(device.context, file, O_CREAT | O_EXCL);
    const Domain same(device.context, file, 0);
    attributes.oflags = O_CREAT | O_EXCL;
    EXPECT_EQ(ibv_open_xrcd(device.context, &attributes), nullptr);
    EXPECT_EQ(errno, EINVAL) << "there is one";
    ibv_qp* qp = make_receiver(device.context, first);
    EXPECT_EQ(open_receiver(device.context, Domain(device.context, -1, O_CREAT), qp->qp_num), nullptr);
    ibv_qp* again = open_receiver(device.context, same, qp->qp_num);
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_qp(again), 0);
  }
  ::unlink(name);
  ::close(file);
}

}  // namespace
}  // namespace urdma::system_test
