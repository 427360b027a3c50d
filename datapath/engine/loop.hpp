// The inside of an engine thread: what it has alone, and one round of work. One file per direction:
// loop.cpp (a round, the ready list, idle), receive.cpp (frames in), transmit.cpp (a QP's turn, frames out,
// the way to a QP of this node), datagram.cpp (the ways of datagrams), management.cpp (those of QP 1),
// movement.cpp (payloads to and from programs), windows.cpp (memory windows), handover.cpp (to other engines
// and from them), objects.cpp (what the control thread does inside run()).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "datapath/engine/common.hpp"
#include "datapath/engine/engine.hpp"
#include "datapath/engine/pieces.hpp"
#include "datapath/engine/rate_limit.hpp"
#include "datapath/engine/timer_heap.hpp"
#include "datapath/engine/transfer.hpp"
#include "datapath/memory/realtime.hpp"
#include "urdma/base/flat_table.hpp"

struct rte_ring;

namespace urdma::engine {

inline constexpr std::uint32_t kBurst = 32;           // frames a receive or send call
inline constexpr std::uint32_t kPacketsPerTurn = 32;  // packets a QP may send before the next one's turn
inline constexpr std::uint32_t kBytesPerTurn = 256 * 1024;  // and payload bytes
inline constexpr std::uint32_t kFetchesPerTurn = 64;        // work requests
inline constexpr std::uint32_t kTransfers = 4096;
inline constexpr std::uint32_t kBuffers = 128;
// A session may take from a pool while it holds less than what is left, and less than a quarter of that for
// what can wait (packets to send, and those inside the node). So whatever a client's memory does to copies,
// it keeps no other client from going on.
inline constexpr std::uint32_t kShare = 4;
// Received frames that wait for one QP: a full window of its peer. Beyond, they are dropped.
inline constexpr std::uint32_t kMostWaiting = 512;
// How long a packet that nobody will repeat waits for its receiver to post a receive, and how many wait on an
// engine.
inline constexpr Duration kReceivePatience = milliseconds(20);
inline constexpr std::uint32_t kMostWaitingUnreliable = 1024;
// How long an engine leaves alone what no event tells of, such as a receive that a program posts.
inline constexpr Duration kImpatience = microseconds(50);
inline constexpr std::uint32_t kMostBacklog = 256;    // frames that a port has not taken yet
inline constexpr std::uint32_t kMostRefusals = 1000;  // rounds in which another engine is sending

inline constexpr std::uint32_t kMostHeardPerSecond = 1000;  // messages of address resolution
inline constexpr std::uint32_t kMostHeardAtOnce = 100;
inline constexpr std::uint32_t kMostManagementPerSecond = 20'000;
inline constexpr std::uint32_t kMostManagementAtOnce = 4000;

// A port on an engine: the frames that wait to be sent.
struct PortState {
  io::Port* port = nullptr;
  std::vector<wire::Gid> gids;
  std::vector<rte_mbuf*> backlog;
  std::uint32_t frame_bytes = UINT32_MAX;  // the longest that its link carries
  bool finds_neighbours = false;           // the control thread hears ARP and neighbour discovery
  bool is_attached = true;
  bool is_receiving = true;  // this engine is the one that receives on it
  memory::EngineLock* sending = nullptr;
  std::uint32_t refusals = 0;  // of it, one after another
};

// Where a frame comes from.
enum class Origin : std::uint8_t { kPort, kThisNode, kOtherEngine };

// What a received payload stands in: a frame, a buffer of the pool, or neither.
struct Carrier {
  rte_mbuf* frame = nullptr;
  std::byte* buffer = nullptr;
};

struct Engine::Loop {
  Loop(EngineConfig engine_config, Common& common, std::uint32_t index);
  ~Loop();

  // ---- engine.cpp ----
  [[nodiscard]] Status open();
  void run_thread();

