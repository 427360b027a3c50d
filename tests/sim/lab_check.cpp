// What the programs of a Lab do, and what they may expect of each service. See lab.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <algorithm>
#include <cstring>

#include "tests/sim/check.hpp"
#include "tests/sim/lab.hpp"
#include "tests/sim/memory.hpp"

namespace urdma::sim {

using transport::Completion;
using transport::LocalOp;
using transport::SendRequest;

namespace {

constexpr std::uint32_t kPacketBytes = 1024;
constexpr std::uint32_t kLargestMessage = 5 * kPacketBytes;
constexpr std::size_t kReceivesAhead = 12;
constexpr std::size_t kAtomicBytes = 8;

}  // namespace

bool Lab::is_reliable() const { return config_.type != QpType::kUc && config_.type != QpType::kUd; }
bool Lab::sends(const End& end) const { return config_.type != QpType::kXrcSend || end.host == 0; }
bool Lab::receives(const End& end) const { return config_.type != QpType::kXrcSend || end.host == 1; }

std::uint32_t Lab::add_region(std::uint64_t bytes, std::uint32_t access) {
  Region& region = regions_[++next_key_];
  region.bytes.assign(bytes, kPoison);
  region.access = access;
  return next_key_;
}

std::uint8_t* Lab::locate(MemoryKey key, std::uint32_t access, std::uint64_t address, std::uint64_t length) {
  const auto found = regions_.find(key.value);
  if (found == regions_.end()) return nullptr;
  Region& region = found->second;
  const bool is_inside = length <= region.bytes.size() && address <= region.bytes.size() - length;
  return is_inside && (region.access & access) == access ? region.bytes.data() + address : nullptr;
}

// ---- Requests ----

WrOpcode Lab::draw_opcode() {
  switch (config_.type) {
    case QpType::kRc:
      return random_.pick({WrOpcode::kSendWithImm, WrOpcode::kRdmaWriteWithImm, WrOpcode::kSendWithInv,
                           WrOpcode::kAtomicWrite, WrOpcode::kLocalInv, WrOpcode::kBindMw});
    case QpType::kUc:
      return random_.pick({WrOpcode::kSendWithImm, WrOpcode::kSendWithImm, WrOpcode::kRdmaWriteWithImm,
                           WrOpcode::kRdmaWrite, WrOpcode::kBindMw});
    case QpType::kXrcSend:
    case QpType::kXrcRecv:
      return random_.pick(
          {WrOpcode::kSendWithImm, WrOpcode::kRdmaWriteWithImm, WrOpcode::kSendWithInv, WrOpcode::kBindMw});
    case QpType::kUd:
      break;
  }
  return WrOpcode::kSendWithImm;
}

bool Lab::post(End& end) {
  const bool may_post = sends(end) && !end.has_failed && end.posted < config_.messages;
  if (!may_post || !end.qp.can_post_send()) return false;
  const std::uint64_t number = messages_.size();
  Message message;
  message.sender = by_qpn_[end.qpn.value];
  message.opcode = draw_opcode();
  const std::uint32_t most = config_.type == QpType::kUd ? kPacketBytes : kLargestMessage;
  message.length = random_.one_in(8) ? random_.between32(0, 1) : random_.between32(0, most);
  if (message.opcode == WrOpcode::kAtomicWrite) message.length = kAtomicBytes;
  if (is_local(message.opcode)) message.length = 0;
  messages_.push_back(message);

  SendRequest request;
  request.opcode = message.opcode;
  request.wr_id = next_wr_id_++;
  request.length = message.length;
  request.immediate = static_cast<std::uint32_t>(number);
  request.wqe_index = end.next_wqe++;
  if (random_.one_in(8)) request.flags |= kSendFence;
  aim(end, number, request);
  const std::uint32_t key = add_region(message.length, 0);
  const auto bytes = message_bytes(number, message.length);
  std::copy(bytes.begin(), bytes.end(), regions_[key].bytes.begin());
  if (message.opcode == WrOpcode::kAtomicWrite)
    std::memcpy(regions_[key].bytes.data(), &number, kAtomicBytes);
  const transport::Sge element{0, static_cast<std::uint32_t>(message.length), MemoryKey{key}};
  end.posts.push_back({request.wr_id, number, key});
  ++end.posted;
  end.qp.post_send(request, {&element, 1});
  return true;
}

// Where it goes, and what of it is to be seen there.
void Lab::aim(End& end, std::uint64_t number, SendRequest& request) {
  Message& message = messages_[number];
  const auto name = static_cast<std::uint32_t>(number);
  request.rkey = MemoryKey{name};
  if (config_.type == QpType::kXrcSend) request.remote_qpn = Qpn{kSrqn};
  if (config_.type == QpType::kUd) {
    const std::size_t target = 2 * random_.below(config_.pairs) + (1 - end.host);
    request.remote_qpn = ends_[target]->qpn;
    message.must_not_arrive = random_.one_in(10);
    request.remote_qkey = message.must_not_arrive ? kQkey + 1 : kQkey;
  }
  if (request.opcode == WrOpcode::kRdmaWrite || request.opcode == WrOpcode::kRdmaWriteWithImm) {
    message.target_key = add_region(message.length, kAccessRemoteWrite);
    request.rkey = MemoryKey{message.target_key};
  }
  if (request.opcode == WrOpcode::kAtomicWrite) {
    request.rkey = MemoryKey{end.cell_key};
    end.cell_expected.push_back(number);
  }
  if (request.opcode == WrOpcode::kSendWithInv) end.invalidations.push_back(name);
  if (is_local(request.opcode)) end.local_expected.push_back(name);
}

// Receives come and run out; of datagrams some are too short.
void Lab::replenish(End& end) {
  if (!receives(end) || end.has_failed) return;
  std::deque<Receive>& queue = end.shared != nullptr ? *end.shared : end.own;
  if (!queue.empty() && !random_.one_in(4)) return;
  const std::uint32_t most = kLargestMessage + kGrhBytes;
  for (std::size_t left = random_.below(kReceivesAhead); left > 0 && queue.size() < kReceivesAhead; --left) {
    const bool is_short = config_.type == QpType::kUd && random_.one_in(10);
    const std::uint32_t capacity = is_short ? random_.between32(0, 200) : most;
    queue.push_back({next_wr_id_++, add_region(capacity, kAccessLocalWrite), capacity});
  }
}

void Lab::check_local(End& end, const LocalOp& local) {
  require(!end.local_expected.empty() && local.key.value == end.local_expected.front(),
          "a local request is not the next, or came twice");
  end.local_expected.pop_front();
}

// ---- Completions ----

void Lab::drain(End& end) {
  const bool claimed = end.qp.has_output(now_);
  Completion completion;
  while (end.qp.poll_completion(completion)) {
    require(claimed, "a completion came out, and has_output was false");
    if (completion.is_receive) {
      on_received(end, completion);
    } else {
      on_sent(end, completion);
    }
  }
  for (AsyncEvent event{}; end.qp.poll_event(event);) {
    if (event == AsyncEvent::kQpLastWqeReached) ++end.last_wqe_events;
  }
}

void Lab::on_sent(End& end, const Completion& completion) {
  require(!end.posts.empty() && end.posts.front().wr_id == completion.wr_id, "wr {} completed out of order",
          completion.wr_id);
  const Post post = end.posts.front();
  end.posts.pop_front();
  Message& message = messages_[post.number];
  if (completion.status == WcStatus::kSuccess) {
    // The bytes are the program's again: what is read of them from now on is wrong at the other end.
    Bytes& bytes = regions_[post.source_key].bytes;
    std::fill(bytes.begin(), bytes.end(), kPoison);
    return;
  }
  require(end.has_failed || ends_[end.peer]->has_failed, "wr {} failed with status {}, reason {}",
          completion.wr_id, static_cast<int>(completion.status), static_cast<int>(completion.reason));
  end.has_failed = true;
  message.may_be_lost = true;
}

void Lab::on_received(End& end, const Completion& completion) {
  const auto found = end.offered.find(completion.wr_id);
  require(found != end.offered.end(), "receive {} completed twice, or elsewhere", completion.wr_id);
  const Receive receive = found->second;
  end.offered.erase(found);
  require(end.last_wqe_events == 0, "a receive completed behind the last");
  require(completion.srq == (end.shared != nullptr ? kSrqn : 0), "receive {} is of SRQ {}", receive.wr_id,
          completion.srq);
  if (completion.status == WcStatus::kLocLenErr && config_.type == QpType::kUd) {
    require(receive.capacity < kPacketBytes + kGrhBytes, "a datagram too long for {} bytes",
            receive.capacity);
    return;
  }
  if (completion.status != WcStatus::kSuccess) {
    require(end.has_failed && completion.status == WcStatus::kWrFlushErr, "receive {} failed with status {}",
            receive.wr_id, static_cast<int>(completion.status));
    return;
  }
  check_message(end, receive, completion);
}

void Lab::check_message(End& end, const Receive& receive, const Completion& completion) {
  require(completion.immediate < messages_.size(), "a message that nobody sent");
  Message& message = messages_[completion.immediate];
  const bool is_datagram = config_.type == QpType::kUd;
  const std::uint32_t prefix = is_datagram ? kGrhBytes : 0;
  require(!message.must_not_arrive, "a message arrived with a wrong Q_Key");
  require(completion.source_qp == ends_[message.sender]->qpn, "a message from QP {}",
          completion.source_qp.value);
  require(completion.byte_len == message.length + prefix, "{} bytes of a message of {}", completion.byte_len,
          message.length);
  const bool is_write = message.opcode == WrOpcode::kRdmaWriteWithImm;
  const Bytes& bytes = regions_[is_write ? message.target_key : receive.key].bytes;
  const auto expected = message_bytes(completion.immediate, message.length);
  require(std::equal(expected.begin(), expected.end(), bytes.begin() + prefix), "message {} has a wrong byte",
          completion.immediate);
  ++message.delivered;
  const bool is_exact = is_reliable() || (config_.link.duplicate_ppm == 0 && config_.link.reorder_ppm == 0);
  require(!is_exact || message.delivered == 1, "message {} arrived twice", completion.immediate);
  const auto newest = end.newest_from.find(message.sender);
  const bool is_later = newest == end.newest_from.end() || newest->second < completion.immediate;
  require(!is_exact || is_later, "message {} arrived behind a later one", completion.immediate);
  end.newest_from[message.sender] = completion.immediate;
}

// ---- The end ----

void Lab::break_pair() {
  break_at_ = Instant::never();
  for (const std::size_t index : {std::size_t{0}, std::size_t{1}}) {
    End& end = *ends_[index];
    end.has_failed = true;
    end.departures.clear();
    end.qp.fail(transport::FailureReason::kCqOverrun);
    drain(end);
  }
  for (Message& message : messages_) {
    if (message.sender < 2) message.may_be_lost = true;
  }
}

void Lab::finish() {
  for (const auto& end : ends_) {
    require(end->posts.empty() && (end->posted == config_.messages || !sends(*end) || end->has_failed),
            "{} requests never completed", end->posts.size());
    require(!end->qp.has_output(now_), "there still is output");
    require(end->qp.unanswered_operations() == 0, "memory operations are unanswered");
    if (!end->has_failed) {
      require(!is_reliable() || end->shared == nullptr || end->offered.empty(),
              "{} receives were taken from an SRQ, and no packet has used them", end->offered.size());
      require(end->cell_expected.empty() && end->local_expected.empty() && end->invalidations.empty(),
              "an ATOMIC WRITE, a local request or an invalidation was never carried out");
    }
  }
  for (const Message& message : messages_) {
    const bool takes_receive = message.opcode == WrOpcode::kSendWithImm ||
                               message.opcode == WrOpcode::kSendWithInv ||
                               message.opcode == WrOpcode::kRdmaWriteWithImm;
    require(!is_reliable() || !takes_receive || message.may_be_lost || message.delivered == 1,
            "a reliable message arrived {} times", message.delivered);
  }
  for (const auto& end : ends_) {
    end->has_failed = true;
    end->qp.fail(transport::FailureReason::kCqOverrun);
    drain(*end);
    require(end->offered.empty(), "{} receives were not flushed", end->offered.size());
    const bool has_event = config_.has_srq || (config_.type == QpType::kXrcSend && end->host == 1);
    require(end->last_wqe_events == (has_event ? 1 : 0), "LAST_WQE_REACHED came {} times",
            end->last_wqe_events);
  }
  require(pool_.frames_out() == 0, "{} frames are lost", pool_.frames_out());
}

}  // namespace urdma::sim
