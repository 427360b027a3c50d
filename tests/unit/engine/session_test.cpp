// A client context: its doorbells and its queue of asynchronous events.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/session.hpp"

#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include "tests/unit/engine/fixture.hpp"

namespace urdma::engine {
namespace {

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    EXPECT_EQ(::pipe2(pipe_, O_CLOEXEC | O_NONBLOCK), 0);
    Session::Config config;
    config.id = 3;
    config.page = shared_memory(sizeof(abi::SessionPage));
    config.async = std::move(*EventChannel::open(pipe_[1]));
    session_ = std::make_unique<Session>(std::move(config));
  }
  ~SessionTest() override {
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  // The oldest event that the program can read; event_type ~0 if there is none.
  ib_uverbs_async_event_desc read() {
    ib_uverbs_async_event_desc event{};
    if (::read(pipe_[0], &event, sizeof event) != sizeof event) event.event_type = ~0U;
    return event;
  }

  int pipe_[2] = {-1, -1};
  std::unique_ptr<Session> session_;
};

TEST_F(SessionTest, Construct_MarksThePage) {
  const auto& page = *reinterpret_cast<const abi::SessionPage*>(session_->page_memory().data());
  EXPECT_EQ(page.magic, abi::kMagic);
  EXPECT_EQ(page.version, abi::kVersion);
  EXPECT_EQ(&session_->board(1), &page.boards[1]);
}

TEST_F(SessionTest, QpAt_BoundDoorbells) {
  const auto qp = make_qp(qp_config(9));
  EXPECT_EQ(session_->qp_at(0), nullptr);
  EXPECT_EQ(session_->qp_at(UINT32_MAX), nullptr);
  session_->bind_doorbell(70, qp.get());
  EXPECT_EQ(session_->qp_at(70), qp.get());
  EXPECT_EQ(session_->qp_at(69), nullptr);
  EXPECT_EQ(session_->qp_at(71), nullptr);
  session_->bind_doorbell(70, nullptr);
  EXPECT_EQ(session_->qp_at(70), nullptr);
}

TEST_F(SessionTest, FlushAsync_AsLibibverbsReadsIt) {
  session_->post_async(0xABCDEF, AsyncEvent::kQpFatal);
  session_->post_async(1, AsyncEvent::kPortErr);
  EXPECT_TRUE(session_->flush_async());
  ib_uverbs_async_event_desc event = read();
  EXPECT_EQ(event.element, 0xABCDEFU);
  EXPECT_EQ(event.event_type, 1U);
  event = read();
  EXPECT_EQ(event.element, 1U);
  EXPECT_EQ(event.event_type, 10U);
  EXPECT_TRUE(session_->flush_async());
  EXPECT_EQ(read().event_type, ~0U);
}

TEST_F(SessionTest, FlushAsync_FullPipe) {
  std::uint64_t sent = 0;
  while (session_->flush_async()) session_->post_async(++sent, AsyncEvent::kCommEst);
  session_->post_async(++sent, AsyncEvent::kCommEst);
  EXPECT_FALSE(session_->flush_async());
  for (std::uint64_t i = 1; i <= sent; ++i) {
    ASSERT_EQ(read().element, i) << "in order, none twice";
    (void)session_->flush_async();
  }
  EXPECT_TRUE(session_->flush_async());
}

// A program that never reads costs bounded memory.
TEST_F(SessionTest, PostAsync_Bounded) {
  for (std::uint64_t i = 0; i < 200'000; ++i) session_->post_async(i, AsyncEvent::kCommEst);
  std::uint64_t got = 0;
  for (bool all = false; !all;) {
    all = session_->flush_async();
    while (read().event_type != ~0U) ++got;
  }
  EXPECT_LT(got, 100'000U);
  EXPECT_GT(got, 1000U);
}

TEST_F(SessionTest, DropAsync_OnlyOfThatObject) {
  session_->post_async(1, AsyncEvent::kQpFatal);
  session_->post_async(2, AsyncEvent::kQpFatal);
  session_->post_async(1, AsyncEvent::kCommEst);
  session_->drop_async(1);
  EXPECT_TRUE(session_->flush_async());
  EXPECT_EQ(read().element, 2U);
  EXPECT_EQ(read().event_type, ~0U);
}

}  // namespace
}  // namespace urdma::engine