  // ---- loop.cpp ----
  [[nodiscard]] static Instant clock();
  void work();   // the thread
  bool round();  // one round; true if anything was done
  void mark_ready(Qp& qp);
  void list_cq(CompletionQueue& cq);
  void list_async(Session& session);  // has events to write
  bool take_doorbells();
  bool attend_meeting();
  bool fire_timers();
  [[nodiscard]] bool is_waiting_for_copies(Qp& qp) const;
  bool serve_ready();
  bool notify_all();
  void nap();  // sleeps until something happens
  [[nodiscard]] bool may_sleep();
  [[nodiscard]] Instant wake_time() const;
  void report(const Report& report);  // what it says is over may be freed before this returns
  void break_session(Session& session, const char* reason);
  void wake_if_asleep();  // other threads
  void write_wake() const;
  [[nodiscard]] abi::EnginePage::EngineWords& words() const { return config.page->engines[index]; }

  // ---- handover.cpp ----
  [[nodiscard]] Status make_inbox();
  void drain_inbox();
  // Another engine's QP, whose doorbell was rung here.
  void pass_on(Session& session, const Qp& qp);
  // True if the frame is for a QP of another engine: then it is that engine's, or dropped.
  bool hand_to_owner(std::uint32_t port, rte_mbuf* frame, wire::IcrcPolicy policy);
  void hand_to(std::uint32_t engine, std::uint32_t port, rte_mbuf* frame, wire::IcrcPolicy policy);
  // Gives a copy to each other engine that has members.
  void spread(const std::vector<Qp*>& members, std::uint32_t port, rte_mbuf* frame);
  bool take_inbox();
  void wake_others();
  // The QP, if it is there and this engine's.
  [[nodiscard]] Qp* own_qp(std::uint32_t qpn) const;

  // ---- receive.cpp ----
  bool receive();
  void take_frame(PortState& port, rte_mbuf* frame, wire::IcrcPolicy policy, Origin origin);
  // Gives a frame to a QP, or frees it where there is none.
  void hand_over(Qp* qp, const wire::FrameView& view, rte_mbuf* frame);
  [[nodiscard]] Qp* judge_frame(const wire::FrameView& view);
  // The QP, or null, and counted, where its session has too much in hand.
  [[nodiscard]] Qp* judge_receiver(Qp* qp);
  // As deliver(), now or once the QP can take it.
  bool accept(Qp& qp, const wire::Headers& headers, const Pieces& source, Carrier carrier);
  // Whether an unreliable QP has no receive for a packet that needs one.
  [[nodiscard]] bool lacks_receive(Qp& qp, const wire::Headers& headers);
  // Keeps a packet for later; false if there is no room.
  bool keep_waiting(Qp& qp, const wire::Headers& headers, const Pieces& source, Carrier carrier);
  void resume_waiting(Qp& qp);

  // ---- ports.cpp ----
  [[nodiscard]] Status make_heard_ring();
  void detach(PortState& state);
  [[nodiscard]] Status attach(PortState& state);
  // True if the frame is a message of address resolution, whether or not it is handed on.
  bool hear(const PortState& port, std::span<const std::uint8_t> frame);
  // ---- management.cpp ----
  [[nodiscard]] Status make_management_ring();
  // A datagram for QP 1, to an address of the port.
  void hear_management(std::uint32_t port, const wire::FrameView& view, Origin origin);
  // ---- datagram.cpp ----
  void send_datagram(Qp& qp, const transport::TxPacket& packet);
  void launch_datagram(rte_mbuf* frame, const Route& route);
  void take_datagram(PortState& port, wire::FrameView& view, rte_mbuf* frame, Origin origin);
  void take_multicast(std::uint32_t port, wire::FrameView& view, rte_mbuf* frame, Origin origin);

