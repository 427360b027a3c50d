// Many QPs with one CQ and one SRQ, which a node with several engines spreads over them: every message
// arrives once, whole, and in the order of its connection.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "verbs_test.hpp"

namespace urdma::system_test {
namespace {

constexpr std::size_t kLinks = 8;
constexpr std::uint32_t kEach = 500;  // messages of a connection
constexpr std::uint32_t kWindow = 8;  // of them under way
constexpr std::uint32_t kSlots = 256;
constexpr std::size_t kBytes = 256;  // of a message

class EnginesTest : public testing::Test {
 protected:
  EnginesTest() : source_(device_, kLinks * kWindow * kBytes), target_(device_, kSlots * kBytes) {
    channel_ = ibv_create_comp_channel(device_.context);
    send_cq_ = ibv_create_cq(device_.context, 1024, nullptr, nullptr, 0);
    receive_cq_ = ibv_create_cq(device_.context, 1024, nullptr, channel_, 0);
    ibv_srq_init_attr attributes{};
    attributes.attr = {kSlots, 1, 0};
    srq_ = ibv_create_srq(device_.pd, &attributes);
    if (channel_ == nullptr || send_cq_ == nullptr || receive_cq_ == nullptr || srq_ == nullptr)
      fail("queues");
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) post_receive(slot);
  }
  ~EnginesTest() override {
    senders_.clear();
    receivers_.clear();
    ibv_destroy_srq(srq_);
    ibv_destroy_cq(send_cq_);
    ibv_destroy_cq(receive_cq_);
    ibv_destroy_comp_channel(channel_);
  }

  // Senders complete into one CQ, receivers into another; these take from one SRQ.
  void connect() {
    for (std::size_t i = 0; i < kLinks; ++i) {
      QpOptions sender;
      sender.cq = send_cq_;
      QpOptions receiver;
      receiver.cq = receive_cq_;
      receiver.srq = srq_;
      senders_.push_back(std::make_unique<End>(device_, sender));
      receivers_.push_back(std::make_unique<End>(device_, receiver));
    }
    for (std::size_t i = 0; i < kLinks; ++i) {
      senders_[i]->connect(receivers_[i]->address());
      receivers_[i]->connect(senders_[i]->address());
    }
  }
  void post_receive(std::uint32_t slot) {
    ibv_sge piece = target_.sge(slot * kBytes, kBytes);
    ibv_recv_wr request{};
    request.wr_id = slot;
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    expect_zero(ibv_post_srq_recv(srq_, &request, &bad), "ibv_post_srq_recv");
  }
  // The next message of a connection, which begins with its number.
  void send_next(std::size_t link) {
    const std::uint32_t number = posted_[link]++;
    const std::size_t offset = (link * kWindow + number % kWindow) * kBytes;
    fill(source_.memory.bytes(offset, kBytes), seed_of(link, number));
    std::memcpy(source_.memory.data() + offset, &number, sizeof number);
    ibv_sge piece = source_.sge(offset, kBytes);
    auto request = send_request(IBV_WR_SEND_WITH_IMM, link << 32 | number, {&piece, 1});
    request.imm_data = static_cast<std::uint32_t>(link);
    senders_[link]->post_send(request);
  }
  void take_sent() {
    ibv_wc done{};
    while (ibv_poll_cq(send_cq_, 1, &done) == 1) {
      ASSERT_EQ(done.status, IBV_WC_SUCCESS);
      const std::size_t link = done.wr_id >> 32;
      ASSERT_EQ(done.wr_id & 0xFFFFFFFF, sent_[link]++) << "completions of QP " << link << " out of order";
    }
  }
  void take_received() {
    ibv_wc done{};
    while (ibv_poll_cq(receive_cq_, 1, &done) == 1) {
      ASSERT_EQ(done.status, IBV_WC_SUCCESS);
      const std::size_t link = done.imm_data;
      ASSERT_EQ(done.qp_num, receivers_.at(link)->qp->qp_num);
      const std::uint8_t* bytes = target_.memory.data() + done.wr_id * kBytes;
      std::uint32_t number = 0;
      std::memcpy(&number, bytes, sizeof number);
      ASSERT_EQ(number, received_[link]++) << "messages of QP " << link << " out of order";
      const auto rest = target_.memory.bytes(done.wr_id * kBytes + sizeof number, kBytes - sizeof number);
      ASSERT_EQ(first_difference(rest, seed_of(link, number), sizeof number), -1);
      post_receive(static_cast<std::uint32_t>(done.wr_id));
      ++all_received_;
    }
  }
  static std::uint32_t seed_of(std::size_t link, std::uint32_t number) {
    return static_cast<std::uint32_t>(link) * 100'000 + number;
  }
  void fill_windows() {
    for (std::size_t link = 0; link < kLinks; ++link) {
      while (posted_[link] < kEach && posted_[link] - sent_[link] < kWindow) send_next(link);
    }
  }

  Device device_;
  Region source_;
  Region target_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* send_cq_ = nullptr;
  ibv_cq* receive_cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
  std::vector<std::unique_ptr<End>> senders_;
  std::vector<std::unique_ptr<End>> receivers_;
  std::array<std::uint32_t, kLinks> posted_{};
  std::array<std::uint32_t, kLinks> sent_{};
  std::array<std::uint32_t, kLinks> received_{};
  std::uint32_t all_received_ = 0;
};

TEST_F(EnginesTest, SharedQueues_EachMessageOnceInOrder) {
  connect();
  while (all_received_ < kLinks * kEach && !HasFatalFailure()) {
    fill_windows();
    take_sent();
    take_received();
  }
  while (sent_[0] < kEach && !HasFatalFailure()) take_sent();
}

// Sleeps for each message of any QP: two engines may owe the CQ one event.
TEST_F(EnginesTest, SharedQueues_NoEventIsLost) {
  connect();
  while (all_received_ < kLinks * kEach && !HasFatalFailure()) {
    fill_windows();
    expect_zero(ibv_req_notify_cq(receive_cq_, 0), "ibv_req_notify_cq");
    const std::uint32_t before = all_received_;
    take_received();
    take_sent();
    if (all_received_ != before) continue;
    pollfd waiting{channel_->fd, POLLIN, 0};
    const int woken = poll(&waiting, 1, 50);  // or for the sender's own completions
    if (woken != 1) continue;
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    expect_zero(ibv_get_cq_event(channel_, &cq, &context), "ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
  }
}

}  // namespace
}  // namespace urdma::system_test
