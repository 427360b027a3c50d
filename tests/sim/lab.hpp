// Many QPs of one transport service on two hosts: UC, UD, XRC, and RC with shared receive queues. Where the
// World has an exact picture of one reliable connection at a time, here each message has a number, and
// whatever arrives is judged by it: whole or not at all, once, in order, where the service promises that.
//
// Owner: a scenario. One thread. A promise that does not hold ends the run (Failure).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "datapath/transport/queue_pair.hpp"
#include "tests/sim/link.hpp"
#include "tests/sim/random.hpp"
#include "urdma/wire/frame.hpp"

namespace urdma::sim {

struct LabConfig {
  QpType type = QpType::kUc;
  bool has_srq = false;
  bool has_error_midway = false;  // one pair of QPs goes to ERR, and the others do not notice
  std::uint32_t pairs = 1;
  std::uint32_t messages = 50;  // of each QP that sends
  LinkConfig link;
};

class Lab {
 public:
  Lab(std::uint64_t seed, const LabConfig& config);
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  // Until nothing will ever happen again; then every QP goes to ERR, and the books must be even.
  void run();
  [[nodiscard]] std::uint64_t packets() const;

 private:
  static constexpr std::uint32_t kQkey = 0x1357;
  static constexpr std::uint32_t kSrqn = 0x77;
  static constexpr std::uint32_t kGrhBytes = 40;
  using Bytes = std::vector<std::uint8_t>;

  struct Region {
    Bytes bytes;
    std::uint32_t access = 0;
    bool is_cell = false;  // the target of ATOMIC WRITEs
  };
  // What one QP has sent, or is to send.
  struct Message {
    std::size_t sender = 0;
    WrOpcode opcode = WrOpcode::kSendWithImm;
    std::uint64_t length = 0;
    std::uint32_t target_key = 0;  // WRITE
    std::uint32_t delivered = 0;
    bool must_not_arrive = false;
    bool may_be_lost = false;
  };
  struct Post {
    std::uint64_t wr_id = 0;
    std::uint64_t number = 0;  // of its message, an index
    std::uint32_t source_key = 0;
  };
  struct Receive {
    std::uint64_t wr_id = 0;
    std::uint32_t key = 0;
    std::uint32_t capacity = 0;
  };
  struct Departure {
    transport::TxPacket packet;
    std::vector<transport::Sge> elements;
    Instant due;
  };
  struct Operation {
    transport::MemoryOp op;
    std::vector<transport::Sge> elements;
    Bytes payload;
    Instant due;
  };
  struct End {
    End(const transport::QpConfig& config, std::size_t on_host)
        : qp(config), qpn(config.qpn), host(on_host) {}

    transport::QueuePair qp;
    Qpn qpn;
    std::size_t host;
    std::size_t peer = 0;  // an index
    std::deque<Receive>* shared = nullptr;
    std::deque<Receive> own;
    std::map<std::uint64_t, Receive> offered;
    std::deque<Post> posts;
    std::uint32_t posted = 0;
    std::uint32_t next_wqe = 0;
    std::deque<Departure> departures;
    std::deque<Operation> operations;
    std::uint32_t cell_key = 0;                // at the peer
    std::deque<std::uint64_t> cell_expected;   // ATOMIC WRITEs posted and not carried out
    std::deque<std::uint32_t> local_expected;  // local requests posted and not carried out
    std::deque<std::uint32_t> invalidations;   // posted, and not carried out at the peer
    std::map<std::size_t, std::uint64_t> newest_from;
    bool has_failed = false;
    std::uint32_t last_wqe_events = 0;
  };

  // lab.cpp: the hosts
  void make_ends();
  void connect(End& end);
  [[nodiscard]] bool step();
  [[nodiscard]] bool deliver();
  void receive(End& end, const wire::FrameView& view);
  void offer(End& end, const wire::Headers& headers);
  [[nodiscard]] bool carry_out(End& end);
  [[nodiscard]] transport::MemoryResult execute(End& end, Operation& operation);
  [[nodiscard]] bool transmit(End& end);
  void send(End& end, const transport::TxPacket& packet);
  [[nodiscard]] transport::MemoryResult gather(const transport::Payload& payload, std::uint8_t* out);
  [[nodiscard]] Instant next_wakeup() const;
  [[nodiscard]] Instant late();

  // lab_check.cpp: the application, and what it expects
  [[nodiscard]] bool post(End& end);
  [[nodiscard]] WrOpcode draw_opcode();
  void aim(End& end, std::uint64_t number, transport::SendRequest& request);
  void replenish(End& end);
  void check_local(End& end, const transport::LocalOp& local);
  void drain(End& end);
  void on_sent(End& end, const transport::Completion& completion);
  void on_received(End& end, const transport::Completion& completion);
  void check_message(End& end, const Receive& receive, const transport::Completion& completion);
  void break_pair();
  void finish();
  std::uint32_t add_region(std::uint64_t bytes, std::uint32_t access);
  [[nodiscard]] std::uint8_t* locate(MemoryKey key, std::uint32_t access, std::uint64_t address,
                                     std::uint64_t length);
  [[nodiscard]] bool is_reliable() const;
  [[nodiscard]] bool sends(const End& end) const;
  [[nodiscard]] bool receives(const End& end) const;

  LabConfig config_;
  Random random_;
  FramePool pool_;
  std::array<std::unique_ptr<Link>, 2> links_;
  std::array<wire::FlowTemplate, 2> flows_;
  std::array<std::deque<Receive>, 2> shared_;
  std::vector<std::unique_ptr<End>> ends_;
  std::unordered_map<std::uint32_t, std::size_t> by_qpn_;
  std::unordered_map<std::uint32_t, Region> regions_;
  std::vector<Message> messages_;
  std::uint32_t next_key_ = 0x1000'0000;
  std::uint64_t next_wr_id_ = 1;
  Instant now_{1'000'000};
  Instant break_at_ = Instant::never();
};

}  // namespace urdma::sim
