// The RDMA IP connection manager's header. See urdma/wire/ip_cm.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "urdma/wire/ip_cm.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "urdma/wire/be.hpp"

namespace urdma::wire {

namespace {

using Address = std::array<std::uint8_t, 16>;

struct IpCmWire {
  std::uint8_t version;     // major and minor, 0 and 0
  std::uint8_t ip_version;  // in the upper four bits; the rest is reserved
  be16 source_port;
  Address source;  // of IPv4: the last four bytes, behind zeros
  Address dest;
};
static_assert(sizeof(IpCmWire) == kIpCmHeaderBytes && alignof(IpCmWire) == 1);

constexpr unsigned kIpVersionShift = 4;
constexpr unsigned kIpv4 = 4;
constexpr unsigned kIpv6 = 6;
constexpr std::ptrdiff_t kIpv4Offset = 12;

Gid gid_of(const Address& address, bool is_ipv6) {
  if (is_ipv6) return address;
  Gid gid{};
  gid[10] = gid[11] = 0xFF;
  std::copy(address.begin() + kIpv4Offset, address.end(), gid.begin() + kIpv4Offset);
  return gid;
}

Address address_of(const Gid& gid, bool is_ipv6) {
  if (is_ipv6) return gid;
  Address address{};
  std::copy(gid.begin() + kIpv4Offset, gid.end(), address.begin() + kIpv4Offset);
  return address;
}

}  // namespace

std::optional<IpCmHeader> parse_ip_cm(std::span<const std::uint8_t> private_data) {
  if (private_data.size() < sizeof(IpCmWire)) return std::nullopt;
  const auto& wire = overlay<IpCmWire>(private_data.data());
  const unsigned version = wire.ip_version >> kIpVersionShift;
  if (wire.version != 0 || (version != kIpv4 && version != kIpv6)) return std::nullopt;
  const bool is_ipv6 = version == kIpv6;
  return IpCmHeader{is_ipv6, wire.source_port.get(), gid_of(wire.source, is_ipv6),
                    gid_of(wire.dest, is_ipv6)};
}

void write_ip_cm(const IpCmHeader& header, std::span<std::uint8_t, kIpCmHeaderBytes> out) {
  IpCmWire wire{};
  wire.ip_version = static_cast<std::uint8_t>((header.is_ipv6 ? kIpv6 : kIpv4) << kIpVersionShift);
  wire.source_port = header.source_port;
  wire.source = address_of(header.source, header.is_ipv6);
  wire.dest = address_of(header.dest, header.is_ipv6);
  std::memcpy(out.data(), &wire, sizeof(wire));
}

}  // namespace urdma::wire
