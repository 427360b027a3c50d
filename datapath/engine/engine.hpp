// The poll loop: doorbells -> transport -> frames -> ports, and back; the copy between two QPs of the
// node; completions; adaptive idle. One thread, or several, among which QPs are spread: an Engine is all of
// them (docs/design/0011).
//
// The control thread makes objects, and adds, changes and removes them inside run(), which executes a
// function on an engine's thread, between two bursts and while all others stand still, and returns when it is
// done. An engine never blocks: not on a client's memory, not on a full pipe, not on the control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "datapath/engine/address_handle.hpp"
#include "datapath/engine/counters.hpp"
#include "datapath/engine/path.hpp"
#include "datapath/engine/qp.hpp"
#include "datapath/engine/session.hpp"
#include "datapath/io/port.hpp"
#include "datapath/limits.hpp"
#include "datapath/memory/region_table.hpp"
#include "urdma/abi/pages.hpp"
#include "urdma/base/result.hpp"
#include "urdma/wire/membership.hpp"
#include "urdma/wire/resolution.hpp"

struct rte_mempool;

namespace urdma::engine {

enum class IdlePolicy : std::uint8_t { kPoll, kAdaptive, kInterrupt };

struct EngineConfig {
  std::uint32_t count = 1;  // of threads, at most abi::kMaxEngines
  IdlePolicy idle = IdlePolicy::kAdaptive;
  std::vector<int> cores;  // one for each thread to be pinned to; or none
  bool convert = true;     // ask for conversion of regions that earn it
  Limits limits;
  abi::EnginePage* page = nullptr;  // outlives the engine; its first `count` words are used
  rte_mempool* frames = nullptr;
  std::vector<io::Port*> ports;  // outlive the engine
  int control_eventfd = -1;      // written when reports() has something new
};

// What an engine tells the control thread.
struct Report {
  enum class Kind : std::uint8_t {
    kQuiesced,         // cookie of quiesce() or run_by_copier()
    kSessionBroken,    // session id: end its connection
    kWantsConversion,  // session id and region handle: traffic has earned it
    kCqOverrun,        // session id and CQ handle: fail_users() is wanted
  };
  Kind kind = Kind::kQuiesced;
  std::uint64_t cookie = 0;
  std::uint32_t session = 0;
  std::uint32_t handle = 0;
  const char* reason = nullptr;
};

// What a port without an interface of the kernel has heard: of its own addresses and to them, or who is in
// multicast groups.
struct Heard {
  std::uint32_t port = 0;
  std::variant<wire::Resolution, wire::MembershipQuery> message;
};

// A management datagram between QP 1 of two ports (IBTA 1, 13.4.2, 13.6.2): what stands behind its DETH.
inline constexpr std::size_t kManagementBytes = 256;
struct ManagementDatagram {
  std::uint32_t port = 0;
  wire::Gid source_gid{};
  wire::Gid dest_gid{};
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::array<std::uint8_t, kManagementBytes> bytes{};
};

class Engine {
 public:
  // Reads what it needs of the machine; starts no thread yet.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> create(EngineConfig config);
  ~Engine();  // stops

  [[nodiscard]] Status start();
  void stop();

  // ---- Control thread ----
  template <typename Function>
  void run(Function&& function) {
    auto call = [](void* argument) { (*static_cast<std::remove_reference_t<Function>*>(argument))(); };
    run_on_engine(call, &function);
  }
  // The reports since the last call.
  [[nodiscard]] std::vector<Report> take_reports();
  // The next message of address resolution; the control eventfd tells of it. Few a second, whatever comes in.
  [[nodiscard]] std::optional<Heard> next_heard();
  // The next datagram to QP 1 of one of the engine's ports; the control eventfd tells of it. A flood of them
  // is cut off: kMostManagementPerSecond. To be called until there is none.
  [[nodiscard]] std::optional<ManagementDatagram> next_management();
  [[nodiscard]] std::uint32_t count() const;  // of threads
  [[nodiscard]] bool runs_realtime(std::uint32_t index) const;
  // Eventfds that wake the threads: what AddressSpace::create wants. The engine's.
  [[nodiscard]] std::vector<int> wake_descriptors() const;

