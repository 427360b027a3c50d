// Two connected queue pairs over a link of function calls, with flat memory: what the transport's tests
// share. A test sends, acknowledges, and expects; it can keep packets and memory answers back, or drop them.
//
// Owner: one test. One thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "datapath/transport/queue_pair.hpp"

namespace urdma::transport {

inline constexpr std::uint32_t kMtu = 1024;
inline constexpr std::uint8_t kMtuCode = 3;
inline constexpr Psn kFirstPsn{100};
inline constexpr MemoryKey kKey{7};
inline constexpr MemoryKey kBadKey{8};
inline constexpr std::uint32_t kConnectMask = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;
inline constexpr std::uint32_t kToRtr =
    kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
inline constexpr std::uint32_t kToRts =
    kAttrState | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrSqPsn | kAttrMaxQpRdAtomic;

// A packet on the link, with the bytes that it carries.
struct Frame {
  wire::Headers headers;
  std::vector<std::uint8_t> payload;
};

// One end: a queue pair, its memory (address 0 is the first byte, kKey the only key), and its receives.
class Node {
 public:
  explicit Node(const QpConfig& config, std::size_t memory_bytes = 1U << 20)
      : qp(config), memory(memory_bytes, 0) {}

  // ---- What a program does ----
  void post(SendRequest request, std::vector<Sge> elements) {
    request.wqe_index = next_send++;
    for (const Sge& element : elements) request.length += element.length;
    ASSERT_TRUE(qp.can_post_send());
    qp.post_send(request, elements);
  }
  void post_receive(std::uint64_t wr_id, std::vector<Sge> elements) {
    receives.push_back({wr_id, std::move(elements)});
  }
  std::vector<Completion> completions() {
    std::vector<Completion> all;
    offer();
    for (Completion completion; qp.poll_completion(completion); offer()) all.push_back(completion);
    return all;
  }
  std::vector<AsyncEvent> events() {
    std::vector<AsyncEvent> all;
    for (AsyncEvent event; qp.poll_event(event);) all.push_back(event);
    return all;
  }

  // ---- What an engine does ----
  void offer() {
    while (qp.wants_receive() && !receives.empty()) {
      qp.offer_receive({receives.front().wr_id, next_receive++}, receives.front().elements);
      receives.pop_front();
    }
  }
  // All packets that may be sent now.
  std::vector<Frame> transmit(Instant now) {
    std::vector<Frame> frames;
    for (TxPacket packet; qp.poll_transmit(now, packet);) {
      if (packet.local.kind != LocalOp::Kind::kNone) {
        locals.push_back(packet.local);
        qp.on_local_done(local_result, now);
        continue;
      }
      Frame frame{packet.headers, {}};
      const MemoryResult result = gather(packet.payload, frame.payload);
      if (result != MemoryResult::kOk) {
        qp.on_gather_failed(packet, result, now);
        continue;
      }
      frames.push_back(std::move(frame));
      if (packet.reports_departure && !hold_departures) qp.on_departed(packet, now);
    }
    return frames;
  }
  void receive(const Frame& frame, Instant now) {
    offer();
    if (shared != nullptr && !shared->empty() && qp.needs_receive(frame.headers)) {
      qp.offer_receive({shared->front().wr_id, 0, 9}, shared->front().elements);
      shared->pop_front();
    }
    const MemoryOp operation = qp.on_packet(frame.headers, now);
    if (operation.kind == MemoryOp::Kind::kNone) return;
    Pending pending{operation, {operation.elements.begin(), operation.elements.end()}, frame.payload};
    // A datagram has its GRH in front.
    if (frame.headers.info().has_deth) pending.payload.insert(pending.payload.begin(), 40, 0xEE);
    operations.push_back(std::move(pending));
    if (!hold_memory) answer_all(now);
  }
  // Carries out and answers the oldest operation that is held.
  void answer_one(Instant now) {
    Pending pending = std::move(operations.front());
    operations.pop_front();
    std::uint64_t original = 0;
    const MemoryResult result = forced_result ? *forced_result : execute(pending, original);
    qp.on_memory_done(pending.operation.side, result, original, now);
  }
  // How many memory operations are held.
  [[nodiscard]] std::size_t held() const { return operations.size(); }
  void answer_all(Instant now) {
    while (!operations.empty()) answer_one(now);
  }

