// Requests about shared receive queues from a client's side: bad values, handles that are not the client's,
// and what is in use. What goes through a queue is tested with the engine and by system tests.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <limits>

#include "datapath/limits.hpp"
#include "tests/unit/control/server_fixture.hpp"

namespace urdma::control {
namespace {

constexpr std::uint32_t kBasic = 0;
constexpr std::uint32_t kXrc = 1;
constexpr std::uint32_t kMaxWr = 1;  // ibv_srq_attr_mask
constexpr std::uint32_t kLimit = 2;
constexpr std::uint32_t kHuge = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kOpenCreate = O_CREAT;

class VerbsSrqTest : public ServerTest {
 protected:
  VerbsSrqTest() : client_(node) {
    EXPECT_TRUE(has_sessions_within(0, 2'000)) << "of the test before";
    EXPECT_EQ(client_.hello(client_.hello_body()), 0);
    pd_ = client_.make_pd();
    cq_ = client_.make(MessageType::kCreateCq, cq_of(16));
    xrcd_ = client_.make(MessageType::kOpenXrcd, abi::OpenXrcd{kOpenCreate, 0});
  }

  [[nodiscard]] abi::CreateSrq srq_of(std::uint32_t max_wr, std::uint32_t max_sge = 1) const {
    return {1, pd_, kBasic, 0, 0, 0, max_wr, max_sge, 0};
  }
  [[nodiscard]] abi::CreateSrq xrc_srq() const { return {1, pd_, kXrc, xrcd_, cq_, 0, 16, 1, 0}; }
  std::uint32_t make_srq(const abi::CreateSrq& wanted) {
    return client_.make(MessageType::kCreateSrq, wanted);
  }
  int creation_error(const abi::CreateSrq& wanted) {
    return client_.error_of(MessageType::kCreateSrq, wanted);
  }
  int handle_error(MessageType type, std::uint32_t handle) {
    return client_.error_of(type, abi::Handle{handle, 0});
  }
  int modification_error(const abi::ModifySrq& wanted) {
    return client_.error_of(MessageType::kModifySrq, wanted);
  }
  abi::QuerySrqReply query(std::uint32_t srq) {
    const auto reply = client_.ask(MessageType::kQuerySrq, abi::Handle{srq, 0});
    return reply && reply->header.error == 0 ? body_of<abi::QuerySrqReply>(*reply) : abi::QuerySrqReply{};
  }

  Client client_;
  std::uint32_t pd_ = 0;
  std::uint32_t cq_ = 0;
  std::uint32_t xrcd_ = 0;
};

TEST_F(VerbsSrqTest, CreateSrq_GivesAtLeastWhatIsAskedFor) {
  const auto reply = client_.ask(MessageType::kCreateSrq, srq_of(100, 3));
  ASSERT_TRUE(reply && reply->header.error == 0);
  const auto made = body_of<abi::CreateSrqReply>(*reply);
  EXPECT_EQ(made.max_wr, 128U);
  EXPECT_EQ(made.max_sge, 3U);
  EXPECT_GE(made.slots, made.max_wr);
  ASSERT_EQ(reply->fds.size(), 1U);
  EXPECT_LT(::ftruncate(reply->fds[0].get(), 0), 0) << "a client cannot shrink what the daemon maps";
  EXPECT_EQ(query(made.handle).max_wr, 128U);
  EXPECT_EQ(handle_error(MessageType::kDestroySrq, made.handle), 0);
  EXPECT_EQ(handle_error(MessageType::kDestroySrq, made.handle), EINVAL);
  EXPECT_EQ(handle_error(MessageType::kQuerySrq, made.handle), EINVAL);
}

TEST_F(VerbsSrqTest, CreateSrq_RefusesSizes) {
  const Limits limits;
  EXPECT_EQ(creation_error(srq_of(0)), EINVAL);
  EXPECT_EQ(creation_error(srq_of(limits.max_srq_wr + 1)), EINVAL);
  EXPECT_EQ(creation_error(srq_of(kHuge)), EINVAL);
  EXPECT_EQ(creation_error(srq_of(1, limits.max_sge + 1)), EINVAL);
  EXPECT_EQ(creation_error(srq_of(1, kHuge)), EINVAL);
  EXPECT_EQ(creation_error(srq_of(limits.max_srq_wr, limits.max_sge)), 0);
}

TEST_F(VerbsSrqTest, CreateSrq_RefusesTypesAndParts) {
  abi::CreateSrq bad = srq_of(1);
  for (const std::uint32_t type : {2U, 3U, kHuge}) {
    bad.type = type;
    EXPECT_EQ(creation_error(bad), EINVAL) << type;
  }
  bad = srq_of(1);
  bad.pd = pd_ + 1000;
  EXPECT_EQ(creation_error(bad), EINVAL);
  bad = xrc_srq();
  bad.xrcd = xrcd_ + 1000;
  EXPECT_EQ(creation_error(bad), EINVAL);
  bad = xrc_srq();
  bad.cq = cq_ + 1000;
  EXPECT_EQ(creation_error(bad), EINVAL);
  bad = xrc_srq();
  bad.cq = bad.xrcd = 0;
  EXPECT_EQ(creation_error(bad), EINVAL);
  EXPECT_EQ(creation_error(xrc_srq()), 0);
}

TEST_F(VerbsSrqTest, Handles_OfAnotherSessionAreBad) {
  for (int i = 0; i < 3; ++i) make_srq(srq_of(1));
  const std::uint32_t srq = make_srq(srq_of(1));
  Client other(node);
  ASSERT_EQ(other.hello(other.hello_body()), 0);
  const std::uint32_t pd = other.make_pd();
  const std::uint32_t cq = other.make(MessageType::kCreateCq, cq_of(16));
  for (const MessageType type : {MessageType::kQuerySrq, MessageType::kDestroySrq}) {
    EXPECT_EQ(other.error_of(type, abi::Handle{srq, 0}), EINVAL);
  }
  EXPECT_EQ(other.error_of(MessageType::kModifySrq, abi::ModifySrq{srq, kLimit, 0, 1}), EINVAL);
  abi::CreateQp qp = qp_of(pd, cq);
  qp.srq = srq;
  EXPECT_EQ(other.error_of(MessageType::kCreateQp, qp), EINVAL);
  EXPECT_EQ(query(srq).max_wr, 1U) << "it is what it was";
}

TEST_F(VerbsSrqTest, DestroySrq_InUseIsBusy) {
  const std::uint32_t srq = make_srq(srq_of(16));
  abi::CreateQp wanted = qp_of(pd_, cq_);
  wanted.srq = srq;
  const auto reply = client_.ask(MessageType::kCreateQp, wanted);
  ASSERT_TRUE(reply && reply->header.error == 0);
  const auto qp = body_of<abi::CreateQpReply>(*reply);
  EXPECT_EQ(qp.cap.max_recv_wr, 0U) << "it has no receive queue of its own";
  EXPECT_EQ(handle_error(MessageType::kDestroySrq, srq), EBUSY);
  EXPECT_EQ(handle_error(MessageType::kDestroyQp, qp.handle), 0);
  EXPECT_EQ(handle_error(MessageType::kDeallocPd, pd_), EBUSY) << "the queue is in it";
  EXPECT_EQ(handle_error(MessageType::kDestroySrq, srq), 0);
  EXPECT_EQ(handle_error(MessageType::kDeallocPd, pd_), 0);
}

TEST_F(VerbsSrqTest, XrcSrq_HoldsItsParts) {
  const std::uint32_t srq = make_srq(xrc_srq());
  ASSERT_NE(srq, 0U);
  EXPECT_EQ(handle_error(MessageType::kDestroyCq, cq_), EBUSY);
  EXPECT_EQ(handle_error(MessageType::kCloseXrcd, xrcd_), EBUSY);
  EXPECT_EQ(handle_error(MessageType::kDeallocPd, pd_), EBUSY);
  abi::CreateQp qp = qp_of(pd_, cq_);
  qp.srq = srq;
  EXPECT_EQ(client_.error_of(MessageType::kCreateQp, qp), EINVAL) << "it is for XRC alone";
  EXPECT_EQ(handle_error(MessageType::kDestroySrq, srq), 0);
  EXPECT_EQ(handle_error(MessageType::kDestroyCq, cq_), 0);
  EXPECT_EQ(handle_error(MessageType::kCloseXrcd, xrcd_), 0);
  EXPECT_EQ(handle_error(MessageType::kDeallocPd, pd_), 0);
}

TEST_F(VerbsSrqTest, ModifySrq_RefusalsChangeNothing) {
  const std::uint32_t srq = make_srq(srq_of(16));
  ASSERT_EQ(modification_error({srq, kLimit, 0, 7}), 0);
  EXPECT_EQ(modification_error({srq + 1000, kLimit, 0, 1}), EINVAL);
  EXPECT_EQ(modification_error({srq, 4, 1, 1}), EINVAL) << "an unknown attribute";
  EXPECT_EQ(modification_error({srq, kHuge, 32, 1}), EINVAL);
  EXPECT_EQ(modification_error({srq, kLimit, 0, 17}), EINVAL) << "above what it holds";
  EXPECT_EQ(modification_error({srq, kMaxWr, 0, 0}), EINVAL);
  EXPECT_EQ(modification_error({srq, kMaxWr, Limits{}.max_srq_wr + 1, 0}), EINVAL);
  EXPECT_EQ(modification_error({srq, kMaxWr, kHuge, 0}), EINVAL);
  EXPECT_EQ(modification_error({srq, kMaxWr | kLimit, 32, 33}), EINVAL);
  EXPECT_EQ(query(srq).max_wr, 16U);
  EXPECT_EQ(query(srq).limit, 7U);
}

TEST_F(VerbsSrqTest, ModifySrq_ANewRingComesWithItsMemory) {
  const std::uint32_t srq = make_srq(srq_of(16));
  const auto before = status()["sessions"][0]["queue_bytes"].get<std::uint64_t>();
  const auto larger = client_.ask(MessageType::kModifySrq, abi::ModifySrq{srq, kMaxWr | kLimit, 5000, 4999});
  ASSERT_TRUE(larger && larger->header.error == 0);
  EXPECT_EQ(larger->fds.size(), 1U);
  EXPECT_EQ(body_of<abi::CreateSrqReply>(*larger).max_wr, 8192U);
  EXPECT_EQ(query(srq).limit, 4999U);
  EXPECT_GT(status()["sessions"][0]["queue_bytes"].get<std::uint64_t>(), before);
  const auto smaller = client_.ask(MessageType::kModifySrq, abi::ModifySrq{srq, kMaxWr, 16, 0});
  ASSERT_TRUE(smaller && smaller->header.error == 0);
  EXPECT_EQ(status()["sessions"][0]["queue_bytes"].get<std::uint64_t>(), before)
      << "what it had is given back";
  const auto armed = client_.ask(MessageType::kModifySrq, abi::ModifySrq{srq, kLimit, 0, 1});
  ASSERT_TRUE(armed && armed->header.error == 0);
  EXPECT_TRUE(armed->fds.empty()) << "the ring is the same";
}

TEST_F(VerbsSrqTest, Death_ReapsQueuesInUse) {
  ASSERT_TRUE(has_sessions_within(1, 2'000));
  {
    Client client(node);
    ASSERT_EQ(client.hello(client.hello_body()), 0);
    const std::uint32_t pd = client.make_pd();
    const std::uint32_t cq = client.make(MessageType::kCreateCq, cq_of(16));
    const std::uint32_t xrcd = client.make(MessageType::kOpenXrcd, abi::OpenXrcd{kOpenCreate, 0});
    abi::CreateQp qp = qp_of(pd, cq);
    qp.srq = client.make(MessageType::kCreateSrq, abi::CreateSrq{1, pd, kBasic, 0, 0, 0, 16, 1, 0});
    for (int i = 0; i < 5; ++i) ASSERT_NE(client.make(MessageType::kCreateQp, qp), 0U);
    ASSERT_NE(client.make(MessageType::kCreateSrq, abi::CreateSrq{1, pd, kXrc, xrcd, cq, 0, 16, 1, 0}), 0U);
  }
  EXPECT_TRUE(has_sessions_within(1, 2'000));
  EXPECT_TRUE(status()["qps"].empty());
}

}  // namespace
}  // namespace urdma::control
