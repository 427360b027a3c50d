// What stands in the messages of a connection and in the events of its program, made of one another.
// Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <optional>
#include <span>

#include "datapath/cm/types.hpp"
#include "datapath/control/rdma_cm/context.hpp"
#include "urdma/wire/ip_cm.hpp"

namespace urdma::control::rdma_cm {

// The address vector to `dest`, as verbs has it.
[[nodiscard]] ib_uverbs_ah_attr address_attributes(const Context& context, const Id& id,
                                                   const wire::Gid& dest);

[[nodiscard]] cm::ServiceId service_of(PortSpace space, std::uint16_t port);
// Between which addresses the ID's messages go.
[[nodiscard]] cm::Ends ends_of(const Id& id);

// The header with the ID's addresses, and the program's data behind it. Nothing: it is too long for `most`.
[[nodiscard]] std::optional<cm::PrivateData> with_header(const Id& id, std::span<const std::uint8_t> data,
                                                         std::size_t most);
// What a program gave as its private data: its length is of a byte, and there is room for all of it.
template <typename Given>
[[nodiscard]] std::span<const std::uint8_t> data_of(const Given& given) {
  return {given.private_data, given.private_data_len};
}

// The event's private data, which is `size` bytes long whatever the peer sent.
void set_data(rdma_ucm_conn_param& to, std::span<const std::uint8_t> data, std::size_t size);
void set_data(rdma_ucm_ud_param& to, std::span<const std::uint8_t> data, std::size_t size);

// As many READs and atomics as `wanted`, and no more than a QP of this node may have.
[[nodiscard]] std::uint8_t cut(std::uint8_t wanted, std::uint32_t most);
// What the peer says of its QP, as the program hears it: what the peer starts is what we answer.
void set_peer(rdma_ucm_conn_param& to, const cm::QpParameters& peer);

}  // namespace urdma::control::rdma_cm
