// Requests about memory from a client's side: re-registration, null regions, windows, and imports between the
// contexts of one identity. The data that goes through them is tested with the engine and by system tests.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/unit/control/server_fixture.hpp"

namespace urdma::control {
namespace {

class VerbsMemoryTest : public ServerTest {
 protected:
  VerbsMemoryTest() : client_(node) {
    EXPECT_EQ(client_.hello(client_.hello_body()), 0);
    pd_ = client_.make_pd();
  }
  abi::RegMrReply reg(std::uint64_t address = 0x10000, std::uint64_t length = 0x1000) {
    const abi::RegMr wanted{pd_, kLocalAndRemoteWrite, address, length, address};
    const auto reply = client_.ask(MessageType::kRegMr, wanted);
    return reply ? body_of<abi::RegMrReply>(*reply) : abi::RegMrReply{};
  }
  abi::RegMrReply rereg(const abi::ReregMr& wanted) {
    const auto reply = client_.ask(MessageType::kReregMr, wanted);
    EXPECT_TRUE(reply && reply->header.error == 0);
    return reply ? body_of<abi::RegMrReply>(*reply) : abi::RegMrReply{};
  }
  int free_mr(std::uint32_t handle) {
    return client_.error_of(MessageType::kDeregMr, abi::Handle{handle, 0});
  }

