// The ring of send requests, and how messages are laid out in packets.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/send_queue.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace urdma::transport {
namespace {

SendRequest of_length(WrOpcode opcode, std::uint64_t length) {
  SendRequest request;
  request.opcode = opcode;
  request.length = length;
  return request;
}

TEST(SendQueueTest, Push_KeepsOrderAndElementsAcrossTheRing) {
  SendQueue queue(4, 2);
  for (std::uint32_t i = 0; i < 20; ++i) {
    const std::vector<Sge> elements = {{i, i, MemoryKey{1}}, {i + 100, 1, MemoryKey{2}}};
    SendRequest request = of_length(WrOpcode::kSend, i);
    request.wr_id = i;
    queue.push(request, elements, 256);
    if (queue.has_room()) continue;
    EXPECT_EQ(queue[queue.head()].request.wr_id, i - 3);
    EXPECT_EQ(queue.elements(queue.head())[1].address, i - 3 + 100);
    queue.pop();
  }
}

TEST(SendQueueTest, Holds_OnlyWhatIsInTheRing) {
  SendQueue queue(4, 1);
  EXPECT_FALSE(queue.holds(queue.head()));
  queue.push(of_length(WrOpcode::kSend, 0), {}, 256);
  EXPECT_TRUE(queue.holds(queue.head()));
  EXPECT_FALSE(queue.holds(queue.tail()));
  EXPECT_FALSE(queue.holds(queue.head() - 1));
  queue.clear();
  EXPECT_TRUE(queue.is_empty());
}

TEST(SendQueueTest, AnswerEnd_ReadsAreAskedForInParts) {
  SendWork work;
  work.request = of_length(WrOpcode::kRdmaRead, 1'000 * 256);
  work.packets = 1'000;
  EXPECT_EQ(work.answer_end(0), 512U);
  EXPECT_EQ(work.answer_end(511), 512U);
  EXPECT_EQ(work.answer_end(512), 1'000U);
}

TEST(SendQueueTest, Push_AtomicsAreOnePacket) {
  SendQueue queue(2, 1);
  queue.push(of_length(WrOpcode::kFetchAdd, 1'000), {}, 256);  // elements may be longer than the 8 bytes
  EXPECT_EQ(queue[queue.head()].packets, 1U);
  EXPECT_TRUE(queue[queue.head()].needs_answer());
}

}  // namespace
}  // namespace urdma::transport
