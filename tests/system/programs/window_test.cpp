// Memory windows: what they open to peers, to whom, and that they are closed once the program has been told
// so.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "verbs_test.hpp"

namespace urdma::system_test {
namespace {

constexpr std::size_t kSize = 64 * 1024;
constexpr std::size_t kFrom = 1000;  // the window's place in the region
constexpr std::size_t kBytes = 5000;
constexpr int kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
constexpr unsigned kOpen = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr std::uint8_t kGuard = 0xA5;

class Window {
 public:
  Window(ibv_pd* pd, ibv_mw_type type) : mw_(ibv_alloc_mw(pd, type)) {
    if (mw_ == nullptr) fail("ibv_alloc_mw");
  }
  ~Window() { free(); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  [[nodiscard]] ibv_mw* mw() const { return mw_; }
  void free() {
    if (mw_ != nullptr) expect_zero(ibv_dealloc_mw(mw_), "ibv_dealloc_mw");
    mw_ = nullptr;
  }

 private:
  ibv_mw* mw_;
};

class WindowTest : public testing::Test {
 protected:
  WindowTest() : source(device, kSize), target(device, kSize, kBindable), link(device) {
    fill(source.memory.bytes(), 1);
    std::ranges::fill(target.memory.bytes(), kGuard);
  }

  [[nodiscard]] ibv_mw_bind_info place(std::size_t offset, std::size_t bytes, unsigned access = kOpen) const {
    return {target.registration.mr(), target.address(offset), bytes, access};
  }
  // The side with the window is b, and a its peer.
  static ibv_wc_status bind_type_1(const End& by, ibv_mw* mw, const ibv_mw_bind_info& info) {
    ibv_mw_bind bind{3, IBV_SEND_SIGNALED, info};
    expect_zero(ibv_bind_mw(by.qp, mw, &bind), "ibv_bind_mw");
    return finish(by, IBV_WC_BIND_MW);
  }
  static ibv_wc_status bind_type_2(const End& by, ibv_mw* mw, std::uint32_t new_key,
                                   const ibv_mw_bind_info& info) {
    ibv_send_wr request = send_request(IBV_WR_BIND_MW, 3, {});
    request.bind_mw = {mw, new_key, info};
    by.post_send(request);
    return finish(by, IBV_WC_BIND_MW);
  }
  static ibv_wc_status invalidate(const End& by, std::uint32_t key) {
    ibv_send_wr request = send_request(IBV_WR_LOCAL_INV, 3, {});
    request.invalidate_rkey = key;
    by.post_send(request);
    return finish(by, IBV_WC_LOCAL_INV);
  }
  static ibv_wc_status finish(const End& by, ibv_wc_opcode opcode) {
    const ibv_wc completion = wait_for(by.send_cq);
    if (completion.status == IBV_WC_SUCCESS) {
      EXPECT_EQ(completion.opcode, opcode);
    }
    return completion.status;
  }
  ibv_wc_status access(const End& by, ibv_wr_opcode opcode, std::size_t offset, std::size_t bytes,
                       std::uint32_t rkey) {
    ibv_sge piece = source.sge(offset, bytes);
    auto request = rdma_request(opcode, 1, {&piece, 1}, target.address(offset), rkey);
    by.post_send(request);
    return wait_for(by.send_cq).status;
  }
  ibv_wc_status write(std::size_t offset, std::size_t bytes, std::uint32_t rkey) {
    return access(link.a, IBV_WR_RDMA_WRITE, offset, bytes, rkey);
  }
  // On a link of its own, which an error ends. Not for type 2.
  ibv_wc_status write_apart(std::size_t offset, std::size_t bytes, std::uint32_t rkey) {
    const Link apart(device);
    return access(apart.a, IBV_WR_RDMA_WRITE, offset, bytes, rkey);
  }
  [[nodiscard]] bool is_guarded(std::size_t from, std::size_t bytes) const {
    return std::ranges::all_of(target.memory.bytes(from, bytes),
                               [](std::uint8_t byte) { return byte == kGuard; });
  }

