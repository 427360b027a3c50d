// The neighbours of a port that has no interface of the kernel: answers for the port's own addresses, asks
// for the link addresses of peers, and remembers what it was told (RFC 826, 5227 and 4861, with their
// states). Messages and time in, messages and results out: no I/O, clock or thread.
// Owner: the device; control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "datapath/io/port_spec.hpp"
#include "urdma/base/result.hpp"
#include "urdma/base/time.hpp"
#include "urdma/wire/resolution.hpp"

namespace urdma::control {

class NeighbourTable {
 public:
  static constexpr std::size_t kMostNeighbours = 1024;
  static constexpr Duration kRetry = milliseconds(500);
  static constexpr std::uint32_t kQuestions = 6;       // before it is said that nobody answers
  static constexpr Duration kReachable = seconds(30);  // an answer is believed without asking again
  static constexpr Duration kForget = seconds(600);    // an address that nobody wanted meanwhile
  static constexpr Duration kDefence = seconds(10);    // between two announcements against a duplicate

  struct Own {
    wire::MacAddress mac{};
    std::vector<io::PortAddress> addresses;
    std::vector<wire::Gid> gateways;
  };
  // To be sent to link address `dest`.
  struct Outgoing {
    wire::Resolution message;
    wire::MacAddress dest{};
  };
  struct Counters {
    std::uint64_t questions = 0;
    std::uint64_t answers = 0;     // given
    std::uint64_t unanswered = 0;  // neighbours that were given up
    std::uint64_t conflicts = 0;   // another station claimed an address of the port
  };

  explicit NeighbourTable(Own own) : own_(std::move(own)) {}

  // Finds the link address for packets from `source`, an address of the port, to `dest`. `done` is called
  // once, from here, on_message() or on_time(): with the address, or with ENETUNREACH (no network of the
  // port's has it, and there is no gateway), ETIMEDOUT (nobody answers) or ENOBUFS.
  using Done = std::function<void(Result<wire::MacAddress>)>;
  void resolve(const wire::Gid& source, const wire::Gid& dest, Instant now, Done done);
  void on_message(const wire::Resolution& heard, Instant now);
  // The link has come up, perhaps to somebody else: tells everybody of our addresses, and confirms what is
  // known when it is wanted again.
  void on_link_up(Instant now);
  // Does what is due; returns when it is to be called next.
  Instant on_time(Instant now);
  // False when there is nothing more to send.
  [[nodiscard]] bool poll_transmit(Outgoing& outgoing);
  // Whether a neighbour has another link address since the last call than resolve() gave.
  [[nodiscard]] bool take_changed() { return std::exchange(has_changed_, false); }

  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  enum class State : std::uint8_t {
    kAsking,     // no link address yet
    kReachable,  // confirmed within kReachable
    kStale,      // most likely right: given out, and confirmed then
    kProbing,    // given out, and being confirmed
  };
  struct Entry {
    State state = State::kAsking;
    wire::MacAddress mac{};
    wire::Gid source{};  // to ask from
    std::uint32_t asked = 0;
    Instant deadline;
    Instant used;
    std::vector<Done> waits;  // kAsking
  };
  using Entries = std::map<wire::Gid, Entry>;

  [[nodiscard]] bool is_own(const wire::Gid& gid) const;
  [[nodiscard]] Result<wire::Gid> next_hop(const wire::Gid& dest) const;
  [[nodiscard]] bool make_room();
  void ask(const wire::Gid& neighbour, Entry& entry, Instant now);
  void settle(Entry& entry, State state, Instant deadline);
  void on_question(const wire::Resolution& heard, Instant now);
  void on_answer(const wire::Resolution& heard, Instant now);
  void learn(Entry& entry, wire::MacAddress mac, bool is_confirmed, Instant now);
  void defend(const wire::Gid& address, const wire::MacAddress& other, Instant now);
  void announce(const wire::Gid& address);
  void send(const wire::Resolution& message, const wire::MacAddress& dest);
  void expire(Entries::iterator at, Instant now, std::vector<Done>& failed);

  Own own_;
  Entries entries_;
  std::deque<Outgoing> outgoing_;  // bounded
  Counters counters_;
  Instant next_ = Instant::never();  // no deadline is earlier
  Instant defended_;
  bool has_changed_ = false;
};

}  // namespace urdma::control
