// The two halves of a queue pair, whatever its transport service: each holds the class that does the work,
// chosen when the QP is made, and passes calls on to it by a branch that goes the same way each time.
//
// Owner: a QueuePair. One thread at a time.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <variant>

#include "datapath/transport/datagram_responder.hpp"
#include "datapath/transport/requester.hpp"
#include "datapath/transport/responder.hpp"
#include "datapath/transport/unreliable_requester.hpp"
#include "datapath/transport/unreliable_responder.hpp"

namespace urdma::transport {

// Calls with the alternative that is there. The first one, that of reliable connections, is looked at first.
template <std::size_t kIndex = 0, typename Half, typename Call>
decltype(auto) call_half(Half& half, Call&& call) {
  if constexpr (kIndex + 1 == std::variant_size_v<std::remove_const_t<Half>>) {
    return call(*std::get_if<kIndex>(&half));
  } else {
    if (auto* alternative = std::get_if<kIndex>(&half)) [[likely]]
      return call(*alternative);
    return call_half<kIndex + 1>(half, std::forward<Call>(call));
  }
}

// What both halves have. `Alternatives` are the classes that may do the work.
template <typename... Alternatives>
class Half {
 public:
  [[nodiscard]] bool can_accept() const {
    return call_half(half_, [](auto& half) { return half.can_accept(); });
  }
  [[nodiscard]] std::uint32_t unanswered_operations() const {
    return call_half(half_, [](auto& half) { return half.unanswered_operations(); });
  }
  [[nodiscard]] bool can_transmit() const {
    return call_half(half_, [](auto& half) { return half.can_transmit(); });
  }
  [[nodiscard]] bool can_complete() const {
    return call_half(half_, [](auto& half) { return half.can_complete(); });
  }

  void configure(const QpAttributes& attributes) {
    call_half(half_, [&](auto& half) { half.configure(attributes); });
  }
  void start(Psn first_psn) {
    call_half(half_, [&](auto& half) { half.start(first_psn); });
  }
  void stop() {
    call_half(half_, [](auto& half) { half.stop(); });
  }
  void reset() {
    call_half(half_, [](auto& half) { half.reset(); });
  }
  [[nodiscard]] bool poll_completion(Completion& completion) {
    return call_half(half_, [&](auto& half) { return half.poll_completion(completion); });
  }

 protected:
  using Variant = std::variant<Alternatives...>;
  // `make` yields the variant in place: its alternatives are never moved.
  template <typename Make>
  explicit Half(Make make) : half_(make()) {}

  Variant half_;
};

// The methods are those of Requester.
class RequesterHalf : public Half<Requester, UnreliableRequester> {
 public:
  RequesterHalf(const QpConfig& config, QpCounters& counters)
      : Half([&] { return make(config, counters); }) {}

  [[nodiscard]] bool has_room() const {
    return call_half(half_, [](auto& half) { return half.has_room(); });
  }
  [[nodiscard]] Instant next_deadline() const {
    return call_half(half_, [](auto& half) { return half.next_deadline(); });
  }
  [[nodiscard]] bool has_failed() const {
    return call_half(half_, [](auto& half) { return half.has_failed(); });
  }
  [[nodiscard]] FailureReason failure_reason() const {
    return call_half(half_, [](auto& half) { return half.failure_reason(); });
  }
  [[nodiscard]] bool is_drained() const {
    return call_half(half_, [](auto& half) { return half.is_drained(); });
  }

  void drain() {
    call_half(half_, [](auto& half) { half.drain(); });
  }
  void resume(Instant now) {
    call_half(half_, [&](auto& half) { half.resume(now); });
  }
  void post(const SendRequest& request, std::span<const Sge> elements) {
    call_half(half_, [&](auto& half) { half.post(request, elements); });
  }

  [[nodiscard]] MemoryOp on_packet(const wire::Headers& headers, Instant now) {
    return call_half(half_, [&](auto& half) { return half.on_packet(headers, now); });
  }
  void on_memory_done(MemoryResult result) {
    call_half(half_, [&](auto& half) { half.on_memory_done(result); });
  }
  void on_local_done(MemoryResult result) {
    call_half(half_, [&](auto& half) { half.on_local_done(result); });
  }
  void on_departed() {
    if (auto* unreliable = std::get_if<UnreliableRequester>(&half_)) unreliable->on_departed();
  }
  void on_gather_failed(Psn psn) {
    call_half(half_, [&](auto& half) { half.on_gather_failed(psn); });
  }
  void on_deadline(Instant now) {
    call_half(half_, [&](auto& half) { half.on_deadline(now); });
  }

  [[nodiscard]] bool poll_transmit(Instant now, TxPacket& packet) {
    return call_half(half_, [&](auto& half) { return half.poll_transmit(now, packet); });
  }

 private:
  static Variant make(const QpConfig& config, QpCounters& counters) {
    const bool is_unreliable = config.type == QpType::kUc || config.type == QpType::kUd;
    if (is_unreliable) return Variant(std::in_place_type<UnreliableRequester>, config, counters);
    return Variant(std::in_place_type<Requester>, config, counters);
  }
};

// The methods are those of Responder, and of ReceiveSide.
class ResponderHalf : public Half<Responder, UnreliableResponder, DatagramResponder> {
 public:
  ResponderHalf(const QpConfig& config, QpCounters& counters)
      : Half([&] { return make(config, counters); }) {}

  [[nodiscard]] bool wants_receive() const {
    return call_half(half_, [](auto& half) { return half.wants_receive(); });
  }
  [[nodiscard]] bool needs_receive(const wire::Headers& headers) const {
    return call_half(half_, [&](auto& half) { return half.needs_receive(headers); });
  }
  [[nodiscard]] bool has_receives() const {
    return call_half(half_, [](auto& half) { return half.has_receives(); });
  }
  [[nodiscard]] ReceiveSide::Failure failure() const {
    return call_half(half_, [](auto& half) { return half.failure(); });
  }

  void offer_receive(const ReceiveRequest& request, std::span<const Sge> elements) {
    call_half(half_, [&](auto& half) { half.offer_receive(request, elements); });
  }

  [[nodiscard]] MemoryOp on_packet(const wire::Headers& headers) {
    return call_half(half_, [&](auto& half) { return half.on_packet(headers); });
  }
  void on_memory_done(MemoryResult result, std::uint64_t original) {
    call_half(half_, [&](auto& half) { half.on_memory_done(result, original); });
  }
  void on_gather_failed(Psn psn, MemoryResult result) {
    call_half(half_, [&](auto& half) { half.on_gather_failed(psn, result); });
  }

  [[nodiscard]] bool poll_transmit(TxPacket& packet) {
    return call_half(half_, [&](auto& half) { return half.poll_transmit(packet); });
  }

 private:
  static Variant make(const QpConfig& config, QpCounters& counters) {
    switch (config.type) {
      case QpType::kRc:
      case QpType::kXrcSend:
      case QpType::kXrcRecv:
        break;
      case QpType::kUc:
        return Variant(std::in_place_type<UnreliableResponder>, config, counters);
      case QpType::kUd:
        return Variant(std::in_place_type<DatagramResponder>, config, counters);
    }
    return Variant(std::in_place_type<Responder>, config, counters);
  }
};

}  // namespace urdma::transport
