// Requests about XRC domains and their receive queue pairs from a client's side: bad values, files, handles
// that are not the client's, what is in use, and queue pairs that outlive their maker.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/unit/control/server_fixture.hpp"

namespace urdma::control {
namespace {

constexpr std::uint32_t kFile = 1;
constexpr std::uint32_t kNoFile = 0;

// A program with a session, and a file that names a domain.
class XrcClient : public Client {
 public:
  explicit XrcClient(const std::string& node, const std::string& path)
      : Client(node), file_(::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0600)) {
    EXPECT_EQ(hello(hello_body()), 0);
  }
  int open_error(std::uint32_t flags, std::uint32_t has_file, std::size_t fds) {
    const int fd = file_.get();
    return error_of(abi::MessageType::kOpenXrcd, abi::OpenXrcd{flags, has_file}, std::span(&fd, fds));
  }
  std::uint32_t open_file(std::uint32_t flags) {
    const int fd = file_.get();
    return make(abi::MessageType::kOpenXrcd, abi::OpenXrcd{flags, kFile}, std::span(&fd, 1));
  }
  std::uint32_t open_own() { return make(abi::MessageType::kOpenXrcd, abi::OpenXrcd{O_CREAT, kNoFile}); }
  int handle_error(abi::MessageType type, std::uint32_t handle) {
    return error_of(type, abi::Handle{handle, 0});
  }
  std::optional<Message> create_receiver(std::uint32_t xrcd) {
    abi::CreateQp wanted{};
    wanted.type = static_cast<std::uint32_t>(QpType::kXrcRecv);
    wanted.xrcd = xrcd;
    return ask(abi::MessageType::kCreateQp, wanted);
  }
  abi::CreateQpReply make_receiver(std::uint32_t xrcd) {
    const auto reply = create_receiver(xrcd);
    return reply && reply->header.error == 0 ? body_of<abi::CreateQpReply>(*reply) : abi::CreateQpReply{};
  }
  int opening_error(std::uint32_t xrcd, std::uint32_t qpn) {
    return error_of(abi::MessageType::kOpenQp, abi::OpenQp{1, xrcd, qpn});
  }

