// The 717 frames of tests/captures against the parser, the builder and the ICRC.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "tests/support/golden_frames.hpp"
#include "urdma/wire/frame.hpp"
#include "urdma/wire/icrc.hpp"
#include "urdma/wire/ip.hpp"

namespace urdma::wire {
namespace {

using test::Frame;
using test::GoldenFrame;

constexpr std::size_t kIpOffset = kEthernetBytes;

const std::vector<GoldenFrame>& golden_frames() {
  static const std::vector<GoldenFrame> golden = test::read_golden_frames();
  return golden;
}

bool is_ipv6(const Frame& frame) { return frame[12] == 0x86; }

std::size_t bth_offset(const Frame& frame) {
  return kEthernetBytes + (is_ipv6(frame) ? kIpv6Bytes : kIpv4Bytes) + kUdpBytes;
}

// The flow that would send `frame`, from what a parsed view and the Ethernet header tell.
FlowAddress address_of(const Frame& frame, const FrameView& view) {
  FlowAddress address;
  std::copy_n(frame.begin(), 6, address.dest_mac.begin());
  std::copy_n(frame.begin() + 6, 6, address.source_mac.begin());
  address.source_gid = view.source_gid;
  address.dest_gid = view.dest_gid;
  address.udp_source_port = view.udp_source_port;
  address.traffic_class = view.traffic_class;
  address.hop_limit = view.hop_limit;
  return address;
}

std::uint16_t identification_of(const Frame& frame) {
  if (is_ipv6(frame)) return 0;
  return static_cast<std::uint16_t>((frame[kIpOffset + 4] << 8) | frame[kIpOffset + 5]);
}

// Builds the frame anew. What a sender may choose is taken from the original: addresses, UDP source
// port, traffic class, hop limit, IPv4 identification, and MigReq (rxe sends 0, we send 1). All else
// is computed. The IPv6 flow label is not in a FrameView: rxe's is 0, and so is the default's.
Frame rebuild(const Frame& original, const FrameView& view) {
  const FlowTemplate flow = make_flow(address_of(original, view));
  Frame frame(frame_bytes(flow, view.headers), 0xA5);
  const std::size_t payload =
      write_frame_headers(flow, view.headers, identification_of(original), frame.data());
  std::copy(view.payload.begin(), view.payload.end(), frame.begin() + static_cast<std::ptrdiff_t>(payload));
  finish_frame(frame);
  return frame;
}

TEST(GoldenFrames, AreAllThere) { EXPECT_EQ(golden_frames().size(), 717U); }

TEST(ParseFrame, GoldenFramesAreTaken) {
  for (const GoldenFrame& golden : golden_frames()) {
    FrameView view;
    EXPECT_EQ(parse_frame(golden.bytes, IcrcPolicy::kCheck, view), ParseError::kNone) << golden.name;
    EXPECT_EQ(view.headers.pkey, kDefaultPkey) << golden.name;
    EXPECT_EQ(view.hop_limit, 64) << golden.name;
    EXPECT_GE(view.udp_source_port, kFirstSourcePort) << golden.name;
    EXPECT_FALSE(view.headers.mig_req) << golden.name;
  }
}

// What the other captures do not have: NAKs, solicited events, immediate data and invalidation over RC.
TEST(ParseFrame, GoldenAnswersAreUnderstood) {
  std::map<std::pair<AethKind, int>, int> answers;
  int solicited = 0;
  int with_immediate = 0;
  int with_invalidation = 0;
  for (const GoldenFrame& golden : golden_frames()) {
    if (!golden.name.starts_with("rxe-answers.pcap")) continue;
    FrameView view;
    ASSERT_EQ(parse_frame(golden.bytes, IcrcPolicy::kCheck, view), ParseError::kNone) << golden.name;
    if (view.headers.info().has_aeth) ++answers[{view.headers.aeth_kind, view.headers.aeth_value}];
    solicited += view.headers.solicited ? 1 : 0;
    with_immediate += view.headers.opcode == Opcode::kRcSendLastImm ? 1 : 0;
    with_invalidation += view.headers.opcode == Opcode::kRcSendLastInv ? 1 : 0;
  }
  const std::map<std::pair<AethKind, int>, int> expected = {
      {{AethKind::kRnrNak, 14}, 9},
      {{AethKind::kNak, static_cast<int>(NakCode::kPsnSequenceError)}, 6},
      {{AethKind::kNak, static_cast<int>(NakCode::kInvalidRequest)}, 1},
      {{AethKind::kNak, static_cast<int>(NakCode::kRemoteAccessError)}, 3},
      {{AethKind::kNak, static_cast<int>(NakCode::kRemoteOperationalError)}, 1},
  };
  EXPECT_EQ(answers, expected);
  EXPECT_EQ(solicited, 2);
  EXPECT_EQ(with_immediate, 2);
  EXPECT_EQ(with_invalidation, 1);
}

TEST(Icrc, GoldenFramesMatch) {
  for (const GoldenFrame& golden : golden_frames()) {
    const std::span<const std::uint8_t> frame(golden.bytes);
    const auto packet = frame.subspan(kEthernetBytes, frame.size() - kEthernetBytes - kIcrcBytes);
    IcrcWire stored;
    std::memcpy(&stored, frame.data() + frame.size() - kIcrcBytes, sizeof(stored));
    EXPECT_EQ(icrc(packet), stored.get()) << golden.name;
  }
}

TEST(FinishFrame, GoldenFramesAreRebuiltToTheByte) {
  for (const GoldenFrame& golden : golden_frames()) {
    FrameView view;
    ASSERT_EQ(parse_frame(golden.bytes, IcrcPolicy::kCheck, view), ParseError::kNone) << golden.name;
    ASSERT_EQ(rebuild(golden.bytes, view), golden.bytes) << golden.name;
  }
}

// Whether a change of this bit has to be noticed by the wire module. Not noticed are: MAC addresses
// (the port's business), and the fields that the ICRC leaves out.
bool is_masked(const Frame& frame, std::size_t byte, std::uint8_t bit) {
  if (byte < 12) return true;
  const std::size_t udp = bth_offset(frame) - kUdpBytes;
  if (byte == udp + 6 || byte == udp + 7 || byte == bth_offset(frame) + 4) return true;
  if (byte < kIpOffset || byte >= udp) return false;
  const std::size_t in_ip = byte - kIpOffset;
  if (!is_ipv6(frame)) return in_ip == 1 || in_ip == 8 || in_ip == 10 || in_ip == 11;
  return (in_ip == 0 && bit < 0x10) || (in_ip >= 1 && in_ip <= 3) || in_ip == 7;
}

void expect_flip_is_noticed(const GoldenFrame& golden, Frame& frame, std::size_t byte, unsigned bit) {
  frame[byte] ^= static_cast<std::uint8_t>(bit);
  FrameView view;
  const bool is_taken = parse_frame(frame, IcrcPolicy::kCheck, view) == ParseError::kNone;
  EXPECT_EQ(is_taken, is_masked(golden.bytes, byte, static_cast<std::uint8_t>(bit)))
      << golden.name << " byte " << byte << " bit " << bit;
  frame[byte] = golden.bytes[byte];
}

// One bit in each byte of each frame; in the short frames, which are most, every bit.
TEST(ParseFrame, FlippedBitIsNoticedOrMasked) {
  constexpr std::size_t kShortBytes = 128;
  unsigned turn = 0;
  for (const GoldenFrame& golden : golden_frames()) {
    Frame frame = golden.bytes;
    ++turn;
    for (std::size_t byte = 0; byte < frame.size(); ++byte) {
      if (frame.size() > kShortBytes) {
        expect_flip_is_noticed(golden, frame, byte, 1U << ((byte + turn) % 8));
        continue;
      }
      for (unsigned bit = 1; bit < 256; bit <<= 1) expect_flip_is_noticed(golden, frame, byte, bit);
    }
  }
}

// Each prefix is a heap block of its exact size, so that ASan sees the first byte read beyond it.
TEST(ParseFrame, EveryTruncationIsRefused) {
  for (const GoldenFrame& golden : golden_frames()) {
    for (std::size_t bytes = 0; bytes < golden.bytes.size(); ++bytes) {
      const Frame prefix(golden.bytes.begin(), golden.bytes.begin() + static_cast<std::ptrdiff_t>(bytes));
      FrameView view;
      const ParseError error = parse_frame(prefix, IcrcPolicy::kTrusted, view);
      const bool shows_port = bytes >= bth_offset(golden.bytes);
      ASSERT_EQ(error, shows_port ? ParseError::kTruncated : ParseError::kNotRoce)
          << golden.name << " " << bytes;
    }
  }
}

TEST(ParseFrame, EthernetPaddingIsIgnored) {
  for (const GoldenFrame& golden : golden_frames()) {
    Frame frame = golden.bytes;
    frame.resize(frame.size() + 7, 0xEE);
    FrameView view;
    ASSERT_EQ(parse_frame(frame, IcrcPolicy::kCheck, view), ParseError::kNone) << golden.name;
  }
}

}  // namespace
}  // namespace urdma::wire
