// ARP and neighbour discovery: frames that Linux sends, what is written, and what must be discarded.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/resolution.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/support/frame_text.hpp"

namespace urdma::wire {
namespace {

using Frame = std::vector<std::uint8_t>;
using Kind = Resolution::Kind;

constexpr MacAddress kA = {2, 0, 0, 0, 0, 0x0A};
constexpr MacAddress kB = {2, 0, 0, 0, 0, 0x0B};
constexpr MacAddress kEverybody = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};

// What Linux 6.1 sends over veth, host A being 192.0.2.1 and 2001:db8::1, host B .2 and ::2.
const std::string kArpQuestion =
    "ffffffffffff02000000000a0806000108000604000102000000000ac0000201000000000000c0000202";
const std::string kArpAnswer =
    "02000000000a02000000000b0806000108000604000202000000000bc000020202000000000ac0000201";
const std::string kSolicitation =
    "3333ff00000202000000000a86dd6000000000203aff20010db8000000000000000000000001"
    "ff0200000000000000000001ff00000287001c1e0000000020010db8000000000000000000000002010102000000000a";
const std::string kAdvertisement =
    "02000000000a02000000000b86dd6000000000203aff20010db8000000000000000000000002"
    "20010db800000000000000000000000188008a686000000020010db8000000000000000000000002020102000000000b";
// To a question that was asked directly: without its link address.
const std::string kConfirmation =
    "02000000000b02000000000a86dd6000000000183aff20010db8000000000000000000000001"
    "fe80000000000000000000fffe00000b8800deac4000000020010db8000000000000000000000001";
// A probe for duplicates, with an option (nonce) that is not known here.
const std::string kProbe =
    "3333ff00000b02000000000b86dd6000000000203aff00000000000000000000000000000000"
    "ff0200000000000000000001ff00000b8700ab6e00000000fe80000000000000000000fffe00000b0e0199a7218a0868";

Frame written(const Resolution& message, const MacAddress& source, const MacAddress& dest) {
  std::array<std::uint8_t, kMaxResolutionBytes> buffer{};
  const std::size_t size = write_resolution(message, source, dest, buffer);
  return {buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(size)};
}

void expect_equal(const Resolution& a, const Resolution& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.is_solicited, b.is_solicited);
  EXPECT_EQ(a.is_override, b.is_override);
  EXPECT_EQ(a.subject, b.subject);
  EXPECT_EQ(a.peer, b.peer);
  EXPECT_EQ(a.mac, b.mac);
}

TEST(ResolutionTest, Parse_LinuxArpQuestion) {
  const auto message = parse_resolution(bytes_of(kArpQuestion));
  ASSERT_TRUE(message);
  expect_equal(*message, {Kind::kQuestion, false, true, gid("192.0.2.2"), gid("192.0.2.1"), kA});
}

TEST(ResolutionTest, Parse_LinuxArpAnswer) {
  const auto message = parse_resolution(bytes_of(kArpAnswer));
  ASSERT_TRUE(message);
  expect_equal(*message, {Kind::kAnswer, true, true, gid("192.0.2.2"), gid("192.0.2.1"), kB});
}

TEST(ResolutionTest, Parse_LinuxSolicitation) {
  const auto message = parse_resolution(bytes_of(kSolicitation));
  ASSERT_TRUE(message);
  expect_equal(*message, {Kind::kQuestion, false, true, gid("2001:db8::2"), gid("2001:db8::1"), kA});
}

TEST(ResolutionTest, Parse_LinuxAdvertisement) {
  const auto message = parse_resolution(bytes_of(kAdvertisement));
  ASSERT_TRUE(message);
  expect_equal(*message, {Kind::kAnswer, true, true, gid("2001:db8::2"), gid("2001:db8::1"), kB});
}

TEST(ResolutionTest, Parse_ConfirmationWithoutLinkAddress) {
  const auto message = parse_resolution(bytes_of(kConfirmation));
  ASSERT_TRUE(message);
  expect_equal(*message, {Kind::kAnswer, true, false, gid("2001:db8::1"), gid("fe80::ff:fe00:b"), {}});
}

TEST(ResolutionTest, Parse_ProbeForDuplicates) {
  const auto message = parse_resolution(bytes_of(kProbe));
  ASSERT_TRUE(message);
  expect_equal(*message, {Kind::kQuestion, false, true, gid("fe80::ff:fe00:b"), Gid{}, {}});
}

