// A whole engine in this process: data in all combinations of mapped and unmapped memory, inside the node and
// over the wire path, errors, and QPs that go while a copier has their bytes in hand.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/engine.hpp"

#include "tests/unit/engine/engine_fixture.hpp"

namespace urdma::engine {
namespace {

constexpr std::byte kGuard{0xA5};

struct Way {
  bool is_local;
  bool source_mapped;
  bool target_mapped;
};

std::string name_of(const ::testing::TestParamInfo<Way>& each) {
  return std::string(each.param.is_local ? "Inside" : "Wire") +
         (each.param.source_mapped ? "Mapped" : "Copied") + "To" +
         (each.param.target_mapped ? "Mapped" : "Copied");
}

class EngineWayTest : public EngineTest, public ::testing::WithParamInterface<Way> {
 protected:
  EngineWayTest() { connect(a_, b_, GetParam().is_local); }

  // Fills the source with a pattern and the target with guards.
  void fill(std::uint32_t seed) {
    for (std::size_t i = 0; i < source_.size(); ++i) source_.here()[i] = std::byte(i * 31 + seed + i / 4096);
    std::fill(target_.here(), target_.here() + target_.size(), kGuard);
  }
  // `bytes` from offset 100 of the source are at offset 60 of the target, and nothing else has changed.
  void expect_moved(std::uint32_t bytes) {
    ASSERT_EQ(std::memcmp(target_.data() + 60, source_.data() + 100, bytes), 0);
    for (std::size_t i = 0; i < 60; ++i) ASSERT_EQ(target_.data()[i], kGuard);
    for (std::size_t i = 60 + bytes; i < target_.size(); ++i) ASSERT_EQ(target_.data()[i], kGuard);
  }
  // In three elements, one of which has no bytes.
  static std::vector<abi::Sge> elements(const Buffer& buffer, std::size_t at, std::uint32_t bytes,
                                        std::uint32_t key) {
    const std::uint32_t head = bytes / 3;
    const std::uint64_t address = buffer.address() + at;
    return {{address, head, key}, {0, 0, 0}, {address + head, bytes - head, key}};
  }

