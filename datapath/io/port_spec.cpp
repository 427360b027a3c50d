// Reading port specifications: see port_spec.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/io/port_spec.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

namespace urdma::io {
namespace {

constexpr std::string_view kForms =
    "loopback, af_packet:INTERFACE or vdev:DPDK-DEVICE-ARGUMENTS, each with ,ip=ADDRESS/LEN where wanted";
constexpr std::string_view kAddressKey = "ip=";
constexpr std::string_view kGatewayKey = "gw=";
constexpr std::size_t kBitsOfByte = 8;
constexpr std::uint8_t kIpv4Offset = 96;  // bits of a GID in front of an IPv4 address

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

bool is_host_address(const wire::Gid& gid) {
  constexpr std::array<std::uint8_t, 12> kMappedPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  const bool is_zero = std::all_of(gid.begin(), gid.end(), [](std::uint8_t byte) { return byte == 0; });
  if (std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), gid.begin())) {
    return gid[12] != 0 && gid[12] < 224;  // 224/4 is multicast, 240/4 reserved
  }
  return !is_zero && gid[0] != 0xFF;
}

std::optional<wire::Gid> read_gid(const std::string& text) {
  wire::Gid gid{};
  if (inet_pton(AF_INET, text.c_str(), &gid[12]) == 1) {
    gid[10] = gid[11] = 0xFF;
    return gid;
  }
  if (inet_pton(AF_INET6, text.c_str(), gid.data()) != 1) return std::nullopt;
  return gid;
}

Result<PortAddress> parse_address(std::string_view text, const std::string& spec) {
  const auto wrong = [&](std::string_view why) {
    return fail(EINVAL,
                fmt::format("in the port '{}', '{}' {}: ip=ADDRESS/LEN is meant, as in ip=192.0.2.1/24", spec,
                            text, why));
  };
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return wrong("lacks the prefix length");
  const std::string address(text.substr(0, slash));
  const std::string_view length_text = text.substr(slash + 1);

  PortAddress result;
  const auto gid = read_gid(address);
  if (!gid) return wrong("is no address");
  result.gid = *gid;
  const std::uint8_t offset = wire::is_ipv4_mapped(*gid) ? kIpv4Offset : 0;
  unsigned length = 0;
  const char* end = length_text.data() + length_text.size();
  const auto parsed = std::from_chars(length_text.data(), end, length);
  if (parsed.ec != std::errc() || parsed.ptr != end || length > 128U - offset)
    return wrong("has no valid length");
  if (!is_host_address(result.gid)) return wrong("is no address of a host");
  result.prefix_bits = static_cast<std::uint8_t>(offset + length);
  return result;
}

// Takes the ip=... and gw=... parts out of `rest`, and returns what is left, joined as it stood.
Result<std::string> take_addresses(std::string_view rest, PortSpec& spec) {
  std::string left;
  bool is_first = true;
  for (const std::string_view part : split_at_commas(rest)) {
    if (part.starts_with(kAddressKey)) {
      auto address = parse_address(part.substr(kAddressKey.size()), spec.text);
      if (!address) return tl::make_unexpected(address.error());
      const bool is_there = std::any_of(spec.addresses.begin(), spec.addresses.end(),
                                        [&](const PortAddress& other) { return other.gid == address->gid; });
      if (is_there) return fail(EINVAL, fmt::format("the port '{}' has '{}' twice", spec.text, part));
      spec.addresses.push_back(*address);
      continue;
    }
    if (part.starts_with(kGatewayKey)) {
      const auto gateway = read_gid(std::string(part.substr(kGatewayKey.size())));
      if (!gateway || !is_host_address(*gateway)) {
        return fail(EINVAL, fmt::format("in the port '{}', '{}' is no gateway: gw=ADDRESS is meant, as in "
                                        "gw=192.0.2.254",
                                        spec.text, part));
      }
      spec.gateways.push_back(*gateway);
      continue;
    }
    if (!is_first) left += ',';
    left += part;
    is_first = false;
  }
  return left;
}

