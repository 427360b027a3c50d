// Why connections fail, in words (see failures.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/failures.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <ctime>

#include "datapath/control/device.hpp"
#include "datapath/control/gid_table.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::control {

const char* failure_text(transport::FailureReason reason) {
  using enum transport::FailureReason;
  switch (reason) {
    case kNone:
      return "";
    case kNoAnswer:
      return "nothing at all came back from the peer: its node is down, it has no such queue pair, a "
             "firewall drops "
             "UDP port 4791, or the path MTU is too large for the network";
    case kAnswersStopped:
      return "the peer answered before and then no more: its program or node is gone, or the network is";
    case kSequenceErrors:
      return "the peer kept saying that packets were missing: the network loses too many";
    case kReceiverNotReady:
      return "the peer had no receive posted (RNR) for as many tries as rnr_retry allows";
    case kRemoteAccess:
      return "the peer denied the access: wrong rkey, address out of the region, or an access flag that the "
             "region or "
             "the queue pair lacks";
    case kRemoteInvalidRequest:
      return "the peer took the request for invalid: its receive was too small, or it does not allow this "
             "operation";
    case kRemoteOperation:
      return "the peer could not carry the operation out: its program's memory is not there, or its own "
             "receive is bad";
    case kLocalProtection:
      return "a request named memory that its lkey does not cover, or that is not there";
    case kLocalLength:
      return "a message was longer than the receive that it met, or than a request may be";
    case kLocalOperation:
      return "a request was not of a form that this queue pair can carry out";
    case kBadResponse:
      return "the peer's answer did not fit the request";
    case kCqOverrun:
      return "the completion queue overran: it was smaller than the completions outstanding";
    case kFlushed:
      return "the queue pair was in the error state";
  }
  return "";
}

std::string failure_text(const Node& node, const ClientSession& session, const QpEntry& entry,
                         transport::FailureReason reason) {
  using enum transport::FailureReason;
  const bool is_silence = reason == kNoAnswer || reason == kAnswersStopped;
  if (!is_silence || entry.is_local || entry.address.is_global == 0) return failure_text(reason);
  const Device& device = node.devices.at(session.device);
  if (device.is_interface_gone) return fmt::format("the port's interface {} was removed", device.interface);
  if (device.gids.find(entry.source_gid) == nullptr) {
    return fmt::format("the source address {} is not the port's any more", gid_text(entry.source_gid));
  }
  if (!device.is_active) return "the port is down";
  if (entry.path_mtu_code > device.active_mtu_code) {
    return fmt::format("the path MTU of {} is too large for the interface now, whose MTU has become {}",
                       mtu_bytes(entry.path_mtu_code), device.mtu);
  }
  return failure_text(reason);
}

std::string peer_text(const abi::AddressVector& peer) {
  if (peer.is_global == 0) return "";
  wire::Gid gid{};
  std::copy(std::begin(peer.dest_gid), std::end(peer.dest_gid), gid.begin());
  return gid_text(gid);
}

void note_failure(Node& node, const ClientSession& session, std::uint32_t qpn, const abi::AddressVector& peer,
                  const std::string& reason) {
  const std::string to = peer_text(peer);
  spdlog::info("{} (process {}): QP {} to {}: {}", session.program, session.peer.pid, qpn, to, reason);
  node.failures.add({std::time(nullptr), session.program, session.peer.pid, qpn, to, reason});
}

}  // namespace urdma::control
