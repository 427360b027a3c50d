// The responder's output, in order; see the header.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/response_queue.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "datapath/transport/packets.hpp"

namespace urdma::transport {

namespace {

using wire::Opcode;

Opcode read_response_opcode(bool is_first, bool is_last) {
  if (is_first) return is_last ? Opcode::kRcReadResponseOnly : Opcode::kRcReadResponseFirst;
  return is_last ? Opcode::kRcReadResponseLast : Opcode::kRcReadResponseMiddle;
}

}  // namespace

void ResponseQueue::reserve(std::uint32_t max_dest_rd_atomic) {
  const std::uint32_t wanted = std::bit_ceil(std::max(8U, 3 * max_dest_rd_atomic));
  if (wanted <= slot_count_) return;
  auto slots = std::make_unique<Response[]>(wanted);
  for (std::uint32_t index = head_; index != tail_; ++index) slots[index % wanted] = at(index);
  slots_ = std::move(slots);
  slot_count_ = wanted;
}

ResponseQueue::Response* ResponseQueue::add(Response::Kind kind, Psn psn, std::uint32_t msn) {
  if (tail_ - head_ == slot_count_) return nullptr;
  Response& response = at(tail_++);
  response = Response{};
  response.kind = kind;
  response.psn = psn;
  response.msn = msn;
  return &response;
}

ResponseQueue::Response* ResponseQueue::insert(Response::Kind kind, Psn psn, std::uint32_t msn) {
  if (add(kind, psn, msn) == nullptr) return nullptr;
  std::uint32_t index = tail_ - 1;
  for (; index != head_ && at(index - 1).psn.is_after(psn); --index) std::swap(at(index), at(index - 1));
  return &at(index);
}

void ResponseQueue::push_ack(Psn psn, std::uint32_t msn) {
  if (!is_empty() && at(tail_ - 1).kind == Response::Kind::kAck) {
    at(tail_ - 1).psn = psn;
    at(tail_ - 1).msn = msn;
    return;
  }
  static_cast<void>(add(Response::Kind::kAck, psn, msn));
}

void ResponseQueue::push_nak(Psn psn, wire::AethKind kind, std::uint8_t value, std::uint32_t msn) {
  // A NAK says that everything before it has arrived: an acknowledgement right before it has nothing to add.
  if (!is_empty() && at(tail_ - 1).kind == Response::Kind::kAck) --tail_;
  Response* response = add(Response::Kind::kNak, psn, msn);
  if (response == nullptr) return;
  response->aeth_kind = kind;
  response->aeth_value = value;
}

void ResponseQueue::push_read(Psn psn, std::uint64_t address, MemoryKey rkey, std::uint32_t length,
                              std::uint32_t packet_bytes, std::uint32_t msn, bool is_duplicate) {
  Response* response = is_duplicate ? find_read(psn.plus(packets_of(length, packet_bytes) - 1)) : nullptr;
  if (response != nullptr) {
    response->psn = psn;
    response->has_begun = false;
    response->value = address;
    response->rkey = rkey;
    response->left_bytes = length;
    return;
  }
  response = insert(Response::Kind::kRead, psn, msn);
  if (response == nullptr) return;
  response->value = address;
  response->rkey = rkey;
  response->left_bytes = length;
  response->packet_bytes = packet_bytes;
  response->is_duplicate = is_duplicate;
  if (!is_duplicate) ++unanswered_requests_;
}

void ResponseQueue::push_atomic(Psn psn, std::uint64_t original, std::uint32_t msn, bool is_duplicate) {
  Response* response = insert(Response::Kind::kAtomic, psn, msn);
  if (response == nullptr) return;
  response->value = original;
  response->is_duplicate = is_duplicate;
  if (!is_duplicate) ++unanswered_requests_;
}

ResponseQueue::Response* ResponseQueue::find_read(Psn last) {
  for (std::uint32_t index = head_; index != tail_; ++index) {
    Response& response = at(index);
    if (response.kind != Response::Kind::kRead) continue;
    if (response.psn.plus(packets_of(response.left_bytes, response.packet_bytes) - 1) == last)
      return &response;
  }
  return nullptr;
}

bool ResponseQueue::will_answer(Psn psn) const {
  for (std::uint32_t index = head_; index != tail_; ++index) {
    const Response& response = at(index);
    const bool is_answer = response.kind == Response::Kind::kRead || response.kind == Response::Kind::kAtomic;
    if (is_answer && response.psn == psn) return true;
  }
  return false;
}

void ResponseQueue::clear() {
  head_ = tail_;
  unanswered_requests_ = 0;
}

bool ResponseQueue::poll(TxPacket& packet) {
  if (is_empty()) return false;
  Response& response = at(head_);
  packet = TxPacket{};
  packet.side = Side::kResponder;
  packet.headers.psn = response.psn;
  packet.headers.msn = response.msn;
  packet.headers.aeth_kind = response.aeth_kind;
  packet.headers.aeth_value = response.aeth_value;
  bool is_last = true;
  switch (response.kind) {
    case Response::Kind::kAck:
    case Response::Kind::kNak:
      packet.headers.opcode = Opcode::kRcAck;
      break;
    case Response::Kind::kRead:
      is_last = next_read_packet(response, packet);
      break;
    case Response::Kind::kAtomic:
      packet.headers.opcode = Opcode::kRcAtomicAck;
      packet.headers.atomic_original = response.value;
      break;
  }
  if (is_last) pop();
  return true;
}

bool ResponseQueue::next_read_packet(Response& response, TxPacket& packet) {
  const std::uint32_t bytes = std::min(response.left_bytes, response.packet_bytes);
  const bool is_last = bytes == response.left_bytes;
  packet.headers.opcode = read_response_opcode(!response.has_begun, is_last);
  packet.headers.payload_bytes = bytes;
  if (bytes > 0) {
    packet.payload.kind = Payload::Kind::kRegion;
    packet.payload.length = bytes;
    packet.payload.key = response.rkey;
    packet.payload.address = response.value;
  }
  response.has_begun = true;
  response.psn = response.psn.next();
  response.value += bytes;
  response.left_bytes -= bytes;
  return is_last;
}

void ResponseQueue::pop() {
  const Response& response = at(head_++);
  const bool is_answer = response.kind == Response::Kind::kRead || response.kind == Response::Kind::kAtomic;
  if (is_answer && !response.is_duplicate) --unanswered_requests_;
}

}  // namespace urdma::transport
