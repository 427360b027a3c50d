// Requests about address handles and multicast groups from a client's side: bad values, handles that are not
// the client's, and what is in use.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <vector>

#include "datapath/limits.hpp"
#include "tests/unit/control/server_fixture.hpp"

namespace urdma::control {
namespace {

class VerbsDatagramTest : public ServerTest {
 protected:
  VerbsDatagramTest() : client_(node) {
    EXPECT_TRUE(has_sessions_within(0, 2'000)) << "of the test before";
    EXPECT_EQ(client_.hello(client_.hello_body()), 0);
    pd_ = client_.make_pd();
    cq_ = client_.make(MessageType::kCreateCq, cq_of(16));
    const auto reply = client_.ask(MessageType::kQueryGidTable, abi::QueryGidTable{1, 0});
    if (reply) gid_ = body_of<abi::QueryGidTableReply>(*reply).entries[0];
  }

  // To the node itself.
  [[nodiscard]] abi::CreateAh ah() const {
    abi::CreateAh wanted{};
    wanted.pd = pd_;
    wanted.address.is_global = 1;
    wanted.address.port = 1;
    wanted.address.source_gid_index = static_cast<std::uint8_t>(gid_.index);
    std::copy(std::begin(gid_.gid), std::end(gid_.gid), wanted.address.dest_gid);
    return wanted;
  }
  int creation_error(const abi::CreateAh& wanted) { return client_.error_of(MessageType::kCreateAh, wanted); }
  int handle_error(MessageType type, std::uint32_t handle) {
    return client_.error_of(type, abi::Handle{handle, 0});
  }
  std::uint32_t make_qp(QpType type = QpType::kUd) {
    abi::CreateQp wanted = qp_of(pd_, cq_);
    wanted.type = static_cast<std::uint32_t>(type);
    return client_.make(MessageType::kCreateQp, wanted);
  }
  static abi::McastMembership membership(std::uint32_t qp, std::uint32_t number) {
    abi::McastMembership wanted{qp, 0, {0xFF, 0x12}};
    wanted.gid[14] = static_cast<std::uint8_t>(number >> 8);
    wanted.gid[15] = static_cast<std::uint8_t>(number);
    return wanted;
  }
  int attach(std::uint32_t qp, std::uint32_t number) {
    return client_.error_of(MessageType::kAttachMcast, membership(qp, number));
  }
  int detach(std::uint32_t qp, std::uint32_t number) {
    return client_.error_of(MessageType::kDetachMcast, membership(qp, number));
  }

  Client client_;
  std::uint32_t pd_ = 0;
  std::uint32_t cq_ = 0;
  abi::GidEntry gid_{};
};

TEST_F(VerbsDatagramTest, CreateAh_HoldsItsDomain) {
  const std::uint32_t handle = client_.make(MessageType::kCreateAh, ah());
  ASSERT_NE(handle, 0U);
  EXPECT_EQ(status()["sessions"][0]["ahs"], 1);
  EXPECT_EQ(handle_error(MessageType::kDeallocPd, pd_), EBUSY);
  EXPECT_EQ(handle_error(MessageType::kDestroyAh, handle), 0);
  EXPECT_EQ(handle_error(MessageType::kDestroyAh, handle), EINVAL);
  EXPECT_EQ(handle_error(MessageType::kDeallocPd, pd_), 0);
}

TEST_F(VerbsDatagramTest, CreateAh_RefusesBadValues) {
  const std::vector<std::pair<const char*, void (*)(abi::CreateAh&)>> bad = {
      {"no such domain", [](abi::CreateAh& wanted) { wanted.pd += 1000; }},
      {"no global route", [](abi::CreateAh& wanted) { wanted.address.is_global = 0; }},
      {"no such port", [](abi::CreateAh& wanted) { wanted.address.port = 2; }},
      {"port 0", [](abi::CreateAh& wanted) { wanted.address.port = 0; }},
      {"an unused GID", [](abi::CreateAh& wanted) { wanted.address.source_gid_index = 127; }},
      {"no such GID", [](abi::CreateAh& wanted) { wanted.address.source_gid_index = 255; }},
      {"a flow label of 21 bits", [](abi::CreateAh& wanted) { wanted.address.flow_label = 1U << 20; }},
  };
  for (const auto& [what, spoil] : bad) {
    abi::CreateAh wanted = ah();
    spoil(wanted);
    EXPECT_EQ(creation_error(wanted), EINVAL) << what;
  }
  abi::CreateAh elsewhere = ah();
  elsewhere.address.dest_gid[8] ^= 0x55;
  EXPECT_NE(creation_error(elsewhere), 0) << "a loopback port reaches no other node";
  EXPECT_EQ(creation_error(ah()), 0);
  EXPECT_EQ(status()["sessions"][0]["ahs"], 1) << "what was refused has left nothing";
}

TEST_F(VerbsDatagramTest, Handles_OfAnotherSessionAreBad) {
  for (int i = 0; i < 3; ++i) client_.make(MessageType::kCreateAh, ah());
  const std::uint32_t handle = client_.make(MessageType::kCreateAh, ah());
  const std::uint32_t qp = make_qp();
  Client other(node);
  ASSERT_EQ(other.hello(other.hello_body()), 0);
  EXPECT_EQ(other.error_of(MessageType::kDestroyAh, abi::Handle{handle, 0}), EINVAL);
  EXPECT_EQ(other.error_of(MessageType::kAttachMcast, membership(qp, 1)), EINVAL);
  EXPECT_EQ(handle_error(MessageType::kDestroyAh, handle), 0);
}

TEST_F(VerbsDatagramTest, AttachMcast_RefusesWhatIsNoMembership) {
  const std::uint32_t qp = make_qp();
  EXPECT_EQ(attach(qp + 1000, 1), EINVAL);
  EXPECT_EQ(attach(make_qp(QpType::kRc), 1), EINVAL) << "of a connection";
  abi::McastMembership unicast{qp, 0, {}};
  std::copy(std::begin(gid_.gid), std::end(gid_.gid), unicast.gid);
  EXPECT_EQ(client_.error_of(MessageType::kAttachMcast, unicast), EINVAL);
  EXPECT_EQ(client_.error_of(MessageType::kDetachMcast, unicast), EINVAL);
  EXPECT_EQ(detach(qp, 1), EINVAL) << "it is not in it";
}

TEST_F(VerbsDatagramTest, AttachMcast_OnceMoreIsTheSameMembership) {
  const std::uint32_t qp = make_qp();
  EXPECT_EQ(attach(qp, 1), 0);
  EXPECT_EQ(attach(qp, 1), 0);
  EXPECT_EQ(detach(qp, 2), EINVAL);
  EXPECT_EQ(detach(qp, 1), 0);
  EXPECT_EQ(detach(qp, 1), EINVAL);
}

TEST_F(VerbsDatagramTest, AttachMcast_AQueuePairThatGoesLeavesItsGroups) {
  const std::uint32_t most = Limits{}.max_mcast_groups_of_session;
  for (int round = 0; round < 2; ++round) {
    const std::uint32_t qp = make_qp();
    for (std::uint32_t number = 0; number < most; ++number) ASSERT_EQ(attach(qp, number), 0) << number;
    EXPECT_EQ(attach(qp, most), ENOMEM);
    EXPECT_EQ(handle_error(MessageType::kDestroyQp, qp), 0);
  }
}

TEST_F(VerbsDatagramTest, AttachMcast_ADeadProgramLeavesItsGroups) {
  const std::uint32_t most = Limits{}.max_mcast_members;
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(has_sessions_within(1, 2'000));
    Client client(node);
    ASSERT_EQ(client.hello(client.hello_body()), 0);
    abi::CreateQp wanted = qp_of(client.make_pd(), client.make(MessageType::kCreateCq, cq_of(16)));
    wanted.type = static_cast<std::uint32_t>(QpType::kUd);
    for (std::uint32_t member = 0; member < most; ++member) {
      const std::uint32_t qp = client.make(MessageType::kCreateQp, wanted);
      ASSERT_EQ(client.error_of(MessageType::kAttachMcast, membership(qp, 1)), 0) << member;
    }
    EXPECT_EQ(attach(make_qp(), 1), ENOMEM) << "the group is full";
  }
}

}  // namespace
}  // namespace urdma::control
