// What the device is and can beyond the plain attributes: extended capabilities, its clock, order of data,
// connection enhancements (ECE).
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>
#include <ctime>

#include "provider/ibv/objects.hpp"

namespace urdma::provider {

namespace {

// The device's clock is CLOCK_MONOTONIC, in nanoseconds.
constexpr std::uint64_t kClockKilohertz = 1'000'000;
constexpr long kNanosecondsPerSecond = 1'000'000'000;

}  // namespace

// What stays 0 is what the device does not have: segmentation, RSS, pacing, raw packets, tag matching,
// moderation of CQs, atomics by PCI.
void describe_extensions(const abi::DeviceInfo& device, ibv_device_attr_ex& attributes) {
  attributes.completion_timestamp_mask = UINT64_MAX;
  attributes.hca_core_clock = kClockKilohertz;
  attributes.max_dm_size = device.max_dm_bytes;
}

int query_rt_values(ibv_context*, ibv_values_ex* values) {
  const std::uint32_t asked = values->comp_mask;
  values->comp_mask = 0;
  if ((asked & IBV_VALUES_MASK_RAW_CLOCK) != 0) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    // The cycles stand in the nanoseconds, however many.
    values->raw_clock = {0, now.tv_sec * kNanosecondsPerSecond + now.tv_nsec};
    values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  }
  return 0;
}

// Messages arrive in order, and the last byte of one last; how the rest of it is copied is nobody's promise.
int query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) { return 0; }

int query_ece(ibv_qp* qp, ibv_ece* ece) {
  *ece = {session_of(qp->context).device().vendor_id, 0, 0};
  return 0;
}

// There are no options to agree on: none is what any peer accepts.
int set_ece(ibv_qp*, ibv_ece* ece) { return ece->comp_mask != 0 || ece->options != 0 ? EINVAL : 0; }

}  // namespace urdma::provider