  // ---- transmit.cpp ----
  void serve(Qp& qp);
  void fetch(Qp& qp);
  void send_packets(Qp& qp);
  [[nodiscard]] bool has_room_to_send(Qp& qp);
  void starve(Qp& qp);
  void resume_starved();
  // Sends a packet in a frame, behind those whose payload is still being read.
  void send_as_frame(Qp& qp, const transport::TxPacket& packet, const wire::FlowTemplate& flow,
                     const Route& route);
  // A frame whose payload is in place.
  void launch(rte_mbuf* frame, const Route& route);
  void send_inside(Qp& qp, const transport::TxPacket& packet);
  // True if the QP's next packet, inside the node, can be taken by its peer now.
  [[nodiscard]] bool peer_accepts(const Qp& qp);
  [[nodiscard]] bool can_take(Qp& qp);
  void put_on_port(std::uint32_t port, rte_mbuf* frame);
  bool flush_ports();
  [[nodiscard]] bool hold_frames();
  void begin_flush(Qp& qp);
  void complete(Qp& qp);
  void push_completion(Qp& qp, const transport::Completion& completion);
  void overrun(CompletionQueue& cq);
  void fail_users(CompletionQueue& cq);  // while no other engine runs

  // ---- movement.cpp ----
  // A transfer for a QP, and a buffer for a transfer; both are there. Detaching yields null where there is
  // none.
  [[nodiscard]] Transfer& take_transfer(Qp& qp, Transfer::Stage stage);
  void attach_buffer(Transfer& transfer, std::byte* buffer);
  [[nodiscard]] std::byte* detach_buffer(Transfer& transfer);
  // Whether the session may take a transfer for what is received, and what it needs for packets that can
  // wait.
  [[nodiscard]] bool may_receive(const Session& session) const;
  [[nodiscard]] bool may_take(const Session& session) const;
  enum class Gathered : std::uint8_t { kReady, kPending, kDenied };
  // Where the payload of a packet to send is.
  [[nodiscard]] Gathered locate(Qp& qp, const transport::Payload& payload, Pieces& out);
  // Starts reading `pieces` into transfer.payload by the copier.
  void start_read(Transfer& transfer, const Pieces& pieces);
  // Puts a packet in the order of departures of its QP.
  void depart(Transfer& transfer);
  // Sends what is at the head of the order and has its payload.
  void release_departures(Qp& qp);
  void dispatch(Transfer& transfer);
  // Hands a packet to a QP, with its payload in `source` (mapped pieces). When it cannot be placed at once,
  // a transfer keeps it, and takes over what carries it. True if it did.
  bool deliver(Qp& qp, const wire::Headers& headers, const Pieces& source, Carrier carrier);
  // Carries an operation out now if it needs no copier. False: it does.
  [[nodiscard]] bool place_now(Qp& qp, const transport::MemoryOp& op, Qpn srqn, const Pieces& source,
                               transport::MemoryResult& result, std::uint64_t& original);
  // Gives a payload to a transfer to keep, with what carries it; without that, a copy in a buffer of the
  // pool.
  void carry(Transfer& transfer, const Pieces& source, Carrier carrier);
  void hold(Qp& qp, const transport::MemoryOp& op, Qpn srqn, const Pieces& source, Carrier carrier);
  // Goes on with the operations at the head of a QP's order.
  void advance_arrivals(Qp& qp);
  // Hands an operation to a copier; false if the access is denied (the result is set).
  bool start_placing(Transfer& transfer);
  bool take_copies();
  bool take_copies_of(memory::AddressSpace& space);
  void finish_copy(memory::CopyJob& job);
  void forget(Transfer& transfer);
  void drop_departures(Qp& qp);
  void free_transfer(Transfer& transfer);
  void note_copied(const Pieces& pieces);
  void purge(Qp& qp);

  // ---- shared_receives.cpp ----
  // Gives the responder the receive request that this packet needs, if there is one.
  void offer_receive(Qp& qp, const wire::Headers& headers);
  void offer_shared(Qp& qp, const wire::Headers& headers);
  // The SRQ for a packet; null where it names none that the QP may reach. `srqn` is looked at with XRC.
  [[nodiscard]] SharedReceiveQueue* srq_for(const Qp& qp, Qpn srqn) const;
  // The protection domain whose keys an operation names.
  [[nodiscard]] PdId domain_of(const Qp& qp, const transport::MemoryOp& op, Qpn srqn) const;
  [[nodiscard]] PdId source_domain_of(const Qp& qp, const transport::Payload& payload) const;
  // Where a completion goes; null where its SRQ is gone.
  [[nodiscard]] CompletionQueue* queue_of(const Qp& qp, const transport::Completion& completion) const;
  void post_qp_event(const Qp& qp, AsyncEvent event);

