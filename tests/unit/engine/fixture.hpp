// What the tests of the engine's parts share: queue pairs without an engine, and the client's side of rings.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "datapath/engine/qp.hpp"
#include "urdma/abi/queues.hpp"

namespace urdma::engine {

// How many rounds a stress test makes: URDMA_TEST_STRESS multiplies its default.
inline int stress_rounds(int by_default) {
  const char* factor = std::getenv("URDMA_TEST_STRESS");
  return factor != nullptr ? by_default * std::atoi(factor) : by_default;
}

inline memory::SharedMemory shared_memory(std::size_t bytes) {
  auto made = memory::SharedMemory::create("urdma-test", bytes, memory::ClientAccess::kReadWrite);
  EXPECT_TRUE(made);
  return std::move(*made);
}

inline constexpr abi::QpCapabilities kCap{16, 16, 4, 4, 128};

inline Qp::Config qp_config(std::uint32_t qpn, const abi::QpCapabilities& cap = kCap) {
  Qp::Config config;
  config.cap = cap;
  config.geometry = QpGeometry::of(cap);
  config.transport.qpn = Qpn{qpn};
  config.transport.send_slots = config.geometry.send_slots;
  config.transport.max_send_sge = cap.max_send_sge;
  config.transport.max_recv_sge = cap.max_recv_sge;
  return config;
}

inline std::unique_ptr<Qp> make_qp(const Qp::Config& config) {
  return std::make_unique<Qp>(config, shared_memory(config.geometry.memory_bytes));
}

// The client's side of a QP's rings.
class ClientRings {
 public:
  explicit ClientRings(Qp& qp) : memory_(qp.memory().data()), geometry_(qp.config().geometry) {}

  [[nodiscard]] abi::QpPage& page() const { return *reinterpret_cast<abi::QpPage*>(memory_); }
  [[nodiscard]] std::byte* send_slot(std::uint32_t index) const {
    return memory_ + geometry_.send_offset +
           std::size_t{index & (geometry_.send_slots - 1)} * geometry_.send_stride;
  }
  [[nodiscard]] std::byte* receive_slot(std::uint32_t index) const {
    return memory_ + geometry_.receive_offset +
           std::size_t{index & (geometry_.receive_slots - 1)} * geometry_.receive_stride;
  }
  // Writes a request and makes it visible.
  void send(abi::SendWqe wqe, const std::vector<abi::Sge>& elements = {},
            const std::vector<std::byte>& inline_data = {}) {
    const std::uint32_t index = page().send_producer.load();
    std::byte* slot = send_slot(index);
    wqe.num_sge = static_cast<std::uint8_t>(elements.size());
    wqe.inline_bytes = static_cast<std::uint32_t>(inline_data.size());
    if (!inline_data.empty()) wqe.flags |= kSendInline;
    std::memcpy(slot, &wqe, sizeof wqe);
    std::memcpy(slot + sizeof wqe, elements.data(), elements.size() * sizeof(abi::Sge));
    if (!inline_data.empty()) std::memcpy(slot + sizeof wqe, inline_data.data(), inline_data.size());
    page().send_producer.store(index + 1, std::memory_order_release);
  }
  void receive(std::uint64_t wr_id, const std::vector<abi::Sge>& elements) {
    const std::uint32_t index = page().receive_producer.load();
    const abi::ReceiveWqe wqe{wr_id, static_cast<std::uint32_t>(elements.size()), 0};
    std::memcpy(receive_slot(index), &wqe, sizeof wqe);
    std::memcpy(receive_slot(index) + sizeof wqe, elements.data(), elements.size() * sizeof(abi::Sge));
    page().receive_producer.store(index + 1, std::memory_order_release);
  }

 private:
  std::byte* memory_;
  QpGeometry geometry_;
};

}  // namespace urdma::engine
