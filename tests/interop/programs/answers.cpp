// What a responder answers to a request that is wrong, early, or special. Usage: answers SCENARIO -p PORT
// [--gid N]
// [--seconds N] [HOST]. Without HOST it is the server, the responder; the client is the requester. Each end
// prints "requester: STATUS" or "responder: STATUS", the status as ibv_wc_status_str has it, and the script
// judges.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <thread>

#include "party.hpp"

using namespace urdma::system_test;
using urdma::interop::Party;

namespace {

constexpr std::size_t kRegionBytes = 65536;
constexpr std::uint32_t kSeed = 5;

struct Options {
  LineOptions party;
  std::string scenario;
  double seconds = 3;
};

void report(const Party& party, const char* status) {
  std::printf("%s: %s\n", party.is_client ? "requester" : "responder", status);
}

// Posts, and reports how it completes.
void act(Party& party, ibv_send_wr request) {
  party.end.post_send(request);
  report(party, ibv_wc_status_str(wait_for(party.end.send_cq).status));
}

void expect_received(Party& party) {
  report(party, ibv_wc_status_str(wait_for(party.end.receive_cq).status));
}

// An RDMA request for what the responder does not give; it notices nothing.
void rdma(Party& party, ibv_wr_opcode opcode, std::uint64_t offset, std::uint32_t key_change) {
  if (party.is_client) {
    ibv_sge piece = party.region.sge(0, 8);
    auto request =
        rdma_request(opcode, 1, {&piece, 1}, party.remote_address + offset, party.remote_key ^ key_change);
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      request.wr.atomic = {.remote_addr = party.remote_address + offset,
                           .compare_add = 1,
                           .swap = 0,
                           .rkey = party.remote_key ^ key_change};
    }
    act(party, request);
  }
  party.line.meet();
}

void wrong_key(const Options& options, ibv_wr_opcode opcode) {
  Party party(options.party, kRegionBytes, {});
  rdma(party, opcode, 0, 0x5A5A5A00);
}

void out_of_bounds(const Options& options) {
  Party party(options.party, kRegionBytes, {});
  rdma(party, IBV_WR_RDMA_WRITE, kRegionBytes - 4, 0);
}

void read_only_region(const Options& options) {
  Party party(options.party, kRegionBytes, {}, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  rdma(party, IBV_WR_RDMA_WRITE, 0, 0);
}

void misaligned_atomic(const Options& options) {
  Party party(options.party, kRegionBytes, {});
  rdma(party, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 0);
}

// The responder's queue pair allows no READ, whatever its region allows.
void forbidden_read(const Options& options) {
  Party party(options.party, kRegionBytes, {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE});
  rdma(party, IBV_WR_RDMA_READ, 0, 0);
}

void send(Party& party, std::size_t size, ibv_wr_opcode opcode = IBV_WR_SEND, unsigned flags = kSignaled) {
  ibv_sge piece = party.region.sge(0, size);
  fill(party.region.memory.bytes(0, size), kSeed);
  auto request = send_request(opcode, 1, {&piece, 1}, flags);
  request.imm_data = htonl(party.remote_key);  // or the key to invalidate: the same bytes of the structure
  if (opcode == IBV_WR_SEND_WITH_INV) request.invalidate_rkey = party.remote_key;
  act(party, request);
}

void long_send(const Options& options) {
  Party party(options.party, kRegionBytes, {});
  if (!party.is_client) party.end.post_receive(1, party.region.sge(0, 99));
  party.line.meet();
  party.is_client ? send(party, 100) : expect_received(party);
  party.line.meet();
}

void receive_protection(const Options& options) {
  Party party(options.party, kRegionBytes, {});
  ibv_sge wrong = party.region.sge(0, 1000);
  wrong.lkey ^= 0x5A5A5A00;
  if (!party.is_client) party.end.post_receive(1, wrong);
  party.line.meet();
  party.is_client ? send(party, 100) : expect_received(party);
  party.line.meet();
}

void late_receive(const Options& options) {
  Party party(options.party, kRegionBytes, {.rnr_retry = 7, .min_rnr_timer = 14});
  if (party.is_client) {
    send(party, 3000);
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    party.end.post_receive(1, party.region.sge(0, 3000));
    expect_received(party);
    if (first_difference(party.region.memory.bytes(0, 3000), kSeed) != -1) fail("wrong bytes");
  }
  party.line.meet();
}

void no_receive(const Options& options) {
  Party party(options.party, kRegionBytes, {.rnr_retry = 2, .min_rnr_timer = 14});
  if (party.is_client) send(party, 100);
  party.line.meet();
}

void invalidate(const Options& options) {
  Party party(options.party, kRegionBytes, {});
  if (!party.is_client) {
    party.end.post_receive(1, party.region.sge(0, 3000));
    party.end.post_receive(2, party.region.sge(0, 3000));
  }
  party.line.meet();
  if (party.is_client) send(party, 3000, IBV_WR_SEND_WITH_INV);
  party.line.meet();
}

bool has_event(ibv_comp_channel* channel, int limit_ms) {
  pollfd waiting{channel->fd, POLLIN, 0};
  return poll(&waiting, 1, limit_ms) == 1;
}

// The responder waits for solicited events only: of a plain and a solicited SEND of each kind, one wakes it.
void solicited(const Options& options) {
  Party party(options.party, kRegionBytes, {.events = true});
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM}) {
    for (const bool solicits : {false, true}) {
      if (!party.is_client) {
        party.end.post_receive(1, party.region.sge(0, 3000));
        expect_zero(ibv_req_notify_cq(party.end.receive_cq, 1), "ibv_req_notify_cq");
      }
      party.line.meet();
      if (party.is_client) {
        send(party, 3000, opcode, kSignaled | (solicits ? static_cast<unsigned>(IBV_SEND_SOLICITED) : 0U));
      }
      party.line.meet();
      if (!party.is_client) {
        expect_received(party);
        if (has_event(party.end.channel, solicits ? 5000 : 100) != solicits)
          fail("an event too many or too few");
        if (solicits) {
          ibv_cq* cq = nullptr;
          void* context = nullptr;
          expect_zero(ibv_get_cq_event(party.end.channel, &cq, &context), "ibv_get_cq_event");
          ibv_ack_cq_events(cq, 1);
        }
      }
    }
  }
  party.line.meet();
}

