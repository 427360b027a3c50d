// Control operations while the engines have more to do than they can, on all cores that there are: neither
// the control thread nor a program is shut out.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "verbs_test.hpp"

namespace urdma::system_test {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr std::size_t kLinks = 4;
constexpr std::size_t kBytes = 16 << 20;  // of a message
constexpr int kDepth = 2000;              // messages of a link: many seconds' work for a core
constexpr auto kFor = std::chrono::seconds(3);
// Real-time threads that leave nothing to others leave them a twentieth by the kernel's mercy: it shuts them
// out for most of each second.
constexpr Milliseconds kLongest{500};

class BusyTest : public testing::Test {
 protected:
  BusyTest() : source_(device_, kBytes), target_(device_, kBytes) {
    QpOptions options;
    options.send_depth = kDepth;
    options.cq_depth = kDepth;
    for (std::size_t i = 0; i < kLinks; ++i) links_.push_back(std::make_unique<Link>(device_, options));
  }
  void write_at_length() {
    ibv_sge piece = source_.sge(0, kBytes);
    for (const auto& link : links_) {
      auto request =
          rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, target_.address(), target_.registration.rkey());
      for (int i = 0; i < kDepth; ++i) link->a.post_send(request);
    }
  }
  // How long a control operation takes, the longest first.
  std::vector<Milliseconds> make_and_destroy() {
    std::vector<Milliseconds> times;
    for (const auto end = Clock::now() + kFor; Clock::now() < end;) {
      const auto begun = Clock::now();
      { const End unused(device_, QpOptions{}); }
      times.push_back(Clock::now() - begun);
    }
    std::sort(times.rbegin(), times.rend());
    return times;
  }

  Device device_;
  Region source_;
  Region target_;
  std::vector<std::unique_ptr<Link>> links_;
};

TEST_F(BusyTest, Control_GoesOnMeanwhile) {
  write_at_length();
  const auto times = make_and_destroy();
  for (const auto& link : links_) {
    int done = 0;
    ibv_wc completion{};
    while (ibv_poll_cq(link->a.send_cq, 1, &completion) == 1) {
      ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
      ++done;
    }
    ASSERT_LT(done, kDepth) << "a link had nothing to do towards the end";
  }
  EXPECT_LT(times.front(), kLongest) << "of " << times.size() << " operations, half of which took "
                                     << times[times.size() / 2].count() << " ms at most";
}

}  // namespace
}  // namespace urdma::system_test