TEST(ResolutionTest, Parse_GratuitousArpIsAnAnnouncement) {
  for (const std::uint8_t operation : {1, 2}) {
    Frame frame = bytes_of(kArpQuestion);
    frame[21] = operation;
    frame[41] = 1;  // the target is the sender
    const auto message = parse_resolution(frame);
    ASSERT_TRUE(message);
    expect_equal(*message, {Kind::kAnswer, false, true, gid("192.0.2.1"), gid("0.0.0.0"), kA});
  }
}

TEST(ResolutionTest, Write_IsWhatLinuxSends) {
  // But for padding.
  Frame arp = written({Kind::kQuestion, false, true, gid("192.0.2.2"), gid("192.0.2.1"), kA}, kA, kEverybody);
  EXPECT_EQ(arp.size(), 60U);
  arp.resize(42);
  EXPECT_EQ(arp, bytes_of(kArpQuestion));
  arp = written({Kind::kAnswer, true, true, gid("192.0.2.2"), gid("192.0.2.1"), kB}, kB, kA);
  arp.resize(42);
  EXPECT_EQ(arp, bytes_of(kArpAnswer));
  EXPECT_EQ(written({Kind::kQuestion, false, true, gid("2001:db8::2"), gid("2001:db8::1"), kA}, kA,
                    question_mac(gid("2001:db8::2"))),
            bytes_of(kSolicitation));
  EXPECT_EQ(written({Kind::kAnswer, true, true, gid("2001:db8::2"), gid("2001:db8::1"), kB}, kB, kA),
            bytes_of(kAdvertisement));
}

TEST(ResolutionTest, Write_RoundTrip) {
  const std::vector<Resolution> messages = {
      {Kind::kQuestion, false, true, gid("10.0.0.9"), gid("10.0.0.1"), kA},
      {Kind::kQuestion, false, true, gid("10.0.0.9"), gid("0.0.0.0"), kA},
      {Kind::kAnswer, true, true, gid("10.0.0.9"), gid("10.0.0.1"), kB},
      {Kind::kAnswer, false, true, gid("10.0.0.9"), gid("0.0.0.0"), kB},
      {Kind::kQuestion, false, true, gid("fd00::9"), gid("fd00::1"), kA},
      {Kind::kAnswer, true, false, gid("fd00::9"), gid("fd00::1"), kB},
      {Kind::kAnswer, false, true, gid("fd00::9"), gid("::"), kB},
  };
  for (const Resolution& message : messages) {
    const auto read = parse_resolution(written(message, message.mac, question_mac(message.subject)));
    ASSERT_TRUE(read);
    expect_equal(*read, message);
  }
}

TEST(ResolutionTest, Write_DirectQuestionGoesToTheNeighbourAlone) {
  const Frame frame = written({Kind::kQuestion, false, true, gid("fd00::9"), gid("fd00::1"), kA}, kA, kB);
  const Gid dest = gid("fd00::9");
  EXPECT_TRUE(std::equal(dest.begin(), dest.end(), frame.begin() + 14 + 24));
  EXPECT_TRUE(parse_resolution(frame));
}

TEST(ResolutionTest, Parse_CutAnywhereIsDiscarded) {
  for (const std::string& golden : {kArpQuestion, kArpAnswer, kSolicitation, kAdvertisement, kConfirmation}) {
    const Frame frame = bytes_of(golden);
    for (std::size_t size = 0; size < frame.size(); ++size) {
      EXPECT_FALSE(parse_resolution({frame.data(), size})) << golden << " cut to " << size;
    }
  }
}

TEST(ResolutionTest, Parse_OneDamagedBitOfIpv6IsDiscarded) {
  // All that the checksum covers: addresses, and the message.
  for (std::size_t byte = 14 + 8; byte < bytes_of(kAdvertisement).size(); ++byte) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      Frame frame = bytes_of(kAdvertisement);
      frame[byte] = static_cast<std::uint8_t>(frame[byte] ^ (1U << bit));
      EXPECT_FALSE(parse_resolution(frame)) << "byte " << byte << " bit " << bit;
    }
  }
}

TEST(ResolutionTest, Parse_ForwardedSolicitationIsDiscarded) {
  Frame frame = bytes_of(kSolicitation);
  frame[21] = 254;  // hop limit
  EXPECT_FALSE(parse_resolution(frame));
}