// One WRITE after another for some seconds; the link may go meanwhile. Reports the first failure, and the
// longest that a WRITE took.
void steady(const Options& options) {
  Party party(options.party, kRegionBytes, {.retry_count = 6, .timeout = 16});
  if (party.is_client) {
    std::puts("steady: begins");
    std::fflush(stdout);
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
    ibv_wc_status status = IBV_WC_SUCCESS;
    std::chrono::duration<double> longest{0};
    while (status == IBV_WC_SUCCESS && Clock::now() < end) {
      ibv_sge piece = party.region.sge(0, 3000);
      auto request = rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, party.remote_address, party.remote_key);
      const auto posted = Clock::now();
      party.end.post_send(request);
      status = wait_for(party.end.send_cq, 60'000).status;
      longest = std::max<std::chrono::duration<double>>(longest, Clock::now() - posted);
    }
    std::printf("longest: %.3f s\n", longest.count());
    report(party, ibv_wc_status_str(status));
  }
  party.line.meet();
}

const std::map<std::string, std::function<void(const Options&)>> kScenarios = {
    {"wrong-key-write", [](const Options& options) { wrong_key(options, IBV_WR_RDMA_WRITE); }},
    {"wrong-key-read", [](const Options& options) { wrong_key(options, IBV_WR_RDMA_READ); }},
    {"wrong-key-atomic", [](const Options& options) { wrong_key(options, IBV_WR_ATOMIC_FETCH_AND_ADD); }},
    {"out-of-bounds", out_of_bounds},
    {"read-only-region", read_only_region},
    {"misaligned-atomic", misaligned_atomic},
    {"forbidden-read", forbidden_read},
    {"long-send", long_send},
    {"receive-protection", receive_protection},
    {"late-receive", late_receive},
    {"no-receive", no_receive},
    {"invalidate", invalidate},
    {"solicited", solicited},
    {"steady", steady},
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Requests that are wrong, early or special, and what the responder answers.");
  app.add_option("scenario", options.scenario)->required();
  options.party.add_to(app);
  app.add_option("--seconds", options.seconds);
  CLI11_PARSE(app, argc, argv);
  try {
    kScenarios.at(options.scenario)(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "answers: %s\n", error.what());
    return 1;
  }
  return 0;
}