  Client client_;
  std::uint32_t pd_ = 0;
};

TEST_F(VerbsMemoryTest, ReregMr_OnlyAnotherTranslationHasAnotherKey) {
  const abi::RegMrReply mr = reg();
  const abi::RegMrReply same = rereg({mr.handle, abi::kReregAccess, {0, kAccessLocalWrite, 0, 0, 0}});
  EXPECT_EQ(same.handle, mr.handle);
  EXPECT_EQ(same.key, mr.key);
  const abi::RegMrReply moved = rereg({mr.handle, abi::kReregTranslation, {0, 0, 0x20000, 0x100, 0x20000}});
  EXPECT_EQ(moved.handle, mr.handle);
  EXPECT_NE(moved.key >> 8, mr.key >> 8);
  EXPECT_EQ(free_mr(mr.handle), 0);
  EXPECT_EQ(free_mr(mr.handle), EINVAL);
}

TEST_F(VerbsMemoryTest, ReregMr_FollowsTheProtectionDomain) {
  const abi::RegMrReply mr = reg();
  const std::uint32_t other = client_.make_pd();
  (void)rereg({mr.handle, abi::kReregPd, {other, 0, 0, 0, 0}});
  EXPECT_EQ(client_.error_of(MessageType::kDeallocPd, abi::Handle{other, 0}), EBUSY);
  (void)rereg({mr.handle, abi::kReregPd | abi::kReregTranslation, {pd_, 0, 0x30000, 0x100, 0x30000}});
  EXPECT_EQ(client_.error_of(MessageType::kDeallocPd, abi::Handle{other, 0}), 0);
  EXPECT_EQ(client_.error_of(MessageType::kDeallocPd, abi::Handle{pd_, 0}), EBUSY);
  EXPECT_EQ(free_mr(mr.handle), 0);
  EXPECT_EQ(client_.error_of(MessageType::kDeallocPd, abi::Handle{pd_, 0}), 0);
}

TEST_F(VerbsMemoryTest, ReregMr_RefusalsChangeNothing) {
  const abi::RegMrReply mr = reg();
  const auto error = [&](const abi::ReregMr& wanted) {
    return client_.error_of(MessageType::kReregMr, wanted);
  };
  EXPECT_EQ(error({mr.handle + 1000, abi::kReregAccess, {}}), EINVAL);
  EXPECT_EQ(error({mr.handle, 0, {}}), EINVAL);
  EXPECT_EQ(error({mr.handle, 8, {}}), EINVAL);
  EXPECT_EQ(error({mr.handle, abi::kReregAccess, {0, kAccessRemoteWrite, 0, 0, 0}}), EINVAL);
  EXPECT_EQ(error({mr.handle, abi::kReregPd, {pd_ + 1000, 0, 0, 0, 0}}), EINVAL);
  EXPECT_EQ(error({mr.handle, abi::kReregTranslation, {0, 0, UINT64_MAX, 2, 4096}}), EINVAL);
  EXPECT_EQ(rereg({mr.handle, abi::kReregAccess, {0, kLocalAndRemoteWrite, 0, 0, 0}}).key, mr.key);
}

TEST_F(VerbsMemoryTest, AllocNullMr_IsARegion) {
  const std::uint32_t null = client_.make(MessageType::kAllocNullMr, abi::AllocNullMr{pd_, 0});
  ASSERT_NE(null, 0U);
  EXPECT_EQ(client_.error_of(MessageType::kAllocNullMr, abi::AllocNullMr{pd_ + 1000, 0}), EINVAL);
  EXPECT_EQ(client_.error_of(MessageType::kReregMr, abi::ReregMr{null, abi::kReregAccess, {}}), EINVAL);
  EXPECT_EQ(client_.error_of(MessageType::kDeallocPd, abi::Handle{pd_, 0}), EBUSY);
  EXPECT_EQ(free_mr(null), 0);
  EXPECT_EQ(client_.error_of(MessageType::kDeallocPd, abi::Handle{pd_, 0}), 0);
}

TEST_F(VerbsMemoryTest, AllocMw_BothTypes) {
  std::uint32_t last = 0;
  for (const std::uint32_t type : {1U, 2U}) {
    const auto reply = client_.ask(MessageType::kAllocMw, abi::AllocMw{pd_, type});
    ASSERT_TRUE(reply && reply->header.error == 0);
    const auto mw = body_of<abi::AllocMwReply>(*reply);
    EXPECT_NE(mw.rkey >> 8, last >> 8);
    last = mw.rkey;
    EXPECT_EQ(free_mr(mw.handle), EINVAL) << "a window is no region";
    EXPECT_EQ(client_.error_of(MessageType::kDeallocPd, abi::Handle{pd_, 0}), EBUSY);
    EXPECT_EQ(client_.error_of(MessageType::kDeallocMw, abi::Handle{mw.handle, 0}), 0);
    EXPECT_EQ(client_.error_of(MessageType::kDeallocMw, abi::Handle{mw.handle, 0}), EINVAL);
  }
  EXPECT_EQ(client_.error_of(MessageType::kAllocMw, abi::AllocMw{pd_, 3}), EINVAL);
  EXPECT_EQ(client_.error_of(MessageType::kAllocMw, abi::AllocMw{pd_ + 1000, 1}), EINVAL);
  EXPECT_EQ(client_.error_of(MessageType::kDeallocPd, abi::Handle{pd_, 0}), 0);
}

// A second context with the token of the first: another Hello, as ibv_import_device makes one.
TEST_F(VerbsMemoryTest, Import_BetweenContextsOfOneIdentity) {
  const abi::RegMrReply mr = reg();
  Client second(node);
  abi::Hello hello = second.hello_body();
  hello.token = client_.welcome.token;
  ASSERT_EQ(second.hello(hello), 0);
  EXPECT_NE(second.make_pd(), pd_) << "no handle is given twice";
  EXPECT_EQ(second.error_of(MessageType::kImportMr, abi::ImportMr{pd_, mr.handle}), EINVAL) << "not yet";
  EXPECT_EQ(second.make(MessageType::kImportPd, abi::Handle{pd_, 0}), pd_);
  EXPECT_EQ(second.make(MessageType::kImportPd, abi::Handle{pd_, 0}), pd_) << "once more";
  const auto reply = second.ask(MessageType::kImportMr, abi::ImportMr{pd_, mr.handle});
  ASSERT_TRUE(reply && reply->header.error == 0);
  const auto imported = body_of<abi::ImportMrReply>(*reply);
  EXPECT_EQ(imported.key, mr.key);
  EXPECT_EQ(imported.length, 0x1000U);
  EXPECT_EQ(second.error_of(MessageType::kDeregMr, abi::Handle{mr.handle, 0}), EINVAL) << "not its own";
  EXPECT_EQ(second.error_of(MessageType::kDeallocPd, abi::Handle{pd_, 0}), 0);
  EXPECT_EQ(free_mr(mr.handle), 0);
}

TEST_F(VerbsMemoryTest, Import_NeedsTheIdentity) {
  const abi::RegMrReply mr = reg();
  Client stranger(node);
  ASSERT_EQ(stranger.hello(stranger.hello_body()), 0);
  std::uint32_t own = stranger.make_pd();
  while (own < pd_) own = stranger.make_pd();
  EXPECT_EQ(stranger.error_of(MessageType::kImportPd, abi::Handle{own + 1000, 0}), EINVAL);
  EXPECT_EQ(stranger.error_of(MessageType::kImportMr, abi::ImportMr{own, mr.handle}), EINVAL);
}

}  // namespace
}  // namespace urdma::control
