// Datagrams between two processes, with every byte and each GRH compared: what the nodes of a wire test run.
// Usage: datagram_exchange -p PORT [--gid INDEX] [HOST]. Without HOST it is the server, which answers each
// datagram to where it came from. The two agree over TCP, as in exchange.cpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cstdio>
#include <exception>
#include <string>

#include "datagram.hpp"
#include "line.hpp"
#include "line_options.hpp"

using namespace urdma::system_test;

namespace {

constexpr int kRounds = 20;
constexpr std::size_t kPlace = 8192;  // of what is received

struct Party {
  explicit Party(const LineOptions& options)
      : line(options.host, options.port), device(options.gid), region(device, 65536), end(device) {
    peer = line.exchange(end_address());
  }
  [[nodiscard]] QpAddress end_address() const { return {end.qp->qp_num, 0, device.gid}; }
  [[nodiscard]] std::size_t mtu() const { return std::size_t{128} << device.port.active_mtu; }

  void prepare() const { end.post_receive(1, region.sge(kPlace, kGrhBytes + mtu())); }
  // What has come: `size` bytes of the pattern `seed`, from the peer, to `to`.
  ibv_wc check_arrival(std::size_t size, std::uint32_t seed, const ibv_gid& to) const {
    const ibv_wc received = wait_for_success(end.receive_cq());
    const std::string what = "a datagram of " + std::to_string(size) + " bytes: ";
    if (received.byte_len != kGrhBytes + size) fail(what + "it has " + std::to_string(received.byte_len));
    if (received.src_qp != peer.qpn) fail(what + "wrong source QP");
    if (ntohl(received.imm_data) != seed) fail(what + "wrong immediate data");
    const std::string fault = grh_fault(region.memory.data() + kPlace, peer.gid, to);
    if (!fault.empty()) fail(what + fault);
    if (first_difference(region.memory.bytes(kPlace + kGrhBytes, size), seed) != -1)
      fail(what + "wrong bytes");
    return received;
  }
  void send(ibv_ah* to, std::uint32_t qpn, std::size_t size, std::uint32_t seed) const {
    fill(region.memory.bytes(0, size), seed);
    end.send(to, qpn, region.sge(0, size), kQkey, seed);
    wait_for_success(end.send_cq());
  }

  Line line;
  Device device;
  Region region;
  DatagramEnd end;
  QpAddress peer;
};

std::size_t size_of_round(const Party& me, int round) {
  if (round == 0) return 0;
  return round + 1 == kRounds ? me.mtu() : static_cast<std::size_t>(round) * 37 % me.mtu();
}

void be_client(const Party& me) {
  const AddressHandle server(me.device, me.peer.gid);
  for (int round = 0; round < kRounds; ++round) {
    const std::size_t size = size_of_round(me, round);
    const auto seed = 1000U + static_cast<std::uint32_t>(round);
    me.prepare();
    me.line.meet();  // both can receive
    me.send(server.get(), me.peer.qpn, size, seed);
    (void)me.check_arrival(size, seed + 500, me.device.gid);
  }
}

void be_server(const Party& me) {
  for (int round = 0; round < kRounds; ++round) {
    const std::size_t size = size_of_round(me, round);
    const auto seed = 1000U + static_cast<std::uint32_t>(round);
    me.prepare();
    me.line.meet();
    const ibv_wc received = me.check_arrival(size, seed, me.device.gid);
    const AddressHandle back(me.device, received, me.region.memory.data() + kPlace);
    me.send(back.get(), received.src_qp, size, seed + 500);
  }
}

// The client sends to a group that both are in.
void use_group(const Party& me, bool is_client, const char* text) {
  const ibv_gid group = gid_of(text);
  expect_zero(ibv_attach_mcast(me.end.qp, &group, 0), "ibv_attach_mcast");
  me.prepare();
  me.line.meet();
  if (is_client) {
    const AddressHandle to(me.device, group);
    me.send(to.get(), kMulticastQpn, 333, 42);
    const ibv_wc own = wait_for_success(me.end.receive_cq());
    if (own.src_qp != me.end.qp->qp_num) fail("the sender's own copy is not its own");
  } else {
    (void)me.check_arrival(333, 42, group);
  }
  me.line.meet();
  expect_zero(ibv_detach_mcast(me.end.qp, &group, 0), "ibv_detach_mcast");
}

}  // namespace

int main(int argc, char** argv) {
  LineOptions options;
  CLI::App app("Datagrams between two processes, with every byte and each GRH compared");
  options.add_to(app);
  CLI11_PARSE(app, argc, argv);
  try {
    const bool is_client = !options.host.empty();
    const Party me(options);
    is_client ? be_client(me) : be_server(me);
    use_group(me, is_client, "::ffff:239.7.8.9");
    use_group(me, is_client, "ff15::1234");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "datagram_exchange: %s\n", error.what());
    return 1;
  }
  std::puts("every byte is right");
  return 0;
}
