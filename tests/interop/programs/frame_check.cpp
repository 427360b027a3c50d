// Judges the frames of a capture. Usage: frame_check FILE MAC. Those that MAC sent must be as docs/wire.md
// promises, to the bit; those of others must be understood. Prints a line a kind of frame, for a script to
// read:
//   mine|theirs OPCODE SYNDROME SOLICITED COUNT     in hexadecimal but for the count; syndrome 00 without
//   AETH
// then the faults, the first few in words, and ends with 1 if there is one.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/pcap.hpp"
#include "urdma/wire/frame.hpp"
#include "urdma/wire/ip.hpp"

using namespace urdma;
using namespace urdma::wire;
using urdma::test::Frame;

namespace {

constexpr std::uint32_t kManagementQpn = 1;
constexpr std::size_t kFaultsShown = 10;
constexpr std::size_t kSmallestEthernetFrame = 60;
constexpr std::uint8_t kUsualHopLimit = 64;

using Kind = std::tuple<bool, unsigned, unsigned, bool>;  // mine, opcode, syndrome, solicited
using FlowKey = std::tuple<Gid, Gid, std::uint32_t>;      // addresses, destination QP

struct Report {
  std::map<Kind, std::size_t> kinds;
  std::map<FlowKey, std::uint16_t> ports;
  std::vector<std::string> faults;
  std::size_t number = 0;
  std::uint8_t traffic_class = 0;  // of ours, but for management datagrams, which have 0

  void expect(bool holds, const char* sentence) {
    if (!holds) faults.push_back("frame " + std::to_string(number) + ": " + sentence);
  }
};

unsigned ones_sum(std::span<const std::uint8_t> bytes) {
  unsigned sum = 0;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) sum += (unsigned{bytes[i]} << 8) | bytes[i + 1];
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return sum;
}

// The IP header; returns where UDP begins and where the packet ends.
std::pair<std::size_t, std::size_t> check_ip(const Frame& frame, unsigned traffic_class, Report& report) {
  const std::span<const std::uint8_t> ip = std::span(frame).subspan(kEthernetBytes);
  if (frame[12] == 0x86) {
    const unsigned start = 0x600U | traffic_class;
    report.expect(ip[0] == start >> 4 && ip[1] >> 4 == (start & 0xF), "IPv6 version or traffic class");
    return {kEthernetBytes + kIpv6Bytes, kEthernetBytes + kIpv6Bytes + ((std::size_t{ip[4]} << 8) | ip[5])};
  }
  report.expect(ip[0] == 0x45, "IPv4 version or options");
  report.expect(ip[6] == 0x40 && ip[7] == 0,
                "don't-fragment is not set, or another flag is, or it is a fragment");
  report.expect(ones_sum(ip.first(kIpv4Bytes)) == 0xFFFF, "IPv4 header checksum");
  return {kEthernetBytes + kIpv4Bytes, kEthernetBytes + ((std::size_t{ip[2]} << 8) | ip[3])};
}

void check_transport(const Frame& frame, std::size_t udp, std::size_t end, const FrameView& view,
                     Report& report) {
  report.expect(frame[udp + 6] == 0 && frame[udp + 7] == 0, "UDP checksum");
  BthWire bth;
  std::memcpy(&bth, frame.data() + udp + kUdpBytes, sizeof(bth));
  report.expect((bth.flags & 0x40) != 0, "MigReq is 0");
  report.expect((bth.flags & 0x0F) == 0, "header version");
  report.expect(bth.pkey.get() == kDefaultPkey, "P_Key");
  report.expect(bth.congestion == 0, "FECN, BECN or the reserved bits beside them");
  report.expect((bth.ack & 0x7F) == 0, "reserved bits beside the acknowledge request");
  const OpcodeInfo& info = view.headers.info();
  if (info.has_aeth)
    report.expect((frame[udp + kUdpBytes + sizeof(bth)] & 0x80) == 0, "reserved bit of the AETH");
  report.expect(!bth.ack || info.is_request(), "an acknowledge request that is no request's");
  for (std::size_t i = 1; i <= pad_bytes(view.headers.payload_bytes); ++i) {
    report.expect(frame[end - kIcrcBytes - i] == 0, "pad that is not 0");
  }
}

void check_mine(const Frame& frame, const FrameView& view, Report& report) {
  const unsigned traffic_class = view.headers.dest_qp.value == kManagementQpn ? 0 : report.traffic_class;
  const auto [udp, end] = check_ip(frame, traffic_class, report);
  report.expect(frame.size() == end || frame.size() == kSmallestEthernetFrame, "bytes behind the packet");
  report.expect(view.hop_limit == kUsualHopLimit, "a hop limit that is not the host's");
  report.expect(view.traffic_class == traffic_class, "traffic class");
  report.expect(view.udp_source_port >= kFirstSourcePort, "UDP source port out of range");
  check_transport(frame, udp, end, view, report);
  const auto [known, is_new] = report.ports.emplace(
      FlowKey{view.source_gid, view.dest_gid, view.headers.dest_qp.value}, view.udp_source_port);
  report.expect(is_new || known->second == view.udp_source_port, "a queue pair's UDP source port changes");
}

void judge(const Frame& frame, const MacAddress& mac, Report& report) {
  ++report.number;
  const bool is_mine = std::memcmp(frame.data() + 6, mac.data(), mac.size()) == 0;
  FrameView view;
  const ParseError error = parse_frame(frame, IcrcPolicy::kCheck, view);
  report.expect(error == ParseError::kNone, is_mine ? "malformed" : "malformed, and from the peer");
  if (error != ParseError::kNone) return;
  const Headers& headers = view.headers;
  const unsigned syndrome =
      headers.info().has_aeth ? make_syndrome(headers.aeth_kind, headers.aeth_value) : 0U;
  ++report.kinds[{is_mine, static_cast<unsigned>(headers.opcode), syndrome, headers.solicited}];
  if (is_mine) check_mine(frame, view, report);
}

MacAddress parse_mac(const char* text) {
  MacAddress mac{};
  std::array<unsigned, 6> parts{};
  if (std::sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x", &parts[0], &parts[1], &parts[2], &parts[3], &parts[4],
                  &parts[5]) != 6) {
    throw std::runtime_error(std::string("not a MAC address: ") + text);
  }
  for (std::size_t i = 0; i < mac.size(); ++i) mac[i] = static_cast<std::uint8_t>(parts[i]);
  return mac;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fputs("usage: frame_check FILE MAC [TRAFFIC-CLASS]\n", stderr);
    return 2;
  }
  try {
    Report report;
    if (argc == 4) report.traffic_class = static_cast<std::uint8_t>(std::stoul(argv[3]));
    const MacAddress mac = parse_mac(argv[2]);
    for (const Frame& frame : test::read_pcap(argv[1])) judge(frame, mac, report);
    for (const auto& [kind, count] : report.kinds) {
      const auto& [is_mine, opcode, syndrome, is_solicited] = kind;
      std::printf("%s %02x %02x %d %zu\n", is_mine ? "mine" : "theirs", opcode, syndrome,
                  is_solicited ? 1 : 0, count);
    }
    std::printf("%zu frames, %zu faults\n", report.number, report.faults.size());
    for (std::size_t i = 0; i < report.faults.size() && i < kFaultsShown; ++i)
      std::puts(report.faults[i].c_str());
    return report.faults.empty() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "frame_check: %s\n", error.what());
    return 2;
  }
}
