// Fuzzes the commands of the connection manager with damaged ones, in any order, on two channels.
//   rdma_cm_fuzz [ITERATIONS [SEED]]
// Messages stand in heap blocks of their exact size, so that ASan sees the first byte read beyond them. What
// must hold afterwards is checked: no answer is longer than its room, and nothing grows without bound. One
// thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "datapath/control/rdma_cm/commands.hpp"
#include "tests/fuzz/mutator.hpp"
#include "tests/unit/control/rdma_cm_network.hpp"
#include "urdma/abi/rdma_cm.hpp"

namespace {

using urdma::fuzz::Bytes;
using urdma::fuzz::Mutator;
using namespace urdma::control::rdma_cm;  // NOLINT

constexpr std::uint64_t kDefaultIterations = 200'000;
constexpr std::uint64_t kDefaultSeed = 20'261'130;
constexpr std::size_t kMostIds = 64;
constexpr std::uint16_t kServerPort = 7;

template <typename Body>
Bytes message_of(std::uint32_t command, const Body& body, std::uint32_t room, std::size_t extra_bytes = 0) {
  const urdma::abi::rdma_cm::Command header{command, sizeof(body), static_cast<std::uint32_t>(extra_bytes),
                                            room};
  Bytes bytes(sizeof(header) + sizeof(body) + extra_bytes);
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), &body, sizeof(body));
  return bytes;
}

template <typename Room>
void put(const SocketAddress& address, Room& room) {
  write_address(address, std::as_writable_bytes(std::span(&room, 1)));
}

rdma_ucm_conn_param parameters() {
  rdma_ucm_conn_param given{};
  given.qp_num = 5;
  given.valid = 1;
  given.private_data_len = 4;
  return given;
}

void add_life(std::vector<Bytes>& samples, std::uint32_t id) {
  samples.push_back(message_of(RDMA_USER_CM_CMD_DESTROY_ID, rdma_ucm_destroy_id{0, id, 0}, 4));
  samples.push_back(message_of(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 3}, 0));
  samples.push_back(message_of(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 1}, 0));
  samples.push_back(message_of(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id}, 0));
  samples.push_back(message_of(RDMA_USER_CM_CMD_QUERY_ROUTE, rdma_ucm_query{0, id, 0}, 512));
  for (std::uint32_t option = 0; option < 3; ++option)
    samples.push_back(message_of(RDMA_USER_CM_CMD_QUERY, rdma_ucm_query{0, id, option}, 512));
  for (std::uint32_t state = 1; state < 4; ++state)
    samples.push_back(message_of(RDMA_USER_CM_CMD_INIT_QP_ATTR, rdma_ucm_init_qp_attr{0, id, state}, 512));
  samples.push_back(message_of(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{id, 4}, 0));
  samples.push_back(message_of(RDMA_USER_CM_CMD_SET_OPTION,
                               rdma_ucm_set_option{0, id, 0, RDMA_OPTION_ID_REUSEADDR, 4}, 0, 4));
  samples.push_back(message_of(RDMA_USER_CM_CMD_SET_OPTION,
                               rdma_ucm_set_option{0, id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, 72}, 0, 72));
  samples.push_back(message_of(urdma::abi::rdma_cm::kOfferId, urdma::abi::rdma_cm::OfferId{id}, 8));
  samples.push_back(message_of(RDMA_USER_CM_CMD_MIGRATE_ID, rdma_ucm_migrate_id{0, id, 0}, 4, 8));
}

void add_addresses(std::vector<Bytes>& samples, std::uint32_t id) {
  for (const SocketAddress& address : {address_of(ipv4(2), kServerPort), any_address(Family::kIpv4)}) {
    rdma_ucm_bind bind{};
    bind.id = id;
    bind.addr_size = 16;
    put(address, bind.addr);
    samples.push_back(message_of(RDMA_USER_CM_CMD_BIND, bind, 0));
    rdma_ucm_resolve_addr resolve{};
    resolve.id = id;
    resolve.dst_size = 16;
    resolve.timeout_ms = 100;
    put(address, resolve.dst_addr);
    samples.push_back(message_of(RDMA_USER_CM_CMD_RESOLVE_ADDR, resolve, 0));
  }
  rdma_ucm_resolve_ip resolve{};
  resolve.id = id;
  put(address_of(ipv4(2), kServerPort), resolve.dst_addr);
  samples.push_back(message_of(RDMA_USER_CM_CMD_RESOLVE_IP, resolve, 0));
  rdma_ucm_bind_ip bind{};
  bind.id = id;
  put(address_of(ipv6(1), kServerPort), bind.addr);
  samples.push_back(message_of(RDMA_USER_CM_CMD_BIND_IP, bind, 0));
  rdma_ucm_join_ip_mcast join{};
  join.id = id;
  put(address_of(urdma::wire::gid_from_ipv4(0xEF010203), 0), join.addr);
  samples.push_back(message_of(RDMA_USER_CM_CMD_JOIN_IP_MCAST, join, 4));
  samples.push_back(message_of(RDMA_USER_CM_CMD_LEAVE_MCAST, rdma_ucm_destroy_id{0, id, 0}, 4));
}

