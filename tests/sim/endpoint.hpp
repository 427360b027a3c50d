// One end of a connection: a real transport::QueuePair with its rings, its memory operations carried out at
// once or late, its packets built and sent, and every output put before the checker.
//
// Owner: a World, which calls it on its virtual clock. One thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "datapath/transport/queue_pair.hpp"
#include "tests/sim/ledger.hpp"
#include "tests/sim/link.hpp"
#include "tests/sim/memory.hpp"
#include "urdma/wire/frame.hpp"

namespace urdma::sim {

// How late memory answers: a share of the operations, by up to `longest`.
struct Lateness {
  std::uint32_t ppm = 0;
  Duration longest = microseconds(20);
};

struct EndpointConfig {
  transport::QpConfig qp;
  transport::QpAttributes attributes;  // for all transitions up to RTS
  Lateness operations;                 // of received packets
  Lateness gathers;                    // of payloads to send
  bool is_encoded = true;              // frames on the link, or decoded headers inside the node
  std::uint64_t ring_bytes = 0;
};

// What a test asks to be sent; the endpoint makes buffers, patterns and expectations for it.
struct SendSpec {
  // How it hangs together with the request before, if that is still open and of the right kind.
  enum class Follow : std::uint8_t {
    kNone,
    kReadBack,   // READ what the WRITE before writes
    kOverwrite,  // WRITE, fenced, over what the READ before reads, or over what the WRITE before writes
    kForward,    // SEND or WRITE, fenced, of what the READ before brings
  };

  WrOpcode opcode = WrOpcode::kSend;
  std::uint64_t length = 0;
  std::uint8_t flags = kSendSignaled;
  std::uint32_t pieces = 1;
  Follow follow = Follow::kNone;
  bool cas_matches = true;
  bool to_shared_counter = false;  // fetch-and-add only
  // Deliberate mistakes.
  std::optional<MemoryKey> local_key;
  std::optional<MemoryKey> remote_key;
  std::uint64_t remote_shift = 0;  // added to the remote address
  WcStatus verdict = WcStatus::kSuccess;
};

class Endpoint {
 public:
  Endpoint(std::string name, const EndpointConfig& config, Memory& memory, FramePool& pool, Random& random);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void set_peer(Endpoint& peer, const wire::FlowTemplate& flow);
  // RESET to INIT, to RTR, to RTS.
  void connect(Instant now);
  void set_attributes(const transport::QpAttributes& attributes) { config_.attributes = attributes; }
  void modify(std::uint32_t mask, const transport::QpAttributes& attributes, Instant now);
  void move_to(QpState state, Instant now);

  // ---- The application ----
  [[nodiscard]] bool post(const SendSpec& spec, Instant now);  // false: no room now
  // A request as it is, whose bytes nobody checks. There is room.
  void post_plain(const transport::SendRequest& request, const transport::Sge& element, Instant now);
  void post_plain_receive(const transport::Sge& element);
  [[nodiscard]] bool post_receive(std::uint64_t capacity, std::uint32_t pieces,
                                  std::optional<MemoryKey> wrong_key = std::nullopt);

  // ---- The engine ----
  [[nodiscard]] bool can_accept() const { return qp_.can_accept(); }
  void receive(FramePtr frame, const wire::Headers& headers, std::span<const std::uint8_t> payload,
               Instant now);
  // Does all that is due: timers, memory, flushes, completions. Returns whether anything was.
  bool service(Instant now);
  // Sends at most one packet; false if there is none now.
  [[nodiscard]] bool transmit(Link& link, Instant now);
  // When service() is next due, and when a packet whose payload was late may leave.
  [[nodiscard]] Instant next_wakeup() const;
  [[nodiscard]] Instant next_departure() const;
  void require_quiet(Instant now) const;

  // ---- Facts ----
  [[nodiscard]] Ledger& ledger() { return ledger_; }
  [[nodiscard]] const Ledger& ledger() const { return ledger_; }
  [[nodiscard]] const transport::QueuePair& qp() const { return qp_; }
  [[nodiscard]] transport::QueuePair& qp() { return qp_; }
  [[nodiscard]] Arena& arena() { return arena_; }
  [[nodiscard]] Endpoint& peer() const { return *peer_; }
  [[nodiscard]] const EndpointConfig& config() const { return config_; }
  [[nodiscard]] std::uint64_t packets_sent() const { return packets_sent_; }
  [[nodiscard]] std::uint64_t packets_received() const { return packets_received_; }
  [[nodiscard]] bool has_seen(AsyncEvent event) const;
  [[nodiscard]] std::uint32_t count(AsyncEvent event) const;
  [[nodiscard]] std::vector<AtomicCell>& cells() { return cells_; }
  [[nodiscard]] std::uint64_t sends_posted() const { return next_wqe_index_; }

 private:
  struct PendingOp {
    transport::MemoryOp op;
    FramePtr frame;
    std::span<const std::uint8_t> payload;
    Instant due;
  };
  struct Answer {
    transport::MemoryResult result = transport::MemoryResult::kOk;
    std::uint64_t original = 0;
    Instant due;
  };
  struct Departure {
    transport::TxPacket packet;
    std::vector<transport::Sge> elements;
    Instant due;
  };

  // endpoint_post.cpp
  [[nodiscard]] bool has_room() const;
  [[nodiscard]] bool follow(const SendSpec& spec, PostedSend& send);
  [[nodiscard]] bool make_buffers(const SendSpec& spec, PostedSend& send);
  void make_atomic(const SendSpec& spec, PostedSend& send);
  void make_elements(const SendSpec& spec, PostedSend& send) const;
  void aim(const SendSpec& spec, PostedSend& send);
  void announce(PostedSend& send);

  // endpoint.cpp
  void offer_receives();
  void submit(const transport::MemoryOp& op, FramePtr frame, std::span<const std::uint8_t> payload,
              Instant now);
  void execute(const PendingOp& pending, Instant now);
  void answer_due(transport::Side side, Instant now);
  void drain(Instant now);
  [[nodiscard]] bool depart(Link& link, Instant now);
  void emit(const transport::TxPacket& packet, Link& link, Instant now);
  [[nodiscard]] transport::MemoryResult gather(const transport::Payload& payload, std::uint8_t* out) const;
  [[nodiscard]] Instant late(const Lateness& lateness, Instant now);

  EndpointConfig config_;
  Memory& memory_;
  FramePool& pool_;
  Random& random_;
  transport::QueuePair qp_;
  Arena arena_;
  Ledger ledger_;
  Endpoint* peer_ = nullptr;
  wire::FlowTemplate flow_;
  std::uint16_t next_ip_id_ = 0;
  // Requests
  std::uint64_t next_wr_id_ = 1;
  std::uint32_t next_wqe_index_ = 0;
  std::uint32_t next_receive_index_ = 0;
  std::vector<AtomicCell> cells_;  // at the peer; only this endpoint's atomics change them
  // Memory operations, in order, and their answers for each side
  std::deque<PendingOp> operations_;
  std::array<std::deque<Answer>, 2> answers_;
  std::uint32_t unanswered_ = 0;
  std::array<std::deque<Departure>, 2> departures_;
  // Counts
  std::uint64_t packets_sent_ = 0;
  std::uint64_t packets_received_ = 0;
  std::vector<AsyncEvent> events_;
};

}  // namespace urdma::sim
