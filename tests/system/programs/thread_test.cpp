// Many threads, many queue pairs, many wake-ups.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "verbs_test.hpp"

namespace urdma::system_test {
namespace {

class ThreadTest : public testing::Test {
 protected:
  Device device;
};

constexpr int kPosters = 8;
constexpr int kPollers = 2;
constexpr std::uint64_t kEach = 2000;
constexpr std::uint64_t kAll = kPosters * kEach;

// Takes completions off a CQ, with others, until all have been seen; counts each request's.
void poll_all(ibv_cq* cq, std::atomic<std::uint64_t>& seen, std::vector<std::atomic<int>>& times,
              std::counting_semaphore<>& room) {
  std::array<ibv_wc, 8> completions{};
  while (seen.load() < kAll) {
    const int count = ibv_poll_cq(cq, static_cast<int>(completions.size()), completions.data());
    ASSERT_GE(count, 0);
    if (count == 0) sched_yield();
    for (const ibv_wc& completion : std::span(completions).first(static_cast<std::size_t>(count))) {
      EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
      times.at(completion.wr_id).fetch_add(1);
      seen.fetch_add(1);
      room.release();
    }
  }
}

// Counts the values that arrive, and posts each receive again.
void receive_all(const End& end, const Region& region, std::vector<int>& times) {
  for (std::uint64_t i = 0; i < kAll; ++i) {
    const ibv_wc completion = wait_for_success(end.receive_cq);
    std::uint64_t value = kAll;
    std::memcpy(&value, region.memory.data() + completion.wr_id * 8, 8);
    ++times.at(value);
    end.post_receive(completion.wr_id, region.sge(completion.wr_id * 8, 8));
  }
}

TEST_F(ThreadTest, EightPostTwoPoll_EachExactlyOnce) {
  constexpr int kDepth = 128;
  Link link(device, {.send_depth = kDepth, .receive_depth = kDepth});
  Region source(device, kAll * 8);
  Region target(device, kDepth * 8);
  for (std::uint64_t i = 0; i < kAll; ++i) std::memcpy(source.memory.data() + i * 8, &i, 8);
  for (int i = 0; i < kDepth; ++i)
    link.b.post_receive(static_cast<std::uint64_t>(i), target.sge(std::size_t(i) * 8, 8));

  std::counting_semaphore<> room(kDepth);
  std::atomic<std::uint64_t> seen = 0;
  std::vector<std::atomic<int>> completed(kAll);
  std::vector<int> received(kAll + 1);
  std::vector<std::thread> threads;
  threads.emplace_back([&] { receive_all(link.b, target, received); });
  for (int i = 0; i < kPollers; ++i) {
    threads.emplace_back([&] { poll_all(link.a.send_cq, seen, completed, room); });
  }
  for (std::uint64_t poster = 0; poster < kPosters; ++poster) {
    threads.emplace_back([&, poster] {
      for (std::uint64_t i = poster * kEach; i < (poster + 1) * kEach; ++i) {
        room.acquire();
        ibv_sge piece = source.sge(i * 8, 8);
        auto request = send_request(IBV_WR_SEND, i, {&piece, 1});
        link.a.post_send(request);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::uint64_t i = 0; i < kAll; ++i) {
    ASSERT_EQ(completed[i].load(), 1) << "completions of request " << i;
    ASSERT_EQ(received[i], 1) << "arrivals of value " << i;
  }
}

TEST_F(ThreadTest, QueuePairs_1024InOneProcess) {
  constexpr std::size_t kPairs = 512;
  Region source(device, kPairs * 8);
  Region target(device, kPairs * 8);
  std::vector<std::unique_ptr<Link>> links;
  for (std::size_t i = 0; i < kPairs; ++i) {
    links.push_back(
        std::make_unique<Link>(device, QpOptions{.send_depth = 4, .receive_depth = 4, .cq_depth = 8}));
    std::memcpy(source.memory.data() + i * 8, &i, 8);
  }
  for (std::size_t i = 0; i < kPairs; ++i) {
    ibv_sge piece = source.sge(i * 8, 8);
    auto request =
        rdma_request(IBV_WR_RDMA_WRITE, i, {&piece, 1}, target.address(i * 8), target.registration.rkey());
    links[i]->a.post_send(request);
  }
  for (std::size_t i = 0; i < kPairs; ++i) EXPECT_EQ(wait_for_success(links[i]->a.send_cq).wr_id, i);
  EXPECT_EQ(std::memcmp(source.memory.data(), target.memory.data(), kPairs * 8), 0);
}

// Arms, polls once more, sleeps: what `-e` of every benchmark does.
ibv_wc wait_by_event(const End& end, ibv_cq* cq, std::atomic<int>& sleeps) {
  ibv_wc completion{};
  while (true) {
    expect_zero(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
    if (ibv_poll_cq(cq, 1, &completion) == 1) break;
    pollfd waiting{end.channel->fd, POLLIN, 0};
    if (poll(&waiting, 1, 0) == 0) ++sleeps;
    if (poll(&waiting, 1, kWaitLimitMs) != 1) fail("a wake-up was lost");
    ibv_cq* woken = nullptr;
    void* context = nullptr;
    expect_zero(ibv_get_cq_event(end.channel, &woken, &context), "ibv_get_cq_event");
    ibv_ack_cq_events(woken, 1);
    if (ibv_poll_cq(cq, 1, &completion) == 1) break;
  }
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  return completion;
}

// Two threads that sleep before every message: each round has four chances to lose a wake-up, the
// engine's and the channel's in each direction. URDMA_TEST_ROUNDS sets how many.
TEST_F(ThreadTest, WakeUps_NoneIsLost) {
  const char* rounds_text = std::getenv("URDMA_TEST_ROUNDS");
  const int rounds = rounds_text != nullptr ? std::atoi(rounds_text) : 20'000;
  Link link(device, {.events = true});
  Region memory(device, 4096);
  std::atomic<int> sleeps = 0;
  const auto bounce = [&](const End& end, bool starts, std::size_t offset) {
    for (int i = 0; i < rounds; ++i) {
      ibv_sge piece = memory.sge(offset, 8);
      auto request = send_request(IBV_WR_SEND, 1, {&piece, 1}, kUnsignaled);
      if (i % 64 == 63) request.send_flags = kSignaled;
      if (starts) link.a.post_send(request);
      wait_by_event(end, end.receive_cq, sleeps);
      end.post_receive(1, memory.sge(offset + 64, 8));
      if (!starts) link.b.post_send(request);
      if (i % 64 == 63) wait_for_success(end.send_cq);
    }
  };
  for (int i = 0; i < 4; ++i) {
    link.a.post_receive(1, memory.sge(64, 8));
    link.b.post_receive(1, memory.sge(1088, 8));
  }
  std::thread other([&] { bounce(link.b, false, 1024); });
  bounce(link.a, true, 0);
  other.join();
  // Otherwise this has tried nothing.
  EXPECT_GT(sleeps.load(), rounds / 20);
  std::printf("%d sleeps in %d rounds\n", sleeps.load(), rounds);
}

// Solicited-only wakes for a solicited message, and not for an ordinary one.
TEST_F(ThreadTest, SolicitedOnly_WakesOnSolicited) {
  Link link(device, {.events = true});
  Region memory(device, 4096);
  link.b.post_receive(1, memory.sge(0, 8));
  link.b.post_receive(2, memory.sge(0, 8));
  expect_zero(ibv_req_notify_cq(link.b.receive_cq, 1), "ibv_req_notify_cq");
  ibv_sge piece = memory.sge(64, 8);
  auto ordinary = send_request(IBV_WR_SEND, 1, {&piece, 1});
  link.a.post_send(ordinary);
  wait_for_success(link.a.send_cq);
  pollfd waiting{link.b.channel->fd, POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 100), 0);
  auto solicited = send_request(IBV_WR_SEND, 2, {&piece, 1}, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
  link.a.post_send(solicited);
  ASSERT_EQ(poll(&waiting, 1, kWaitLimitMs), 1);
  ibv_cq* woken = nullptr;
  void* context = nullptr;
  expect_zero(ibv_get_cq_event(link.b.channel, &woken, &context), "ibv_get_cq_event");
  EXPECT_EQ(woken, link.b.receive_cq);
  ibv_ack_cq_events(woken, 1);
}

// An armed CQ stays armed until it fires, once.
TEST_F(ThreadTest, Arming_IsOneShot) {
  Link link(device, {.events = true});
  Region memory(device, 4096);
  for (std::uint64_t i = 0; i < 3; ++i) link.b.post_receive(i, memory.sge(0, 8));
  expect_zero(ibv_req_notify_cq(link.b.receive_cq, 0), "ibv_req_notify_cq");
  ibv_sge piece = memory.sge(64, 8);
  for (std::uint64_t i = 0; i < 3; ++i) {
    auto request = send_request(IBV_WR_SEND, i, {&piece, 1});
    link.a.post_send(request);
    wait_for_success(link.a.send_cq);
    wait_for_success(link.b.receive_cq);
  }
  pollfd waiting{link.b.channel->fd, POLLIN, 0};
  ASSERT_EQ(poll(&waiting, 1, kWaitLimitMs), 1);
  ibv_cq* woken = nullptr;
  void* context = nullptr;
  expect_zero(ibv_get_cq_event(link.b.channel, &woken, &context), "ibv_get_cq_event");
  ibv_ack_cq_events(woken, 1);
  EXPECT_EQ(poll(&waiting, 1, 100), 0);
}

// Destroying a CQ whose event was never read leaves no event of it behind.
TEST_F(ThreadTest, DestroyedCq_LeavesNoEvent) {
  ibv_comp_channel* channel = ibv_create_comp_channel(device.context);
  ASSERT_NE(channel, nullptr);
  ibv_cq* cq = ibv_create_cq(device.context, 16, nullptr, channel, 0);
  ASSERT_NE(cq, nullptr);
  {
    End end(device, {});
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {
        .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    ibv_qp* qp = ibv_create_qp(device.pd, &attributes);
    ASSERT_NE(qp, nullptr);
    expect_zero(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
    ibv_qp_attr state{};
    state.qp_state = IBV_QPS_INIT;
    state.port_num = 1;
    expect_zero(
        ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        "to INIT");
    Region memory(device, 4096);
    ibv_sge piece = memory.sge(0, 8);
    ibv_recv_wr receive{.wr_id = 1, .next = nullptr, .sg_list = &piece, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    expect_zero(ibv_post_recv(qp, &receive, &bad), "ibv_post_recv");
    state.qp_state = IBV_QPS_ERR;
    expect_zero(ibv_modify_qp(qp, &state, IBV_QP_STATE), "to ERR");
    pollfd waiting{channel->fd, POLLIN, 0};
    EXPECT_EQ(poll(&waiting, 1, kWaitLimitMs), 1);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
  }
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  pollfd waiting{channel->fd, POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 100), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

// Another thread makes the CQ larger and smaller while completions come: each comes once, and in order.
TEST_F(ThreadTest, ResizeWhileCompletionsCome) {
  constexpr std::uint64_t kWrites = 3000;
  Link link(device, {.cq_depth = 256});
  Region source(device, 4096);
  Region target(device, 4096);
  std::atomic<bool> done = false;
  std::thread resizer([&] {
    for (int i = 0; !done.load(); ++i) EXPECT_EQ(ibv_resize_cq(link.a.send_cq, i % 2 == 0 ? 1024 : 256), 0);
  });
  std::uint64_t posted = 0;
  for (std::uint64_t completed = 0; completed < kWrites; ++completed) {
    for (; posted < kWrites && posted < completed + 64; ++posted) {
      ibv_sge piece = source.sge(0, 8);
      auto request =
          rdma_request(IBV_WR_RDMA_WRITE, posted, {&piece, 1}, target.address(), target.registration.rkey());
      link.a.post_send(request);
    }
    ASSERT_EQ(wait_for_success(link.a.send_cq).wr_id, completed);
  }
  done = true;
  resizer.join();
  EXPECT_GE(link.a.send_cq->cqe, 256);
  EXPECT_EQ(ibv_resize_cq(link.a.send_cq, 0), EINVAL);
}

}  // namespace
}  // namespace urdma::system_test
