// A queue pair on an engine: the transport's state machine joined to its rings in shared memory, its
// completion queues, its path, and the memory operations it waits for.
//
// Made and destroyed by the control thread; between Engine::add_qp and remove_qp it is the engine's,
// but for the getters of what is fixed.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "datapath/engine/address_handle.hpp"
#include "datapath/engine/completion_queue.hpp"
#include "datapath/engine/path.hpp"
#include "datapath/engine/shared_receive_queue.hpp"
#include "datapath/memory/shared_memory.hpp"
#include "datapath/transport/queue_pair.hpp"
#include "urdma/abi/control.hpp"
#include "urdma/abi/queues.hpp"

namespace urdma::engine {

class Session;
struct Transfer;

// Sizes and places of a QP's rings; also what the client is told.
struct QpGeometry {
  std::uint32_t send_slots = 0;
  std::uint32_t send_stride = 0;
  std::uint32_t receive_slots = 0;
  std::uint32_t receive_stride = 0;
  std::uint64_t send_offset = 0;
  std::uint64_t receive_offset = 0;
  std::uint64_t memory_bytes = 0;

  // For granted capabilities. Slots are powers of two, strides multiples of 64 bytes.
  [[nodiscard]] static QpGeometry of(const abi::QpCapabilities& cap);
};

inline constexpr std::uint32_t kNoDoorbell = ~0U;

class Qp {
 public:
  // Who is told of its events.
  struct Opener {
    Session* session;
    std::uint64_t user_pointer;
  };
  struct Config {
    transport::QpConfig transport;
    Session* session = nullptr;          // of an XRC receive QP: its domain's
    CompletionQueue* send_cq = nullptr;  // null: none, for an XRC receive QP
    CompletionQueue* recv_cq = nullptr;  // null: none, for an XRC QP
    SharedReceiveQueue* srq = nullptr;   // where its receives come from; null: the QP's own ring
    XrcDomainId domain;                  // of an XRC receive QP
    PdId pd;                             // none for an XRC receive QP: that of the SRQ that a packet names
    std::uint32_t handle = 0;
    std::uint32_t cookie = 0;
    std::uint32_t doorbell = 0;             // kNoDoorbell: none
    std::uint32_t port = 0;                 // index of the engine's port that its device has
    std::uint32_t most_datagram_bytes = 0;  // UD: the path MTU of that port
    std::uint64_t user_pointer = 0;         // for an XRC receive QP each opener has its own
    abi::QpCapabilities cap{};
    QpGeometry geometry;
  };

  Qp(const Config& config, memory::SharedMemory memory);
  ~Qp();

  // ---- Fixed ----
  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] Qpn qpn() const { return config_.transport.qpn; }
  [[nodiscard]] Session& session() const { return *config_.session; }
  [[nodiscard]] memory::SharedMemory& memory() { return memory_; }

  [[nodiscard]] bool is_datagram() const { return config_.transport.type == QpType::kUd; }
  // Its packets are not acknowledged.
  [[nodiscard]] bool is_unreliable() const { return is_datagram() || config_.transport.type == QpType::kUc; }

  // ---- Engine's ----
  [[nodiscard]] transport::QueuePair& transport() { return transport_; }
  [[nodiscard]] const transport::QueuePair& transport() const { return transport_; }
  [[nodiscard]] Path& path() { return path_; }

  // Copies up to `most` new send requests out of the ring into the transport. Returns how many; false in
  // `is_sound` when the client broke the ring's contract.
  [[nodiscard]] std::uint32_t fetch_sends(std::uint32_t most, bool& is_sound);
  // Hands the oldest receive request to the transport if it wants one. Same `is_sound`.
  [[nodiscard]] bool fetch_receive(bool& is_sound);
  [[nodiscard]] bool has_unfetched_sends() const;
  // What a request of this QP may name; null otherwise.
  [[nodiscard]] const AddressHandle* address_handle(std::uint32_t handle) const;
  // Where a request's inline data stands, in the ring.
  [[nodiscard]] const std::byte* inline_data(std::uint32_t wqe_index) const;
  // Empties the rings, as a move to RESET does.
  void reset_rings();
  // Publishes that receives posted from now on need a doorbell to be flushed, or that they do not.
  void set_flush_receives(bool wanted);

  // Whether its receives come from an SRQ, which with XRC each packet names.
  [[nodiscard]] bool has_srq() const { return config_.transport.has_srq; }
  [[nodiscard]] bool is_xrc_receive() const { return !(config_.domain == XrcDomainId{}); }

  // Which engine serves it: the program is told in its page. Changed while all engines stand still.
  [[nodiscard]] std::uint32_t engine() const { return engine_; }
  void set_engine(std::uint32_t engine);

  // ---- The engine's bookkeeping ----
  std::vector<Opener> openers;    // more than its maker for an XRC receive QP only
  bool is_ready = false;          // on the ready list
  bool is_starved = false;        // on the list of those that wait for room
  std::uint32_t timer_index = 0;  // place in the timer heap; 0: none
  Instant timer_at = Instant::never();
  std::uint32_t timer_delays = 0;     // how often the timer has been put off since the QP was last served
  std::uint32_t transfers = 0;        // frames and copies in flight that name this QP
  Transfer* arrivals_head = nullptr;  // received packets whose memory operation waits its turn
  Transfer* arrivals_tail = nullptr;
  Transfer* departures_head = nullptr;  // packets to send, in order, behind one whose payload is pending
  Transfer* departures_tail = nullptr;
  Transfer* waiting_head = nullptr;  // received frames that the transport cannot take yet
  Transfer* waiting_tail = nullptr;
  std::uint32_t waiting_count = 0;
  // The request whose window closes once the copier has done what came through it: nothing is sent meanwhile.
  Transfer* local_wait = nullptr;
  std::uint64_t instance = 0;  // no other QP of the node ever has it
  std::uint16_t next_ip_id = 0;
  bool is_removed = false;
  bool is_flushing = false;  // receives are being flushed, and the client has been told to ring
  // Why the latest request failed that was no mere flush: for `urdma status`.
  transport::FailureReason last_failure = transport::FailureReason::kNone;
  std::uint64_t quiesce_cookie = 0;  // the control path waits for `transfers` to be 0

 private:
  [[nodiscard]] abi::QpPage& page() const;
  void fetch_one_send();
  [[nodiscard]] WcStatus judge(const abi::SendWqe& wqe, std::uint64_t length) const;

  Config config_;
  memory::SharedMemory memory_;
  transport::QueuePair transport_;
  Path path_;
  std::uint32_t engine_ = 0;
  std::uint32_t send_consumer_ = 0;
  std::uint32_t receive_consumer_ = 0;
  std::vector<transport::Sge> scratch_;
};

}  // namespace urdma::engine
