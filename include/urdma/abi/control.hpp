// The control messages between a client and its daemon, over Unix SOCK_SEQPACKET sockets in the node's
// directory: `dev/uverbsN` for device N (its path, which getpeername tells, says what a descriptor is),
// and `control.sock` for everything else. One message is one datagram: a Header, then the body named by its
// type. Every request has one reply, with the same type and sequence; an error is a reply whose
// Header::error is a positive errno, whose body is an ErrorText. File descriptors travel by SCM_RIGHTS, in
// the order given beside each message; the receiver owns them.
//
// Connections of one client context:
//  identity  what open("/dev/infiniband/uverbsN") yields: connected to dev/uverbsN. The daemon sends one
//            Welcome at once, which is never taken from the socket (MSG_PEEK), so that whoever holds a
//            duplicate can read it. Nothing else is sent. The session lives until the last copy is closed.
//  request   connected to control.sock by the provider, which sends Hello with the token of the Welcome.
//  upcall    connected by the provider's service thread, which sends AttachUpcall. The daemon sends
//            ConvertRange requests on it. Its end-of-file says that the daemon is gone.
// A connection that sends Status, and nothing else, needs no token.
//
// Fixed widths, explicit padding, host byte order (both ends are one machine).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "urdma/abi/conversion.hpp"
#include "urdma/abi/version.hpp"

