// A client context on an engine.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/session.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "urdma/base/check.hpp"

namespace urdma::engine {

namespace {

// struct ib_uverbs_async_event_desc of rdma/ib_user_verbs.h: what libibverbs reads.
struct AsyncEventRecord {
  std::uint64_t element;
  std::uint32_t event_type;
  std::uint32_t reserved;
};
static_assert(sizeof(AsyncEventRecord) == 16);

constexpr std::size_t kMostQueuedEvents = 65536;

}  // namespace

Session::Session(Config config) : config_(std::move(config)) {
  URDMA_CHECK(config_.page.size() >= sizeof(abi::SessionPage));
  auto* page = reinterpret_cast<abi::SessionPage*>(config_.page.data());
  page->magic = abi::kMagic;
  page->version = abi::kVersion;
}

abi::DoorbellBoard& Session::board(std::uint32_t engine) const {
  return reinterpret_cast<abi::SessionPage*>(config_.page.data())->boards[engine];
}

void Session::post_async(std::uint64_t element, AsyncEvent event) {
  const std::lock_guard guard(lock_);
  if (async_.size() < kMostQueuedEvents) async_.push_back({element, event});
}

bool Session::flush_async(std::uint32_t engine) {
  const std::lock_guard guard(lock_);
  while (!async_.empty()) {
    const AsyncEventRecord record{async_.front().element, static_cast<std::uint32_t>(async_.front().event),
                                  0};
    if (!config_.async.write(std::as_bytes(std::span(&record, 1)), engine)) return false;
    async_.pop_front();
  }
  return true;
}

void Session::drop_async(std::uint64_t element) {
  const std::lock_guard guard(lock_);
  std::erase_if(async_, [element](const Async& queued) { return queued.element == element; });
}

void Session::add_address_handle(const AddressHandle& handle) {
  const bool inserted = address_handles_->insert(handle.handle, handle);
  URDMA_CHECK(inserted);  // the control path counts them
}

void Session::bind_doorbell(std::uint32_t doorbell, Qp* qp) {
  if (doorbell >= doorbells_.size()) doorbells_.resize(doorbell + 1, nullptr);
  doorbells_[doorbell] = qp;
}

}  // namespace urdma::engine
