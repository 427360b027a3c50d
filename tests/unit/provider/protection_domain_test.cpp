// Where queues' state is put: the heap, or memory of the program's choice.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/ibv/protection_domain.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>

namespace urdma::provider {
namespace {

struct alignas(64) State {
  explicit State(int wanted) : value(wanted) { ++alive; }
  ~State() { --alive; }
  int value;
  static inline int alive = 0;
};

struct Account {
  int allocated = 0;
  int released = 0;
  std::uint64_t type = 0;
  bool is_empty = false;
};

void* allocate(ibv_pd*, void* context, std::size_t size, std::size_t alignment, std::uint64_t type) {
  auto& account = *static_cast<Account*>(context);
  if (account.is_empty) return nullptr;
  ++account.allocated;
  account.type = type;
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void release(ibv_pd*, void* context, void* memory, std::uint64_t) {
  ++static_cast<Account*>(context)->released;
  std::free(memory);
}

void* use_default(ibv_pd*, void*, std::size_t, std::size_t, std::uint64_t) {
  return IBV_ALLOCATOR_USE_DEFAULT;
}

class PlaceTest : public ::testing::Test {
 protected:
  PlaceTest() {
    parent_.original = &pd_;
    parent_.allocate = allocate;
    parent_.release = release;
    parent_.allocator_context = &account_;
  }
  ProtectionDomain pd_;
  ProtectionDomain parent_;
  Account account_;
};

TEST_F(PlaceTest, Place_AsksTheProgramAndGivesBack) {
  {
    const auto state = place<State>(&parent_, ResourceType::kCompletionQueue, 7);
    ASSERT_NE(state, nullptr);
    EXPECT_EQ(state->value, 7);
    EXPECT_EQ(account_.allocated, 1);
    EXPECT_EQ(account_.type, static_cast<std::uint64_t>(ResourceType::kCompletionQueue));
    EXPECT_EQ(parent_.users, 1U);
  }
  EXPECT_EQ(State::alive, 0);
  EXPECT_EQ(account_.released, 1);
  EXPECT_EQ(parent_.users, 0U);
}

TEST_F(PlaceTest, Place_TakesNoForAnAnswer) {
  account_.is_empty = true;
  EXPECT_EQ(place<State>(&parent_, ResourceType::kQueuePair, 7), nullptr);
  EXPECT_EQ(parent_.users, 0U);
}

TEST_F(PlaceTest, Place_UsesTheHeapWhereItMay) {
  parent_.allocate = use_default;
  {
    const auto by_default = place<State>(&parent_, ResourceType::kQueuePair, 1);
    const auto plain = place<State>(&pd_, ResourceType::kQueuePair, 2);
    const auto without = place<State>(nullptr, ResourceType::kQueuePair, 3);
    EXPECT_EQ(State::alive, 3);
    EXPECT_EQ(parent_.users, 1U);
    EXPECT_EQ(pd_.users, 0U);
  }
  EXPECT_EQ(State::alive, 0);
  EXPECT_EQ(account_.released, 0);
}

}  // namespace
}  // namespace urdma::provider
