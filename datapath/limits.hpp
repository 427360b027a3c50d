// The node's limits, in one place: what the tables and pools are sized by at start, what the daemon
// enforces, and what ibv_query_device reports. Set once before any thread starts, then read-only.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

namespace urdma {

struct Limits {
  // Of the node
  std::uint32_t max_connections = 4096;
  std::uint32_t max_sessions = 512;
  std::uint32_t max_qp = 16384;
  std::uint32_t max_cq = 16384;
  std::uint32_t max_mr = 65536;
  std::uint32_t max_mw = 65536;
  std::uint32_t max_pd = 16384;
  std::uint32_t max_srq = 8192;
  std::uint32_t max_xrcd = 4096;
  std::uint64_t max_queue_bytes = std::uint64_t{16} << 30;
  std::uint32_t max_extents = 16384;  // of the 65,530 mappings that Linux allows a process
  std::uint32_t max_ah = 65536;
  std::uint32_t max_mcast_groups = 512;  // of each port, counted together
  std::uint32_t max_mcast_members_in_all = 8192;
  // Of the daemon's, for completion channels and device memory: half of those that the process may have,
  // which is found out at start.
  std::uint32_t max_descriptors = 512;
  std::uint32_t max_rdma_cm_channels = 8192;  // each holds a descriptor of the daemon's
  std::uint32_t max_rdma_cm_ids = 65535;
  std::uint32_t max_rdma_cm_connections = 32768;  // of each device, those in time-wait too
  // Of one client
  std::uint32_t max_qp_of_session = 8192;
  std::uint32_t max_cq_of_session = 8192;
  std::uint32_t max_mr_of_session = 32768;
  std::uint32_t max_mw_of_session = 32768;
  std::uint32_t max_pd_of_session = 4096;
  std::uint32_t max_srq_of_session = 4096;
  std::uint32_t max_xrcd_of_session = 1024;
  std::uint32_t max_ah_of_session = 8192;
  std::uint32_t max_mcast_groups_of_session = 256;
  std::uint32_t max_mcast_members_of_session = 4096;
  std::uint64_t max_queue_bytes_of_session = std::uint64_t{4} << 30;  // shared memory of its CQs and QPs
  std::uint64_t max_converted_bytes_of_session = std::uint64_t{16} << 30;
  std::uint32_t max_extents_of_session = 4096;          // each is a mapping of the daemon's
  std::uint32_t max_extents_in_making_of_session = 16;  // each holds a descriptor of the daemon's
  std::uint32_t max_dm_of_session = 256;                // each holds a descriptor of the daemon's
  std::uint32_t max_dm_bytes_of_session = 4U << 20;
  // Of one object
  std::uint32_t max_qp_wr = 16384;
  std::uint32_t max_srq_wr = 16384;
  std::uint32_t max_sge = 32;  // also of an SRQ's requests
  std::uint32_t max_inline_bytes = 1024;
  std::uint32_t max_cqe = 1U << 20;
  std::uint64_t max_mr_bytes = std::uint64_t{1} << 40;
  // READs and atomics of a QP that are under way, as requester and as responder. As many as rxe has, since
  // perftest asks for all that its own device has, and the peer's must do as well. A responder keeps 184
  // bytes for each that its QP asks for, 23 KiB at most; a requester nothing.
  std::uint32_t max_rd_atomic = 128;
  std::uint32_t max_dest_rd_atomic = 128;
  std::uint32_t max_mcast_members = 64;  // queue pairs of a multicast group
  std::uint32_t gid_table_length = 128;
};

}  // namespace urdma
