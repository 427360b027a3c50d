// Messages of communication management: made of what a connection knows, and read into the vocabulary of
// types.hpp. Codes of timeouts are turned into times here, and back.
// Pure: values in, values out.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "datapath/cm/connection.hpp"
#include "datapath/cm/manager.hpp"
#include "datapath/cm/types.hpp"
#include "urdma/wire/cm_messages.hpp"

namespace urdma::cm {

static_assert(kMadBytes == wire::kMadBytes);

using Bytes = std::span<const std::uint8_t>;

// 4.096 us << code (IBTA 1, 12.7.28).
inline constexpr std::uint8_t kMostTimeoutCode = 31;
constexpr Duration timeout_of(std::uint8_t code) { return nanoseconds(std::int64_t{4096} << code); }
// The smallest code that is not shorter than `time`.
constexpr std::uint8_t timeout_code(Duration time) {
  std::uint8_t code = 0;
  while (code < kMostTimeoutCode && timeout_of(code) < time) ++code;
  return code;
}

// ---- Made ----

[[nodiscard]] Mad make_req(const Connection& connection, const Request& request, const Config& config);
[[nodiscard]] Mad make_rep(const Connection& connection, const Reply& reply, const Config& config);
[[nodiscard]] Mad make_rtu(const Connection& connection, Bytes data);
[[nodiscard]] Mad make_mra(const Connection& connection, wire::CmSubject subject, Duration service_time);
[[nodiscard]] Mad make_dreq(const Connection& connection, Bytes data);
[[nodiscard]] Mad make_sidr_req(const Connection& connection, const Resolve& resolve);
[[nodiscard]] Mad make_sidr_rep(const Connection& connection, const Resolved& resolved);

// The two communication IDs of a message, as its sender sees them, and its transaction. Answers that no
// connection backs are made of those of the message that they answer.
struct Address {
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  std::uint64_t transaction_id = 0;
};
[[nodiscard]] Address address_of(const Connection& connection);

struct Refusal {
  RejectReason reason{};
  wire::CmSubject subject = wire::CmSubject::kOther;
  Bytes info;
  Bytes data;
};
[[nodiscard]] Mad make_rej(const Address& address, const Refusal& refusal);
// The same REJ, of a REQ: Linux looks for one who has not been answered yet by that alone.
[[nodiscard]] Mad rej_of_req(const Mad& rej);
[[nodiscard]] Mad make_drep(const Address& address);
// SIDR_REP to a request that is not kept.
[[nodiscard]] Mad make_sidr_refusal(const wire::CmSidrReqWire& request, std::uint64_t transaction_id,
                                    ResolveStatus status);

// ---- Read ----

// Why a REQ that came between `ends` cannot be taken, whatever service it is for.
[[nodiscard]] std::optional<RejectReason> fault_of(const wire::CmReqWire& wire, const Ends& ends);
// A REQ without such a fault. The ends are those of the packet, with what REQ says of the path.
[[nodiscard]] Request read_req(const wire::CmReqWire& wire, const Ends& ends);
// Nothing where the QP number cannot be.
[[nodiscard]] std::optional<Reply> read_rep(const wire::CmRepWire& wire, QpType type);
[[nodiscard]] Resolve read_sidr_req(const wire::CmSidrReqWire& wire, const Ends& ends);
[[nodiscard]] std::optional<Resolved> read_sidr_rep(const wire::CmSidrRepWire& wire);
// Not longer than PrivateData can be.
[[nodiscard]] PrivateData private_data_of(Bytes bytes);

}  // namespace urdma::cm