  // ---- Inside run() only ----
  void add_session(Session& session);
  // The session's QPs, CQs and regions have been removed.
  void remove_session(Session& session);
  // Queues an asynchronous event of the control path's, and sees to it that it is written.
  void post_async(Session& session, std::uint64_t element, AsyncEvent event);
  void add_cq(CompletionQueue& cq);
  void remove_cq(CompletionQueue& cq);
  // Gives it to the thread that has the fewest.
  void add_qp(Qp& qp);
  // Its packets are dropped from now on. It may be freed once quiesce() says so.
  void remove_qp(Qp& qp);
  // Another client of an XRC receive QP, which is told of its events.
  void add_opener(Qp& qp, Session& session, std::uint64_t user_pointer);
  void remove_opener(Qp& qp, Session& session, std::uint64_t user_pointer);
  void add_srq(SharedReceiveQueue& srq);
  // Nothing is taken from it any more, and what its packets have still to write is refused; what copiers have
  // in hand is not waited for.
  void remove_srq(SharedReceiveQueue& srq);
  // All QPs and SRQs of a CQ without room fail, and are told.
  void fail_users(CompletionQueue& cq);
  // As QueuePair::modify, with the rings and the path kept in step. `path` is used where mask has kAttrAv.
  // Towards a peer on this node a QP that goes to RTR moves to the peer's thread.
  [[nodiscard]] int modify_qp(Qp& qp, std::uint32_t mask, const transport::QpAttributes& attributes,
                              const Path& path);
  // Datagrams to the group that arrive at the QP's port, or are sent from there, are given to the QP as well.
  void attach_mcast(Qp& qp, const wire::Gid& group);
  void detach_mcast(Qp& qp, const wire::Gid& group);
  // The session has a table for them: Session::set_address_table.
  void add_address_handle(Session& session, const AddressHandle& handle);
  void remove_address_handle(Session& session, std::uint32_t handle);
  [[nodiscard]] bool add_region(memory::Region& region);
  // A region or a window. Windows of a region that goes are unbound. No new access begins; quiesce(session)
  // tells when the last one has ended.
  void remove_region(memory::Region& region);
  // The GIDs of a port: frames to other addresses are dropped.
  void set_port_gids(std::uint32_t port, std::span<const wire::Gid> gids);
  // The longest frame that the port's link carries now, and whether the control thread hears ARP,
  // neighbour discovery and membership queries from it.
  void set_port_link(std::uint32_t port, std::uint32_t frame_bytes, bool finds_neighbours);
  // Sends a frame of the control thread's own, which is no RoCE and shorter than any link's, if there is
  // room.
  void send_frame(std::uint32_t port, std::span<const std::uint8_t> bytes);
  // Sends a datagram from QP 1 to QP 1 along `path`, also inside the node, if there is room.
  void send_management(const Path& path, std::span<const std::uint8_t, kManagementBytes> bytes);
  // Lets go of a port, so that it can be opened anew; until attach_port() nothing comes in, and what is to
  // go out is dropped.
  void detach_port(std::uint32_t port);
  [[nodiscard]] Status attach_port(std::uint32_t port);
  // True if nothing in flight names the QP, or the session's memory, now; otherwise `cookie` (not 0) comes
  // as a kQuiesced report once that is so. One wait at a time for each.
  [[nodiscard]] bool quiesce(Qp& qp, std::uint64_t cookie);
  [[nodiscard]] bool quiesce(Session& session, std::uint64_t cookie);
  // Has the session's copier call `errand(argument)`, behind all that it has to do; `cookie` comes as a
  // kQuiesced report when that is done. For what a client can hold up.
  void run_by_copier(Session& session, void (*errand)(void*), void* argument, std::uint64_t cookie);
  [[nodiscard]] const Counters& counters(std::uint32_t index) const;
  [[nodiscard]] Counters counters() const;  // of all threads together
  [[nodiscard]] std::uint32_t qp_count(std::uint32_t index) const;

  // The inside: a thread, and what all of them share.
  struct Loop;
  struct Common;

 private:
  explicit Engine(std::unique_ptr<Common> common);
  void run_on_engine(void (*call)(void*), void* argument);
  [[nodiscard]] Loop& loop_of(const Qp& qp) const;
  void move(Qp& qp, std::uint32_t index);

  std::unique_ptr<Common> common_;
};

}  // namespace urdma::engine
