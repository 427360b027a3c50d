// Every kind of request between two processes, with every byte compared: what the nodes of a wire test run.
// Usage: exchange -p PORT [--sizes small|large] [--gid INDEX] [HOST]. Without HOST it is the server. The two
// agree over TCP: addresses first, then one byte whenever one waits for the other. The client acts, the
// server checks what came and prepares what is read.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <arpa/inet.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "line.hpp"
#include "line_options.hpp"
#include "verbs_test.hpp"

using namespace urdma::system_test;

namespace {

constexpr std::size_t kRegionSize = std::size_t{36} << 20;
constexpr std::size_t kOffset = 4093;
const std::vector<std::size_t> kSmall = {0,    1,    3,    255,  256,  257,  1023, 1024,
                                         1025, 2047, 2049, 4095, 4096, 4097, 8192, 65537};
const std::vector<std::size_t> kLarge = {(1U << 20) - 1, (1U << 20) + 1, 8U << 20, 32U << 20};

struct Hello {
  QpAddress address;
  std::uint64_t remote_address;
  std::uint32_t rkey;
  std::uint32_t mtu;
};

// One end: its device, its region, its queue pair, and what it knows of the other.
struct Party {
  explicit Party(const LineOptions& options)
      : line(options.host, options.port),
        device(options.gid),
        region(device, kRegionSize),
        end(device, {.mtu = device.port.active_mtu}) {
    peer = line.exchange(
        Hello{end.address(), region.address(), region.registration.rkey(), device.port.active_mtu});
    if (peer.mtu != static_cast<std::uint32_t>(device.port.active_mtu))
      fail("the two ports have different MTUs");
    end.connect(peer.address);
    line.meet();
  }

  [[nodiscard]] std::span<std::uint8_t> bytes(std::size_t size) const {
    return region.memory.bytes(kOffset, size);
  }
  void expect_pattern(std::size_t size, std::uint32_t seed, const char* what) const {
    if (const auto at = first_difference(bytes(size), seed); at != -1) {
      fail(std::string(what) + " of " + std::to_string(size) + " bytes: byte " + std::to_string(at) +
           " is wrong");
    }
  }
  void act(ibv_wr_opcode opcode, std::size_t size, std::uint32_t immediate = 0) {
    ibv_sge piece = region.sge(kOffset, size);
    auto request = rdma_request(opcode, 1, {&piece, 1}, peer.remote_address + kOffset, peer.rkey);
    request.imm_data = htonl(immediate);
    end.post_send(request);
    wait_for_success(end.send_cq);
  }

  Line line;
  Device device;
  Region region;
  End end;
  Hello peer{};
};

void client_round(Party& me, std::size_t size, std::uint32_t seed) {
  for (const ibv_wr_opcode opcode :
       {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM}) {
    fill(me.bytes(size), ++seed);
    me.line.meet();  // the server is ready
    me.act(opcode, size, seed);
    me.line.meet();  // it may look
  }
  std::memset(me.bytes(size).data(), 0, size);
  me.line.meet();
  me.act(IBV_WR_RDMA_READ, size);
  me.expect_pattern(size, seed + 1, "READ");
  me.line.meet();  // the server may change it again
}

void server_round(Party& me, std::size_t size, std::uint32_t seed) {
  for (const ibv_wr_opcode opcode :
       {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM}) {
    ++seed;
    std::memset(me.bytes(size).data(), 0, size);
    if (opcode != IBV_WR_RDMA_WRITE) me.end.post_receive(seed, me.region.sge(kOffset, size));
    me.line.meet();
    me.line.meet();
    if (opcode != IBV_WR_RDMA_WRITE) {
      const ibv_wc received = wait_for_success(me.end.receive_cq);
      if (received.byte_len != size) fail("a receive of " + std::to_string(received.byte_len) + " bytes");
      if (opcode != IBV_WR_SEND && ntohl(received.imm_data) != seed) fail("wrong immediate data");
    }
    me.expect_pattern(size, seed, opcode == IBV_WR_RDMA_WRITE ? "WRITE" : "SEND, or WRITE with immediate,");
  }
  fill(me.bytes(size), seed + 1);
  me.line.meet();
  me.line.meet();
}

// Both ends add to one word of the server's at once; the sum must be exact.
void atomics(Party& me, bool is_client) {
  constexpr std::uint64_t kAdds = 200;
  auto& word = *reinterpret_cast<std::uint64_t*>(me.region.memory.data());
  word = 0;
  me.line.meet();
  if (is_client) {
    for (std::uint64_t i = 0; i < kAdds; ++i) {
      ibv_sge piece = me.region.sge(64, 8);
      auto request = send_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, {&piece, 1});
      request.wr.atomic = {
          .remote_addr = me.peer.remote_address, .compare_add = 3, .swap = 0, .rkey = me.peer.rkey};
      me.end.post_send(request);
      wait_for_success(me.end.send_cq);
      const auto& before = *reinterpret_cast<std::uint64_t*>(me.region.memory.data() + 64);
      if (before != 3 * i) fail("fetch-and-add answers " + std::to_string(before));
    }
  }
  me.line.meet();
  if (!is_client && word != 3 * kAdds) fail("the sum is " + std::to_string(word));
}

}  // namespace

int main(int argc, char** argv) {
  LineOptions options;
  std::string sizes = "small";
  CLI::App app("Every kind of request between two processes, with every byte compared");
  options.add_to(app);
  app.add_option("--sizes", sizes)->check(CLI::IsMember({"small", "large"}));
  CLI11_PARSE(app, argc, argv);
  try {
    const bool is_client = !options.host.empty();
    Party me(options);
    std::uint32_t seed = 100;
    for (const std::size_t size : sizes == "large" ? kLarge : kSmall) {
      is_client ? client_round(me, size, seed) : server_round(me, size, seed);
      seed += 10;
    }
    atomics(me, is_client);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "exchange: %s\n", error.what());
    return 1;
  }
  std::puts("every byte is right");
  return 0;
}
