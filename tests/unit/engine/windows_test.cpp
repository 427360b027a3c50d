// Memory windows on a whole engine: bound and invalidated by requests, with copies under way, and QPs that go
// meanwhile; and null regions among others.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/windows.hpp"

#include "tests/unit/engine/engine_fixture.hpp"

namespace urdma::engine {
namespace {

struct Way {
  bool is_local;
  bool is_mapped;
};

std::string name_of(const ::testing::TestParamInfo<Way>& each) {
  return std::string(each.param.is_local ? "Inside" : "Wire") + (each.param.is_mapped ? "Mapped" : "Copied");
}

class EngineWindowsTest : public EngineTest, public ::testing::WithParamInterface<Way> {
 protected:
  EngineWindowsTest() { connect(a_, b_, GetParam().is_local); }

  // A window of type 2, known to the engine.
  memory::Region& add_window(Client& client) {
    auto window = std::make_unique<memory::Region>();
    window->kind = memory::Region::Kind::kWindow;
    window->binding.type = memory::WindowType::kType2;
    window->key = MemoryKey{last_key_ += 1U << 8};
    window->pd = client.pd;
    engine_->run([&] { EXPECT_TRUE(engine_->add_region(*window)); });
    client.regions.push_back(std::move(window));
    return *client.regions.back();
  }
  // Binds all of the target for `by`.
  void bind(Endpoint& by, std::uint32_t window, std::uint32_t new_key) {
    abi::SendWqe wqe{};
    wqe.opcode = static_cast<std::uint8_t>(WrOpcode::kBindMw);
    wqe.flags = kSendSignaled;
    wqe.rkey = window;
    wqe.immediate = new_key;
    wqe.remote_address = target_.address();
    wqe.compare_add = target_.size();
    wqe.remote_qkey = kAccessRemoteWrite;
    by.rings->send(wqe, {{target_.address(), 0, target_key_}});
    ring(by);
  }
  void invalidate(Endpoint& by, std::uint32_t key) {
    abi::SendWqe wqe{};
    wqe.opcode = static_cast<std::uint8_t>(WrOpcode::kLocalInv);
    wqe.flags = kSendSignaled;
    wqe.immediate = key;
    by.rings->send(wqe, {});
    ring(by);
  }
  void write(std::uint32_t key, std::uint32_t bytes = 1000) {
    post(a_, WrOpcode::kRdmaWrite, 1, {{source_.address(), bytes, source_key_}}, target_.address(), key);
  }
  // A window that is bound for b_; its key.
  std::uint32_t open_window() {
    const std::uint32_t window = add_window(right_).key.value;
    bind(b_, window, window + 1);
    EXPECT_EQ(b_.wait().status, WcStatus::kSuccess);
    return window + 1;
  }
  // Of both clients; their keys.
  std::pair<std::uint32_t, std::uint32_t> add_null_regions() {
    for (Client* client : {&left_, &right_}) {
      auto null = std::make_unique<memory::Region>();
      null->kind = memory::Region::Kind::kNull;
      null->key = MemoryKey{last_key_ += 1U << 8};
      null->pd = client->pd;
      null->access = kAccessLocalWrite;
      engine_->run([&] { EXPECT_TRUE(engine_->add_region(*null)); });
      client->regions.push_back(std::move(null));
    }
    return {left_.regions.back()->key.value, right_.regions.back()->key.value};
  }
  // Writes through a window into memory that makes the copier wait, until it does.
  void start_slow_write(std::uint32_t key) {
    target_.hide();
    write(key);
    const auto deadline = Clock::now() + kPatience;
    std::uint32_t outstanding = 0;
    while (outstanding == 0 && Clock::now() < deadline) {
      engine_->run([&] { outstanding = right_.space->copier().outstanding(); });
    }
    ASSERT_GT(outstanding, 0U);
  }

