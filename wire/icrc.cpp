// The invariant CRC (IBTA annex A17.3.3), by isa-l's carry-less multiplication. The fields that
// routers change are masked in a copy of the headers, so that the packet itself is only read.
// Owned by wire; pure, any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/icrc.hpp"

#include <isa-l/crc.h>

#include <array>
#include <cstddef>

#include "urdma/base/check.hpp"
#include "urdma/wire/frame.hpp"
#include "urdma/wire/headers.hpp"
#include "urdma/wire/ip.hpp"

namespace urdma::wire {
namespace {

// The CRC of the eight bytes of ones that stand in for the link header which RoCEv2 does not have.
constexpr std::uint32_t crc_of_ones(int bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (int i = 0; i < bytes; ++i) {
    crc ^= 0xFF;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}
constexpr std::uint32_t kSeed = crc_of_ones(8);

template <std::size_t kIpBytes>
using Head = std::array<std::uint8_t, kIpBytes + kUdpBytes + sizeof(BthWire)>;

// Ones where a router may change a bit of IP, UDP and BTH: these count as ones in the ICRC.
template <std::size_t kIpBytes>
constexpr Head<kIpBytes> make_mask() {
  Head<kIpBytes> mask{};
  if constexpr (kIpBytes == kIpv6Bytes) {
    mask[0] = 0x0F;  // the version stays; traffic class and flow label do not
    mask[1] = mask[2] = mask[3] = 0xFF;
    mask[offsetof(Ipv6Wire, hop_limit)] = 0xFF;
  } else {
    mask[offsetof(Ipv4Wire, type_of_service)] = 0xFF;
    mask[offsetof(Ipv4Wire, time_to_live)] = 0xFF;
    mask[offsetof(Ipv4Wire, checksum)] = mask[offsetof(Ipv4Wire, checksum) + 1] = 0xFF;
  }
  const std::size_t checksum = kIpBytes + offsetof(UdpWire, checksum);
  mask[checksum] = mask[checksum + 1] = 0xFF;
  mask[kIpBytes + kUdpBytes + offsetof(BthWire, congestion)] = 0xFF;
  return mask;
}

// isa-l 2.30's AVX-512 path returns with the upper halves of the vector registers in use, and until
// they are cleared each SSE instruction of the whole thread merges with them: measured, 170 ns were lost
// in the copies and stores behind one call.
#if defined(__x86_64__)
[[gnu::target("avx")]] void clear_upper_halves() { __builtin_ia32_vzeroupper(); }

void leave_vector_code() {
  if (__builtin_cpu_supports("avx")) clear_upper_halves();
}
#else
void leave_vector_code() {}
#endif

template <std::size_t kIpBytes>
std::uint32_t icrc_over(std::span<const std::uint8_t> packet) {
  constexpr Head<kIpBytes> kMask = make_mask<kIpBytes>();
  constexpr std::size_t kHead = kMask.size();
  URDMA_CHECK(packet.size() >= kHead);
  // A loop over bytes, which becomes few wide stores; the CRC would wait for narrow ones.
  Head<kIpBytes> head;
  for (std::size_t i = 0; i < kHead; ++i) head[i] = packet[i] | kMask[i];
  const std::uint32_t head_crc = crc32_gzip_refl(kSeed, head.data(), kHead);
  const std::uint32_t crc = crc32_gzip_refl(head_crc, packet.data() + kHead, packet.size() - kHead);
  leave_vector_code();
  return crc;
}

}  // namespace

std::uint32_t icrc(std::span<const std::uint8_t> packet) {
  URDMA_CHECK(!packet.empty());
  return packet[0] >> 4 == 6 ? icrc_over<kIpv6Bytes>(packet) : icrc_over<kIpv4Bytes>(packet);
}

}  // namespace urdma::wire
