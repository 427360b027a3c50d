// A QP's attributes in two forms (see qp_attributes.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/qp_attributes.hpp"

#include <fmt/format.h>

#include "urdma/base/verbs.hpp"

namespace urdma::control {
namespace {

constexpr std::uint32_t kKnownAttributes =
    kAttrState | kAttrCurState | kAttrSqdNotify | kAttrAccessFlags | kAttrPkeyIndex | kAttrPort | kAttrQkey |
    kAttrAv | kAttrPathMtu | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrRqPsn | kAttrMaxQpRdAtomic |
    kAttrMinRnrTimer | kAttrSqPsn | kAttrMaxDestRdAtomic | kAttrDestQpn;
constexpr std::uint8_t kPort = 1;          // a device has one
constexpr std::uint8_t kMaxTimeout = 31;   // 5 bits
constexpr std::uint8_t kMaxRetries = 7;    // 3 bits
constexpr std::uint8_t kMaxRnrTimer = 31;  // 5 bits
constexpr std::uint32_t kMaxFlowLabel = 0xFFFFF;

Status check_timers(const abi::QpAttributes& attributes, std::uint32_t mask) {
  if ((mask & kAttrTimeout) != 0 && attributes.timeout > kMaxTimeout)
    return fail(EINVAL, "a timeout is at most 31");
  if ((mask & kAttrRetryCnt) != 0 && attributes.retry_count > kMaxRetries) {
    return fail(EINVAL, "a retry count is at most 7");
  }
  if ((mask & kAttrRnrRetry) != 0 && attributes.rnr_retry > kMaxRetries) {
    return fail(EINVAL, "an RNR retry count is at most 7");
  }
  if ((mask & kAttrMinRnrTimer) != 0 && attributes.min_rnr_timer > kMaxRnrTimer) {
    return fail(EINVAL, "an RNR timer code is at most 31");
  }
  return {};
}

Status check_numbers(const abi::QpAttributes& attributes, std::uint32_t mask, const Limits& limits) {
  if ((mask & kAttrMaxQpRdAtomic) != 0 && attributes.max_rd_atomic > limits.max_rd_atomic) {
    return fail(EINVAL, fmt::format("max_rd_atomic is at most {}", limits.max_rd_atomic));
  }
  if ((mask & kAttrMaxDestRdAtomic) != 0 && attributes.max_dest_rd_atomic > limits.max_dest_rd_atomic) {
    return fail(EINVAL, fmt::format("max_dest_rd_atomic is at most {}", limits.max_dest_rd_atomic));
  }
  if ((mask & kAttrDestQpn) != 0 && attributes.dest_qpn > kQpnMask)
    return fail(EINVAL, "a QP number has 24 bits");
  if ((mask & kAttrPort) != 0 && attributes.port != kPort) {
    return fail(EINVAL, fmt::format("the device has no port {}", attributes.port));
  }
  if ((mask & kAttrPkeyIndex) != 0 && attributes.pkey_index != 0) {
    return fail(EINVAL, "the device has one partition key, at index 0");
  }
  const auto is_state = [](std::uint8_t state) { return state <= static_cast<std::uint8_t>(QpState::kErr); };
  if (((mask & kAttrState) != 0 && !is_state(attributes.state)) ||
      ((mask & kAttrCurState) != 0 && !is_state(attributes.current_state))) {
    return fail(EINVAL, "there is no such QP state");
  }
  return {};
}

}  // namespace

Status check_address(const abi::AddressVector& address) {
  if (address.is_global == 0) return fail(EINVAL, "RoCE needs a global route: set is_global and the GIDs");
  if (address.port != kPort) return fail(EINVAL, fmt::format("the device has no port {}", address.port));
  if (address.flow_label > kMaxFlowLabel) return fail(EINVAL, "a flow label has 20 bits");
  return {};
}

transport::QpAttributes to_transport(const abi::QpAttributes& attributes, std::uint32_t mask) {
  transport::QpAttributes result;
  result.state = static_cast<QpState>(attributes.state);
  result.current_state = static_cast<QpState>(attributes.current_state);
  result.path_mtu_code = attributes.path_mtu;
  result.max_rd_atomic = attributes.max_rd_atomic;
  result.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
  result.min_rnr_timer = attributes.min_rnr_timer;
  result.timeout = attributes.timeout;
  result.retry_count = attributes.retry_count;
  result.rnr_retry = attributes.rnr_retry;
  result.port = attributes.port;
  result.sqd_notify = (mask & kAttrSqdNotify) != 0;
  result.qkey = attributes.qkey;
  result.rq_psn = Psn(attributes.rq_psn);
  result.sq_psn = Psn(attributes.sq_psn);
  result.dest_qpn = Qpn{attributes.dest_qpn};
  result.access_flags = attributes.access_flags;
  result.pkey_index = static_cast<std::uint16_t>(attributes.pkey_index);
  return result;
}

abi::QpAttributes to_abi(const transport::QpAttributes& attributes) {
  abi::QpAttributes result{};
  result.state = static_cast<std::uint8_t>(attributes.state);
  result.current_state = result.state;
  result.path_mtu = attributes.path_mtu_code;
  result.max_rd_atomic = attributes.max_rd_atomic;
  result.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
  result.min_rnr_timer = attributes.min_rnr_timer;
  result.timeout = attributes.timeout;
  result.retry_count = attributes.retry_count;
  result.rnr_retry = attributes.rnr_retry;
  result.port = attributes.port;
  result.qkey = attributes.qkey;
  result.rq_psn = attributes.rq_psn.value();
  result.sq_psn = attributes.sq_psn.value();
  result.dest_qpn = attributes.dest_qpn.value;
  result.access_flags = attributes.access_flags;
  result.pkey_index = attributes.pkey_index;
  return result;
}

Status check_attributes(const abi::QpAttributes& attributes, std::uint32_t mask, const Limits& limits,
                        std::uint8_t active_mtu_code) {
  if ((mask & ~kKnownAttributes) != 0) {
    return fail(EINVAL, fmt::format("this device cannot set the attributes {:#x}", mask & ~kKnownAttributes));
  }
  if (auto good = check_numbers(attributes, mask, limits); !good) return good;
  if (auto good = check_timers(attributes, mask); !good) return good;
  if ((mask & kAttrAv) != 0) {
    if (auto good = check_address(attributes.address); !good) return good;
  }
  if ((mask & kAttrPathMtu) == 0) return {};
  if (!is_mtu_code(attributes.path_mtu)) return fail(EINVAL, "there is no such path MTU");
  if (attributes.path_mtu > active_mtu_code) {
    return fail(EINVAL, fmt::format("a path MTU of {} bytes does not fit the port, whose active MTU is {}",
                                    mtu_bytes(attributes.path_mtu), mtu_bytes(active_mtu_code)));
  }
  return {};
}

}  // namespace urdma::control
