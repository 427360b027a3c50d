// Tests of datapath/control/shares: nobody takes all of a node, and no part of it lies idle.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/shares.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <map>

namespace urdma::control {
namespace {

constexpr uid_t kOwner = 0;
constexpr std::uint64_t kMost = 100;

// A node of one kind of thing.
struct Things {
  std::map<uid_t, std::uint64_t> held;

  [[nodiscard]] std::uint64_t used() const {
    std::uint64_t sum = 0;
    for (const auto& [user, count] : held) sum += count;
    return sum;
  }
  Status take(uid_t user, std::uint64_t wanted) {
    Status allowed = check_share({"things", held[user], used(), kMost}, wanted, user, kOwner, ENOMEM);
    if (allowed) held[user] += wanted;
    return allowed;
  }
  std::uint64_t take_all(uid_t user) {
    while (take(user, 1)) continue;
    return held[user];
  }
};

TEST(CheckShareTest, CheckShare_EachUserLeavesSomethingToTheNext) {
  Things things;
  EXPECT_EQ(things.take_all(1001), 50U);
  EXPECT_EQ(things.take_all(1002), 25U);
  EXPECT_EQ(things.take_all(1003), 12U);
  EXPECT_EQ(things.take_all(1004), 6U);
  EXPECT_EQ(things.take_all(1001), 50U) << "who has much gets no more";
  things.held[1002] = 0;
  EXPECT_EQ(things.take_all(1004), 19U) << "what comes free may be taken";
}

TEST(CheckShareTest, CheckShare_WhoRunsTheNodeMayHaveAll) {
  Things things;
  EXPECT_EQ(things.take_all(1001), 50U);
  EXPECT_EQ(things.take_all(kOwner), 50U);
  EXPECT_FALSE(things.take(kOwner, 1));
}

TEST(CheckShareTest, CheckShare_ManyAtOnce) {
  Things things;
  EXPECT_TRUE(things.take(1001, 50));
  EXPECT_FALSE(things.take(1002, 26));
  EXPECT_TRUE(things.take(1002, 25));
  EXPECT_FALSE(things.take(1003, UINT64_MAX));
  EXPECT_FALSE(things.take(kOwner, UINT64_MAX));
}

TEST(CheckShareTest, CheckShare_SaysWhoHasWhat) {
  Things things;
  things.take_all(1001);
  const Status refused = things.take(1001, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ENOMEM);
  EXPECT_EQ(
      refused.error().message,
      "user 1001 has 50 things, and may have no more while only 50 of the node's 100 are free: the rest is "
      "for other users");
  things.held[kOwner] = 50;
  EXPECT_EQ(things.take(1001, 1).error().message, "the node has 100 things in use, of 100 that it takes");
}

ClientSession& add_session(SessionTable& table, uid_t user) {
  auto made = std::make_unique<ClientSession>();
  made->peer.uid = user;
  return table.add(std::move(made));
}

TEST(HoldingsTest, HoldingsOf_OneUserOrAll) {
  SessionTable table;
  ClientSession& first = add_session(table, 1001);
  ClientSession& second = add_session(table, 1001);
  ClientSession& other = add_session(table, 1002);
  first.objects.pds.insert(std::make_unique<ProtectionDomain>());
  first.objects.queue_bytes = 4096;
  second.objects.queue_bytes = 8192;
  second.retiring_qps.emplace(1, std::make_unique<QpEntry>());
  other.objects.cqs.insert(std::make_unique<CqEntry>());
  first.objects.windows.insert(std::make_unique<RegionEntry>());
  first.objects.ahs.insert(std::make_unique<AhEntry>());
  second.objects.ahs_in_making = 2;
  second.objects.memberships.join({});
  second.objects.memberships.join({});
  const Holdings own = holdings_of(table, 1001);
  EXPECT_EQ(own.sessions, 2U);
  EXPECT_EQ(own.pds, 1U);
  EXPECT_EQ(own.queue_bytes, 12'288U);
  EXPECT_EQ(own.qps, 1U) << "what is being taken apart is still there";
  EXPECT_EQ(own.cqs, 0U);
  EXPECT_EQ(own.windows, 1U);
  EXPECT_EQ(own.ahs, 3U) << "those whose neighbour is being looked for count";
  EXPECT_EQ(own.memberships, 2U);
  const Holdings all = holdings_of(table, std::nullopt);
  EXPECT_EQ(all.sessions, 3U);
  EXPECT_EQ(all.cqs, 1U);
}

TEST(HoldingsTest, HoldingsOf_ExtentsOfAProcessCountOnce) {
  SessionTable table;
  const auto process = std::make_shared<ClientProcess>();
  ASSERT_TRUE(process->extents.make(4096, 4096, Limits{}));
  for (int i = 0; i < 2; ++i) add_session(table, 1001).process = process;
  EXPECT_EQ(holdings_of(table, 1001).extents, 1U);
}

TEST(HoldingsTest, DescriptorsOf_ChannelsAndDeviceMemory) {
  SessionTable table;
  ClientSession& first = add_session(table, 1001);
  ClientSession& second = add_session(table, 1001);
  ClientSession& other = add_session(table, 1002);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  auto pipe = engine::EventPipe::open(ends[1]);
  ASSERT_TRUE(pipe);
  first.objects.event_pipes.add({1, 1, {}}, *pipe);
  second.objects.device_memories.insert(std::make_unique<DeviceMemory>());
  other.objects.device_memories.insert(std::make_unique<DeviceMemory>());
  EXPECT_EQ(descriptors_of(table, 1001), 2U);
  EXPECT_EQ(descriptors_of(table, std::nullopt), 3U);
  pipe->reset();
  EXPECT_EQ(descriptors_of(table, 1001), 1U) << "its last queue is gone";
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(HoldingsTest, GroupsOf_CountsAGroupOfSeveralSessionsOnce) {
  SessionTable table;
  ClientSession& first = add_session(table, 1001);
  ClientSession& second = add_session(table, 1001);
  ClientSession& elsewhere = add_session(table, 1001);
  elsewhere.device = 1;
  ClientSession& other = add_session(table, 1002);
  const wire::Gid one{0xFF, 1};
  const wire::Gid two{0xFF, 2};
  for (ClientSession* session : {&first, &second, &elsewhere, &other}) session->objects.memberships.join(one);
  first.objects.memberships.join(two);
  EXPECT_EQ(groups_of(table, 1001), 3U) << "one on two devices, and two";
  EXPECT_EQ(groups_of(table, 1002), 1U);
  first.objects.memberships.leave(one);
  EXPECT_EQ(groups_of(table, 1001), 3U);
  second.objects.memberships.leave(one);
  EXPECT_EQ(groups_of(table, 1001), 2U);
  EXPECT_EQ(groups_of(table, 1003), 0U);
}

}  // namespace
}  // namespace urdma::control