  Device device;
  Region source;
  Region target;
  Link link;
};

TEST_F(WindowTest, Type1_OpensItsPartToTheDomain) {
  Window window(device.pd, IBV_MW_TYPE_1);
  const std::uint32_t before = window.mw()->rkey;
  EXPECT_EQ(write_apart(kFrom, 8, before), IBV_WC_REM_ACCESS_ERR) << "not bound yet";
  ASSERT_EQ(bind_type_1(link.b, window.mw(), place(kFrom, kBytes)), IBV_WC_SUCCESS);
  const std::uint32_t key = window.mw()->rkey;
  EXPECT_NE(key, before);
  EXPECT_EQ(key >> 8, before >> 8);
  EXPECT_EQ(write(kFrom, kBytes, key), IBV_WC_SUCCESS);
  EXPECT_EQ(first_difference(target.memory.bytes(kFrom, kBytes), 1, kFrom), -1);
  EXPECT_TRUE(is_guarded(0, kFrom) && is_guarded(kFrom + kBytes, kSize - kFrom - kBytes));
  EXPECT_EQ(access(link.a, IBV_WR_RDMA_READ, kFrom, kBytes, key), IBV_WC_SUCCESS);
  EXPECT_EQ(write_apart(kFrom, kBytes, key), IBV_WC_SUCCESS) << "every QP of the domain";
  EXPECT_EQ(write_apart(kFrom - 1, 8, key), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(write_apart(kFrom + kBytes - 7, 8, key), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(write_apart(kFrom, 8, before), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(write_apart(kFrom, 8, target.registration.rkey()), IBV_WC_REM_ACCESS_ERR)
      << "the region is closed";
}

TEST_F(WindowTest, Type1_BoundAgainAndToNothing) {
  Window window(device.pd, IBV_MW_TYPE_1);
  ASSERT_EQ(bind_type_1(link.b, window.mw(), place(kFrom, kBytes)), IBV_WC_SUCCESS);
  const std::uint32_t first = window.mw()->rkey;
  ASSERT_EQ(bind_type_1(link.b, window.mw(), place(20000, 100)), IBV_WC_SUCCESS);
  EXPECT_EQ(write_apart(kFrom, 8, first), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(write_apart(kFrom, 8, window.mw()->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(write(20000, 100, window.mw()->rkey), IBV_WC_SUCCESS);
  ASSERT_EQ(bind_type_1(link.b, window.mw(), {}), IBV_WC_SUCCESS);
  EXPECT_EQ(write_apart(20000, 8, window.mw()->rkey), IBV_WC_REM_ACCESS_ERR);
  target.registration.deregister();
}

TEST_F(WindowTest, Type2_IsForOneQueuePair) {
  Window window(device.pd, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(window.mw()->rkey);
  ASSERT_EQ(bind_type_2(link.b, window.mw(), key, place(kFrom, kBytes)), IBV_WC_SUCCESS);
  EXPECT_EQ(write(kFrom, kBytes, key), IBV_WC_SUCCESS);
  EXPECT_EQ(first_difference(target.memory.bytes(kFrom, kBytes), 1, kFrom), -1);
  EXPECT_EQ(write_apart(kFrom, 8, key), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(WindowTest, Type2_InvalidatedHereAndBoundAgain) {
  Window window(device.pd, IBV_MW_TYPE_2);
  std::uint32_t key = window.mw()->rkey;
  for (int round = 0; round < 300; ++round) {
    key = ibv_inc_rkey(key);
    ASSERT_EQ(bind_type_2(link.b, window.mw(), key, place(kFrom, kBytes)), IBV_WC_SUCCESS) << round;
    ASSERT_EQ(write(kFrom, 100, key), IBV_WC_SUCCESS) << round;
    ASSERT_EQ(invalidate(link.b, key), IBV_WC_SUCCESS) << round;
  }
  EXPECT_EQ(write(kFrom, 100, key), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(WindowTest, Type2_InvalidatedByThePeer) {
  Window window(device.pd, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(window.mw()->rkey);
  ASSERT_EQ(bind_type_2(link.b, window.mw(), key, place(kFrom, kBytes)), IBV_WC_SUCCESS);
  Region inbox(device, kSize);
  link.b.post_receive(7, inbox.sge(0, kSize));
  ibv_sge message = source.sge(0, 30000);
  auto request = send_request(IBV_WR_SEND_WITH_INV, 1, {&message, 1});
  request.invalidate_rkey = key;
  link.a.post_send(request);
  wait_for_success(link.a.send_cq);
  const ibv_wc received = wait_for_success(link.b.receive_cq);
  EXPECT_NE(received.wc_flags & IBV_WC_WITH_INV, 0U);
  EXPECT_EQ(received.invalidated_rkey, key);
  EXPECT_EQ(first_difference(inbox.memory.bytes(0, 30000), 1), -1);
  EXPECT_EQ(write(kFrom, 8, key), IBV_WC_REM_ACCESS_ERR);
}

// A WRITE that was posted behind the invalidation of its window must not find it open.
TEST_F(WindowTest, Type2_WhatFollowsTheInvalidationIsDenied) {
  for (int round = 0; round < 20; ++round) {
    const Link fresh(device);
    Window window(device.pd, IBV_MW_TYPE_2);
    const std::uint32_t key = ibv_inc_rkey(window.mw()->rkey);
    ASSERT_EQ(bind_type_2(fresh.b, window.mw(), key, place(kFrom, kBytes)), IBV_WC_SUCCESS);
    Region inbox(device, kSize);
    fresh.b.post_receive(7, inbox.sge(0, kSize));
    ibv_sge message = source.sge(0, kSize);
    ibv_sge piece = source.sge(kFrom, 8);
    auto write_request =
        rdma_request(IBV_WR_RDMA_WRITE, 2, {&piece, 1}, target.address(kFrom), key, IBV_SEND_SIGNALED);
    auto request = send_request(IBV_WR_SEND_WITH_INV, 1, {&message, 1});
    request.invalidate_rkey = key;
    request.next = &write_request;
    fresh.a.post_send(request);
    wait_for_success(fresh.a.send_cq);
    ASSERT_EQ(wait_for(fresh.a.send_cq).status, IBV_WC_REM_ACCESS_ERR);
    ASSERT_TRUE(is_guarded(0, kSize));
  }
}

// Once the invalidation has completed the memory is the program's alone, also where a copier was at work.
TEST_F(WindowTest, Type2_InvalidatedWhileThePeerWrites) {
  for (int round = 0; round < 20; ++round) {
    const Link busy(device);
    Window window(device.pd, IBV_MW_TYPE_2);
    const std::uint32_t key = ibv_inc_rkey(window.mw()->rkey);
    ASSERT_EQ(bind_type_2(busy.b, window.mw(), key, place(0, kSize)), IBV_WC_SUCCESS);
    ibv_sge piece = source.sge(0, kSize);
    for (int i = 0; i < 16; ++i) {
      auto request = rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, target.address(), key);
      busy.a.post_send(request);
    }
    // Writes that are denied meanwhile put this queue pair into ERR: then it has not been done.
    const ibv_wc_status status = invalidate(busy.b, key);
    if (status == IBV_WC_WR_FLUSH_ERR) continue;
    ASSERT_EQ(status, IBV_WC_SUCCESS);
    std::ranges::fill(target.memory.bytes(), kGuard);
    for (int i = 0; i < 16; ++i) (void)wait_for(busy.a.send_cq);
    ASSERT_TRUE(is_guarded(0, kSize)) << "in round " << round;
  }
}

TEST_F(WindowTest, Bind_Refused) {
  Window window(device.pd, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(window.mw()->rkey);
  const auto status = [&](std::uint32_t new_key, const ibv_mw_bind_info& info) {
    const Link apart(device);
    const ibv_wc_status result = bind_type_2(apart.b, window.mw(), new_key, info);
    EXPECT_EQ(apart.b.state(), IBV_QPS_ERR);
    return result;
  };
  EXPECT_EQ(status(key, place(0, kSize + 1)), IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(status(key, {target.registration.mr(), target.address() - 1, 2, kOpen}), IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(status(key ^ 0x100, place(0, 8)), IBV_WC_MW_BIND_ERR) << "the key of some other window";
  EXPECT_EQ(status(key, {source.registration.mr(), source.address(), 8, kOpen}), IBV_WC_MW_BIND_ERR)
      << "a region that was not registered for windows";
  const Region readable(device, kSize, IBV_ACCESS_MW_BIND);
  EXPECT_EQ(status(key, {readable.registration.mr(), readable.address(), 8, kOpen}), IBV_WC_MW_BIND_ERR)
      << "peers may not write what the program may not";
  EXPECT_EQ(bind_type_2(link.b, window.mw(), key,
                        {readable.registration.mr(), readable.address(), 8, IBV_ACCESS_REMOTE_READ}),
            IBV_WC_SUCCESS);
  EXPECT_EQ(status(ibv_inc_rkey(key), place(0, 8)), IBV_WC_MW_BIND_ERR) << "bound already";
}

TEST_F(WindowTest, Bind_OtherProtectionDomains) {
  ibv_pd* other = ibv_alloc_pd(device.context);
  ASSERT_NE(other, nullptr);
  {
    Window strange(other, IBV_MW_TYPE_2);
    EXPECT_NE(bind_type_2(link.b, strange.mw(), ibv_inc_rkey(strange.mw()->rkey), place(0, 8)),
              IBV_WC_SUCCESS);
    const Registration elsewhere(other, target.memory.data(), kSize, kBindable);
    Window window(device.pd, IBV_MW_TYPE_2);
    const Link apart(device);
    EXPECT_NE(bind_type_2(apart.b, window.mw(), ibv_inc_rkey(window.mw()->rkey),
                          {elsewhere.mr(), target.address(), 8, kOpen}),
              IBV_WC_SUCCESS);
  }
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(WindowTest, Invalidate_Refused) {
  Window window(device.pd, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(window.mw()->rkey);
  ASSERT_EQ(bind_type_2(link.b, window.mw(), key, place(kFrom, kBytes)), IBV_WC_SUCCESS);
  const auto status = [&](std::uint32_t wanted) {
    const Link apart(device);
    return invalidate(apart.b, wanted);
  };
  EXPECT_NE(status(target.registration.rkey()), IBV_WC_SUCCESS) << "a region";
  EXPECT_NE(status(key), IBV_WC_SUCCESS) << "another queue pair's";
  EXPECT_NE(status(key ^ 0x5A5A5A5A), IBV_WC_SUCCESS) << "nothing";
  EXPECT_EQ(write(kFrom, 8, key), IBV_WC_SUCCESS) << "it is still open";
}

// A peer that guesses keys has nothing, and closes nothing.
TEST_F(WindowTest, Invalidate_ByAPeerThatGuesses) {
  Window window(device.pd, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(window.mw()->rkey);
  ASSERT_EQ(bind_type_2(link.b, window.mw(), key, place(kFrom, kBytes)), IBV_WC_SUCCESS);
  for (const std::uint32_t guess : {key ^ 1, key ^ 0x100, target.registration.rkey(), key}) {
    const Link apart(device);
    const Region inbox(device, kSize);
    apart.b.post_receive(7, inbox.sge(0, kSize));
    ibv_sge message = source.sge(0, 100);
    auto request = send_request(IBV_WR_SEND_WITH_INV, 1, {&message, 1});
    request.invalidate_rkey = guess;
    apart.a.post_send(request);
    EXPECT_NE(wait_for(apart.a.send_cq).status, IBV_WC_SUCCESS) << std::hex << guess;
  }
  EXPECT_EQ(write(kFrom, 8, key), IBV_WC_SUCCESS) << "it is still open";
}

TEST_F(WindowTest, Region_WithWindowsStays) {
  Window window(device.pd, IBV_MW_TYPE_1);
  ASSERT_EQ(bind_type_1(link.b, window.mw(), place(kFrom, kBytes)), IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dereg_mr(target.registration.mr()), EBUSY);
  EXPECT_NE(
      ibv_rereg_mr(target.registration.mr(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kBindable), 0);
  EXPECT_EQ(write(kFrom, kBytes, window.mw()->rkey), IBV_WC_SUCCESS);
  const std::uint32_t key = window.mw()->rkey;
  window.free();
  EXPECT_EQ(write(kFrom, 8, key), IBV_WC_REM_ACCESS_ERR) << "a window that is gone";
  target.registration.deregister();
}

// As many as a program might have, all of one region.
TEST_F(WindowTest, Windows_Many) {
  std::vector<std::unique_ptr<Window>> windows;
  for (std::size_t i = 0; i < 500; ++i) {
    windows.push_back(std::make_unique<Window>(device.pd, i % 2 == 0 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2));
    ibv_mw* mw = windows.back()->mw();
    if (mw->type == IBV_MW_TYPE_1) {
      ASSERT_EQ(bind_type_1(link.b, mw, place(i * 8, 8)), IBV_WC_SUCCESS);
    } else {
      ASSERT_EQ(bind_type_2(link.b, mw, mw->rkey, place(i * 8, 8)), IBV_WC_SUCCESS);
    }
  }
  for (std::size_t i = 0; i < windows.size(); ++i) {
    ASSERT_EQ(write(i * 8, 8, windows[i]->mw()->rkey), IBV_WC_SUCCESS) << i;
  }
  EXPECT_EQ(first_difference(target.memory.bytes(0, 4000), 1), -1);
  while (windows.size() > 250) windows.erase(windows.begin());
  EXPECT_EQ(write((499 - 250) * 8, 8, windows[0]->mw()->rkey), IBV_WC_REM_ACCESS_ERR) << "it is of the next";
}

}  // namespace
}  // namespace urdma::system_test