  // ---- windows.cpp ----
  [[nodiscard]] AccessContext access_context(const Qp& qp, PdId pd) const;
  // Binds or invalidates, and answers. False: nothing more is sent until copies are done that came through
  // what has been closed.
  bool do_local(Qp& qp, const transport::LocalOp& op);
  void finish_local(Transfer& fence);
  void start_fence(Transfer& fence);
  void finish_fence(Transfer& fence);
  void forget_space(const memory::AddressSpace& space);
  // Other engines may be copying through a window that has been closed: its fence waits until each of them
  // has begun another round.
  void await_other_rounds(Transfer& fence);
  bool look_at_other_rounds();
  // The answer to an operation whose payload is in place: what it invalidates is so now.
  [[nodiscard]] transport::MemoryResult conclude(const Qp& qp, const transport::MemoryOp& op,
                                                 transport::MemoryResult result);

  // ---- objects.cpp ----
  void add_session(Session& session);
  void remove_session(Session& session);
  void unlist(Qp& qp);
  void settle_quiesce(Qp& qp);

  EngineConfig config;
  Common& common;
  const std::uint32_t index;     // into EnginePage::engines, boards, copiers' lanes
  memory::RegionTable& regions;  // of `common`, as the next two
  const FlatTable<Qp>& qps;
  const FlatTable<SharedReceiveQueue>& srqs;
  std::uint32_t qp_count = 0;  // of this engine
  Counters counters;
  Instant now;
  std::vector<Session*> sessions;
  std::vector<memory::AddressSpace*> spaces;  // of the sessions, each once
  std::vector<PortState> ports;
  rte_ring* heard = nullptr;  // to the control thread: Heard
  RateLimit hearing{kMostHeardPerSecond, kMostHeardAtOnce};
  rte_ring* management = nullptr;  // to the control thread: ManagementDatagram
  RateLimit managing{kMostManagementPerSecond, kMostManagementAtOnce};
  std::atomic<bool> is_management_told{false};  // set with the eventfd; the control thread takes it back
  std::uint32_t management_sent = 0;
  std::vector<Qp*> ready;
  std::vector<Qp*> serving;                  // the ready list of this round
  std::vector<CompletionQueue*> listed_cqs;  // have completions whose event is not decided
  std::vector<Session*> async_sessions;
  std::vector<Qp*> starved;              // wait for a pool, a port, or their peer
  std::uint32_t waiting_unreliable = 0;  // packets that wait for QPs that are unreliable
  bool has_freed = false;                // something that they wait for has been freed
  Instant next_look;                     // when they are looked at again in any case
  rte_mbuf* spare_frame = nullptr;       // for the next packet
  TimerHeap timers;
  TransferPool pool;
  std::vector<std::unique_ptr<Transfer>> fences;  // that copiers have: a few a session
  int epoll = -1;
  int wake = -1;                  // eventfd: the control thread and copiers
  bool has_napping_port = false;  // a port that cannot wake us
  bool has_held_frames = false;   // a port holds frames back
  std::atomic<bool> is_realtime{false};
  memory::RealtimeShare realtime;
  Duration spin;
  std::uint32_t attended = 0;  // meetings
  std::atomic<bool> stopping{false};
  std::thread thread;

  // ---- To and from other engines ----
  std::array<rte_ring*, abi::kMaxEngines> inbox{};  // by sender: InboxFrame
  std::uint32_t engines_to_wake = 0;                // a bit each: they have been given something
  std::atomic<std::uint64_t> rounds{0};             // begun
  Transfer* waiting_fences_head = nullptr;          // for the next look
  Transfer* waiting_fences_tail = nullptr;
  Transfer* closing_fences_head = nullptr;  // of the look that runs, which began at these rounds
  std::array<std::uint64_t, abi::kMaxEngines> rounds_seen{};
};

}  // namespace urdma::engine
