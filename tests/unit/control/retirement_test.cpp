// Tests of datapath/control/retirement, from a client's side: objects go while a copier still has packets of
// theirs, held up by the program's memory for half a second at most.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <sys/mman.h>

#include <cstdlib>

#include "tests/unit/control/server_fixture.hpp"
#include "urdma/abi/pages.hpp"
#include "urdma/abi/queues.hpp"

namespace urdma::control {
namespace {

constexpr std::uint32_t kBytes = 64;

// A mapping of what a reply has passed.
template <typename Page>
Page* map(const Message& reply, std::size_t index, std::size_t bytes) {
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, reply.fds.at(index).get(), 0);
  EXPECT_NE(mapped, MAP_FAILED);
  return static_cast<Page*>(mapped);
}

// A page that a copier can read and not write, so that it tries again for a while.
std::uint64_t unwritable_page() {
  char name[] = "/tmp/urdma-unit-XXXXXX";
  const UniqueFd writable(::mkstemp(name));
  EXPECT_EQ(::ftruncate(writable.get(), 4096), 0);
  const UniqueFd readable(::open(name, O_RDONLY | O_CLOEXEC));
  ::unlink(name);
  return reinterpret_cast<std::uint64_t>(::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, readable.get(), 0));
}

class RetirementTest : public ServerTest {
 protected:
  RetirementTest() : client_(node), file_(::fileno(std::tmpfile())) {
    EXPECT_EQ(client_.hello(client_.hello_body()), 0);
    pd_ = client_.make_pd();
    cq_ = client_.make(MessageType::kCreateCq, cq_of(64));
    xrcd_ = open_xrcd(client_, file_, O_CREAT);
  }
  static std::uint32_t open_xrcd(Client& client, int file, int flags) {
    const int fds[] = {file};
    return client.make(MessageType::kOpenXrcd, abi::OpenXrcd{static_cast<std::uint32_t>(flags), 1}, fds);
  }
  std::optional<Message> make_qp(QpType type) {
    abi::CreateQp wanted = qp_of(pd_, cq_);
    wanted.type = static_cast<std::uint32_t>(type);
    wanted.xrcd = xrcd_;
    return client_.ask(MessageType::kCreateQp, wanted);
  }
  void modify(std::uint32_t qp, QpState state, std::uint32_t mask, std::uint32_t peer = 0) {
    abi::ModifyQp wanted{};
    wanted.handle = qp;
    wanted.mask = kAttrState | mask;
    abi::QpAttributes& to = wanted.attributes;
    to.state = static_cast<std::uint8_t>(state);
    to.path_mtu = 3;
    to.max_rd_atomic = to.max_dest_rd_atomic = to.port = 1;
    to.timeout = 18;
    to.retry_count = to.rnr_retry = 7;
    to.dest_qpn = peer;
    to.address.is_global = to.address.port = 1;
    to.address.hop_limit = 64;
    std::copy_n(gid().data(), 16, to.address.dest_gid);
    EXPECT_EQ(client_.error_of(MessageType::kModifyQp, wanted), 0);
  }
  std::array<std::uint8_t, 16> gid() {
    const auto reply = client_.ask(MessageType::kQueryGidTable, abi::QueryGidTable{1, 0});
    return std::to_array(body_of<abi::QueryGidTableReply>(*reply).entries[0].gid);
  }
  // To RTS, or to RTR where there is nothing to send.
  void connect(const abi::CreateQpReply& qp, std::uint32_t peer, bool sends) {
    modify(qp.handle, QpState::kInit, kAttrPkeyIndex | kAttrPort | kAttrAccessFlags);
    modify(qp.handle, QpState::kRtr,
           kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic | kAttrMinRnrTimer,
           peer);
    if (!sends) return;
    modify(qp.handle, QpState::kRts,
           kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrSqPsn | kAttrMaxQpRdAtomic);
  }
  // A message arrives at the receive QP, which is returned, and a copier has it.
  abi::CreateQpReply receive_what_cannot_be_placed() {
    const std::uint64_t page = unwritable_page();
    const auto region =
        client_.ask(MessageType::kRegMr, abi::RegMr{pd_, kAccessLocalWrite, page, 4096, page});
    abi::CreateSrq wanted{};
    wanted.pd = pd_;
    wanted.type = 1;
    wanted.xrcd = xrcd_;
    wanted.cq = cq_;
    wanted.max_wr = wanted.max_sge = 1;
    const auto made = client_.ask(MessageType::kCreateSrq, wanted);
    const auto srq = body_of<abi::CreateSrqReply>(*made);
    auto* ring = map<std::byte>(*made, 0, srq.memory_bytes);
    auto* receive = reinterpret_cast<abi::ReceiveWqe*>(ring + srq.slots_offset);
    *receive = {1, 1, 0};
    *reinterpret_cast<abi::Sge*>(receive + 1) = {page, kBytes, body_of<abi::RegMrReply>(*region).key};
    reinterpret_cast<abi::SrqPage*>(ring)->producer.store(1);

    const auto receiver = body_of<abi::CreateQpReply>(*make_qp(QpType::kXrcRecv));
    const auto sending = make_qp(QpType::kXrcSend);
    const auto sender = body_of<abi::CreateQpReply>(*sending);
    connect(receiver, sender.qpn, false);
    connect(sender, receiver.qpn, true);
    send_inline(map<std::byte>(*sending, 0, sender.memory_bytes), sender, srq.number);
    ::usleep(50'000);
    return receiver;
  }
  void send_inline(std::byte* memory, const abi::CreateQpReply& qp, std::uint32_t srq) {
    auto* wqe = reinterpret_cast<abi::SendWqe*>(memory + qp.send_offset);
    *wqe = {};
    wqe->opcode = static_cast<std::uint8_t>(WrOpcode::kSend);
    wqe->flags = kSendInline;
    wqe->inline_bytes = kBytes;
    wqe->remote_qpn = srq;
    reinterpret_cast<abi::QpPage*>(memory)->send_producer.store(1);
    void* page = ::mmap(nullptr, sizeof(abi::SessionPage), PROT_READ | PROT_WRITE, MAP_SHARED,
                        client_.hello_fds.at(1).get(), 0);
    abi::ring(static_cast<abi::SessionPage*>(page)->boards[0], qp.doorbell);
    const std::uint64_t one = 1;
    EXPECT_GT(::write(client_.hello_fds.at(2).get(), &one, sizeof(one)), 0);
  }

  Client client_;
  int file_;
  std::uint32_t pd_ = 0;
  std::uint32_t cq_ = 0;
  std::uint32_t xrcd_ = 0;
};

TEST_F(RetirementTest, OpenQp_NotOneThatIsBeingTakenApart) {
  const abi::CreateQpReply receiver = receive_what_cannot_be_placed();
  Client other(node);
  EXPECT_EQ(other.hello(other.hello_body()), 0);
  const std::uint32_t xrcd = open_xrcd(other, file_, 0);
  const abi::Header header{static_cast<std::uint32_t>(MessageType::kDestroyQp), 0, 99};
  EXPECT_TRUE(client_.request.send(header, bytes_of(abi::Handle{receiver.handle, 0}), {}));
  ::usleep(50'000);
  EXPECT_EQ(other.error_of(MessageType::kOpenQp, abi::OpenQp{2, xrcd, receiver.qpn}), EINVAL);
  const auto destroyed = next_message(client_.request);
  ASSERT_TRUE(destroyed);
  EXPECT_EQ(destroyed->header.error, 0U);
}

TEST_F(RetirementTest, Requests_TooManyWithoutReplyEndTheConnection) {
  (void)receive_what_cannot_be_placed();
  for (std::uint64_t sequence = 100; sequence < 200; ++sequence) {
    const abi::Header header{static_cast<std::uint32_t>(MessageType::kResizeCq), 0, sequence};
    if (!client_.request.send(header, bytes_of(abi::ResizeCq{cq_, 1}), {})) break;
  }
  EXPECT_FALSE(next_message(client_.request));
  EXPECT_TRUE(has_sessions_within(0, 5000));
}

}  // namespace
}  // namespace urdma::control