  QueuePair qp;
  std::vector<std::uint8_t> memory;
  bool hold_memory = false;
  bool hold_departures = false;
  std::vector<LocalOp> locals;  // carried out
  MemoryResult local_result = MemoryResult::kOk;
  std::vector<MemoryKey> invalidated;  // by the peer; kBadKey cannot be
  std::optional<MemoryResult> forced_result;

  struct Receive {
    std::uint64_t wr_id;
    std::vector<Sge> elements;
  };
  std::deque<Receive>* shared = nullptr;  // an SRQ; outlives the node

 private:
  struct Pending {
    MemoryOp operation;
    std::vector<Sge> elements;
    std::vector<std::uint8_t> payload;
  };

  [[nodiscard]] bool is_inside(MemoryKey key, std::uint64_t address, std::uint64_t length) const {
    return key == kKey && length <= memory.size() && address <= memory.size() - length;
  }
  // Where byte `offset` of the elements is; null if the memory is not there.
  std::uint8_t* byte_at(const std::vector<Sge>& elements, std::uint64_t offset) {
    for (const Sge& element : elements) {
      if (offset < element.length) {
        return is_inside(element.lkey, element.address, element.length) ? &memory[element.address + offset]
                                                                        : nullptr;
      }
      offset -= element.length;
    }
    return nullptr;
  }
  MemoryResult gather(const Payload& payload, std::vector<std::uint8_t>& bytes) {
    if (payload.kind == Payload::Kind::kNone) return MemoryResult::kOk;
    if (payload.kind == Payload::Kind::kRegion) {
      if (!is_inside(payload.key, payload.address, payload.length)) return MemoryResult::kProtection;
      bytes.assign(&memory[payload.address], &memory[payload.address] + payload.length);
      return MemoryResult::kOk;
    }
    const std::vector<Sge> elements(payload.elements.begin(), payload.elements.end());
    for (std::uint32_t i = 0; i < payload.length; ++i) {
      const std::uint8_t* byte = byte_at(elements, payload.offset + i);
      if (byte == nullptr) return MemoryResult::kProtection;
      bytes.push_back(*byte);
    }
    return MemoryResult::kOk;
  }
  MemoryResult execute(Pending& pending, std::uint64_t& original) {
    const MemoryOp& operation = pending.operation;
    if (operation.invalidates) {
      if (operation.invalidate_key == kBadKey) return MemoryResult::kProtection;
      invalidated.push_back(operation.invalidate_key);
    }
    switch (operation.kind) {
      case MemoryOp::Kind::kNone:
      case MemoryOp::Kind::kNothing:
        return MemoryResult::kOk;
      case MemoryOp::Kind::kCheck:
      case MemoryOp::Kind::kWrite:
        if (!is_inside(operation.key, operation.address, operation.check_bytes))
          return MemoryResult::kProtection;
        if (operation.length > 0)
          std::memcpy(&memory[operation.address], pending.payload.data(), operation.length);
        return MemoryResult::kOk;
      case MemoryOp::Kind::kScatter:
        return scatter(pending);
      case MemoryOp::Kind::kAtomic:
        break;
    }
    if (!is_inside(operation.key, operation.address, 8)) return MemoryResult::kProtection;
    std::memcpy(&original, &memory[operation.address], 8);
    std::uint64_t value = original + operation.swap_or_add;
    if (operation.is_compare_swap) value = original == operation.compare ? operation.swap_or_add : original;
    std::memcpy(&memory[operation.address], &value, 8);
    return MemoryResult::kOk;
  }
  MemoryResult scatter(Pending& pending) {
    const MemoryOp& operation = pending.operation;
    if (operation.has_value) {
      pending.payload.resize(8);
      std::memcpy(pending.payload.data(), &operation.value, 8);
    }
    EXPECT_EQ(pending.payload.size(), operation.length);
    for (std::uint32_t i = 0; i < operation.length; ++i) {
      std::uint8_t* byte = byte_at(pending.elements, operation.offset + i);
      if (byte == nullptr) return MemoryResult::kProtection;
      *byte = pending.payload[i];
    }
    return MemoryResult::kOk;
  }