TEST(ResolutionTest, Parse_ArpFieldsThatMustBe) {
  // Hardware type, protocol, sizes, operation; a sender at a group's, or no, link address; groups.
  struct Change {
    std::size_t at;
    std::uint8_t value;
  };
  for (const Change change : {Change{15, 6}, Change{16, 9}, Change{18, 8}, Change{19, 16}, Change{21, 0},
                              Change{21, 3}, Change{22, 3}, Change{28, 224}, Change{38, 239}}) {
    Frame frame = bytes_of(kArpQuestion);
    frame[change.at] = change.value;
    EXPECT_FALSE(parse_resolution(frame)) << "byte " << change.at;
  }
  Frame no_mac = bytes_of(kArpQuestion);
  std::fill(no_mac.begin() + 22, no_mac.begin() + 28, std::uint8_t{0});
  EXPECT_FALSE(parse_resolution(no_mac));
}

// Puts the right checksum into a message, whatever it says.
void mend_checksum(Frame& frame) {
  frame[56] = frame[57] = 0;
  std::uint32_t sum = 58 + static_cast<std::uint32_t>(frame.size() - 54);
  for (std::size_t i = 22; i < frame.size(); ++i) sum += i % 2 == 0 ? std::uint32_t{frame[i]} << 8 : frame[i];
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  frame[56] = static_cast<std::uint8_t>(~sum >> 8);
  frame[57] = static_cast<std::uint8_t>(~sum);
}

TEST(ResolutionTest, Parse_OptionsThatLie) {
  for (const std::uint8_t units : {0, 2, 255}) {
    Frame frame = bytes_of(kSolicitation);
    frame[79] = units;  // the option's length
    mend_checksum(frame);
    EXPECT_FALSE(parse_resolution(frame)) << int{units};
  }
  Frame group = bytes_of(kSolicitation);
  group[80] |= 1;  // a group's link address
  mend_checksum(group);
  EXPECT_FALSE(parse_resolution(group));
  Frame same = bytes_of(kSolicitation);
  mend_checksum(same);
  EXPECT_EQ(same, bytes_of(kSolicitation));
}

TEST(ResolutionTest, Parse_ProbeThatNamesALinkAddressIsDiscarded) {
  Frame frame = bytes_of(kSolicitation);
  std::fill(frame.begin() + 22, frame.begin() + 38, std::uint8_t{0});  // from nobody
  mend_checksum(frame);
  EXPECT_FALSE(parse_resolution(frame));
}

TEST(ResolutionTest, Parse_SolicitedAnnouncementIsDiscarded) {
  Frame frame = bytes_of(kAdvertisement);
  const Gid all = gid("ff02::1");
  std::copy(all.begin(), all.end(), frame.begin() + 38);
  mend_checksum(frame);
  EXPECT_FALSE(parse_resolution(frame));
  frame[58] = 0x20;  // not solicited
  mend_checksum(frame);
  EXPECT_TRUE(parse_resolution(frame));
}

TEST(ResolutionTest, Parse_RandomBytes) {
  std::mt19937 random(1);
  for (int i = 0; i < 200'000; ++i) {
    Frame frame = bytes_of(i % 2 == 0 ? kArpQuestion : kSolicitation);
    frame.resize(random() % (frame.size() + 1));
    for (std::uint8_t& byte : frame) {
      if (random() % 8 == 0) byte = static_cast<std::uint8_t>(random());
    }
    if (const auto message = parse_resolution(frame)) {
      EXPECT_FALSE(multicast_mac(message->subject));
      EXPECT_EQ(message->mac[0] & 1, 0);
    }
  }
}

TEST(ResolutionTest, QuestionMac_EverybodyOrTheSolicitedNodeGroup) {
  EXPECT_EQ(question_mac(gid("192.0.2.2")), kEverybody);
  EXPECT_EQ(question_mac(gid("2001:db8::12:3456")), (MacAddress{0x33, 0x33, 0xFF, 0x12, 0x34, 0x56}));
}

TEST(ResolutionTest, MulticastMac_ByRule) {
  EXPECT_EQ(multicast_mac(gid("239.129.2.3")), (MacAddress{0x01, 0x00, 0x5E, 0x01, 2, 3}));
  EXPECT_EQ(multicast_mac(gid("ff02::1:2")), (MacAddress{0x33, 0x33, 0, 1, 0, 2}));
  EXPECT_FALSE(multicast_mac(gid("192.0.2.1")));
  EXPECT_FALSE(multicast_mac(gid("fe80::1")));
}

}  // namespace
}  // namespace urdma::wire
