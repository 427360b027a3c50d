// An engine that must not wait: not for a client's memory, not for a client that never ends; and one that
// must neither miss a doorbell nor stay awake without work.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <sys/resource.h>

#include "tests/unit/engine/engine_fixture.hpp"

namespace urdma::engine {
namespace {

class EngineLivenessTest : public EngineTest {
 protected:
  struct Pair {
    Client* left;
    Client* right;
    Endpoint* a;
    Endpoint* b;
  };
  Pair add_pair(Client& left, Client& right, bool is_local) {
    Endpoint& a = add_endpoint(left);
    Endpoint& b = add_endpoint(right);
    connect(a, b, is_local);
    return {&left, &right, &a, &b};
  }
  // How often the pair writes 200,000 bytes until `end`.
  int write_until(const Pair& pair, Clock::time_point end, const Buffer& from, std::uint32_t lkey,
                  const Buffer& to, std::uint32_t rkey) {
    int count = 0;
    while (Clock::now() < end) {
      post(*pair.a, WrOpcode::kRdmaWrite, 1, {{from.address(), 200'000, lkey}}, to.address(), rkey);
      Done done;
      while (!pair.a->poll(done)) {
        if (Clock::now() > end) return count;
        std::this_thread::yield();
      }
      ++count;
    }
    return count;
  }
};

class EngineStallTest : public EngineLivenessTest, public ::testing::WithParamInterface<bool> {};

// One client's memory hangs, with as much under way to it as it can have: another client goes on.
TEST_P(EngineStallTest, HangingMemory_OthersGoOn) {
  Client& stuck = add_client();
  Client& good = add_client();
  Buffer& stuck_source = add_buffer(1U << 20);
  Buffer& stuck_target = add_buffer(1U << 20);
  const Buffer& good_source = add_buffer(1U << 20);
  const Buffer& good_target = add_buffer(1U << 20);
  const std::uint32_t stuck_lkey = add_region(stuck, stuck_source, true);
  const std::uint32_t stuck_rkey = add_region(stuck, stuck_target, false);
  const std::uint32_t good_lkey = add_region(good, good_source, false);
  const std::uint32_t good_rkey = add_region(good, good_target, false);
  const Pair going = add_pair(good, good, GetParam());
  ASSERT_GT(write_until(going, Clock::now() + std::chrono::milliseconds(100), good_source, good_lkey,
                        good_target, good_rkey),
            0);
  std::vector<Pair> hanging;
  for (int i = 0; i < 100; ++i) hanging.push_back(add_pair(stuck, stuck, GetParam()));
  stuck_target.hide();
  for (const Pair& pair : hanging) {
    for (std::uint64_t request = 0; request < 16; ++request) {
      post(*pair.a, WrOpcode::kRdmaWrite, request, {{stuck_source.address(), 1U << 20, stuck_lkey}},
           stuck_target.address(), stuck_rkey);
    }
  }
  const int count = write_until(going, Clock::now() + std::chrono::milliseconds(200), good_source, good_lkey,
                                good_target, good_rkey);
  bool is_quiet = true;
  engine_->run([&] {
    engine_->remove_region(*stuck.regions[1]);
    is_quiet = engine_->quiesce(*stuck.session, 4711);  // finds room for its fence
  });
  stuck_target.show();
  EXPECT_TRUE(is_quiet || wait_for_report(4711));
  EXPECT_GT(count, 0) << "one client's memory held up another's";
}

// One client may be alone and have much under way: its share does not stop it.
TEST_P(EngineStallTest, ManyQps_OneClient) {
  Client& client = add_client();
  const Buffer& source = add_buffer(1U << 16);
  const Buffer& target = add_buffer(1U << 16);
  const std::uint32_t lkey = add_region(client, source, false);
  const std::uint32_t rkey = add_region(client, target, false);
  std::vector<Pair> pairs;
  for (int i = 0; i < 16; ++i) pairs.push_back(add_pair(client, client, GetParam()));
  constexpr std::uint64_t kRequests = 32;
  for (std::uint64_t i = 0; i < kRequests; ++i) {
    for (const Pair& pair : pairs) {
      post(*pair.a, WrOpcode::kRdmaWrite, i, {{source.address(), 1U << 16, lkey}}, target.address(), rkey);
    }
  }
  for (const Pair& pair : pairs) {
    for (std::uint64_t i = 0; i < kRequests; ++i) ASSERT_EQ(pair.a->wait().status, WcStatus::kSuccess);
  }
  Counters counters;
  engine_->run([&] { counters = engine_->counters(); });
  EXPECT_EQ(counters.dropped_busy, 0U);
}

INSTANTIATE_TEST_SUITE_P(Paths, EngineStallTest, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "Inside" : "Wire"; });

// A client that posts receives to a QP in ERR as fast as they are flushed keeps nobody else from a turn.
TEST_F(EngineLivenessTest, EndlessReceives_OthersGoOn) {
  Client& hostile = add_client();
  Endpoint& end = add_endpoint(hostile);
  ASSERT_EQ(modify(end, QpState::kInit, kAttrPkeyIndex | kAttrPort | kAttrAccessFlags), 0);
  std::atomic<bool> stopping{false};
  std::thread posting([&] {
    abi::QpPage& page = end.rings->page();
    Done done;
    std::uint32_t posted = 0;
    while (!stopping) {
      if (posted - end.polled < 60) page.receive_producer.store(++posted, std::memory_order_release);
      while (end.poll(done)) {
      }
      ring(end);
    }
  });
  ASSERT_EQ(modify(end, QpState::kErr, 0), 0);
  const auto start = Clock::now();
  for (int i = 0; i < 20; ++i) engine_->run([] {});
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  stopping = true;
  posting.join();
}

TEST_F(EngineLivenessTest, Idle_UsesNextToNoCpu) {
  Client& client = add_client();
  const Buffer& buffer = add_buffer(4096);
  const std::uint32_t key = add_region(client, buffer, false);
  const Pair pair = add_pair(client, client, true);
  post(*pair.a, WrOpcode::kRdmaWrite, 1, {{buffer.address(), 8, key}}, buffer.address() + 8, key);
  EXPECT_EQ(pair.a->wait().status, WcStatus::kSuccess);
  const auto cpu_us = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
  };
  const auto before = cpu_us();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_LT(cpu_us() - before, 20'000) << "of a second";
}

class EngineWakeTest : public EngineTest, public ::testing::WithParamInterface<IdlePolicy> {
 protected:
  EngineWakeTest() : EngineTest(GetParam()) {}
};

// The engine falls asleep between requests, at all distances from them: no doorbell is missed.
TEST_P(EngineWakeTest, Doorbell_NoneIsMissed) {
  Client& client = add_client();
  const Buffer& buffer = add_buffer(4096);
  const std::uint32_t key = add_region(client, buffer, true);
  Endpoint& a = add_endpoint(client);
  Endpoint& b = add_endpoint(client);
  connect(a, b, true);
  for (int i = 0; i < stress_rounds(3000); ++i) {
    post(a, WrOpcode::kRdmaWrite, static_cast<std::uint64_t>(i), {{buffer.address(), 8, key}},
         buffer.address() + 8, key);
    const auto start = Clock::now();
    const Done done = a.wait();
    ASSERT_EQ(done.wr_id, static_cast<std::uint64_t>(i));
    ASSERT_EQ(done.status, WcStatus::kSuccess);
    // An engine that has slept through it wakes after half a second of its own.
    ASSERT_LT(Clock::now() - start, std::chrono::milliseconds(400)) << "a doorbell was missed";
    for (int pause = 0; pause < i % 97 * 300; ++pause) asm volatile("");
  }
}

// The same of the control thread's letters.
TEST_P(EngineWakeTest, Run_NoneIsMissed) {
  for (int i = 0; i < stress_rounds(3000); ++i) {
    const auto start = Clock::now();
    int value = 0;
    engine_->run([&] { value = i; });
    ASSERT_EQ(value, i);
    ASSERT_LT(Clock::now() - start, std::chrono::milliseconds(400)) << "a letter was missed";
    for (int pause = 0; pause < i % 89 * 300; ++pause) asm volatile("");
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, EngineWakeTest,
                         ::testing::Values(IdlePolicy::kAdaptive, IdlePolicy::kInterrupt),
                         [](const auto& each) {
                           return each.param == IdlePolicy::kAdaptive ? "Adaptive" : "Interrupt";
                         });

}  // namespace
}  // namespace urdma::engine