void add_connections(std::vector<Bytes>& samples, std::uint32_t id) {
  rdma_ucm_connect connect{};
  connect.id = id;
  connect.conn_param = parameters();
  samples.push_back(message_of(RDMA_USER_CM_CMD_CONNECT, connect, 0));
  rdma_ucm_accept accept{};
  accept.id = id;
  accept.uid = 1;
  samples.push_back(message_of(RDMA_USER_CM_CMD_ACCEPT, accept, 0));
  accept.conn_param = parameters();
  samples.push_back(message_of(RDMA_USER_CM_CMD_ACCEPT, accept, 0));
  rdma_ucm_reject reject{};
  reject.id = id;
  samples.push_back(message_of(RDMA_USER_CM_CMD_REJECT, reject, 0));
}

std::vector<Bytes> make_samples() {
  std::vector<Bytes> samples;
  for (const PortSpace space : {PortSpace::kTcp, PortSpace::kUdp, PortSpace::kIb}) {
    rdma_ucm_create_id create{};
    create.uid = 1;
    create.ps = static_cast<std::uint16_t>(space);
    create.qp_type = 2;
    for (int i = 0; i < 6; ++i) samples.push_back(message_of(RDMA_USER_CM_CMD_CREATE_ID, create, 4));
  }
  for (int i = 0; i < 12; ++i)
    samples.push_back(
        message_of(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, sizeof(rdma_ucm_event_resp)));
  for (std::uint32_t id = 1; id <= 6; ++id) {
    add_life(samples, id);
    add_addresses(samples, id);
    add_connections(samples, id);
  }
  return samples;
}

class Fuzz {
 public:
  explicit Fuzz(std::uint64_t seed) : mutator_(seed), samples_(make_samples()) {
    for (std::uint64_t key = 1; key <= 2; ++key) {
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
      auto channel = std::make_unique<Channel>();
      channel->key = key;
      channel->fd.reset(ends[0]);
      programs_.emplace_back(ends[1]);
      context_.channels.emplace(key, std::move(channel));
    }
  }

  // False: something does not hold.
  bool step() {
    // Half of them are whole: the other half is to find the states behind them.
    const bool is_whole = mutator_.below(2) == 0;
    const Bytes bytes = is_whole ? samples_[mutator_.below(samples_.size())] : mutator_.damaged(samples_);
    Channel& channel = *context_.channels.at(1 + mutator_.below(2));
    if (const auto request = parse_request(std::as_bytes(std::span(bytes)))) {
      ++taken;
      const Reply reply = execute(context_, channel, *request);
      if (reply.error == 0) ++done;
      if (reply.bytes.size() > request->response_bytes || (reply.error != 0 && !reply.bytes.empty()))
        return false;
    }
    network_.run(context_);
    if (mutator_.below(64) == 0) pass_time();
    char token[64];
    for (const urdma::UniqueFd& program : programs_)
      static_cast<void>(::recv(program.get(), token, sizeof(token), MSG_DONTWAIT));
    while (context_.ids.size() > kMostIds) context_.destroy(*context_.ids.begin()->second);
    return is_bounded();
  }

  std::uint64_t taken = 0;  // as commands
  std::uint64_t done = 0;   // without an error

 private:
  void pass_time() {
    network_.pass(context_, urdma::milliseconds(200));
    static_cast<void>(expire_resolutions(context_, network_.time));
    if (network_.late) std::exchange(network_.late, {})(0);
  }
  bool is_bounded() {
    std::size_t events = 0;
    std::size_t ids = 0;
    for (const auto& [key, channel] : context_.channels) {
      events += channel->events.size();
      ids += channel->ids.size();
    }
    return ids == context_.ids.size() && events <= (kMostIds + 1) * 64 + 1024 &&
           context_.connection_count() <= context_.ids.size() && context_.ports.size() <= context_.ids.size();
  }

  Mutator mutator_;
  std::vector<Bytes> samples_;
  FakeNetwork network_;
  Context context_{network_, urdma::Limits{}, Options{.seed = 1}};
  std::vector<urdma::UniqueFd> programs_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t iterations = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : kDefaultIterations;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : kDefaultSeed;
  std::printf("rdma_cm_fuzz %" PRIu64 " %" PRIu64 "\n", iterations, seed);
  Fuzz fuzz(seed);
  for (std::uint64_t i = 0; i < iterations; ++i) {
    if (fuzz.step()) continue;
    std::printf("iteration %" PRIu64 ": a bound does not hold\n", i);
    return EXIT_FAILURE;
  }
  std::printf("%" PRIu64 " commands, %" PRIu64 " of them carried out\n", fuzz.taken, fuzz.done);
  return fuzz.done > iterations / 100 ? EXIT_SUCCESS : EXIT_FAILURE;
}
