// Channels without a daemon (see removal.hpp).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "rdma_cm/removal.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>

#include "interpose/device_socket.hpp"
#include "interpose/raw.hpp"

namespace urdma::stub {
namespace {

constexpr std::uint32_t kIds = 65536;  // whose numbers are below that
constexpr std::uint32_t kAddressResolved = 0;
constexpr std::uint32_t kDeviceRemoval = 11;

// Of one ID; all zero: of none.
struct Note {
  std::atomic<std::uint64_t> channel;  // the cookie of its socket
  std::atomic<std::uint64_t> uid;      // the program's name for it
  std::atomic<std::uint32_t> events_reported;
  std::atomic<bool> is_on_device;  // and has not been told that it is gone
};

constinit std::atomic<Note*> table = nullptr;
constinit std::atomic<std::uint32_t> notes_end = 0;  // no number from here on has been noted

// Null where there is no memory for it: then programs get no more than EIO.
Note* notes() {
  Note* known = table.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  const long mapped = raw::call(SYS_mmap, nullptr, sizeof(Note) * kIds, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped < 0) return nullptr;
  Note* const fresh = reinterpret_cast<Note*>(mapped);
  if (table.compare_exchange_strong(known, fresh, std::memory_order_acq_rel)) return fresh;
  raw::call(SYS_munmap, fresh, sizeof(Note) * kIds);
  return known;
}

Note* note_of(std::uint32_t id) {
  Note* const all = id < kIds ? notes() : nullptr;
  return all != nullptr ? all + id : nullptr;
}

// Unlike its number and its inode, this is no other channel's later.
std::uint64_t cookie_of(int channel) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  raw::call(SYS_getsockopt, channel, SOL_SOCKET, SO_COOKIE, &cookie, &size);
  return cookie;
}

template <typename Structure>
Structure read_as(const void* bytes, std::size_t size) {
  Structure structure{};
  std::memcpy(&structure, bytes, size < sizeof(structure) ? size : sizeof(structure));
  return structure;
}

template <typename Structure>
long respond(const Exchange& wanted, const Structure& structure, std::size_t least) {
  if (wanted.response_bytes < least) return -ENOSPC;
  const std::size_t room = wanted.response_bytes;
  std::memcpy(wanted.response, &structure, room < sizeof(structure) ? room : sizeof(structure));
  return 0;
}

void note(int channel, std::uint32_t id, std::uint64_t uid, bool is_on_device) {
  Note* const noted = note_of(id);
  if (noted == nullptr) return;
  noted->uid.store(uid, std::memory_order_relaxed);
  noted->events_reported.store(0, std::memory_order_relaxed);
  noted->is_on_device.store(is_on_device, std::memory_order_relaxed);
  noted->channel.store(cookie_of(channel), std::memory_order_release);
  std::uint32_t end = notes_end.load(std::memory_order_relaxed);
  while (end <= id && !notes_end.compare_exchange_weak(end, id + 1, std::memory_order_release)) {
  }
}

void note_on_device(std::uint32_t id) {
  if (Note* const noted = note_of(id)) noted->is_on_device.store(true, std::memory_order_relaxed);
}

void forget(std::uint32_t id) {
  Note* const noted = note_of(id);
  if (noted == nullptr) return;
  noted->channel.store(0, std::memory_order_release);
  noted->is_on_device.store(false, std::memory_order_relaxed);
  noted->events_reported.store(0, std::memory_order_relaxed);
}

// An event counts for the ID that its uid names: of a request that is the listener, whose number it does not
// say.
void note_event(const rdma_ucm_event_resp& event) {
  Note* const all = notes();
  if (all == nullptr) return;
  const auto is_owner = [&](std::uint32_t id) {
    return all[id].channel.load(std::memory_order_relaxed) != 0 &&
           all[id].uid.load(std::memory_order_relaxed) == event.uid;
  };
  const std::uint32_t end = notes_end.load(std::memory_order_acquire);
  std::uint32_t owner = event.id;
  if (owner >= end || !is_owner(owner)) {
    for (owner = 0; owner < end && !is_owner(owner);) ++owner;
  }
  if (owner == end) return;
  all[owner].events_reported.fetch_add(1, std::memory_order_relaxed);
  if (event.event == kAddressResolved) note_on_device(owner);
}

bool names_a_device(const sockaddr_in6& address) {
  if (address.sin6_family == AF_INET)
    return read_as<sockaddr_in>(&address, sizeof(address)).sin_addr.s_addr != 0;
  constexpr in6_addr kAny{};
  return address.sin6_family == AF_INET6 && std::memcmp(&address.sin6_addr, &kAny, sizeof(kAny)) != 0;
}

// The next of the channel's IDs that has not been told; nothing: 0.
std::uint32_t take_untold(std::uint64_t channel) {
  Note* const all = notes();
  const std::uint32_t end = all != nullptr ? notes_end.load(std::memory_order_acquire) : 0;
  for (std::uint32_t id = 0; id < end; ++id) {
    if (channel == 0 || all[id].channel.load(std::memory_order_acquire) != channel) continue;
    if (all[id].is_on_device.exchange(false, std::memory_order_relaxed)) return id;
  }
  return 0;
}

// Whoever goes on asking, as the threads of rsockets do, is not to take a core for it.
long refuse_event() {
  static constinit std::atomic<std::uint32_t> refused = 0;
  constexpr std::uint32_t kAtOnce = 64;
  constexpr int kLaterMs = 20;
  if (refused.fetch_add(1, std::memory_order_relaxed) >= kAtOnce) raw::call(SYS_poll, nullptr, 0, kLaterMs);
  return -EIO;
}

long next_event(int channel, const Exchange& wanted) {
  constexpr std::size_t kLeast = offsetof(rdma_ucm_event_resp, reserved);
  if (wanted.response_bytes < kLeast) return -ENOSPC;
  const std::uint32_t id = take_untold(cookie_of(channel));
  if (id == 0) return refuse_event();
  Note& noted = *note_of(id);
  noted.events_reported.fetch_add(1, std::memory_order_relaxed);
  rdma_ucm_event_resp event{};
  event.uid = noted.uid.load(std::memory_order_relaxed);
  event.id = id;
  event.event = kDeviceRemoval;
  return respond(wanted, event, kLeast);
}

long destroy(int channel, const Exchange& wanted) {
  const std::uint32_t id = read_as<rdma_ucm_destroy_id>(wanted.body, wanted.body_bytes).id;
  Note* const noted = note_of(id);
  rdma_ucm_destroy_id_resp response{};
  const bool is_its =
      noted != nullptr && noted->channel.load(std::memory_order_acquire) == cookie_of(channel);
  if (is_its) response.events_reported = noted->events_reported.load(std::memory_order_relaxed);
  const long result = respond(wanted, response, sizeof(response));
  if (is_its && result == 0) forget(id);
  return result;
}

}  // namespace

