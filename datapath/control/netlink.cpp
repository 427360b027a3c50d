// Addresses, their changes, and neighbour resolution over netlink: see netlink.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/netlink.hpp"

#include <fmt/format.h>
#include <linux/rtnetlink.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "datapath/control/kernel_network.hpp"
#include "urdma/wire/resolution.hpp"

namespace urdma::control {
namespace {

using NeighbourKey = std::pair<int, wire::Gid>;

constexpr std::size_t kMostWaits = 65536;

class KernelNetlink final : public Netlink {
 public:
  KernelNetlink(std::unique_ptr<KernelNetwork> network, std::function<void()> on_change)
      : network_(std::move(network)), on_change_(std::move(on_change)) {}
  ~KernelNetlink() override { nl_socket_free(events_); }

  [[nodiscard]] Status subscribe();

  [[nodiscard]] int descriptor() const override { return nl_socket_get_fd(events_); }
  void handle() override;
  [[nodiscard]] Result<InterfaceState> interface(const std::string& name) override;
  [[nodiscard]] std::vector<InterfaceState> interfaces() override { return network_->interfaces(); }
  void resolve(int index, const wire::Gid& source, const wire::Gid& dest, Instant deadline,
               ResolveDone done) override;
  std::optional<std::uint8_t> hop_limit(int index, const wire::Gid& source, const wire::Gid& dest) override;
  std::optional<RouteSource> find_source(int index, const wire::Gid& dest) override {
    return network_->find_source(index, dest);
  }
  Instant expire(Instant now) override;

 private:
  struct Wait {
    int index = 0;
    wire::Gid next_hop{};
    ResolveDone done;
  };

  static int on_event(nl_msg* message, void* self);
  void note_event(nlmsghdr* message);
  [[nodiscard]] std::optional<Result<wire::MacAddress>> answer_at_once(int index, const wire::Gid& dest);
  void remember(int index, const wire::Gid& next_hop, const wire::MacAddress& mac);
  void check_waits();

