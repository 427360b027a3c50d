// One end of a connection as its application sees it: requests with their buffers. See endpoint.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cstring>

#include "tests/sim/check.hpp"
#include "tests/sim/endpoint.hpp"

namespace urdma::sim {

namespace {

constexpr std::uint64_t kAtomicBytes = 8;
constexpr std::uint64_t kLargestAddend = 1U << 20;

bool is_atomic(WrOpcode opcode) { return opcode == WrOpcode::kCompareSwap || opcode == WrOpcode::kFetchAdd; }
bool is_write(WrOpcode opcode) {
  return opcode == WrOpcode::kRdmaWrite || opcode == WrOpcode::kRdmaWriteWithImm;
}
bool is_read(WrOpcode opcode) { return opcode == WrOpcode::kRdmaRead; }
bool takes_receive(WrOpcode opcode) {
  return opcode == WrOpcode::kSend || opcode == WrOpcode::kSendWithImm || opcode == WrOpcode::kSendWithInv ||
         opcode == WrOpcode::kRdmaWriteWithImm;
}

}  // namespace

bool Endpoint::has_room() const {
  const bool has_slot = next_wqe_index_ - ledger_.slots_freed() < config_.qp.send_slots;
  const bool can_post = qp_.can_post_send();
  const QpState state = qp_.state();
  const bool takes_requests = state == QpState::kRts || state == QpState::kSqd || state == QpState::kErr;
  require(!has_slot || can_post || !takes_requests,
          "{}: the ring has a free slot, and can_post_send is false", ledger_.name());
  return has_slot && can_post;
}

// Ties the request to the one before; false if that is not possible.
bool Endpoint::follow(const SendSpec& spec, PostedSend& send) {
  PostedSend* before = ledger_.last_open();
  if (before == nullptr) return false;
  const bool after_read = is_read(before->request.opcode);
  const bool after_write = before->request.opcode == WrOpcode::kRdmaWrite;
  switch (spec.follow) {
    case SendSpec::Follow::kNone:
      return false;
    case SendSpec::Follow::kReadBack:
      if (!after_write || !before->owns_target || !before->checks_target || !is_read(spec.opcode))
        return false;
      send.pattern = before->pattern;
      break;
    case SendSpec::Follow::kOverwrite:
      if ((!after_read && !after_write) || !before->owns_target || !before->checks_target) return false;
      if (!is_write(spec.opcode)) return false;
      if (after_read) send.request.flags |= kSendFence;
      before->checks_target = false;
      break;
    case SendSpec::Follow::kForward:
      if (!after_read || !before->owns_landing || is_read(spec.opcode) || is_atomic(spec.opcode))
        return false;
      send.request.flags |= kSendFence;
      send.pattern = before->pattern;
      send.landing = before->landing;
      break;
  }
  send.request.flags &= static_cast<std::uint8_t>(~kSendInline);
  send.request.length = before->request.length;
  if (spec.follow != SendSpec::Follow::kForward) send.target = before->target;
  return true;
}

// Cuts the buffers that the request still lacks out of the rings; false, without a trace, if one has no room.
bool Endpoint::make_buffers(const SendSpec& spec, PostedSend& send) {
  const bool lands = is_read(spec.opcode) || is_atomic(spec.opcode);
  const bool is_inline = (send.request.flags & kSendInline) != 0;
  const std::uint64_t length = send.request.length;
  BufferRing& local = lands ? arena_.landing : arena_.source;
  BufferRing& remote = peer_->arena_.target;
  const bool needs_local = !is_inline && !send.landing.is_set();
  const bool needs_target = (is_write(spec.opcode) || is_read(spec.opcode)) && !send.target.is_set();
  if ((needs_local && !local.fits(length, spec.pieces)) || (needs_target && !remote.fits(length, 1)))
    return false;
  if (needs_local) (lands ? send.landing : send.source) = *local.allocate(length, spec.pieces);
  if (needs_target) send.target = *remote.allocate(length, 1);
  send.owns_source = send.source.is_set();
  send.owns_landing = send.landing.is_set();
  send.owns_target = send.target.is_set();
  return true;
}

void Endpoint::make_atomic(const SendSpec& spec, PostedSend& send) {
  transport::SendRequest& request = send.request;
  const bool is_swap = request.opcode == WrOpcode::kCompareSwap;
  if (spec.to_shared_counter && !is_swap && ledger_.shared != nullptr) {
    SharedCounter& counter = *ledger_.shared;
    request.compare_add = send.addend = random_.between(1, kLargestAddend);
    counter.posted_sum += send.addend;
    request.rkey = counter.region->key;
    request.remote_address = counter.region->address + counter.offset;
    return;
  }
  AtomicCell& cell = cells_[random_.below(cells_.size())];
  send.cell = &cell;
  send.original = cell.values.back();
  request.rkey = cell.region->key;
  request.remote_address = cell.region->address + cell.offset;
  request.compare_add = random_.next();
  if (is_swap) {
    if (spec.cas_matches) request.compare_add = send.original;
    request.swap = random_.next();
    cell.values.push_back(request.compare_add == send.original ? request.swap : send.original);
  } else {
    cell.values.push_back(send.original + request.compare_add);
  }
}

void Endpoint::make_elements(const SendSpec& spec, PostedSend& send) const {
  if ((send.request.flags & kSendInline) != 0) return;
  const Buffer& buffer = send.landing.is_set() ? send.landing : send.source;
  buffer.append_elements(send.elements);
  if (spec.local_key && !send.elements.empty()) send.elements.back().lkey = *spec.local_key;
}

// Writes the message to where the request takes it from, and says where it goes.
void Endpoint::aim(const SendSpec& spec, PostedSend& send) {
  transport::SendRequest& request = send.request;
  const auto message = message_bytes(send.pattern, request.length);
  if ((request.flags & kSendInline) != 0) send.inline_bytes.assign(message.begin(), message.end());
  if (send.source.is_set()) send.source.write(message);
  if (is_read(request.opcode) && spec.follow != SendSpec::Follow::kReadBack) send.target.write(message);
  if (send.target.is_set()) {
    request.rkey = send.target.region->key;
    request.remote_address = send.target.address();
  }
  if (is_atomic(request.opcode)) make_atomic(spec, send);
  if (request.opcode == WrOpcode::kSendWithInv)
    request.rkey = MemoryKey{static_cast<std::uint32_t>(random_.next())};
  if (spec.remote_key) request.rkey = *spec.remote_key;
  request.remote_address += spec.remote_shift;
}

// Tells the peer's checker what to expect of its receives.
void Endpoint::announce(PostedSend& send) {
  transport::SendRequest& request = send.request;
  if (!takes_receive(request.opcode)) return;
  request.immediate = static_cast<std::uint32_t>(random_.next());
  ExpectedMessage message;
  message.opcode = request.opcode;
  message.is_solicited = (request.flags & kSendSolicited) != 0;
  message.length = request.length;
  message.pattern = send.pattern;
  message.immediate = request.opcode == WrOpcode::kSendWithInv ? request.rkey.value : request.immediate;
  message.target = send.target;
  send.message = peer_->ledger_.add_expected(message);
}

bool Endpoint::post(const SendSpec& spec, Instant now) {
  if (!has_room()) return false;
  SendSpec actual = spec;
  PostedSend send;
  send.request.opcode = spec.opcode;
  send.request.flags = spec.flags;
  if (config_.qp.signal_all) send.request.flags |= kSendSignaled;  // for the checker
  send.request.length = is_atomic(spec.opcode) ? kAtomicBytes : spec.length;
  send.pattern = random_.next();
  PostedSend* before = ledger_.last_open();
  const bool before_checked = before != nullptr && before->checks_target;
  if (!follow(spec, send)) actual.follow = SendSpec::Follow::kNone;
  if (send.request.length != 0 && actual.pieces == 0) actual.pieces = 1;
  if (!make_buffers(actual, send)) {
    if (before != nullptr) before->checks_target = before_checked;
    return false;
  }
  if (actual.follow == SendSpec::Follow::kForward) before->owns_landing = false;
  if (actual.follow == SendSpec::Follow::kReadBack || actual.follow == SendSpec::Follow::kOverwrite)
    before->owns_target = false;
  send.request.wr_id = next_wr_id_++;
  send.request.wqe_index = next_wqe_index_++;
  send.request.verdict = spec.verdict;
  // Of a READ it says that no WRITE before it still counts on these bytes.
  send.checks_target =
      is_write(spec.opcode) || (is_read(spec.opcode) && actual.follow == SendSpec::Follow::kNone);
  aim(actual, send);
  make_elements(actual, send);
  announce(send);
  trace("{:>12} {} posts wr {} opcode {} bytes {} flags {:#x}", now.ns, ledger_.name(), send.request.wr_id,
        static_cast<int>(spec.opcode), send.request.length, send.request.flags);
  const PostedSend& posted = ledger_.add_send(std::move(send));
  qp_.post_send(posted.request, posted.elements);
  drain(now);
  return true;
}

void Endpoint::post_plain(const transport::SendRequest& request, const transport::Sge& element, Instant now) {
  require(has_room(), "{}: no room for a request", ledger_.name());
  PostedSend send;
  send.request = request;
  send.request.wr_id = next_wr_id_++;
  send.request.wqe_index = next_wqe_index_++;
  send.elements.push_back(element);
  const PostedSend& posted = ledger_.add_send(std::move(send));
  qp_.post_send(posted.request, posted.elements);
  drain(now);
}

void Endpoint::post_plain_receive(const transport::Sge& element) {
  PostedReceive receive;
  receive.elements.push_back(element);
  receive.request.wr_id = next_wr_id_++;
  receive.request.wqe_index = ++next_receive_index_;
  ledger_.add_receive(std::move(receive));
}

bool Endpoint::post_receive(std::uint64_t capacity, std::uint32_t pieces,
                            std::optional<MemoryKey> wrong_key) {
  PostedReceive receive;
  if (pieces > 0) {
    const std::optional<Buffer> buffer = arena_.receive.allocate(capacity, pieces);
    if (!buffer) return false;
    receive.buffer = *buffer;
    receive.buffer.append_elements(receive.elements);
    if (wrong_key) receive.elements.back().lkey = *wrong_key;
  }
  receive.request.wr_id = next_wr_id_++;
  receive.request.wqe_index = ++next_receive_index_;  // behind its slot, as the completion says it
  ledger_.add_receive(std::move(receive));
  return true;
}

}  // namespace urdma::sim
