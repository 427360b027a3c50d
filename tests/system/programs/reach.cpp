// What connecting to an address comes to. Usage: reach GID-INDEX ADDRESS. Moves a queue pair to RTR
// towards ADDRESS (IPv4 or IPv6), on which nobody need listen, and prints `reached`, or the name of the error
// and how long it took: `ETIMEDOUT after 3000 ms`.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <arpa/inet.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "verbs_test.hpp"

using namespace urdma::system_test;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::uint32_t kNobody = 0x123456;

ibv_gid gid_of(const char* text) {
  ibv_gid gid{};
  in_addr ipv4{};
  if (inet_pton(AF_INET, text, &ipv4) == 1) {
    gid.raw[10] = gid.raw[11] = 0xFF;
    std::memcpy(gid.raw + 12, &ipv4, sizeof ipv4);
  } else if (inet_pton(AF_INET6, text, gid.raw) != 1) {
    fail(std::string(text) + " is no address");
  }
  return gid;
}

int to_rtr(const End& end, int gid_index, const ibv_gid& dest) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_256;
  attributes.dest_qp_num = kNobody;
  attributes.max_dest_rd_atomic = 1;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = dest;
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
  attributes.ah_attr.grh.hop_limit = 64;
  const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return ibv_modify_qp(end.qp, &attributes, mask);
}

void reach(int gid_index, const char* address) {
  Device device;
  End end(device, {});
  end.to_init();
  const auto started = Clock::now();
  const int error = to_rtr(end, gid_index, gid_of(address));
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started);
  if (error != 0) {
    std::printf("%s after %ld ms\n", strerrorname_np(error), static_cast<long>(took.count()));
    return;
  }
  std::puts("reached");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: reach GID-INDEX ADDRESS\n", stderr);
    return 2;
  }
  try {
    reach(std::atoi(argv[1]), argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "reach: %s\n", error.what());
    return 1;
  }
  return 0;
}