// The kernel has no routes for the port, so that a gateway must be named, and be reached without one.
Status check_gateways(const PortSpec& spec) {
  for (const wire::Gid& gateway : spec.gateways) {
    const bool is_near =
        std::any_of(spec.addresses.begin(), spec.addresses.end(),
                    [&](const PortAddress& address) { return is_in_network(gateway, address); });
    if (!is_near) {
      return fail(EINVAL,
                  fmt::format("the port '{}' has a gateway (gw=) that is on none of the networks of its "
                              "addresses (ip=)",
                              spec.text));
    }
  }
  return {};
}

Result<PortSpec> finish_loopback(PortSpec spec, const std::string& rest) {
  if (!rest.empty()) {
    return fail(
        EINVAL,
        fmt::format("the port '{}' has a part that is not known, '{}': only ip=ADDRESS/LEN may follow "
                    "loopback",
                    spec.text, rest));
  }
  spec.kind = PortSpec::Kind::kLoopback;
  return spec;
}

Result<PortSpec> finish_af_packet(PortSpec spec, const std::string& rest) {
  const bool has_comma = rest.find(',') != std::string::npos;
  if (rest.empty() || has_comma || rest.size() >= IFNAMSIZ) {
    return fail(EINVAL,
                fmt::format("the port '{}' does not name an interface: af_packet:INTERFACE is meant, as in "
                            "af_packet:eth0, with ,ip=ADDRESS/LEN where wanted",
                            spec.text));
  }
  spec.kind = PortSpec::Kind::kAfPacket;
  spec.interface = rest;
  return spec;
}

Result<PortSpec> finish_vdev(PortSpec spec, const std::string& rest) {
  if (rest.empty() || rest.starts_with(',')) {
    return fail(
        EINVAL,
        fmt::format("the port '{}' does not name a DPDK device: vdev:NAME[,ARGUMENT...] is meant, as in "
                    "vdev:net_memif0,role=server",
                    spec.text));
  }
  if (spec.addresses.empty()) {
    return fail(EINVAL,
                fmt::format("the port '{}' has no address, because the kernel has no interface for it: add "
                            ",ip=ADDRESS/LEN",
                            spec.text));
  }
  if (auto good = check_gateways(spec); !good) return tl::make_unexpected(good.error());
  spec.kind = PortSpec::Kind::kVdev;
  spec.device = rest;
  return spec;
}

}  // namespace

bool is_in_network(const wire::Gid& gid, const PortAddress& network) {
  for (std::size_t bit = 0; bit < network.prefix_bits; ++bit) {
    const unsigned mask = 0x80U >> bit % kBitsOfByte;
    if (((gid[bit / kBitsOfByte] ^ network.gid[bit / kBitsOfByte]) & mask) != 0) return false;
  }
  return wire::is_ipv4_mapped(gid) == wire::is_ipv4_mapped(network.gid);
}

Result<PortSpec> parse_port_spec(const std::string& text) {
  PortSpec spec;
  spec.text = text;
  const std::string_view whole = text;
  const std::size_t end = std::min(whole.find_first_of(":,"), whole.size());
  const std::string_view kind = whole.substr(0, end);
  const bool has_colon = end < whole.size() && whole[end] == ':';
  const auto rest = take_addresses(end < whole.size() ? whole.substr(end + 1) : std::string_view{}, spec);
  if (!rest) return tl::make_unexpected(rest.error());

  const bool is_whole = !whole.ends_with(',');
  if (!spec.gateways.empty() && (kind == "loopback" || kind == "af_packet")) {
    return fail(EINVAL,
                fmt::format("the port '{}' has a gateway (gw=), which is for vdev ports: elsewhere the "
                            "kernel's routes count",
                            text));
  }
  if (kind == "loopback" && !has_colon && is_whole) return finish_loopback(std::move(spec), *rest);
  if (kind == "af_packet" && has_colon) return finish_af_packet(std::move(spec), *rest);
  if (kind == "vdev" && has_colon) return finish_vdev(std::move(spec), *rest);
  if (kind == "af_xdp" || kind == "tap" || kind == "pci") {
    return fail(ENOTSUP, fmt::format("ports of the kind '{}' are not in this version: use {}", kind, kForms));
  }
  return fail(EINVAL, fmt::format("the port '{}' cannot be read: {} is meant", text, kForms));
}

}  // namespace urdma::io
