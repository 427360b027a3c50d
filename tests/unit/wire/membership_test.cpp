// IGMP and MLD: frames that Linux sends, what is written, and what must be discarded.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/membership.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/support/frame_text.hpp"
#include "urdma/wire/resolution.hpp"

namespace urdma::wire {
namespace {

using Frame = std::vector<std::uint8_t>;
using Kind = MembershipReport::Kind;

constexpr MacAddress kB = {2, 0, 0, 0, 0, 0x0B};

// What Linux 6.1 sends over veth for a member of 239.77.1.2 and ff0e::4d01 on 192.0.2.2 and
// fe80::ff:fe00:b, without padding.
const std::string kJoinedV3 =
    "01005e00001602000000000b080046c0002800004000010241f7c0000202e000001694040000"
    "2200e9ae0000000104000000ef4d0102";
const std::string kLeftV3 =
    "01005e00001602000000000b080046c0002800004000010241f7c0000202e000001694040000"
    "2200eaae0000000103000000ef4d0102";
const std::string kReportV2 =
    "01005e4d010202000000000b080046c0002000004000010231c6c0000202ef4d010294040000"
    "1600f9afef4d0102";
const std::string kLeaveV2 =
    "01005e00000202000000000b080046c000200000400001024213c0000202e000000294040000"
    "1700f8afef4d0102";
const std::string kMldJoinedV2 =
    "33330000001602000000000b86dd6000000000240001fe80000000000000000000fffe00000b"
    "ff0200000000000000000000000000163a000502000001008f0023f30000000104000000"
    "ff0e0000000000000000000000004d01";
const std::string kMldLeftV2 =
    "33330000001602000000000b86dd6000000000240001fe80000000000000000000fffe00000b"
    "ff0200000000000000000000000000163a000502000001008f0024f30000000103000000"
    "ff0e0000000000000000000000004d01";
const std::string kMldReportV1 =
    "333300004d0102000000000b86dd6000000000200001fe80000000000000000000fffe00000b"
    "ff0e0000000000000000000000004d013a000502000001008300e70000000000"
    "ff0e0000000000000000000000004d01";
const std::string kMldDoneV1 =
    "33330000000202000000000b86dd6000000000200001fe80000000000000000000fffe00000b"
    "ff0200000000000000000000000000023a000502000001008400330c00000000"
    "ff0e0000000000000000000000004d01";
// And what its bridge asks.
const std::string kQueryV2 =
    "01005e00000102000000000a080046c00020000040000102041700000000e0000001940400001164ee9b00000000";
const std::string kQueryV3 =
    "01005e00000102000000000a080046c00024000040000102041300000000e0000001940400001164ec1e"
    "00000000027d0000";
// By the standard: to all nodes, of every group, 10 s; version 2 with its four bytes more.
const std::string kMldQueryV1 =
    "33330000000102000000000a86dd6000000000200001fe80000000000000000000fffe00000a"
    "ff0200000000000000000000000000013a0005020000010082005a0e27100000"
    "00000000000000000000000000000000";
const std::string kMldQueryV2 =
    "33330000000102000000000a86dd6000000000240001fe80000000000000000000fffe00000a"
    "ff0200000000000000000000000000013a000502000001008200578d27100000"
    "00000000000000000000000000000000027d0000";

Frame written(Kind kind, bool is_legacy, const char* group, const char* source) {
  std::array<std::uint8_t, kMaxMembershipBytes> buffer{};
  buffer.fill(0xEE);
  const std::size_t size = write_membership_report({kind, is_legacy, gid(group), gid(source)}, kB, buffer);
  return {buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(size)};
}

// Filled with zeros to the length that Ethernet wants.
Frame padded(const std::string& hex) {
  Frame bytes = bytes_of(hex);
  if (bytes.size() < 60) bytes.resize(60);
  return bytes;
}

TEST(Membership, Write_AsLinux) {
  constexpr const char* kGroup = "239.77.1.2";
  constexpr const char* kOwn = "192.0.2.2";
  EXPECT_EQ(written(Kind::kJoined, false, kGroup, kOwn), padded(kJoinedV3));
  EXPECT_EQ(written(Kind::kLeft, false, kGroup, kOwn), padded(kLeftV3));
  EXPECT_EQ(written(Kind::kJoined, true, kGroup, kOwn), padded(kReportV2));
  EXPECT_EQ(written(Kind::kMember, true, kGroup, kOwn), padded(kReportV2));
  EXPECT_EQ(written(Kind::kLeft, true, kGroup, kOwn), padded(kLeaveV2));
}

TEST(Membership, Write_AsLinuxIpv6) {
  constexpr const char* kGroup = "ff0e::4d01";
  constexpr const char* kOwn = "fe80::ff:fe00:b";
  EXPECT_EQ(written(Kind::kJoined, false, kGroup, kOwn), padded(kMldJoinedV2));
  EXPECT_EQ(written(Kind::kLeft, false, kGroup, kOwn), padded(kMldLeftV2));
  EXPECT_EQ(written(Kind::kJoined, true, kGroup, kOwn), padded(kMldReportV1));
  EXPECT_EQ(written(Kind::kLeft, true, kGroup, kOwn), padded(kMldDoneV1));
}

TEST(Membership, Write_AnswersExcludeNothing) {
  constexpr std::size_t kRecordType = 14 + 24 + 8;
  EXPECT_EQ(written(Kind::kMember, false, "239.77.1.2", "192.0.2.2").at(kRecordType), 2);
  EXPECT_EQ(written(Kind::kMember, false, "ff0e::1", "::").at(14 + 40 + 8 + 8), 2);
}

TEST(Membership, Parse_QueriesOfLinux) {
  const auto old = parse_membership_query(bytes_of(kQueryV2));
  ASSERT_TRUE(old);
  EXPECT_TRUE(old->is_legacy);
  EXPECT_EQ(old->group, gid("0.0.0.0"));
  EXPECT_EQ(old->max_response_ms, 10'000U);
  const auto query = parse_membership_query(padded(kQueryV3));
  ASSERT_TRUE(query);
  EXPECT_FALSE(query->is_legacy);
  EXPECT_EQ(query->max_response_ms, 10'000U);
}

TEST(Membership, Parse_QueriesOfMld) {
  const auto old = parse_membership_query(bytes_of(kMldQueryV1));
  ASSERT_TRUE(old);
  EXPECT_TRUE(old->is_legacy);
  EXPECT_EQ(old->group, gid("::"));
  EXPECT_EQ(old->max_response_ms, 10'000U);
  const auto query = parse_membership_query(bytes_of(kMldQueryV2));
  ASSERT_TRUE(query);
  EXPECT_FALSE(query->is_legacy);
}

// A frame with some bytes replaced, and the IGMP checksum made right again.
Frame changed(const std::string& hex, std::size_t at, std::uint8_t value) {
  constexpr std::size_t kMessage = 14 + 24;
  Frame frame = bytes_of(hex);
  frame.at(at) = value;
  frame[kMessage + 2] = frame[kMessage + 3] = 0;
  std::uint32_t sum = 0;
  for (std::size_t i = kMessage; i < frame.size(); i += 2) sum += frame[i] * 256U + frame[i + 1];
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  frame[kMessage + 2] = static_cast<std::uint8_t>(~sum >> 8);
  frame[kMessage + 3] = static_cast<std::uint8_t>(~sum);
  return frame;
}

TEST(Membership, Parse_LongResponseTimes) {
  constexpr std::size_t kResponse = 14 + 24 + 1;
  const auto response_ms = [](const std::string& hex, std::uint8_t code) {
    return parse_membership_query(changed(hex, kResponse, code)).value().max_response_ms;
  };
  EXPECT_EQ(response_ms(kQueryV3, 127), 12'700U);
  EXPECT_EQ(response_ms(kQueryV3, 0x80), 12'800U) << "(0 + 16) << 3, in tenths of a second";
  EXPECT_EQ(response_ms(kQueryV3, 0xFF), 3'174'400U) << "(15 + 16) << 10";
  EXPECT_EQ(response_ms(kQueryV2, 0xFF), 25'500U) << "a plain number";
  EXPECT_EQ(response_ms(kQueryV2, 0), 10'000U) << "IGMPv1 says nothing";
}

TEST(Membership, Parse_OfOneGroup) {
  constexpr std::size_t kGroup = 14 + 24 + 4;
  EXPECT_FALSE(parse_membership_query(changed(kQueryV2, kGroup, 10))) << "10.0.0.0 is no group";
  const auto query = parse_membership_query(changed(kQueryV2, kGroup, 239));
  ASSERT_TRUE(query);
  EXPECT_EQ(query->group, gid("239.0.0.0"));
}

TEST(Membership, Parse_DiscardsWhatWasForwarded) {
  Frame igmp = bytes_of(kQueryV2);
  igmp[14 + 8] = 2;    // time to live, and
  igmp[14 + 10] -= 1;  // the checksum that fits
  EXPECT_FALSE(parse_membership_query(igmp));
  Frame mld = bytes_of(kMldQueryV1);
  mld[14 + 7] = 2;
  EXPECT_FALSE(parse_membership_query(mld));
}

TEST(Membership, Parse_EveryBitCounts) {
  for (const std::string* hex : {&kQueryV2, &kQueryV3, &kMldQueryV1, &kMldQueryV2}) {
    const Frame whole = bytes_of(*hex);
    const bool is_ipv4 = whole[12] == 0x08;
    const std::size_t message = is_ipv4 ? 14 + 24 : 14 + 40 + 8;
    for (std::size_t bit = 8 * message; bit < 8 * whole.size(); ++bit) {
      Frame frame = whole;
      frame[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
      EXPECT_FALSE(parse_membership_query(frame)) << *hex << ", bit " << bit;
    }
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_FALSE(parse_membership_query(std::span(whole).first(size))) << *hex << ", " << size << " bytes";
    }
  }
}

// Exact buffers, so that ASan sees a read beyond one.
TEST(Membership, Parse_Damaged) {
  std::mt19937 random(1);
  for (const std::string* hex : {&kQueryV2, &kQueryV3, &kMldQueryV1, &kMldQueryV2}) {
    for (int i = 0; i < 20'000; ++i) {
      Frame frame = bytes_of(*hex);
      for (unsigned damage = random() % 4; damage > 0; --damage) {
        frame[12 + random() % (frame.size() - 12)] = static_cast<std::uint8_t>(random());
      }
      frame.resize(random() % (frame.size() + 1));
      frame.shrink_to_fit();
      (void)parse_membership_query(frame);
    }
  }
}

TEST(Membership, Parse_ReportsAreNoQueries) {
  EXPECT_FALSE(parse_membership_query(bytes_of(kJoinedV3)));
  EXPECT_FALSE(parse_membership_query(bytes_of(kReportV2)));
  EXPECT_FALSE(parse_membership_query(bytes_of(kMldJoinedV2)));
}

TEST(Membership, IsReportedGroup) {
  EXPECT_TRUE(is_reported_group(gid("239.77.1.2")));
  EXPECT_TRUE(is_reported_group(gid("224.0.0.251")));
  EXPECT_FALSE(is_reported_group(gid("224.0.0.1")));
  EXPECT_FALSE(is_reported_group(gid("192.0.2.1")));
  EXPECT_TRUE(is_reported_group(gid("ff02::1:ff00:1")));
  EXPECT_TRUE(is_reported_group(gid("ff0e::4d01")));
  EXPECT_FALSE(is_reported_group(gid("ff02::1")));
  EXPECT_FALSE(is_reported_group(gid("ff01::5")));
  EXPECT_FALSE(is_reported_group(gid("2001:db8::1")));
}

}  // namespace
}  // namespace urdma::wire