void note_success(int channel, const Exchange& done) {
  switch (done.command) {
    case RDMA_USER_CM_CMD_CREATE_ID:
      return note(channel, read_as<rdma_ucm_create_id_resp>(done.response, done.response_bytes).id,
                  read_as<rdma_ucm_create_id>(done.body, done.body_bytes).uid, false);
    case RDMA_USER_CM_CMD_ACCEPT: {
      const auto accept = read_as<rdma_ucm_accept>(done.body, done.body_bytes);
      // The active side accepts without a name: it has one.
      if (accept.conn_param.valid != 0) note(channel, accept.id, accept.uid, true);
      return;
    }
    case RDMA_USER_CM_CMD_BIND_IP: {
      const auto bind = read_as<rdma_ucm_bind_ip>(done.body, done.body_bytes);
      if (names_a_device(bind.addr)) note_on_device(bind.id);
      return;
    }
    case RDMA_USER_CM_CMD_BIND: {
      const auto bind = read_as<rdma_ucm_bind>(done.body, done.body_bytes);
      if (names_a_device(read_as<sockaddr_in6>(&bind.addr, sizeof(bind.addr)))) note_on_device(bind.id);
      return;
    }
    case RDMA_USER_CM_CMD_GET_EVENT:
      return note_event(read_as<rdma_ucm_event_resp>(done.response, done.response_bytes));
    case RDMA_USER_CM_CMD_MIGRATE_ID:
      if (Note* const noted = note_of(read_as<rdma_ucm_migrate_id>(done.body, done.body_bytes).id))
        noted->channel.store(cookie_of(channel), std::memory_order_release);
      return;
    case RDMA_USER_CM_CMD_DESTROY_ID:
      return forget(read_as<rdma_ucm_destroy_id>(done.body, done.body_bytes).id);
    default:
      return;
  }
}

bool is_abandoned(int channel) {
  constexpr int kMomentMs = 100;
  pollfd state{channel, 0, 0};
  return raw::call(SYS_poll, &state, 1, kMomentMs) == 1 && (state.revents & POLLHUP) != 0;
}

long execute_abandoned(int channel, const Exchange& wanted) {
  static constinit std::atomic<bool> has_complained = false;
  complain_once(has_complained,
                "the daemon has ended, or has closed this program's channel of the connection manager; "
                "`urdma status` tells");
  switch (wanted.command) {
    case RDMA_USER_CM_CMD_GET_EVENT:
      return next_event(channel, wanted);
    case RDMA_USER_CM_CMD_DESTROY_ID:
      return destroy(channel, wanted);
    case RDMA_USER_CM_CMD_LEAVE_MCAST:
      return respond(wanted, rdma_ucm_destroy_id_resp{}, sizeof(rdma_ucm_destroy_id_resp));
    default:
      return -ENODEV;
  }
}

}  // namespace urdma::stub
