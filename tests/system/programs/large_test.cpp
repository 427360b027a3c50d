// The largest messages: 2 GiB - 1 and 2 GiB. Needs 4 GiB of memory and some time, so it is run on demand.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>

#include <cstring>

#include "verbs_test.hpp"

namespace urdma::system_test {
namespace {

constexpr std::size_t kGiB2 = std::size_t{1} << 31;

// A prime number of bytes between the places that are compared, and all of both ends.
std::size_t wrong_places(const Region& region, std::size_t size) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < size; i += 4093) wrong += region.memory.data()[i] != pattern_byte(6, i) ? 1 : 0;
  for (std::size_t i = size - 8192; i < size; ++i)
    wrong += region.memory.data()[i] != pattern_byte(6, i) ? 1 : 0;
  return wrong;
}

class LargeTest : public testing::Test {
 protected:
  LargeTest() : source(device, kGiB2), target(device, kGiB2) {}
  Device device;
  Region source;
  Region target;
};

TEST_F(LargeTest, Message_TwoGib) {
  ASSERT_EQ(device.port.max_msg_sz, kGiB2);
  Link link(device, {.mtu = device.port.active_mtu});
  fill(source.memory.bytes(), 6);
  for (const std::size_t size : {kGiB2 - 1, kGiB2}) {
    std::memset(target.memory.data(), 0, kGiB2);
    ibv_sge piece{source.address(), static_cast<std::uint32_t>(size), source.registration.lkey()};
    auto request =
        rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, target.address(), target.registration.rkey());
    link.a.post_send(request);
    EXPECT_EQ(wait_for_success(link.a.send_cq, 120'000).opcode, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(wrong_places(target, size), 0U) << size;
    if (size < kGiB2) {
      EXPECT_EQ(target.memory.data()[size], 0);
    }
  }
}

}  // namespace
}  // namespace urdma::system_test
