// The rings of a queue pair: requests are copied out of shared memory once, and the copy is judged.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/qp.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "datapath/engine/ring.hpp"
#include "datapath/engine/session.hpp"
#include "urdma/base/check.hpp"

namespace urdma::engine {

namespace {

bool is_known(std::uint8_t opcode) {
  return opcode <= static_cast<std::uint8_t>(WrOpcode::kSendWithInv) ||
         opcode == static_cast<std::uint8_t>(WrOpcode::kAtomicWrite);
}

}  // namespace

QpGeometry QpGeometry::of(const abi::QpCapabilities& cap) {
  QpGeometry geometry;
  geometry.send_slots = std::bit_ceil(std::max(cap.max_send_wr, 1U));
  geometry.receive_slots = std::bit_ceil(std::max(cap.max_recv_wr, 1U));
  // A request that binds a window has an element, whatever messages may have.
  const std::size_t elements = std::size_t{std::max(cap.max_send_sge, 1U)} * sizeof(abi::Sge);
  geometry.send_stride =
      slot_stride(sizeof(abi::SendWqe) + std::max(elements, std::size_t{cap.max_inline_data}));
  geometry.receive_stride = receive_slot_stride(cap.max_recv_sge);
  geometry.send_offset = sizeof(abi::QpPage);
  geometry.receive_offset = geometry.send_offset + std::uint64_t{geometry.send_slots} * geometry.send_stride;
  geometry.memory_bytes =
      geometry.receive_offset + std::uint64_t{geometry.receive_slots} * geometry.receive_stride;
  return geometry;
}

Qp::Qp(const Config& config, memory::SharedMemory memory)
    : config_(config),
      memory_(std::move(memory)),
      transport_(config.transport),
      scratch_(std::max({config.cap.max_send_sge, config.cap.max_recv_sge, 1U})) {
  if (config.domain == XrcDomainId{}) openers.push_back({config.session, config.user_pointer});
  URDMA_CHECK(memory_.size() >= config_.geometry.memory_bytes);
}

Qp::~Qp() { URDMA_CHECK(transfers == 0); }

abi::QpPage& Qp::page() const { return *reinterpret_cast<abi::QpPage*>(memory_.data()); }

bool Qp::has_unfetched_sends() const {
  return page().send_producer.load(std::memory_order_acquire) != send_consumer_;
}

const std::byte* Qp::inline_data(std::uint32_t wqe_index) const {
  const std::uint32_t slot = wqe_index & (config_.geometry.send_slots - 1);
  return memory_.data() + config_.geometry.send_offset + std::size_t{slot} * config_.geometry.send_stride +
         sizeof(abi::SendWqe);
}

// What a request's form deserves before anything of it is carried out; memory keys are judged later.
WcStatus Qp::judge(const abi::SendWqe& wqe, std::uint64_t length) const {
  if (!is_known(wqe.opcode)) return WcStatus::kLocQpOpErr;
  const auto opcode = static_cast<WrOpcode>(wqe.opcode);
  if (!carries(config_.transport.type, opcode)) return WcStatus::kLocQpOpErr;
  if (is_local(opcode)) {  // keys, and no payload
    const bool is_formed =
        (wqe.flags & kSendInline) == 0 && wqe.num_sge <= (opcode == WrOpcode::kBindMw ? 1 : 0);
    return is_formed ? WcStatus::kSuccess : WcStatus::kLocQpOpErr;
  }
  const bool is_inline = (wqe.flags & kSendInline) != 0;
  const bool reads =
      opcode == WrOpcode::kRdmaRead || opcode == WrOpcode::kCompareSwap || opcode == WrOpcode::kFetchAdd;
  // An ATOMIC WRITE has its 8 bytes in the request, whatever messages may have there.
  const std::uint32_t most_inline = opcode == WrOpcode::kAtomicWrite ? 8 : config_.cap.max_inline_data;
  if (is_inline && (reads || wqe.inline_bytes > most_inline)) return WcStatus::kLocQpOpErr;
  if (!is_inline && wqe.num_sge > config_.cap.max_send_sge) return WcStatus::kLocQpOpErr;
  if (length > transport::kMaxMessageBytes) return WcStatus::kLocLenErr;
  const bool is_atomic = opcode == WrOpcode::kCompareSwap || opcode == WrOpcode::kFetchAdd;
  if (is_atomic && length < 8) return WcStatus::kLocLenErr;
  if (opcode == WrOpcode::kAtomicWrite && length != 8) return WcStatus::kLocLenErr;
  if (!is_datagram()) return WcStatus::kSuccess;
  if (address_handle(wqe.address_handle) == nullptr) return WcStatus::kLocQpOpErr;
  return length <= config_.most_datagram_bytes ? WcStatus::kSuccess : WcStatus::kLocLenErr;
}

const AddressHandle* Qp::address_handle(std::uint32_t handle) const {
  const AddressHandle* found = config_.session->address_handle(handle);
  return found != nullptr && found->pd == config_.pd ? found : nullptr;
}

void Qp::fetch_one_send() {
  const std::byte* slot = inline_data(send_consumer_) - sizeof(abi::SendWqe);
  const auto wqe = copy_once<abi::SendWqe>(slot);
  const bool is_inline = (wqe.flags & kSendInline) != 0;
  std::uint64_t length = is_inline ? wqe.inline_bytes : 0;
  std::span<const transport::Sge> elements;
  if (!is_inline && wqe.num_sge <= std::max(config_.cap.max_send_sge, 1U)) {
    elements = copy_elements(slot + sizeof wqe, wqe.num_sge, scratch_);
    for (const transport::Sge& element : elements) length += element.length;
  }
  transport::SendRequest request;
  request.wr_id = wqe.wr_id;
  request.opcode = is_known(wqe.opcode) ? static_cast<WrOpcode>(wqe.opcode) : WrOpcode::kSend;
  request.flags = wqe.flags;
  request.immediate = wqe.immediate;
  request.remote_address = wqe.remote_address;
  const bool invalidates = request.opcode == WrOpcode::kSendWithInv || request.opcode == WrOpcode::kLocalInv;
  request.rkey = MemoryKey{invalidates ? wqe.immediate : wqe.rkey};
  request.compare_add = wqe.compare_add;
  request.swap = wqe.swap;
  request.remote_qpn = Qpn{wqe.remote_qpn & kQpnMask};
  request.remote_qkey = wqe.remote_qkey;
  request.address_handle = wqe.address_handle;
  request.length = length;
  if (request.opcode == WrOpcode::kBindMw) {
    request.bind_key = MemoryKey{wqe.immediate};
    request.bind_access = wqe.remote_qkey;
    request.length = wqe.compare_add;
  }
  request.wqe_index = send_consumer_;
  request.verdict = judge(wqe, length);
  ++send_consumer_;
  transport_.post_send(request, elements);
}

std::uint32_t Qp::fetch_sends(std::uint32_t most, bool& is_sound) {
  const std::uint32_t waiting = page().send_producer.load(std::memory_order_acquire) - send_consumer_;
  is_sound = waiting <= config_.geometry.send_slots;
  if (!is_sound) return 0;
  std::uint32_t fetched = 0;
  while (fetched < most && fetched < waiting && transport_.can_post_send()) {
    fetch_one_send();
    ++fetched;
  }
  return fetched;
}

bool Qp::fetch_receive(bool& is_sound) {
  const std::uint32_t waiting = page().receive_producer.load(std::memory_order_acquire) - receive_consumer_;
  is_sound = waiting <= config_.geometry.receive_slots;
  if (!is_sound || waiting == 0) return false;
  const std::uint32_t slot_index = receive_consumer_ & (config_.geometry.receive_slots - 1);
  const std::byte* slot = memory_.data() + config_.geometry.receive_offset +
                          std::size_t{slot_index} * config_.geometry.receive_stride;
  const auto wqe = copy_once<abi::ReceiveWqe>(slot);
  is_sound = wqe.num_sge <= config_.cap.max_recv_sge;
  if (!is_sound) return false;
  const auto elements = copy_elements(slot + sizeof wqe, wqe.num_sge, scratch_);
  ++receive_consumer_;
  transport_.offer_receive({wqe.wr_id, receive_consumer_}, elements);
  return true;
}

void Qp::set_engine(std::uint32_t engine) {
  engine_ = engine;
  page().engine.store(engine, std::memory_order_release);  // pairs with the client's look before it rings
}

void Qp::reset_rings() {
  // The client starts from 0 again; it has no post under way during a modify to RESET.
  page().send_producer.store(0, std::memory_order_relaxed);
  page().receive_producer.store(0, std::memory_order_relaxed);
  send_consumer_ = 0;
  receive_consumer_ = 0;
  set_flush_receives(false);
}

void Qp::set_flush_receives(bool wanted) {
  page().flush_receives.store(wanted ? 1 : 0, std::memory_order_relaxed);
  // Pairs with the fence behind the client's receive_producer: either it rings, or we see its receive.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace urdma::engine
