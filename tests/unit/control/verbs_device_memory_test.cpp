// Device memory from a client's side: limits, sharing between the contexts of one identity, and regions of
// it.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/limits.hpp"
#include "tests/unit/control/server_fixture.hpp"

namespace urdma::control {
namespace {

constexpr std::uint64_t kMost = Limits{}.max_dm_bytes_of_session;

class VerbsDeviceMemoryTest : public ServerTest {
 protected:
  VerbsDeviceMemoryTest() : client_(node) { EXPECT_EQ(client_.hello(client_.hello_body()), 0); }
  int alloc_error(std::uint64_t length) {
    return client_.error_of(MessageType::kAllocDm, abi::AllocDm{length});
  }

  Client client_;
};

TEST_F(VerbsDeviceMemoryTest, AllocDm_YieldsPagesAndForgetsThem) {
  const auto reply = client_.ask(MessageType::kAllocDm, abi::AllocDm{100});
  ASSERT_TRUE(reply && reply->header.error == 0);
  ASSERT_EQ(reply->fds.size(), 1U);
  const auto memory = body_of<abi::DmReply>(*reply);
  EXPECT_EQ(memory.length, 100U);
  EXPECT_EQ(memory.memory_bytes % 4096, 0U);
  EXPECT_LT(::ftruncate(reply->fds[0].get(), 0), 0) << "a client cannot shrink what the daemon maps";
  EXPECT_EQ(client_.error_of(MessageType::kFreeDm, abi::Handle{memory.handle, 0}), 0);
  EXPECT_EQ(client_.error_of(MessageType::kFreeDm, abi::Handle{memory.handle, 0}), EINVAL);
  EXPECT_EQ(client_.error_of(MessageType::kImportDm, abi::Handle{memory.handle, 0}), EINVAL);
}

TEST_F(VerbsDeviceMemoryTest, AllocDm_HasLimits) {
  EXPECT_EQ(alloc_error(0), EINVAL);
  EXPECT_EQ(alloc_error(kMost + 1), EINVAL);
  const auto all = client_.ask(MessageType::kAllocDm, abi::AllocDm{kMost});
  ASSERT_TRUE(all && all->header.error == 0);
  EXPECT_EQ(alloc_error(1), ENOMEM);
  EXPECT_EQ(client_.error_of(MessageType::kFreeDm, abi::Handle{body_of<abi::DmReply>(*all).handle, 0}), 0);
  EXPECT_EQ(alloc_error(1), 0);
}

TEST_F(VerbsDeviceMemoryTest, RegMr_OfNothingIsARegion) {
  const std::uint32_t pd = client_.make_pd();
  const abi::RegMr nothing{pd, kAccessLocalWrite | kAccessZeroBased, 0x10000, 0, 0};
  EXPECT_EQ(client_.error_of(MessageType::kRegMr, nothing), 0);
}

}  // namespace
}  // namespace urdma::control
