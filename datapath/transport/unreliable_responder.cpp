// Messages of an unreliable connection received; see the header.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/unreliable_responder.hpp"

#include "datapath/transport/packets.hpp"

namespace urdma::transport {

using wire::OpClass;

void UnreliableResponder::configure(const QpAttributes& attributes) {
  packet_bytes_ = attributes.packet_bytes;
  access_flags_ = attributes.access_flags;
}

void UnreliableResponder::start(Psn first_psn) {
  mode_ = Mode::kRunning;
  expected_ = first_psn;
}

void UnreliableResponder::reset() {
  reset_receiving();
  message_ = Message{};
  last_number_ = bad_number_ = 0;
  is_immediate_open_ = false;
}

bool UnreliableResponder::needs_receive(const wire::Headers& headers) const {
  if (!is_taking() || receives_.has_unused() || !uses_receive(headers)) return false;
  // The receive of a message that this one cuts short is given back to it.
  if (headers.info().is_first && message_.has_receive) return false;
  return (headers.info().is_first || goes_on(headers)) && is_allowed(headers) && is_length_sound(headers);
}

MemoryOp UnreliableResponder::on_packet(const wire::Headers& headers) {
  if (!is_taking()) {
    ++counters_.dropped_invalid;
    return {};
  }
  if (!begin_or_go_on(headers)) return {};
  if (!is_allowed(headers) || !is_length_sound(headers)) {
    ++counters_.dropped_invalid;
    abandon();
    return {};
  }
  if (!take_receive(headers)) {
    abandon();
    return {};
  }
  return accept(headers);
}

// Whether the packet is the next one of the message under way.
bool UnreliableResponder::goes_on(const wire::Headers& headers) const {
  return headers.psn == expected_ && message_.op_class == headers.info().op_class &&
         message_.number != bad_number_;
}

// Whether the packet belongs to a message that can still become whole. The first one of a message is taken
// whatever its PSN, since what is missing before it stays missing (IBTA 9.8.2.2.2).
bool UnreliableResponder::begin_or_go_on(const wire::Headers& headers) {
  const wire::OpcodeInfo& info = headers.info();
  const bool is_next = headers.psn == expected_;
  const bool is_of_message = goes_on(headers);
  expected_ = headers.psn.next();
  if (!is_next) ++counters_.out_of_sequence_received;
  if (info.is_first) {
    abandon();
    if (++last_number_ == 0) ++last_number_;
    message_.op_class = info.op_class;
    message_.number = last_number_;
    return true;
  }
  if (is_of_message) return true;
  ++counters_.dropped_invalid;  // behind a gap, or behind an error
  abandon();
  return false;
}

bool UnreliableResponder::is_allowed(const wire::Headers& headers) const {
  const OpClass op_class = headers.info().op_class;
  if (op_class == OpClass::kWrite) return (access_flags_ & kAccessRemoteWrite) != 0;
  return op_class == OpClass::kSend;
}

bool UnreliableResponder::is_length_sound(const wire::Headers& headers) const {
  const wire::OpcodeInfo& info = headers.info();
  const std::uint32_t payload = headers.payload_bytes;
  const bool is_filled = info.is_last ? payload <= packet_bytes_ : payload == packet_bytes_;
  const bool is_empty_end = info.is_last && !info.is_first && payload == 0;
  const std::uint64_t before = info.is_first ? 0 : message_.bytes;
  if (!is_filled || is_empty_end || before + payload > kMaxMessageBytes) return false;
  if (info.op_class != OpClass::kWrite) return true;
  const std::uint64_t left = info.is_first ? headers.dma_length : message_.left_bytes;
  if (left > kMaxMessageBytes) return false;
  return info.is_last ? payload == left : payload < left;
}

// A SEND needs a receive request from its first packet on, which has to be long enough; a WRITE with
// immediate with its last.
bool UnreliableResponder::take_receive(const wire::Headers& headers) {
  const wire::OpcodeInfo& info = headers.info();
  const bool is_send = info.op_class == OpClass::kSend;
  if (uses_receive(headers)) {
    if (!receives_.has_unused()) {
      ++counters_.dropped_no_receive;
      return false;
    }
    receives_.use();
    message_.has_receive = is_send;
  }
  if (!is_send || message_.bytes + headers.payload_bytes <= receives_.capacity_bytes()) return true;
  ++counters_.dropped_invalid;
  return false;
}

// The message will not become whole. What it has written stays; its receive request waits for the next one.
void UnreliableResponder::abandon() {
  if (message_.has_receive) receives_.give_back();
  message_ = Message{};
}

MemoryOp UnreliableResponder::accept(const wire::Headers& headers) {
  const wire::OpcodeInfo& info = headers.info();
  if (info.has_reth) {
    message_.left_bytes = headers.dma_length;
    message_.address = headers.address;
    message_.rkey = headers.rkey;
  }
  const MemoryOp operation = place(headers);
  message_.bytes += headers.payload_bytes;
  message_.address += headers.payload_bytes;
  message_.left_bytes -= headers.payload_bytes;

  const bool is_send = info.op_class == OpClass::kSend;
  Settlement settlement;
  settlement.message = message_.number;
  settlement.is_local = is_send;
  settlement.ends_receive = is_send ? info.is_last : info.has_immediate;
  ReceiveResult& result = settlement.result;
  result.opcode = is_send ? WcOpcode::kRecv : WcOpcode::kRecvRdmaWithImm;
  result.is_solicited = headers.solicited;
  result.byte_len = static_cast<std::uint32_t>(message_.bytes);
  if (info.has_immediate) {
    result.flags = kWcWithImm;
    result.immediate = headers.immediate;
  }
  if (info.is_last) message_ = Message{};
  if (operation.kind == MemoryOp::Kind::kNone && settlements_.is_empty()) {
    settle(settlement);
    return {};
  }
  is_immediate_open_ = !is_send && settlement.ends_receive;
  return enter(settlement, operation);
}

MemoryOp UnreliableResponder::place(const wire::Headers& headers) {
  MemoryOp operation;
  if (headers.payload_bytes == 0) return operation;
  operation.length = headers.payload_bytes;
  operation.ends_message = headers.info().is_last;
  if (message_.op_class == OpClass::kSend) {
    operation.kind = MemoryOp::Kind::kScatter;
    operation.elements = receives_.elements();
    operation.offset = message_.bytes;
  } else {
    operation.kind = MemoryOp::Kind::kWrite;
    operation.access = kAccessRemoteWrite;
    operation.key = message_.rkey;
    operation.address = message_.address;
    operation.check_bytes = message_.left_bytes;
  }
  return operation;
}

// A receive that cannot be written is the program's own fault, and ends the QP (class A); a WRITE that may
// not be written ends its message (class D).
void UnreliableResponder::on_memory_done(MemoryResult result, std::uint64_t) {
  Settlement settlement;
  if (!take_settlement(settlement)) return;
  if (result == MemoryResult::kOk) return settle(settlement);
  if (settlement.is_local) {
    fail_receive();
    failure_ = Failure::kCompletion;
    return;
  }
  ++counters_.dropped_invalid;
  bad_number_ = settlement.message;
  settle(settlement);
}

void UnreliableResponder::settle(const Settlement& settlement) {
  if (!settlement.ends_receive) return;
  if (!settlement.is_local) is_immediate_open_ = false;
  if (settlement.message != bad_number_) {
    receives_.finish(settlement.result);
  } else {
    receives_.give_back();
  }
}

}  // namespace urdma::transport
