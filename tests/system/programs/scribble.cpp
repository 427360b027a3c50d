// A hostile client: makes queue pairs as anybody would, and then writes random words all over the memory
// that it shares with the daemon, while it rings doorbells. Usage: scribble SEED. Prints `scribbling` before
// it begins; the daemon may end its session at any time, and its own queues may kill it.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "verbs_test.hpp"

using namespace urdma::system_test;

namespace {

struct Range {
  std::uint64_t start;
  std::uint64_t size;
};

// Writable shared mappings of memory files: rings, boards, extents.
std::vector<Range> shared_memory() {
  std::vector<Range> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s", &start, &end, access) != 3) continue;
    if (std::strcmp(access, "rw-s") == 0 && line.find("memfd:") != std::string::npos) {
      found.push_back({start, end - start});
    }
  }
  return found;
}

// Values that are more likely to hurt than most: limits, small numbers, neighbours of powers of two.
std::uint32_t nasty_word(std::mt19937& dice) {
  switch (dice() % 4) {
    case 0:
      return dice();
    case 1:
      return dice() % 8;
    case 2:
      return (1U << (dice() % 32)) - dice() % 2;
    default:
      return ~std::uint32_t{0} - dice() % 4;
  }
}

void post_something(const Link& link, const Region& region, std::mt19937& dice) {
  ibv_sge piece = region.sge(0, 64);
  auto request =
      rdma_request(IBV_WR_RDMA_WRITE, dice(), {&piece, 1}, region.address(), region.registration.rkey());
  ibv_send_wr* bad = nullptr;
  ibv_post_send(link.a.qp, &request, &bad);
  ibv_recv_wr receive{.wr_id = 1, .next = nullptr, .sg_list = &piece, .num_sge = 1};
  ibv_recv_wr* bad_receive = nullptr;
  ibv_post_recv(link.b.qp, &receive, &bad_receive);
}

void scribble(std::uint32_t seed) {
  std::mt19937 dice(seed);
  Device device;
  Link link(device);
  Region region(device, 65536);
  const std::vector<Range> ranges = shared_memory();
  if (ranges.empty()) fail("no shared memory is to be seen in /proc/self/maps");
  std::puts("scribbling");
  std::fflush(stdout);
  for (int round = 0; round < 20'000; ++round) {
    const Range& range = ranges[dice() % ranges.size()];
    // The heads of the queues are small, and matter most.
    const std::uint64_t reach = dice() % 2 == 0 ? std::min<std::uint64_t>(range.size, 256) : range.size;
    const std::uint64_t place = range.start + dice() % reach / 4 * 4;
    const std::uint32_t value = nasty_word(dice);
    std::memcpy(reinterpret_cast<void*>(place), &value, sizeof(value));
    if (round % 16 == 0) post_something(link, region, dice);
  }
  _exit(0);  // in no order at all
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: scribble SEED\n", stderr);
    return 2;
  }
  try {
    scribble(static_cast<std::uint32_t>(std::atoi(argv[1])));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "scribble: %s\n", error.what());
    return 1;
  }
}
