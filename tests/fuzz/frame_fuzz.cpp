// Fuzzes the parser of RoCEv2 frames with damaged golden frames.
//   frame_fuzz [ITERATIONS [SEED]]
// Each frame stands in a heap block of its exact size, so that ASan sees the first byte read beyond it.
// A fault prints the seed, the iteration and the frame, and ends with status 1. One thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/mutator.hpp"
#include "tests/support/golden_frames.hpp"
#include "urdma/wire/frame.hpp"
#include "urdma/wire/icrc.hpp"

namespace {

using urdma::fuzz::Bytes;
using urdma::fuzz::Mutator;
using namespace urdma::wire;  // NOLINT

constexpr std::uint64_t kDefaultIterations = 1'000'000;
constexpr std::uint64_t kDefaultSeed = 20'261'129;
constexpr std::size_t kErrors = static_cast<std::size_t>(ParseError::kBadPkey) + 1;
constexpr std::size_t kEtherTypeOffset = 12;

const char* name_of(ParseError error) {
  switch (error) {
    case ParseError::kNone:
      return "taken";
    case ParseError::kNotRoce:
      return "not RoCE";
    case ParseError::kTruncated:
      return "truncated";
    case ParseError::kBadVersion:
      return "bad version";
    case ParseError::kBadOpcode:
      return "bad opcode";
    case ParseError::kBadPad:
      return "bad pad";
    case ParseError::kBadIcrc:
      return "bad ICRC";
    case ParseError::kBadPkey:
      return "bad P_Key";
  }
  return "an error that does not exist";
}

std::size_t ip_header_bytes(const Bytes& frame) {
  return frame[kEtherTypeOffset] == 0x86 ? kIpv6Bytes : kIpv4Bytes;
}

// Gives a damaged frame the Ethernet, IP and UDP headers of a whole one, with lengths and an ICRC that agree
// with its size, so that the damage behind is what the parser has to notice.
void make_plausible(Bytes& frame, const Bytes& whole) {
  if (frame.size() < kEthernetBytes + kIpv6Bytes + kUdpBytes + sizeof(BthWire) + kIcrcBytes) return;
  std::copy_n(whole.begin(), kEthernetBytes + ip_header_bytes(whole) + kUdpBytes, frame.begin());
  const std::size_t ip_bytes = frame.size() - kEthernetBytes;
  const std::size_t ip_header = ip_header_bytes(whole);
  const bool is_ipv6 = ip_header == kIpv6Bytes;
  const be16 ip_length(static_cast<std::uint16_t>(is_ipv6 ? ip_bytes - kIpv6Bytes : ip_bytes));
  const be16 udp_length(static_cast<std::uint16_t>(ip_bytes - ip_header));
  std::memcpy(frame.data() + kEthernetBytes + (is_ipv6 ? 4 : 2), &ip_length, sizeof(ip_length));
  std::memcpy(frame.data() + kEthernetBytes + ip_header + 4, &udp_length, sizeof(udp_length));
  const IcrcWire crc(icrc(std::span(frame).subspan(kEthernetBytes, ip_bytes - kIcrcBytes)));
  std::memcpy(frame.data() + frame.size() - kIcrcBytes, &crc, sizeof(crc));
}

// What must hold of every frame that is taken. Returns what does not, or nothing.
const char* broken_promise(const Bytes& frame, const FrameView& view) {
  const OpcodeInfo& info = view.headers.info();
  if (!info.is_valid()) return "its opcode is not in the table";
  if (view.payload.size() != view.headers.payload_bytes) return "two sizes of the payload";
  if (!info.has_payload && !view.payload.empty()) return "payload behind headers that carry none";
  const std::uint8_t* const end = frame.data() + frame.size();
  if (view.payload.data() < frame.data() ||
      view.payload.size() > static_cast<std::size_t>(end - view.payload.data())) {
    return "the payload is not inside the frame";
  }
  if (view.headers.dest_qp.value > urdma::kQpnMask || view.headers.msn > urdma::Psn::kMask) {
    return "a number of more than 24 bits";
  }
  return nullptr;
}

// A frame made of the view must parse to the same view.
const char* broken_rebuild(const FrameView& view) {
  FlowAddress address;
  address.source_gid = view.source_gid;
  address.dest_gid = view.dest_gid;
  const FlowTemplate flow = make_flow(address);
  Bytes frame(frame_bytes(flow, view.headers));
  const std::size_t payload = write_frame_headers(flow, view.headers, 0, frame.data());
  std::copy(view.payload.begin(), view.payload.end(), frame.begin() + static_cast<std::ptrdiff_t>(payload));
  finish_frame(frame);
  FrameView again;
  if (parse_frame(frame, IcrcPolicy::kCheck, again) != ParseError::kNone) return "rebuilt, it is refused";
  Bytes first(kMaxHeaderBytes);
  Bytes second(kMaxHeaderBytes);
  encode(view.headers, first.data());
  encode(again.headers, second.data());
  if (first != second) return "rebuilt, its headers differ";
  if (!std::equal(view.payload.begin(), view.payload.end(), again.payload.begin(), again.payload.end())) {
    return "rebuilt, its payload differs";
  }
  return nullptr;
}

// Parses one frame under both policies; `error` is what the checking one says.
const char* broken_by(const Bytes& frame, ParseError& error) {
  FrameView view;
  error = parse_frame(frame, IcrcPolicy::kCheck, view);
  FrameView trusted_view;
  const ParseError trusted = parse_frame(frame, IcrcPolicy::kTrusted, trusted_view);
  if (error != ParseError::kBadIcrc && error != trusted) return "the policies differ in more than the ICRC";
  if (trusted != ParseError::kNone) return nullptr;
  if (const char* const broken = broken_promise(frame, trusted_view)) return broken;
  return broken_rebuild(trusted_view);
}

[[gnu::cold]] int report_fault(const char* what, std::uint64_t seed, std::uint64_t iteration,
                               const Bytes& frame) {
  std::printf("FAULT: %s\nseed %" PRIu64 ", iteration %" PRIu64 ", frame of %zu bytes:\n", what, seed,
              iteration, frame.size());
  for (const std::uint8_t byte : frame) std::printf("%02x", byte);
  std::printf("\n");
  return 1;
}

// A fuzzer that no longer gets behind some check is a fault of the fuzzer.
int report_counts(const std::array<std::uint64_t, kErrors>& counts) {
  int status = 0;
  for (std::size_t index = 0; index < kErrors; ++index) {
    const auto error = static_cast<ParseError>(index);
    std::printf("%12" PRIu64 "  %s\n", counts[index], name_of(error));
    // The P_Key is for the caller of parse_frame to judge.
    if (counts[index] == 0 && error != ParseError::kBadPkey) status = 1;
  }
  if (status != 0) std::printf("FAULT: an outcome that never came up; more iterations are needed\n");
  return status;
}

int run(std::uint64_t iterations, std::uint64_t seed) {
  std::vector<Bytes> samples;
  for (const urdma::test::GoldenFrame& golden : urdma::test::read_golden_frames())
    samples.push_back(golden.bytes);
  Mutator mutator(seed);
  std::array<std::uint64_t, kErrors> counts{};
  for (std::uint64_t iteration = 0; iteration < iterations; ++iteration) {
    Bytes damaged = mutator.damaged(samples);
    if (mutator.below(2) == 0) make_plausible(damaged, samples[mutator.below(samples.size())]);
    const Bytes frame(damaged.begin(), damaged.end());  // no spare capacity
    ParseError error = ParseError::kNone;
    if (const char* const broken = broken_by(frame, error))
      return report_fault(broken, seed, iteration, frame);
    ++counts[static_cast<std::size_t>(error)];
  }
  return report_counts(counts);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t iterations = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : kDefaultIterations;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : kDefaultSeed;
  std::printf("frame_fuzz: %" PRIu64 " iterations, seed %" PRIu64 "\n", iterations, seed);
  return run(iterations, seed);
}
