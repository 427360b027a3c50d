// The books of one endpoint, and the checker: what was posted, what the peer will deliver, and whether each
// completion is the one that must come next, with the right status and the right bytes.
//
// Owner: an Endpoint. A completion that does not fit ends the run (Failure).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "datapath/transport/queue_pair.hpp"
#include "tests/sim/memory.hpp"

namespace urdma::sim {

// Eight bytes of remote memory that only one QP changes: its values after each atomic posted are known.
struct AtomicCell {
  Region* region = nullptr;
  std::uint64_t offset = 0;
  std::vector<std::uint64_t> values;  // [0] at first, [n] after the n-th atomic posted
  std::uint64_t completed = 0;        // atomics known to have been executed

  [[nodiscard]] std::uint64_t current() const;
};

// Eight bytes of remote memory to which many QPs add.
struct SharedCounter {
  Region* region = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t first = 0;
  std::uint64_t posted_sum = 0;
  std::uint64_t completed_sum = 0;
};

// A message of the peer's that will take a receive.
struct ExpectedMessage {
  WrOpcode opcode = WrOpcode::kSend;
  bool is_solicited = false;
  std::uint64_t length = 0;
  std::uint64_t pattern = 0;
  std::uint32_t immediate = 0;
  Buffer target;  // of a WRITE with immediate
};

struct PostedSend {
  transport::SendRequest request;
  std::vector<transport::Sge> elements;
  std::uint64_t pattern = 0;
  Buffer source;             // where SEND and WRITE take their bytes
  Buffer landing;            // where READ and atomics put theirs
  Buffer target;             // in the peer's memory
  bool owns_source = false;  // releases it when it completes; else another request does
  bool owns_landing = false;
  bool owns_target = false;
  bool checks_target = false;  // nothing posted behind it overwrites its target
  std::vector<std::uint8_t> inline_bytes;
  std::optional<std::uint64_t> message;  // index of the peer's ExpectedMessage
  AtomicCell* cell = nullptr;
  std::uint64_t original = 0;  // what an atomic on `cell` must yield
  std::uint64_t addend = 0;    // of a fetch-and-add on the shared counter
};

struct PostedReceive {
  transport::ReceiveRequest request;
  std::vector<transport::Sge> elements;
  Buffer buffer;
};

// The rings of one endpoint. The peer's requests are directed at `target`.
struct Arena {
  Arena(Memory& memory, Random& random, std::uint64_t ring_bytes);

  BufferRing source;
  BufferRing landing;
  BufferRing receive;
  BufferRing target;
};

class Ledger {
 public:
  Ledger(std::string name, Arena& arena) : name_(std::move(name)), arena_(arena) {}
  void set_peer(Ledger& peer) { peer_ = &peer; }

  // The peer's packets may be forged: what they say and bring is not checked, only that every request
  // completes once and in order, and that nothing is written but where the program asked for it.
  void distrust_peer();

  // ---- What is posted ----
  PostedSend& add_send(PostedSend send);
  void add_receive(PostedReceive receive) { receives_.push_back(std::move(receive)); }
  // The oldest receive that has not been offered to the transport; null if none.
  [[nodiscard]] const PostedReceive* next_offer();
  std::uint64_t add_expected(ExpectedMessage message);

  // ---- What comes out ----
  void on_completion(const transport::Completion& completion, QpState state, Instant now);
  // Of a QP in ERR: unsignalled requests at the end that were acknowledged before the error never say so.
  // They are taken to have succeeded, with all checks of that.
  void retire_silent();
  // A move to RESET: what is posted is forgotten without completions.
  void forget();

  // ---- Expectations ----
  // Allows the first failed completion of a send (or a receive) to have one of these; others end the run.
  void allow_send_errors(std::initializer_list<WcStatus> statuses);
  void allow_receive_errors(std::initializer_list<WcStatus> statuses);
  void clear_errors();
  // Releases the targets of failed requests. No packet may be on its way any more.
  void release_orphans();
  // Requires that nothing is posted or half done, and that no byte is where none belongs.
  void require_finished() const;

  // ---- Facts ----
  [[nodiscard]] bool trusts_peer() const { return trusts_peer_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::size_t sends_open() const { return sends_.size(); }
  // Whether a completion of a send must still come, in ERR.
  [[nodiscard]] bool awaits_send() const;
  [[nodiscard]] std::size_t receives_open() const { return receives_.size(); }
  [[nodiscard]] std::size_t receives_not_offered() const { return receives_.size() - offered_; }
  [[nodiscard]] std::uint32_t slots_freed() const { return slots_freed_; }
  // The message that the receive posted next will get, if the peer has posted it already.
  [[nodiscard]] const ExpectedMessage* message_for_next_receive() const;
  // The request posted last, if it has not completed.
  [[nodiscard]] PostedSend* last_open() { return sends_.empty() ? nullptr : &sends_.back(); }
  [[nodiscard]] const PostedSend* find(std::uint32_t wqe_index) const;
  [[nodiscard]] const std::optional<transport::Completion>& send_error() const { return send_error_; }
  [[nodiscard]] const std::optional<transport::Completion>& receive_error() const { return receive_error_; }
  [[nodiscard]] Instant send_error_at() const { return send_error_at_; }
  [[nodiscard]] std::uint64_t sends_succeeded() const { return sends_succeeded_; }
  [[nodiscard]] std::uint64_t sends_flushed() const { return sends_flushed_; }
  [[nodiscard]] std::uint64_t receives_succeeded() const { return receives_succeeded_; }
  [[nodiscard]] std::uint64_t receives_flushed() const { return receives_flushed_; }
  [[nodiscard]] std::uint64_t bytes_completed() const { return bytes_completed_; }
  SharedCounter* shared = nullptr;  // at the peer, for this endpoint's fetch-and-adds

 private:
  using Completion = transport::Completion;

  void on_send_completion(const Completion& completion, QpState state, Instant now);
  void on_receive_completion(const Completion& completion, QpState state);
  void finish_receive();
  void judge_error(const Completion& completion, QpState state, std::optional<Completion>& first,
                   const std::vector<WcStatus>& allowed) const;
  void retire(PostedSend& send);
  void abandon(PostedSend& send);
  void check_bytes(const PostedSend& send) const;
  void check_message(const Completion& completion, ExpectedMessage& message,
                     const PostedReceive& receive) const;

  std::string name_;
  Arena& arena_;
  Ledger* peer_ = nullptr;
  bool trusts_peer_ = true;
  std::deque<PostedSend> sends_;
  std::deque<PostedReceive> receives_;
  std::size_t offered_ = 0;
  std::deque<ExpectedMessage> expected_;
  std::uint64_t expected_base_ = 0;  // index of the front
  std::vector<Buffer> orphans_;      // targets of failed requests: packets may still be on their way
  std::vector<WcStatus> allowed_send_;
  std::vector<WcStatus> allowed_receive_;
  std::optional<Completion> send_error_;
  std::optional<Completion> receive_error_;
  Instant send_error_at_;
  std::uint32_t slots_freed_ = 0;
  std::uint64_t sends_succeeded_ = 0;
  std::uint64_t sends_flushed_ = 0;
  std::uint64_t receives_succeeded_ = 0;
  std::uint64_t receives_flushed_ = 0;
  std::uint64_t bytes_completed_ = 0;
};

}  // namespace urdma::sim