  Buffer& source_ = add_buffer(8192);
  Buffer& target_ = add_buffer(8192);
  Client& left_ = add_client();
  Client& right_ = add_client();
  Endpoint& a_ = add_endpoint(left_);
  Endpoint& b_ = add_endpoint(right_);
  std::uint32_t source_key_ = add_region(left_, source_, true);
  std::uint32_t target_key_ =
      add_region(right_, target_, GetParam().is_mapped, kAccessLocalWrite | kAccessMwBind);
};

TEST_P(EngineWindowsTest, Bind_OpensAndInvalidateCloses) {
  std::fill(source_.here(), source_.here() + 1000, std::byte{7});
  const std::uint32_t key = open_window();
  write(key);
  EXPECT_EQ(a_.wait().status, WcStatus::kSuccess);
  EXPECT_EQ(target_.data()[999], std::byte{7});
  invalidate(b_, key);
  EXPECT_EQ(b_.wait().status, WcStatus::kSuccess);
  write(key);
  EXPECT_EQ(a_.wait().status, WcStatus::kRemAccessErr);
}

TEST_P(EngineWindowsTest, Bind_OfAnotherClientsWindow) {
  const std::uint32_t window = add_window(left_).key.value;
  bind(b_, window, window + 1);
  EXPECT_EQ(b_.wait().status, WcStatus::kMwBindErr);
}

TEST_P(EngineWindowsTest, RemoveRegion_UnbindsWhatIsBoundToIt) {
  const std::uint32_t key = open_window();
  const auto& region = *right_.regions.front();
  engine_->run([&] { engine_->remove_region(*right_.regions.front()); });
  EXPECT_EQ(region.windows, nullptr);
  write(key);
  EXPECT_EQ(a_.wait().status, WcStatus::kRemAccessErr);
}

INSTANTIATE_TEST_SUITE_P(Ways, EngineWindowsTest,
                         ::testing::Values(Way{true, true}, Way{true, false}, Way{false, true},
                                           Way{false, false}),
                         name_of);

using SlowWindowsTest = EngineWindowsTest;

TEST_P(SlowWindowsTest, Invalidate_WaitsForTheCopier) {
  const std::uint32_t key = open_window();
  start_slow_write(key);
  invalidate(b_, key);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  Done done;
  EXPECT_FALSE(b_.poll(done)) << "a copy through the window is still under way";
  target_.show();
  EXPECT_EQ(b_.wait().status, WcStatus::kSuccess);
  EXPECT_EQ(a_.wait().status, WcStatus::kSuccess);
  write(key);
  EXPECT_EQ(a_.wait().status, WcStatus::kRemAccessErr);
}

TEST_P(SlowWindowsTest, Invalidate_ThatWaitsGoesWithItsQp) {
  const std::uint32_t key = open_window();
  start_slow_write(key);
  invalidate(b_, key);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  destroy(b_);
  target_.show();
}

TEST_P(SlowWindowsTest, Invalidate_ThatWaitsIsForgottenByReset) {
  const std::uint32_t key = open_window();
  start_slow_write(key);
  invalidate(b_, key);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(modify(b_, QpState::kReset, 0), 0);
  target_.show();
  EXPECT_TRUE(quiesce(right_));
  Done done;
  EXPECT_FALSE(b_.poll(done));
}

// A message into nothing that waits behind one which a copier has in hand.
TEST_P(SlowWindowsTest, Null_BehindACopy) {
  const auto [null_left, null_right] = add_null_regions();
  start_slow_write(open_window());
  b_.rings->receive(2, {{0, 100, null_right}});
  post(a_, WrOpcode::kSend, 1, {{0, 100, null_left}});
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  target_.show();
  EXPECT_EQ(a_.wait().status, WcStatus::kSuccess);
  EXPECT_EQ(a_.wait().status, WcStatus::kSuccess);
  EXPECT_EQ(b_.wait().byte_len, 100U);
}

INSTANTIATE_TEST_SUITE_P(Ways, SlowWindowsTest, ::testing::Values(Way{true, false}, Way{false, false}),
                         name_of);

// Elements of a null region among such that a copier reaches, and such that are mapped.
TEST_P(EngineWindowsTest, Null_AmongOthers) {
  const auto [null_left, null_right] = add_null_regions();
  std::fill(source_.here(), source_.here() + 1000, std::byte{7});
  std::fill(target_.here(), target_.here() + 1000, std::byte{9});
  b_.rings->receive(2, {{target_.address(), 150, target_key_},
                        {0, 100, null_right},
                        {target_.address() + 150, 50, target_key_}});
  post(a_, WrOpcode::kSend, 1,
       {{source_.address(), 100, source_key_},
        {~0ULL, 100, null_left},
        {source_.address(), 100, source_key_}});
  EXPECT_EQ(a_.wait().status, WcStatus::kSuccess);
  EXPECT_EQ(b_.wait().byte_len, 300U);
  const auto are = [&](std::size_t from, std::size_t to, int value) {
    return std::all_of(target_.data() + from, target_.data() + to,
                       [value](std::byte byte) { return byte == std::byte(value); });
  };
  EXPECT_TRUE(are(0, 100, 7) && are(100, 150, 0) && are(150, 200, 7) && are(200, 1000, 9));
}

}  // namespace
}  // namespace urdma::engine
