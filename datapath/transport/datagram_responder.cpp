// Datagrams received; see the header.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/transport/datagram_responder.hpp"

namespace urdma::transport {

bool DatagramResponder::needs_receive(const wire::Headers& headers) const {
  return is_taking() && headers.qkey == qkey_ && !receives_.has_unused();
}

MemoryOp DatagramResponder::on_packet(const wire::Headers& headers) {
  if (!is_taking()) {
    ++counters_.dropped_invalid;
    return {};
  }
  if (headers.qkey != qkey_) {
    ++counters_.dropped_qkey;
    return {};
  }
  if (!receives_.has_unused()) {
    ++counters_.dropped_no_receive;
    return {};
  }
  receives_.use();
  Settlement settlement;
  settlement.is_local = true;
  ReceiveResult& result = settlement.result;
  result.is_solicited = headers.solicited;
  result.source_qp = headers.source_qp;
  result.flags = kWcGrh;
  result.network = headers.network;
  if (headers.info().has_immediate) {
    result.flags |= kWcWithImm;
    result.immediate = headers.immediate;
  }
  MemoryOp operation;
  const std::uint32_t length = headers.payload_bytes + kGrhBytes;
  if (length > receives_.capacity_bytes()) {
    // The receive ends, so that the program learns of it, and the QP goes on: what is wrong is one buffer,
    // and it was a stranger's message.
    result.status = WcStatus::kLocLenErr;
    result.reason = FailureReason::kLocalLength;
  } else {
    result.byte_len = length;
    operation.kind = MemoryOp::Kind::kScatter;
    operation.length = length;
    operation.elements = receives_.elements();
  }
  return enter(settlement, operation);
}

void DatagramResponder::on_memory_done(MemoryResult result, std::uint64_t) {
  Settlement settlement;
  if (!take_settlement(settlement)) return;
  if (result == MemoryResult::kOk) {
    receives_.finish(settlement.result);
  } else {
    fail_receive();
    failure_ = Failure::kCompletion;
  }
}

}  // namespace urdma::transport