  Buffer& source_ = add_buffer((4U << 20) + 8192);
  Buffer& target_ = add_buffer((4U << 20) + 8192);
  Client& left_ = add_client();
  Client& right_ = add_client();
  Endpoint& a_ = add_endpoint(left_);
  Endpoint& b_ = add_endpoint(right_);
  std::uint32_t source_key_ = add_region(left_, source_, GetParam().source_mapped);
  std::uint32_t target_key_ = add_region(right_, target_, GetParam().target_mapped);
};

// TSan looks for races, which depend on how many packets there are and not on megabytes, and is slow.
#ifdef __SANITIZE_THREAD__
constexpr std::uint32_t kSizes[] = {0, 1, 7, 8, 1023, 1024, 1025, 65536, 65537, (1U << 17) + 3};
#else
constexpr std::uint32_t kSizes[] = {0, 1, 7, 8, 1023, 1024, 1025, 65536, 65537, (1U << 20) + 3, 3U << 20};
#endif

TEST_P(EngineWayTest, Send_AllSizes) {
  for (const std::uint32_t bytes : kSizes) {
    fill(bytes);
    b_.rings->receive(bytes, elements(target_, 60, bytes + 5, target_key_));
    post(a_, WrOpcode::kSend, bytes + 1, elements(source_, 100, bytes, source_key_));
    const Done sent = a_.wait();
    EXPECT_EQ(sent.status, WcStatus::kSuccess) << bytes;
    EXPECT_EQ(sent.wr_id, bytes + 1);
    const Done received = b_.wait();
    EXPECT_EQ(received.status, WcStatus::kSuccess) << bytes;
    EXPECT_EQ(received.byte_len, bytes);
    EXPECT_TRUE(received.is_receive);
    expect_moved(bytes);
  }
}

TEST_P(EngineWayTest, Write_AllSizes) {
  for (const std::uint32_t bytes : kSizes) {
    fill(bytes);
    post(a_, WrOpcode::kRdmaWrite, 1, elements(source_, 100, bytes, source_key_), target_.address() + 60,
         target_key_);
    EXPECT_EQ(a_.wait().status, WcStatus::kSuccess) << bytes;
    expect_moved(bytes);
  }
}

// The reader's memory is the target, so that the keys change sides.
TEST_P(EngineWayTest, Read_AllSizes) {
  for (const std::uint32_t bytes : kSizes) {
    fill(bytes);
    post(b_, WrOpcode::kRdmaRead, 1, elements(target_, 60, bytes, target_key_), source_.address() + 100,
         source_key_);
    EXPECT_EQ(b_.wait().status, WcStatus::kSuccess) << bytes;
    expect_moved(bytes);
  }
}

TEST_P(EngineWayTest, Atomics_BothKinds) {
  fill(0);
  std::uint64_t value = 1000;
  std::memcpy(target_.here() + 512, &value, sizeof value);
  const std::vector<abi::Sge> answer = {{source_.address() + 8, 8, source_key_}};
  const auto original = [&] {
    std::uint64_t old = 0;
    std::memcpy(&old, source_.data() + 8, sizeof old);
    return old;
  };
  post(a_, WrOpcode::kFetchAdd, 1, answer, target_.address() + 512, target_key_, 5);
  EXPECT_EQ(a_.wait().status, WcStatus::kSuccess);
  EXPECT_EQ(original(), 1000U);
  post(a_, WrOpcode::kCompareSwap, 2, answer, target_.address() + 512, target_key_, 1005, 77);
  EXPECT_EQ(a_.wait().status, WcStatus::kSuccess);
  EXPECT_EQ(original(), 1005U);
  post(a_, WrOpcode::kCompareSwap, 3, answer, target_.address() + 512, target_key_, 1005, 88);
  EXPECT_EQ(a_.wait().status, WcStatus::kSuccess);
  EXPECT_EQ(original(), 77U);
  std::memcpy(&value, target_.data() + 512, sizeof value);
  EXPECT_EQ(value, 77U);
}

// Many requests of all kinds in both directions at once: order, and every completion exactly once.
TEST_P(EngineWayTest, Mixed_BothDirections) {
  constexpr std::uint32_t kRequests = 48;
  for (int round = 0; round < stress_rounds(4); ++round) {
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      a_.rings->receive(1000 + i, {{source_.address() + 3'000'000, 100'000, source_key_}});
      b_.rings->receive(1000 + i, {{target_.address() + 3'000'000, 100'000, target_key_}});
    }
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      const auto bytes = static_cast<std::uint32_t>(i * 1999 % 100'000);
      post(a_, i % 3 == 0 ? WrOpcode::kRdmaWrite : WrOpcode::kSend, i,
           {{source_.address(), bytes, source_key_}}, target_.address() + 4096, target_key_);
      post(b_, i % 3 == 0 ? WrOpcode::kRdmaRead : WrOpcode::kSend, i,
           {{target_.address() + 2'000'000, bytes, target_key_}}, source_.address() + 4096, source_key_);
    }
    for (Endpoint* end : {&a_, &b_}) {
      std::uint64_t sends = 0;
      std::uint64_t receives = 0;
      while (sends < kRequests || receives < kRequests * 2 / 3) {
        const Done done = end->wait();
        ASSERT_EQ(done.status, WcStatus::kSuccess);
        if (done.is_receive) {
          ASSERT_EQ(done.wr_id, 1000 + receives++);
        } else {
          ASSERT_EQ(done.wr_id, sends++);
        }
      }
    }
    // The receives that are left over go with a reset.
    for (Endpoint* end : {&a_, &b_}) ASSERT_EQ(modify(*end, QpState::kReset, 0), 0);
    connect(a_, b_, GetParam().is_local);
  }
}

TEST_P(EngineWayTest, Send_ReceiverNotReady) {
  fill(3);
  post(a_, WrOpcode::kSend, 1, {{source_.address() + 100, 500, source_key_}});
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  Done done;
  EXPECT_FALSE(a_.poll(done));
  b_.rings->receive(2, {{target_.address() + 60, 500, target_key_}});
  EXPECT_EQ(a_.wait().status, WcStatus::kSuccess);
  EXPECT_EQ(b_.wait().byte_len, 500U);
  expect_moved(500);
}

TEST_P(EngineWayTest, Denied_RemoteKey) {
  fill(1);
  post(a_, WrOpcode::kRdmaWrite, 1, {{source_.address(), 100, source_key_}}, target_.address(), source_key_);
  EXPECT_EQ(a_.wait().status, WcStatus::kRemAccessErr) << "a key of another domain";
  for (std::size_t i = 0; i < 200; ++i) EXPECT_EQ(target_.data()[i], kGuard);
}

TEST_P(EngineWayTest, Denied_OverTheEnd) {
  fill(1);
  post(a_, WrOpcode::kRdmaWrite, 1, {{source_.address(), 100, source_key_}},
       target_.address() + target_.size() - 99, target_key_);
  EXPECT_EQ(a_.wait().status, WcStatus::kRemAccessErr);
  EXPECT_EQ(target_.data()[target_.size() - 1], kGuard);
}

TEST_P(EngineWayTest, Denied_LocalKey) {
  post(a_, WrOpcode::kSend, 1, {{source_.address(), 100, target_key_}});
  EXPECT_EQ(a_.wait().status, WcStatus::kLocProtErr);
  post(a_, WrOpcode::kSend, 2, {{source_.address(), 100, source_key_}});
  const Done flushed = a_.wait();
  EXPECT_EQ(flushed.status, WcStatus::kWrFlushErr);
  EXPECT_EQ(flushed.wr_id, 2U);
}

TEST_P(EngineWayTest, Denied_ReadOnlyRegionAsTarget) {
  const Buffer& other = add_buffer(8192);
  const std::uint32_t key = add_region(right_, other, GetParam().target_mapped, 0);
  b_.rings->receive(9, {{other.address(), 100, key}});
  post(a_, WrOpcode::kSend, 1, {{source_.address(), 100, source_key_}});
  EXPECT_EQ(b_.wait().status, WcStatus::kLocProtErr);
  EXPECT_EQ(a_.wait().status, WcStatus::kRemOpErr);
}

INSTANTIATE_TEST_SUITE_P(Ways, EngineWayTest,
                         ::testing::Values(Way{true, true, true}, Way{true, true, false},
                                           Way{true, false, true}, Way{true, false, false},
                                           Way{false, true, true}, Way{false, true, false},
                                           Way{false, false, true}, Way{false, false, false}),
                         name_of);

// ---- One pair, memory by copier only ----

class EnginePairTest : public EngineTest, public ::testing::WithParamInterface<bool> {
 protected:
  EnginePairTest() { connect(a_, b_, GetParam()); }
  void write(Endpoint& from, std::uint64_t wr_id, std::uint32_t bytes) {
    post(from, WrOpcode::kRdmaWrite, wr_id, {{source_.address(), bytes, source_key_}}, target_.address(),
         target_key_);
  }
  std::uint32_t transfers(const Endpoint& endpoint) {
    std::uint32_t count = 0;
    engine_->run([&] { count = endpoint.qp->transfers; });
    return count;
  }
  // Until a copier has bytes of the QP in hand, which then hang on hidden memory.
  void wait_for_transfers(const Endpoint& endpoint) {
    const auto deadline = Clock::now() + kPatience;
    while (transfers(endpoint) == 0 && Clock::now() < deadline) std::this_thread::yield();
    EXPECT_GT(transfers(endpoint), 0U);
  }

  Buffer& source_ = add_buffer(1U << 20);
  Buffer& target_ = add_buffer(1U << 20);
  Client& left_ = add_client();
  Client& right_ = add_client();
  Endpoint& a_ = add_endpoint(left_);
  Endpoint& b_ = add_endpoint(right_);
  std::uint32_t source_key_ = add_region(left_, source_, true);
  std::uint32_t target_key_ = add_region(right_, target_, false);
};

TEST_P(EnginePairTest, Rnr_RetriesExhausted) {
  for (Endpoint* end : {&a_, &b_}) ASSERT_EQ(modify(*end, QpState::kReset, 0), 0);
  connect(a_, b_, GetParam(), 0);
  post(a_, WrOpcode::kSend, 1, {{source_.address(), 100, source_key_}});
  EXPECT_EQ(a_.wait().status, WcStatus::kRnrRetryExcErr);
}

TEST_P(EnginePairTest, RemoveQp_WithCopiesInFlight) {
  target_.hide();
  write(a_, 1, 300'000);
  wait_for_transfers(b_);
  bool is_quiet = true;
  engine_->run([&] {
    engine_->remove_qp(*b_.qp);
    is_quiet = engine_->quiesce(*b_.qp, 77);
  });
  EXPECT_FALSE(is_quiet) << "a copier still names it";
  target_.show();
  EXPECT_TRUE(wait_for_report(77));
  EXPECT_EQ(b_.qp->transfers, 0U);
}

TEST_P(EnginePairTest, Reset_WithCopiesInFlight) {
  target_.hide();
  write(a_, 1, 300'000);
  wait_for_transfers(b_);
  ASSERT_EQ(modify(b_, QpState::kReset, 0), 0);
  ASSERT_EQ(modify(a_, QpState::kReset, 0), 0);
  bool is_quiet = true;
  engine_->run([&] { is_quiet = engine_->quiesce(*b_.qp, 78); });
  EXPECT_FALSE(is_quiet) << "late bytes: who frees the memory has to wait for this";
  target_.show();
  EXPECT_TRUE(wait_for_report(78));
  connect(a_, b_, GetParam());
  std::memset(source_.data(), 0x42, 5000);
  write(a_, 2, 5000);
  const Done done = a_.wait();
  EXPECT_EQ(done.wr_id, 2U);
  EXPECT_EQ(done.status, WcStatus::kSuccess);
  EXPECT_EQ(std::memcmp(target_.data(), source_.data(), 5000), 0);
}

// A receive is flushed only when no copier writes into its memory any more.
TEST_P(EnginePairTest, Error_WithCopiesInFlight) {
  b_.rings->receive(5, {{target_.address(), 500'000, target_key_}});
  target_.hide();
  post(a_, WrOpcode::kSend, 1, {{source_.address(), 300'000, source_key_}});
  wait_for_transfers(b_);
  ASSERT_EQ(modify(b_, QpState::kErr, 0), 0);
  const auto deadline = Clock::now() + std::chrono::milliseconds(60);
  Done done;
  while (Clock::now() < deadline) ASSERT_FALSE(b_.poll(done)) << "its memory is still written to";
  target_.show();
  done = b_.wait();
  EXPECT_EQ(done.wr_id, 5U);
  EXPECT_EQ(done.status, WcStatus::kWrFlushErr);
}

TEST_P(EnginePairTest, MissingMemory_FailsTheRequest) {
  target_.hide();
  write(a_, 1, 100);
  EXPECT_EQ(a_.wait().status, WcStatus::kRemOpErr);
  target_.show();
}

TEST_P(EnginePairTest, RemoveRegion_QuiesceTellsTheEnd) {
  target_.hide();
  write(a_, 1, 300'000);
  wait_for_transfers(b_);
  bool is_quiet = true;
  engine_->run([&] {
    engine_->remove_region(*right_.regions[0]);
    is_quiet = engine_->quiesce(*right_.session, 79);
  });
  EXPECT_FALSE(is_quiet);
  target_.show();
  EXPECT_TRUE(wait_for_report(79));
  // Packets that came after the region had gone found none.
  const WcStatus status = a_.wait().status;
  EXPECT_TRUE(status == WcStatus::kRemAccessErr || status == WcStatus::kSuccess);
}

TEST_P(EnginePairTest, HostileIndex_EndsTheSession) {
  b_.rings->page().send_producer.store(0x7FFFFFFF);
  ring(b_);
  EXPECT_TRUE(wait_for_broken_session(right_));
  write(a_, 1, 0);  // the engine goes on
  a_.wait();
}

// A queue that is full fails its QPs, with one event for it and one for each of them.
TEST_P(EnginePairTest, Overrun_FailsTheQp) {
  Endpoint& c = add_endpoint(left_, 4);
  Endpoint& d = add_endpoint(right_);
  connect(c, d, GetParam());
  for (std::uint64_t i = 0; i < 10; ++i) {
    post(c, WrOpcode::kRdmaWrite, i, {{source_.address(), 8, source_key_}}, target_.address(), target_key_);
  }
  std::vector<std::uint32_t> events;
  const auto deadline = Clock::now() + kPatience;
  while (events.size() < 2 && Clock::now() < deadline) {
    take_reports();
    struct {
      std::uint64_t element;
      std::uint32_t type;
      std::uint32_t reserved;
    } event{};
    if (::read(left_.async[0], &event, sizeof event) == sizeof event) events.push_back(event.type);
  }
  EXPECT_EQ(events, (std::vector<std::uint32_t>{static_cast<std::uint32_t>(AsyncEvent::kCqErr),
                                                static_cast<std::uint32_t>(AsyncEvent::kQpFatal)}));
  ::usleep(50'000);
  std::byte more{};
  EXPECT_LT(::read(left_.async[0], &more, sizeof more), 0) << "each comes once";
}

INSTANTIATE_TEST_SUITE_P(Paths, EnginePairTest, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "Inside" : "Wire"; });

}  // namespace
}  // namespace urdma::engine
