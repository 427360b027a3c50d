// Sends frames that a node must not take, and one that it must.
// Usage: forge INTERFACE MAC FROM TO QPN KIND COUNT
// MAC and TO are the node's, FROM is its peer's IPv4 address, QPN is a queue pair that the two have, and
// KIND is pkey, icrc, version, qpn or cnp. But for what it names the frames are as they should be.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <arpa/inet.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>

#include "packet_socket.hpp"
#include "urdma/wire/frame.hpp"

using namespace urdma;
using namespace urdma::interop;

namespace {

wire::Gid gid_of(const char* ipv4) {
  in_addr address{};
  if (inet_pton(AF_INET, ipv4, &address) != 1)
    throw std::runtime_error(std::string("no IPv4 address: ") + ipv4);
  return wire::gid_from_ipv4(ntohl(address.s_addr));
}

wire::MacAddress mac_of(const char* text) {
  wire::MacAddress mac{};
  if (std::sscanf(text, "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx", &mac[0], &mac[1], &mac[2], &mac[3], &mac[4],
                  &mac[5]) != 6)
    throw std::runtime_error(std::string("no MAC address: ") + text);
  return mac;
}

Packet forge(const wire::FlowAddress& address, std::uint32_t qpn, const std::string& kind) {
  constexpr std::size_t kBth = wire::kEthernetBytes + wire::kIpv4Bytes + wire::kUdpBytes;
  const wire::FlowTemplate flow = wire::make_flow(address);
  wire::Headers headers;
  headers.opcode = kind == "cnp" ? wire::Opcode::kCnp : wire::Opcode::kRcAck;
  headers.becn = kind == "cnp";
  headers.pkey = kind == "pkey" ? 0x1234 : wire::kDefaultPkey;
  // Far from the numbers that queue pairs get one after another.
  headers.dest_qp = Qpn{kind == "qpn" ? qpn ^ 0x555555U : qpn};
  Packet packet;
  packet.bytes.resize(kVnetHeaderBytes + wire::frame_bytes(flow, headers));
  wire::write_frame_headers(flow, headers, 1, packet.frame().data());
  if (kind == "version") packet.frame()[kBth + 1] |= 1;
  wire::finish_frame(packet.frame());
  if (kind == "icrc") packet.frame().back() ^= 1;
  return packet;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) {
    std::fputs("usage: forge INTERFACE MAC FROM TO QPN KIND COUNT\n", stderr);
    return 2;
  }
  try {
    wire::FlowAddress address;
    address.dest_mac = mac_of(argv[2]);
    address.source_mac = {0x52, 0x54, 0, 0, 0, 0xFF};
    address.source_gid = gid_of(argv[3]);
    address.dest_gid = gid_of(argv[4]);
    PacketSocket socket(argv[1]);
    const Packet packet = forge(address, static_cast<std::uint32_t>(std::stoul(argv[5])), argv[6]);
    for (int i = std::stoi(argv[7]); i > 0; --i) socket.send(packet);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "forge: %s\n", error.what());
    return 1;
  }
  return 0;
}
