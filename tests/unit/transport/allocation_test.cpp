// The transport allocates when a queue pair is made, and never again. operator new is replaced in this
// executable by one that counts.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <array>
#include <cstdlib>
#include <new>

#include "fixture.hpp"

namespace {

std::size_t allocations = 0;

void* count_and_allocate(std::size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return count_and_allocate(bytes); }
void* operator new[](std::size_t bytes) { return count_and_allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace urdma::transport {
namespace {

constexpr Instant kNow{1};

// Passes on all packets of `from`, and answers memory at once. Every 13th packet is lost.
void pass_packets(QueuePair& from, QueuePair& to, std::uint32_t& passed) {
  TxPacket packet;
  while (from.poll_transmit(kNow, packet)) {
    if (++passed % 13 == 0) continue;
    if (to.wants_receive()) to.offer_receive({}, {});
    const MemoryOp operation = to.on_packet(packet.headers, kNow);
    if (operation.kind != MemoryOp::Kind::kNone)
      to.on_memory_done(operation.side, MemoryResult::kOk, 0, kNow);
  }
}

std::uint32_t count_completions(QueuePair& qp) {
  std::uint32_t count = 0;
  for (Completion completion; qp.poll_completion(completion);) ++count;
  return count;
}

TEST(AllocationTest, QueuePair_OnlyWhenItIsMade) {
  const std::size_t before = allocations;
  QueuePair a(small_config());
  QueuePair b(small_config());
  EXPECT_GT(allocations, before);
  QpAttributes attributes = usual_attributes();
  attributes.rnr_retry = attributes.retry_count = 7;
  raise_to(a, QpState::kRts, attributes, kNow);
  raise_to(b, QpState::kRts, attributes, kNow);

  const std::size_t made = allocations;
  const std::array opcodes = {WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead, WrOpcode::kFetchAdd,
                              WrOpcode::kSend};
  std::uint32_t passed = 0;
  std::uint32_t done = 0;
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    if (a.can_post_send()) {
      SendRequest request;
      request.opcode = opcodes[i % opcodes.size()];
      request.flags = kSendSignaled;
      request.length = request.opcode == WrOpcode::kSend ? 0 : 8;
      const Sge element{0, 8, kKey};
      a.post_send(request, {&element, 1});
    }
    pass_packets(a, b, passed);
    pass_packets(b, a, passed);
    a.on_deadline(a.next_deadline());
    done += count_completions(a);
    count_completions(b);
  }
  EXPECT_EQ(allocations, made);
  EXPECT_GT(done, 1'000U);
}

}  // namespace
}  // namespace urdma::transport