 private:
  UniqueFd file_;
};

class VerbsXrcTest : public ServerTest {
 protected:
  VerbsXrcTest() : path_(node + "/../xrc-domain"), client_(node, path_) {
    EXPECT_TRUE(has_sessions_within(1, 2'000)) << "of the test before";
  }
  ~VerbsXrcTest() override { ::unlink(path_.c_str()); }

  std::string path_;
  XrcClient client_;
};

TEST_F(VerbsXrcTest, OpenXrcd_OfAFile) {
  EXPECT_EQ(client_.open_error(0, kFile, 1), EAGAIN) << "there is none yet";
  const std::uint32_t made = client_.open_file(O_CREAT | O_EXCL);
  ASSERT_NE(made, 0U);
  EXPECT_EQ(client_.open_error(O_CREAT | O_EXCL, kFile, 1), EINVAL) << "it is there";
  XrcClient other(node, path_);
  EXPECT_NE(other.open_file(0), 0U);
  EXPECT_NE(other.open_file(O_CREAT), 0U);
  EXPECT_EQ(client_.handle_error(MessageType::kCloseXrcd, made), 0);
  EXPECT_NE(client_.open_file(0), 0U) << "another process has it";
}

TEST_F(VerbsXrcTest, OpenXrcd_GoesWithItsLastUser) {
  const std::uint32_t made = client_.open_file(O_CREAT);
  EXPECT_EQ(client_.handle_error(MessageType::kCloseXrcd, made), 0);
  EXPECT_EQ(client_.handle_error(MessageType::kCloseXrcd, made), EINVAL);
  EXPECT_EQ(client_.open_error(0, kFile, 1), EAGAIN);
}

TEST_F(VerbsXrcTest, OpenXrcd_RefusesWhatDoesNotFit) {
  EXPECT_EQ(client_.open_error(0, kNoFile, 0), EINVAL) << "nobody else could have made it";
  EXPECT_EQ(client_.open_error(O_CREAT, kFile, 0), EINVAL) << "the descriptor is missing";
  EXPECT_EQ(client_.open_error(O_CREAT, kNoFile, 1), EINVAL) << "there is one too many";
}

TEST_F(VerbsXrcTest, CloseXrcd_InUseIsBusy) {
  const std::uint32_t xrcd = client_.open_own();
  const abi::CreateQpReply qp = client_.make_receiver(xrcd);
  ASSERT_NE(qp.handle, 0U);
  EXPECT_EQ(client_.handle_error(MessageType::kCloseXrcd, xrcd), EBUSY);
  EXPECT_EQ(client_.handle_error(MessageType::kDestroyQp, qp.handle), 0);
  EXPECT_EQ(client_.handle_error(MessageType::kCloseXrcd, xrcd), 0);
  EXPECT_EQ(client_.handle_error(MessageType::kCloseXrcd, xrcd + 1000), EINVAL);
}

TEST_F(VerbsXrcTest, CreateQp_ReceiverNeedsTheDomainAndNothingElse) {
  const auto reply = client_.create_receiver(client_.open_own());
  ASSERT_TRUE(reply && reply->header.error == 0);
  EXPECT_TRUE(reply->fds.empty()) << "it has no rings for the program";
  const auto refused = client_.create_receiver(1000);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->header.error, static_cast<std::uint32_t>(EINVAL));
}

TEST_F(VerbsXrcTest, CreateQp_SenderHasNoReceives) {
  const std::uint32_t pd = client_.make_pd();
  const std::uint32_t cq = client_.make(MessageType::kCreateCq, cq_of(16));
  abi::CreateQp wanted = qp_of(pd, cq);
  wanted.type = static_cast<std::uint32_t>(QpType::kXrcSend);
  wanted.recv_cq = 0;
  wanted.srq = client_.make(MessageType::kCreateSrq, abi::CreateSrq{1, pd, 0, 0, 0, 0, 16, 1, 0});
  EXPECT_EQ(client_.error_of(MessageType::kCreateQp, wanted), EINVAL) << "no shared receive queue either";
  wanted.srq = 0;
  const auto reply = client_.ask(MessageType::kCreateQp, wanted);
  ASSERT_TRUE(reply && reply->header.error == 0);
  EXPECT_EQ(body_of<abi::CreateQpReply>(*reply).cap.max_recv_wr, 0U);
}

TEST_F(VerbsXrcTest, OpenQp_ByItsNumberInItsDomain) {
  const std::uint32_t xrcd = client_.open_file(O_CREAT);
  const abi::CreateQpReply made = client_.make_receiver(xrcd);
  const std::uint32_t another = client_.open_own();
  EXPECT_EQ(client_.opening_error(another, made.qpn), EINVAL) << "of another domain";
  EXPECT_EQ(client_.opening_error(xrcd, made.qpn + 1), EINVAL);
  EXPECT_EQ(client_.opening_error(xrcd + 1000, made.qpn), EINVAL);
  XrcClient other(node, path_);
  EXPECT_EQ(other.opening_error(other.open_own(), made.qpn), EINVAL) << "a number alone is not enough";
  EXPECT_EQ(other.opening_error(other.open_file(0), made.qpn), 0);
  EXPECT_EQ(status()["qps"].size(), 1U) << "it is one queue pair";
}

TEST_F(VerbsXrcTest, OpenQp_OutlivesItsMaker) {
  XrcClient opener(node, path_);
  const std::uint32_t xrcd = opener.open_file(O_CREAT);
  std::uint32_t qpn = 0;
  {
    XrcClient maker(node, path_);
    qpn = maker.make_receiver(maker.open_file(0)).qpn;
    ASSERT_NE(qpn, 0U);
    ASSERT_EQ(opener.opening_error(xrcd, qpn), 0);
  }
  ASSERT_TRUE(has_sessions_within(2, 2'000)) << "of the opener, and of the fixture";
  ASSERT_EQ(status()["qps"].size(), 1U);
  const std::uint32_t again = opener.make(MessageType::kOpenQp, abi::OpenQp{2, xrcd, qpn});
  ASSERT_NE(again, 0U);
  EXPECT_EQ(opener.handle_error(MessageType::kQueryQp, again), 0);
  EXPECT_EQ(opener.handle_error(MessageType::kDestroyQp, again), 0);
  EXPECT_EQ(opener.handle_error(MessageType::kDestroyQp, again), EINVAL);
  EXPECT_EQ(status()["qps"].size(), 1U) << "the first opening has it still";
}

}  // namespace
}  // namespace urdma::control