namespace urdma::abi {

inline constexpr std::size_t kMaxMessageBytes = 8192;
inline constexpr std::size_t kMaxMessageFds = kMaxEngines + 2;
inline constexpr const char* kControlSocket = "control.sock";  // in the node's directory
inline constexpr const char* kDeviceDirectory = "dev";         // holds the sockets uverbsN
inline constexpr const char* kSysfsDirectory = "sysfs";        // stands for /sys
// Holds the daemon's process id. The daemon has an exclusive flock on it for life.
inline constexpr const char* kLockFile = "pid";
// Names the node's directory to the stub and the provider; `urdma run` sets it.
inline constexpr const char* kNodeVariable = "URDMA_NODE_DIR";
inline constexpr std::size_t kNameBytes = 64;

enum class MessageType : std::uint32_t {
  kWelcome = 1,
  kHello = 2,
  kAttachUpcall = 3,
  kQueryDevice = 4,
  kQueryPort = 5,
  kQueryGidTable = 6,
  kAllocPd = 7,
  kDeallocPd = 8,
  kRegMr = 9,
  kDeregMr = 10,
  kCreateCq = 11,
  kDestroyCq = 12,
  kCreateQp = 13,
  kModifyQp = 14,
  kQueryQp = 15,
  kDestroyQp = 16,
  kConvertBegin = 17,
  kConvertDone = 18,
  kConvertRange = 19,
  kRevert = 20,
  kShareMapping = 21,
  kStatus = 22,
  kReregMr = 23,
  kAllocNullMr = 24,
  kAllocMw = 25,
  kDeallocMw = 26,
  kCreateAh = 27,
  kDestroyAh = 28,
  kCreateSrq = 29,
  kModifySrq = 30,
  kQuerySrq = 31,
  kDestroySrq = 32,
  kOpenXrcd = 33,
  kCloseXrcd = 34,
  kOpenQp = 35,
  kAttachMcast = 36,
  kDetachMcast = 37,
  kResizeCq = 38,
  kImportPd = 39,
  kImportMr = 40,
  kAllocDm = 41,
  kFreeDm = 42,
  kImportDm = 43,
};

struct Header {
  std::uint32_t type;   // MessageType
  std::uint32_t error;  // replies: 0 or a positive errno
  std::uint64_t sequence;
};
static_assert(sizeof(Header) == 16);

// The body of every reply with an error: a sentence for a person, NUL-terminated.
struct ErrorText {
  char text[240];
};

struct Token {
  std::uint8_t bytes[16];
};

// Daemon to client, on the identity connection.
struct Welcome {
  std::uint32_t magic;
  std::uint32_t version;
  Token token;
  std::uint32_t device_index;
  std::uint32_t daemon_pid;
};
static_assert(sizeof(Welcome) == 32);

// Fds: /proc/self/mem opened O_RDWR; the async event pipe, which the daemon reopens for writing.
struct Hello {
  std::uint32_t magic;
  std::uint32_t version;
  Token token;
  char program[32];  // for `urdma status`
};

// What `ibv_query_device` reports: the limits that the daemon enforces.
struct DeviceInfo {
  char name[kNameBytes];
  char firmware[kNameBytes];
  std::uint64_t node_guid;  // network order, as verbs has it
  std::uint64_t system_image_guid;
  std::uint64_t max_mr_size;
  std::uint64_t page_size_cap;
  std::uint32_t vendor_id;
  std::uint32_t vendor_part_id;
  std::uint32_t hardware_version;
  std::uint32_t max_qp;
  std::uint32_t max_qp_wr;
  std::uint32_t max_sge;
  std::uint32_t max_sge_rd;
  std::uint32_t max_inline;
  std::uint32_t max_cq;
  std::uint32_t max_cqe;
  std::uint32_t max_mr;
  std::uint32_t max_pd;
  std::uint32_t max_ah;
  std::uint32_t max_qp_rd_atomic;
  std::uint32_t max_res_rd_atomic;
  std::uint32_t ports;
  std::uint32_t max_srq;
  std::uint32_t max_srq_wr;
  std::uint32_t max_srq_sge;
  std::uint32_t max_mw;
  std::uint32_t max_mcast_grp;
  std::uint32_t max_mcast_qp_attach;
  std::uint32_t max_total_mcast_qp_attach;
  std::uint32_t max_dm_bytes;
};

// Reply to Hello. Fds: the EnginePage (read-only), the SessionPage, one eventfd an engine.
struct HelloReply {
  std::uint32_t session_id;
  std::uint32_t engine_count;
  std::uint32_t convert;       // not zero: conversion of private memory is on
  std::uint32_t idle_polling;  // not zero: engines never sleep, and clients need not yield
  DeviceInfo device;
};

struct AttachUpcall {
  Token token;
};

struct QueryDevice {};  // reply: DeviceInfo

struct QueryPort {
  std::uint32_t port;
};

struct QueryPortReply {
  std::uint32_t state;   // ibv_port_state
  std::uint8_t max_mtu;  // MTU codes
  std::uint8_t active_mtu;
  std::uint8_t active_width;
  std::uint8_t active_speed;
  std::uint8_t physical_state;
  std::uint8_t reserved[3];
  std::uint32_t gid_table_length;
  std::uint32_t pkey_table_length;
  std::uint32_t max_message_bytes;
};

struct QueryGidTable {
  std::uint32_t port;
  std::uint32_t reserved;
};

struct GidEntry {
  std::uint8_t gid[16];
  std::uint32_t index;
  std::uint32_t ifindex;  // 0: none
};

// Followed by nothing: `count` entries are in use.
struct QueryGidTableReply {
  static constexpr std::size_t kMaxEntries = 128;
  std::uint32_t count;
  std::uint32_t reserved;
  GidEntry entries[kMaxEntries];
};
static_assert(sizeof(QueryGidTableReply) + sizeof(Header) <= kMaxMessageBytes);

struct AllocPd {};

// Reply to AllocPd, and the whole of every destroying request.
struct Handle {
  std::uint32_t handle;
  std::uint32_t reserved;
};

// The client has seen to it that every page is there (EFAULT otherwise); the daemon judges the
// flags, the limits and the protection domain. `iova` is the address that remote peers and
// work requests use for the first byte: equal to `address`, or the caller's choice, or 0.
struct RegMr {
  std::uint32_t pd;
  std::uint32_t access;
  std::uint64_t address;
  std::uint64_t length;
  std::uint64_t iova;
};

struct RegMrReply {
  std::uint32_t handle;
  std::uint32_t key;  // lkey and rkey
};

// The region keeps its handle. What is not named by `flags` (kRereg...) stays as it was; on an error, all of
// it. Reply: RegMrReply, once no access by the old state is under way. With a new translation the key is new
// and the old one dead; otherwise it stays, which programs rely on.
inline constexpr std::uint32_t kReregTranslation = 1U << 0;
inline constexpr std::uint32_t kReregPd = 1U << 1;
inline constexpr std::uint32_t kReregAccess = 1U << 2;

struct ReregMr {
  std::uint32_t handle;
  std::uint32_t flags;
  RegMr region;
};

// A region that has every address and no memory: reads yield zeros, writes go nowhere. Reply: RegMrReply.
struct AllocNullMr {
  std::uint32_t pd;
  std::uint32_t reserved;
};

// Objects of another context, maybe of another process, that was opened with the same identity
// (ibv_import_device). ImportPd has a Handle, as its context knows it, and so has its reply: this context has
// it by the same handle from then on, and either may deallocate it for itself. A region is found by its keys.
struct ImportMr {
  std::uint32_t pd;  // of this context, the region's
  std::uint32_t handle;
};

struct ImportMrReply {
  std::uint32_t handle;
  std::uint32_t key;
  std::uint64_t length;
  std::uint64_t iova;
};

// Device memory: pages that the daemon made, mapped by the program, and registered like any others. FreeDm
// and ImportDm have a Handle, ImportDm that of another context of the same identity; it makes no object. The
// pages stay while anybody maps them. Reply to AllocDm and ImportDm: DmReply; Fds: the memory.
struct AllocDm {
  std::uint64_t length;
};

struct DmReply {
  std::uint32_t handle;
  std::uint32_t reserved;
  std::uint64_t length;        // as it was asked for
  std::uint64_t memory_bytes;  // whole pages
};

// Memory windows (IBTA 10.6.7). Bound and invalidated by work requests, found by their rkey. Reply:
// AllocMwReply; DeallocMw has a Handle.
struct AllocMw {
  std::uint32_t pd;
  std::uint32_t type;  // 1 or 2
};

struct AllocMwReply {
  std::uint32_t handle;
  std::uint32_t rkey;
};

// Fds: none, or the completion channel's pipe, which the daemon reopens for writing.
struct CreateCq {
  std::uint64_t user_pointer;  // what channel and async events carry: the ibv_cq *
  std::uint32_t depth;
  std::uint32_t has_channel;
  std::uint32_t completion_vector;
  std::uint32_t reserved;
};

// Fds: the CQ's memory. The reply to ResizeCq, too: the engine has put what was in the old ring and not
// polled (by the old page's consumer) at the start of the new one, as completions 0, 1, ... of it.
struct CreateCqReply {
  std::uint32_t handle;
  std::uint32_t depth;  // a power of two, at least what was asked for
  std::uint64_t memory_bytes;
};

struct ResizeCq {
  std::uint32_t handle;
  std::uint32_t depth;
};

struct QpCapabilities {
  std::uint32_t max_send_wr;
  std::uint32_t max_recv_wr;
  std::uint32_t max_send_sge;
  std::uint32_t max_recv_sge;
  std::uint32_t max_inline_data;
};

struct CreateQp {
  std::uint64_t user_pointer;  // what async events carry: the ibv_qp *
  std::uint32_t pd;
  std::uint32_t send_cq;
  std::uint32_t recv_cq;
  std::uint32_t type;  // QpType
  std::uint32_t signal_all;
  std::uint32_t cookie;  // comes back in every Cqe of this QP
  QpCapabilities cap;
  std::uint32_t srq;   // handle; 0: none. The QP then has no receive ring
  std::uint32_t xrcd;  // handle, for kXrcRecv: it has no PD, CQs or rings of its own
  std::uint32_t reserved;
};

// Fds: the QP's memory.
struct CreateQpReply {
  std::uint32_t handle;
  std::uint32_t qpn;
  std::uint32_t doorbell;  // the bit on the session's boards
  std::uint32_t reserved;
  QpCapabilities cap;         // granted: at least what was asked for
  std::uint32_t send_slots;   // powers of two
  std::uint32_t send_stride;  // bytes a slot
  std::uint32_t receive_slots;
  std::uint32_t receive_stride;
  std::uint32_t padding;
  std::uint64_t send_offset;  // bytes from the start of the memory
  std::uint64_t receive_offset;
  std::uint64_t memory_bytes;
};

// Another process's XRC receive QP, by its number (ibv_open_qp). Reply: CreateQpReply with handle and qpn; it
// is closed by DestroyQp, and the QP goes with its last user.
struct OpenQp {
  std::uint64_t user_pointer;
  std::uint32_t xrcd;
  std::uint32_t qpn;
};

// An XRC domain: the same for all processes that name the same file. Fds: none, or the file. Reply: Handle.
struct OpenXrcd {
  std::uint32_t flags;  // as open: O_CREAT, O_EXCL
  std::uint32_t has_file;
};

// Fds: none; an XRC SRQ completes into `cq`. Reply: CreateSrqReply with the SRQ's memory (abi/queues.hpp).
struct CreateSrq {
  std::uint64_t user_pointer;  // what async events carry: the ibv_srq *
  std::uint32_t pd;
  std::uint32_t type;    // 0 basic, 1 XRC
  std::uint32_t xrcd;    // XRC
  std::uint32_t cq;      // XRC
  std::uint32_t cookie;  // comes back in Cqe::srq_cookie
  std::uint32_t max_wr;
  std::uint32_t max_sge;
  std::uint32_t limit;
};

struct CreateSrqReply {
  std::uint32_t handle;
  std::uint32_t number;  // XRC: what peers call it
  std::uint32_t max_wr;  // granted
  std::uint32_t max_sge;
  std::uint32_t slots;   // a power of two
  std::uint32_t stride;  // bytes a slot
  std::uint64_t slots_offset;
  std::uint64_t memory_bytes;
};

// `mask` as ibv_srq_attr_mask: 1 max_wr (a new ring: as the reply to CreateSrq, with what had not been taken
// yet moved to its start), 2 limit. Reply: CreateSrqReply; Fds: the new memory with a new ring, else none.
struct ModifySrq {
  std::uint32_t handle;
  std::uint32_t mask;
  std::uint32_t max_wr;
  std::uint32_t limit;
};

struct QuerySrqReply {
  std::uint32_t max_wr;
  std::uint32_t max_sge;
  std::uint32_t limit;
  std::uint32_t reserved;
};

struct AddressVector {
  std::uint8_t dest_gid[16];
  std::uint32_t flow_label;
  std::uint8_t source_gid_index;
  std::uint8_t hop_limit;
  std::uint8_t traffic_class;
  std::uint8_t is_global;
  std::uint8_t service_level;
  std::uint8_t port;
  std::uint8_t static_rate;
  std::uint8_t reserved[5];
};
static_assert(sizeof(AddressVector) == 32);

// Where datagrams go. Reply: Handle, which SendWqe::address_handle names; DestroyAh has a Handle. The reply
// may take as long as finding the neighbour does.
struct CreateAh {
  std::uint32_t pd;
  std::uint32_t reserved;
  AddressVector address;
};

// AttachMcast and DetachMcast.
struct McastMembership {
  std::uint32_t qp;  // handle
  std::uint32_t reserved;
  std::uint8_t gid[16];
};

// ibv_qp_attr, as far as a device without automatic path migration has it.
struct QpAttributes {
  std::uint8_t state;
  std::uint8_t current_state;
  std::uint8_t path_mtu;  // MTU code
  std::uint8_t max_rd_atomic;
  std::uint8_t max_dest_rd_atomic;
  std::uint8_t min_rnr_timer;
  std::uint8_t timeout;
  std::uint8_t retry_count;
  std::uint8_t rnr_retry;
  std::uint8_t port;
  std::uint8_t sq_draining;
  std::uint8_t reserved0;
  std::uint32_t qkey;
  std::uint32_t rq_psn;
  std::uint32_t sq_psn;
  std::uint32_t dest_qpn;
  std::uint32_t access_flags;
  std::uint32_t pkey_index;
  std::uint32_t reserved1;
  AddressVector address;
};

struct ModifyQp {
  std::uint32_t handle;
  std::uint32_t mask;  // kAttrState ...
  QpAttributes attributes;
};

struct QueryQpReply {
  QpAttributes attributes;
  QpCapabilities cap;
  std::uint32_t signal_all;
};

// Reply to Status. Fds: a file with one JSON document.
struct StatusReply {
  std::uint64_t json_bytes;
};

static_assert(sizeof(AllocMwReply) == sizeof(Handle));
static_assert(std::is_standard_layout_v<ModifyQp> && std::is_trivially_copyable_v<ModifyQp>);
static_assert(std::is_standard_layout_v<HelloReply> && std::is_trivially_copyable_v<HelloReply>);

}  // namespace urdma::abi
