// The heap of deadlines against a sorted model.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/timer_heap.hpp"

#include <algorithm>
#include <random>

#include "tests/unit/engine/fixture.hpp"

namespace urdma::engine {
namespace {

TEST(TimerHeap, Next_Empty) {
  TimerHeap heap(4);
  EXPECT_TRUE(heap.next().is_never());
  EXPECT_EQ(heap.take_due(Instant{1'000'000}), nullptr);
}

TEST(TimerHeap, TakeDue_NotBeforeItsTime) {
  TimerHeap heap(4);
  const auto qp = make_qp(qp_config(1));
  heap.set(*qp, Instant{100});
  EXPECT_EQ(heap.take_due(Instant{99}), nullptr);
  EXPECT_EQ(heap.next(), Instant{100});
  EXPECT_EQ(heap.take_due(Instant{100}), qp.get());
  EXPECT_TRUE(heap.next().is_never());
  EXPECT_EQ(heap.take_due(Instant{100}), nullptr) << "it fires once";
}

TEST(TimerHeap, Set_NeverRemoves) {
  TimerHeap heap(4);
  const auto qp = make_qp(qp_config(1));
  heap.set(*qp, Instant::never());
  EXPECT_TRUE(heap.next().is_never());
  heap.set(*qp, Instant{5});
  heap.set(*qp, Instant::never());
  EXPECT_TRUE(heap.next().is_never());
  heap.set(*qp, Instant{6});
  EXPECT_EQ(heap.take_due(Instant{6}), qp.get());
}

TEST(TimerHeap, Set_AsInASortedModel) {
  constexpr std::uint32_t kQps = 40;
  TimerHeap heap(kQps);
  std::vector<std::unique_ptr<Qp>> qps;
  for (std::uint32_t i = 0; i < kQps; ++i) qps.push_back(make_qp(qp_config(i + 2)));
  std::vector<Instant> model(kQps, Instant::never());
  std::mt19937 random(3);
  const auto earliest = [&] { return *std::min_element(model.begin(), model.end()); };
  for (int step = 0; step < stress_rounds(30'000); ++step) {
    const std::size_t i = random() % kQps;
    if (random() % 4 != 0) {
      model[i] = random() % 5 == 0 ? Instant::never() : Instant{static_cast<std::int64_t>(random() % 300)};
      heap.set(*qps[i], model[i]);
    } else {
      const Instant now{static_cast<std::int64_t>(random() % 300)};
      const Qp* due = heap.take_due(now);
      ASSERT_EQ(due != nullptr, earliest() <= now);
      if (due != nullptr) {
        const auto at = std::find_if(qps.begin(), qps.end(), [&](const auto& qp) { return qp.get() == due; });
        ASSERT_EQ(model[static_cast<std::size_t>(at - qps.begin())], earliest());
        model[static_cast<std::size_t>(at - qps.begin())] = Instant::never();
      }
    }
    ASSERT_EQ(heap.next(), earliest());
  }
}

}  // namespace
}  // namespace urdma::engine
