// The ring of send requests; see the header.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/send_queue.hpp"

#include "datapath/transport/packets.hpp"
#include "urdma/base/check.hpp"

namespace urdma::transport {

SendQueue::SendQueue(std::uint32_t slots, std::uint32_t max_sge)
    : works_(std::make_unique<SendWork[]>(slots)),
      elements_(std::make_unique<Sge[]>(std::size_t{slots} * max_sge)),
      slots_(slots),
      max_sge_(max_sge) {
  URDMA_CHECK(slots != 0 && (slots & (slots - 1)) == 0);
}

std::span<const Sge> SendQueue::elements(std::uint32_t index) const {
  const std::size_t slot = index & (slots_ - 1);
  return {&elements_[slot * max_sge_], works_[slot].element_count};
}

LocalOp SendQueue::local_of(std::uint32_t index) const {
  const SendRequest& request = (*this)[index].request;
  LocalOp local;
  local.key = request.rkey;
  if (request.opcode == WrOpcode::kLocalInv) {
    local.kind = LocalOp::Kind::kInvalidate;
    return local;
  }
  local.kind = LocalOp::Kind::kBind;
  local.bind_key = request.bind_key;
  if (!elements(index).empty()) local.region_key = elements(index)[0].lkey;
  local.access = request.bind_access;
  local.address = request.remote_address;
  local.length = request.length;
  return local;
}

Payload SendQueue::payload_of(std::uint32_t index, std::uint64_t offset, std::uint32_t length) const {
  Payload payload;
  payload.length = length;
  if (length == 0) return payload;
  const SendRequest& request = (*this)[index].request;
  payload.kind = (request.flags & kSendInline) != 0 ? Payload::Kind::kInline : Payload::Kind::kElements;
  payload.elements = elements(index);
  payload.offset = offset;
  payload.wqe_index = request.wqe_index;
  return payload;
}

void SendQueue::push(const SendRequest& request, std::span<const Sge> elements, std::uint32_t packet_bytes) {
  URDMA_CHECK(has_room() && elements.size() <= max_sge_ && packet_bytes != 0);
  const std::size_t slot = tail_ & (slots_ - 1);
  SendWork& work = works_[slot];
  work = SendWork{};
  work.request = request;
  const bool is_atomic = is_read_or_atomic(request.opcode) && request.opcode != WrOpcode::kRdmaRead;
  work.packets = is_atomic ? 1 : packets_of(request.length, packet_bytes);
  work.awaits_execution = is_local(request.opcode);
  if (work.awaits_execution) work.packets = 0;
  work.element_count = static_cast<std::uint32_t>(elements.size());
  std::copy(elements.begin(), elements.end(), &elements_[slot * max_sge_]);
  ++tail_;
}

}  // namespace urdma::transport
