// The commands of rdma_cm (<rdma/rdma_user_cm.h>): what each must bring, and who carries it out. What a
// program writes is not trusted: a structure that is too short is refused, one that is longer than we know is
// cut, as the kernel does. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "datapath/control/rdma_cm/context.hpp"
#include "urdma/abi/rdma_cm.hpp"

namespace urdma::control::rdma_cm {

struct Request {
  std::uint32_t command = 0;
  std::span<const std::byte> body;
  std::span<const std::byte> extra;
  std::uint32_t response_bytes = 0;
  std::uint32_t protocol = abi::rdma_cm::kProtocol;

  // The structure, zeros where it is shorter than ours.
  template <typename Body>
  [[nodiscard]] Body read() const {
    Body structure{};
    std::memcpy(&structure, body.data(), std::min(body.size(), sizeof(structure)));
    return structure;
  }
};

// What a message on a channel says (urdma/abi/rdma_cm.hpp); nothing: it is no command. Of one of another
// version, only that.
[[nodiscard]] std::optional<Request> parse_request(std::span<const std::byte> message);

// Carries it out. The answer is no longer than the request has room for.
[[nodiscard]] Reply execute(Context& context, Channel& channel, const Request& request);

// ---- The handlers, by what they are about. All of these are called by execute() alone, with a body that is
// long enough and room for the answer. ----

// id_commands.cpp
[[nodiscard]] Reply create_id(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply destroy_id(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply bind_ip(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply bind(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply listen(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply get_event(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply migrate_id(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply return_tokens(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply offer_id(Context& context, Channel& channel, const Request& request);
// id_options.cpp
[[nodiscard]] Reply set_option(Context& context, Channel& channel, const Request& request);
// resolution.cpp
[[nodiscard]] Reply resolve_ip(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply resolve_address(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply resolve_route(Context& context, Channel& channel, const Request& request);
// queries.cpp
[[nodiscard]] Reply query_route(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply query(Context& context, Channel& channel, const Request& request);
// connections.cpp
[[nodiscard]] Reply connect(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply accept(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply reject(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply disconnect(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply notify(Context& context, Channel& channel, const Request& request);
// qp_attributes.cpp
[[nodiscard]] Reply init_qp_attributes(Context& context, Channel& channel, const Request& request);
// groups.cpp
[[nodiscard]] Reply join_ip(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply join(Context& context, Channel& channel, const Request& request);
[[nodiscard]] Reply leave(Context& context, Channel& channel, const Request& request);

// ---- What several of them do ----

// Binds an ID that is idle. 0, or an errno.
[[nodiscard]] int bind_id(Context& context, Id& id, const SocketAddress& address);
// Asks for a connection of this ID. 0, or an errno.
[[nodiscard]] int send_request(Context& context, Id& id, const cm::Request& request);
// What is overdue of resolutions of addresses; when the next one is.
[[nodiscard]] Instant expire_resolutions(Context& context, Instant now);

}  // namespace urdma::control::rdma_cm
