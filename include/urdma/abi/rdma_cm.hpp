// How the stand-in for /dev/infiniband/rdma_cm speaks to the daemon. The commands themselves, and their
// answers, are the kernel's (<rdma/rdma_user_cm.h>, version 4): the stand-in carries them over unread, but
// for pointers and descriptors, which mean something in its own process only; the daemon gives them their
// meaning.
//
// open("/dev/infiniband/rdma_cm") yields a Unix SOCK_SEQPACKET socket connected to dev/rdma_cm of the node: a
// *channel*. Its path, which getpeername tells, says what a descriptor is. Duplicates, children and whoever
// is passed it have the same channel, which lives until its last copy is closed; its ids go with it.
//  client to daemon  a Command, the command's structure and what belongs to it. Fds: the socket that the
//  answer
//                    goes to, of which the daemon keeps its copy no longer than until then: any number of
//                    threads and processes ask on one channel at once, and none takes another's answer.
//  daemon to client  on the answer's socket: an Answer and the response structure. On the channel: one
//  EventToken
//                    for each event that waits, though never more than kMostTokens at a time, so that poll()
//                    works. Whoever has taken a token asks for an event (GET_EVENT); EAGAIN: its event has
//                    gone meanwhile with its id, and another token is to be waited for.
// A message without a socket is what a program wrote that is no command: it is ignored. Other nonsense on a
// channel closes it.
//
// Fixed widths, explicit padding, host byte order (both ends are one machine).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <type_traits>

#include "urdma/abi/version.hpp"

namespace urdma::abi::rdma_cm {

inline constexpr const char* kDevice = "rdma_cm";  // the socket in the node's device directory
inline constexpr std::uint32_t kMostTokens = 64;
inline constexpr std::uint32_t kMostCommandBytes = 1024;  // of a command with its option value
inline constexpr std::uint32_t kMostResponseBytes = 4096;

// A command that is no kernel's: the channel lets go of `id`, for the MIGRATE_ID of another channel that
// names the ticket. Body: OfferId; response: OfferIdResponse.
inline constexpr std::uint32_t kOfferId = 0x1000;

// Another one: so many tokens have been taken out of the channel for nothing, after a command with which
// events may have gone. The daemon puts in those that there are events for, so that poll() does not say what
// is not so. Body: ReturnTokens.
inline constexpr std::uint32_t kReturnTokens = 0x1001;

// Whose commands these are, so that a program that outlives its daemon is not taken for another one: the
// answer is EPROTO.
inline constexpr std::uint32_t kProtocol = 0x7572'0000 | kVersion;

struct Command {
  std::uint32_t command;         // RDMA_USER_CM_CMD_..., or kOfferId
  std::uint32_t body_bytes;      // of the structure as the program wrote it, whose pointers are ignored
  std::uint32_t extra_bytes;     // behind it: SET_OPTION: the value; MIGRATE_ID: the ticket (8)
  std::uint32_t response_bytes;  // room for the response
  std::uint32_t protocol = kProtocol;
};
static_assert(sizeof(Command) == 20);

struct Answer {
  std::uint32_t error;           // 0 or a positive errno
  std::uint32_t response_bytes;  // that follow
};
static_assert(sizeof(Answer) == 8);

struct EventToken {
  std::uint32_t reserved;
};

struct OfferId {
  std::uint32_t id;
};

struct ReturnTokens {
  std::uint32_t count;
};

struct OfferIdResponse {
  std::uint64_t ticket;
};

static_assert(std::is_standard_layout_v<Command> && std::is_trivially_copyable_v<Command>);

}  // namespace urdma::abi::rdma_cm