  std::deque<Receive> receives;
  std::deque<Pending> operations;
  std::uint32_t next_send = 0;
  std::uint32_t next_receive = 0;
};

inline QpConfig small_config() {
  QpConfig config;
  config.qpn = Qpn{0x11};
  config.send_slots = 64;
  config.max_send_sge = 4;
  config.max_recv_sge = 4;
  return config;
}

inline QpAttributes usual_attributes() {
  QpAttributes attributes;
  attributes.path_mtu_code = kMtuCode;
  attributes.packet_bytes = kMtu;
  attributes.max_rd_atomic = 4;
  attributes.max_dest_rd_atomic = 4;
  attributes.min_rnr_timer = 12;
  attributes.timeout = 14;
  attributes.retry_count = 3;
  attributes.rnr_retry = 3;
  attributes.port = 1;
  attributes.rq_psn = attributes.sq_psn = kFirstPsn;
  attributes.dest_qpn = Qpn{0x22};
  attributes.access_flags = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;
  return attributes;
}

// Moves a QP in RESET up to `state` (INIT, RTR or RTS).
inline void raise_to(QueuePair& qp, QpState state, QpAttributes attributes, Instant now) {
  attributes.state = QpState::kInit;
  ASSERT_EQ(qp.modify(kConnectMask, attributes, now), 0);
  if (state == QpState::kInit) return;
  attributes.state = QpState::kRtr;
  ASSERT_EQ(qp.modify(kToRtr, attributes, now), 0);
  if (state == QpState::kRtr) return;
  attributes.state = QpState::kRts;
  ASSERT_EQ(qp.modify(kToRts, attributes, now), 0);
}

// Two nodes, `a` and `b`, connected in RTS.
class ConnectedTest : public ::testing::Test {
 protected:
  void connect(const QpAttributes& of_a, const QpAttributes& of_b, const QpConfig& config = small_config()) {
    a.emplace(config);
    b.emplace(config);
    raise_to(a->qp, QpState::kRts, of_a, now);
    raise_to(b->qp, QpState::kRts, of_b, now);
  }
  void SetUp() override { connect(usual_attributes(), usual_attributes()); }

  // Hands frames over; `keep` says of each whether it arrives.
  void deliver(
      const std::vector<Frame>& frames, Node& to,
      const std::function<bool(const Frame&)>& keep = [](const Frame&) { return true; }) {
    for (const Frame& frame : frames) {
      if (keep(frame)) to.receive(frame, now);
    }
  }
  // Passes packets in both directions until there are none.
  void run() {
    for (int round = 0; round < 100'000; ++round) {
      const std::vector<Frame> forth = a->transmit(now);
      deliver(forth, *b);
      const std::vector<Frame> back = b->transmit(now);
      deliver(back, *a);
      if (forth.empty() && back.empty()) return;
    }
    FAIL() << "the exchange does not end";
  }
  // Lets the next timer of `node` run out.
  void expire(Node& node) {
    ASSERT_FALSE(node.qp.next_deadline().is_never());
    now = node.qp.next_deadline();
    node.qp.on_deadline(now);
  }
  static void fill(Node& node, std::uint64_t address, std::size_t bytes, std::uint8_t seed = 1) {
    for (std::size_t i = 0; i < bytes; ++i)
      node.memory[address + i] = static_cast<std::uint8_t>(seed + i * 31 + i / 251);
  }
  static bool same(const Node& x, std::uint64_t x_address, const Node& y, std::uint64_t y_address,
                   std::size_t bytes) {
    return std::equal(&x.memory[x_address], &x.memory[x_address] + bytes, &y.memory[y_address]);
  }
  static SendRequest request(WrOpcode opcode, std::uint64_t wr_id, std::uint8_t flags = kSendSignaled) {
    SendRequest made;
    made.opcode = opcode;
    made.wr_id = wr_id;
    made.flags = flags;
    made.rkey = kKey;
    return made;
  }
  // A request on `remote` of the peer's memory.
  static SendRequest remote_request(WrOpcode opcode, std::uint64_t wr_id, std::uint64_t remote,
                                    std::uint8_t flags = kSendSignaled) {
    SendRequest made = request(opcode, wr_id, flags);
    made.remote_address = remote;
    return made;
  }
  static Sge element(std::uint64_t address, std::uint32_t length, MemoryKey key = kKey) {
    return {address, length, key};
  }

  std::optional<Node> a;
  std::optional<Node> b;
  Instant now{1'000'000};
};

}  // namespace urdma::transport