  std::unique_ptr<KernelNetwork> network_;
  std::function<void()> on_change_;
  nl_sock* events_ = nullptr;
  std::multimap<Instant, Wait> waits_;  // by deadline
  // What has been given out, to notice when it becomes wrong.
  std::map<NeighbourKey, wire::MacAddress> given_;
  bool has_changed_ = false;
  bool has_neighbour_event_ = false;
};

Status KernelNetlink::subscribe() {
  events_ = nl_socket_alloc();
  if (events_ == nullptr) return fail(ENOMEM, "no memory for a netlink socket");
  nl_socket_disable_seq_check(events_);
  nl_socket_modify_cb(events_, NL_CB_VALID, NL_CB_CUSTOM, &KernelNetlink::on_event, this);
  int result = nl_connect(events_, NETLINK_ROUTE);
  if (result >= 0) {
    result = nl_socket_add_memberships(events_, RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR,
                                       RTNLGRP_NEIGH, NFNLGRP_NONE);
  }
  if (result >= 0) result = nl_socket_set_nonblocking(events_);
  if (result >= 0) return {};
  return fail(EIO,
              fmt::format("the kernel does not tell of changes of the network: {}", nl_geterror(result)));
}

int KernelNetlink::on_event(nl_msg* message, void* self) {
  static_cast<KernelNetlink*>(self)->note_event(nlmsg_hdr(message));
  return NL_OK;
}

void KernelNetlink::note_event(nlmsghdr* message) {
  if (message->nlmsg_type != RTM_NEWNEIGH && message->nlmsg_type != RTM_DELNEIGH) {
    has_changed_ = true;
    return;
  }
  has_neighbour_event_ = true;
  const auto neighbour = message->nlmsg_type == RTM_NEWNEIGH ? parse_neighbour(message) : std::nullopt;
  if (!neighbour || !has_address(neighbour->state)) return;
  const auto given = given_.find({neighbour->index, neighbour->gid});
  if (given == given_.end() || given->second == neighbour->mac) return;
  given->second = neighbour->mac;
  has_changed_ = true;
}

void KernelNetlink::handle() {
  int result = 0;
  while (result >= 0) result = nl_recvmsgs_default(events_);
  // Events were lost: anything may have changed.
  if (result != -NLE_AGAIN) has_changed_ = has_neighbour_event_ = true;
  if (std::exchange(has_neighbour_event_, false)) check_waits();
  if (std::exchange(has_changed_, false) && on_change_) on_change_();
}

Result<InterfaceState> KernelNetlink::interface(const std::string& name) {
  for (InterfaceState& state : network_->interfaces()) {
    if (state.name == name) return std::move(state);
  }
  return fail(ENODEV,
              fmt::format("there is no network interface '{}': 'ip link' shows those there are", name));
}

// Destinations that no neighbour has to be asked for: groups, and the interface's own addresses.
std::optional<Result<wire::MacAddress>> KernelNetlink::answer_at_once(int index, const wire::Gid& dest) {
  if (const auto mac = wire::multicast_mac(dest)) return *mac;
  const auto states = network_->interfaces();
  const auto state =
      std::find_if(states.begin(), states.end(), [&](const auto& s) { return s.index == index; });
  if (state == states.end()) return fail(ENETUNREACH, fmt::format("interface {} is gone", index));
  const bool has_no_link_address = state->mac == wire::MacAddress{};  // lo
  const bool is_own = std::any_of(state->addresses.begin(), state->addresses.end(),
                                  [&](const auto& address) { return address.gid == dest; });
  if (is_own || has_no_link_address) return state->mac;
  return std::nullopt;
}

void KernelNetlink::resolve(int index, const wire::Gid& source, const wire::Gid& dest, Instant deadline,
                            ResolveDone done) {
  if (auto answer = answer_at_once(index, dest)) return done(std::move(*answer));
  const auto next_hop = network_->next_hop(index, source, dest);
  if (!next_hop) return done(tl::make_unexpected(next_hop.error()));

  if (waits_.size() >= kMostWaits) return done(fail(ENOBUFS, "too many neighbours are being looked for"));
  const auto all = network_->neighbours();
  const auto known = std::find_if(all.begin(), all.end(), [&](const Neighbour& neighbour) {
    return neighbour.index == index && neighbour.gid == *next_hop;
  });
  const NeighbourState state = known == all.end() ? NeighbourState::kUnknown : known->state;
  // A stale address is most likely right, and is used while the kernel confirms it. An old failure says
  // little.
  if (state != NeighbourState::kUsable) network_->solicit(index, source, dest, *next_hop);
  if (has_address(state)) {
    remember(index, *next_hop, known->mac);
    return done(known->mac);
  }
  waits_.emplace(deadline, Wait{index, *next_hop, std::move(done)});
}

std::optional<std::uint8_t> KernelNetlink::hop_limit(int index, const wire::Gid& source,
                                                     const wire::Gid& dest) {
  if (wire::multicast_mac(dest)) return std::nullopt;
  return network_->hop_limit(index, source, dest);
}

void KernelNetlink::remember(int index, const wire::Gid& next_hop, const wire::MacAddress& mac) {
  constexpr std::size_t kMostGiven = 65536;
  if (given_.size() >= kMostGiven) given_.clear();
  given_[{index, next_hop}] = mac;
}

void KernelNetlink::check_waits() {
  if (waits_.empty()) return;
  std::map<NeighbourKey, Neighbour> all;
  for (const Neighbour& neighbour : network_->neighbours()) all[{neighbour.index, neighbour.gid}] = neighbour;

  // `done` may call resolve(), so the waits are taken out first.
  std::multimap<Instant, Wait> waits = std::exchange(waits_, {});
  for (auto& [deadline, wait] : waits) {
    const Neighbour neighbour = all[{wait.index, wait.next_hop}];
    switch (neighbour.state) {
      case NeighbourState::kUnknown:
        waits_.emplace(deadline, std::move(wait));
        break;
      case NeighbourState::kFailed:
        wait.done(fail(EHOSTUNREACH, "the peer, or the gateway to it, does not answer on the link"));
        break;
      case NeighbourState::kStale:
      case NeighbourState::kUsable:
        remember(wait.index, wait.next_hop, neighbour.mac);
        wait.done(neighbour.mac);
        break;
    }
  }
}

Instant KernelNetlink::expire(Instant now) {
  while (!waits_.empty() && waits_.begin()->first <= now) {
    const ResolveDone done = std::move(waits_.extract(waits_.begin()).mapped().done);
    done(fail(ETIMEDOUT, "the peer, or the gateway to it, was not found on the link in time"));
  }
  return waits_.empty() ? Instant::never() : waits_.begin()->first;
}

}  // namespace

Result<std::unique_ptr<Netlink>> Netlink::create(std::function<void()> on_change) {
  auto network = KernelNetwork::create();
  if (!network) return tl::make_unexpected(network.error());
  auto netlink = std::make_unique<KernelNetlink>(std::move(*network), std::move(on_change));
  if (auto subscribed = netlink->subscribe(); !subscribed) return tl::make_unexpected(subscribed.error());
  return netlink;
}

}  // namespace urdma::control
