// The verbs devices of the node (see device.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/device.hpp"

#include <arpa/inet.h>
#include <endian.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>

#include "datapath/control/keys.hpp"
#include "datapath/transport/types.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::control {
namespace {

// A locally administered OUI, since urdma has none of its own, and a part number.
constexpr std::uint32_t kVendorId = 0x027572;
constexpr std::uint32_t kVendorPartId = 1;
constexpr std::uint32_t kHardwareVersion = 1;
constexpr std::uint64_t kPageSizes = 0xFFFFF000;  // every power of two from 4 KiB
constexpr std::uint8_t kSmallestMtuCode = 1;
constexpr std::uint8_t kLargestMtuCode = 5;

// ibv_port_state and the physical states of IBTA 1, 14.2.5.6.
constexpr std::uint32_t kPortDown = 1;
constexpr std::uint32_t kPortActive = 4;
constexpr std::uint8_t kLinkUp = 5;
constexpr std::uint8_t kLinkDisabled = 3;

constexpr std::uint32_t kLoopbackMegabits = 100'000;
constexpr std::uint32_t kUnknownMegabits = 10'000;

struct RateOfSpeed {
  std::uint32_t megabits;
  LinkRate rate;
};
// Width codes: 1X 1, 4X 2; speed codes: SDR 1, QDR 4, EDR 32, HDR 64.
constexpr std::array kRates = {
    RateOfSpeed{0, {1, 1, "2.5 Gb/sec (1X SDR)"}},
    RateOfSpeed{10'000, {1, 4, "10 Gb/sec (1X QDR)"}},
    RateOfSpeed{25'000, {1, 32, "25 Gb/sec (1X EDR)"}},
    RateOfSpeed{40'000, {2, 4, "40 Gb/sec (4X QDR)"}},
    RateOfSpeed{50'000, {1, 64, "50 Gb/sec (1X HDR)"}},
    RateOfSpeed{100'000, {2, 32, "100 Gb/sec (4X EDR)"}},
    RateOfSpeed{200'000, {2, 64, "200 Gb/sec (4X HDR)"}},
};

std::uint32_t interface_megabits(const std::string& interface) {
  std::ifstream file("/sys/class/net/" + interface + "/speed");
  long speed = 0;
  return file >> speed && speed > 0 ? static_cast<std::uint32_t>(speed) : kUnknownMegabits;
}

// The first address that reports of each family may come from.
GroupReports::Sources report_sources(std::span<const io::PortAddress> addresses) {
  GroupReports::Sources sources;
  for (const io::PortAddress& address : addresses) {
    const bool is_ipv4 = wire::is_ipv4_mapped(address.gid);
    if (!is_ipv4 && !wire::is_link_local(address.gid)) continue;
    wire::Gid& source = is_ipv4 ? sources.ipv4 : sources.ipv6_link_local;
    if (wire::is_unspecified(source)) source = address.gid;
  }
  return sources;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::uint64_t make_guid(const io::Port& port, const std::string& node, std::uint32_t index) {
  const bool has_mac = !port.is_loopback() && port.mac() != wire::MacAddress{};
  if (has_mac) return guid_from_mac(port.mac());
  return guid_from_text(fmt::format("{}/{}/{}", first_line("/etc/machine-id"), node, index));
}

// `vdev:net_af_packet0,iface=eth0` and its like work on an interface of the kernel as well. What net_tap
// names is the other end of its wire.
std::string interface_of(const io::PortSpec& spec) {
  if (!spec.interface.empty() || spec.device.starts_with("net_tap")) return spec.interface;
  constexpr std::string_view kArgument = ",iface=";
  const std::size_t at = spec.device.find(kArgument);
  if (at == std::string::npos) return "";
  const std::size_t start = at + kArgument.size();
  return spec.device.substr(start, spec.device.find(',', start) - start);
}

std::uint32_t lowest_free(std::set<std::uint32_t>& taken) {
  std::uint32_t number = 0;
  while (taken.contains(number)) ++number;
  taken.insert(number);
  return number;
}

SysfsDevice describe_for_sysfs(const Device& device, const Limits& limits) {
  SysfsDevice result;
  result.name = device.name;
  result.uverbs = device.uverbs;
  result.node_guid = device.node_guid;
  result.system_image_guid = device.node_guid;
  result.firmware = URDMA_VERSION;
  result.board_id = "urdma";
  result.hca_type = "urdma";
  result.vendor_id = kVendorId;
  result.vendor_part_id = kVendorPartId;
  result.interface = device.interface;
  result.gid_table_length = limits.gid_table_length;
  return result;
}

// Addresses that the person gave the port come with it, whatever the kernel has.
std::vector<PortGid> wanted_gids(const Device& device, std::span<const InterfaceState> interfaces,
                                 const InterfaceState* own) {
  std::vector<PortGid> result;
  for (const io::PortAddress& address : device.port->spec().addresses) {
    result.push_back(
        {address.gid, own != nullptr ? own->index : 0, own != nullptr ? own->name : "", device.mac});
  }
  if (!result.empty()) return result;
  if (device.port->is_loopback()) return host_gids(interfaces);
  return own != nullptr ? interface_gids(*own) : result;
}

const InterfaceState* find_interface(std::span<const InterfaceState> interfaces, const std::string& name) {
  const auto found = std::find_if(interfaces.begin(), interfaces.end(),
                                  [&](const auto& interface) { return interface.name == name; });
  return found == interfaces.end() ? nullptr : &*found;
}

void copy_name(char (&to)[abi::kNameBytes], const std::string& from) { from.copy(to, sizeof(to) - 1); }

}  // namespace

LinkRate link_rate(std::uint32_t megabits_per_second) {
  LinkRate best = kRates.front().rate;
  for (const RateOfSpeed& entry : kRates) {
    if (entry.megabits <= megabits_per_second) best = entry.rate;
  }
  return best;
}

std::uint64_t guid_from_mac(const wire::MacAddress& mac) {
  // RFC 4291, appendix A: the universal bit is turned over, and FF FE goes into the middle.
  const std::array<std::uint8_t, 8> bytes = {
      static_cast<std::uint8_t>(mac[0] ^ 2U), mac[1], mac[2], 0xFF, 0xFE, mac[3], mac[4], mac[5]};
  std::uint64_t guid = 0;
  for (const std::uint8_t byte : bytes) guid = guid << 8 | byte;
  return guid;
}

std::uint64_t guid_from_text(const std::string& text) {
  // FNV-1a, 64 bits.
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char character : text) hash = (hash ^ static_cast<std::uint8_t>(character)) * 0x100000001B3;
  // EUI-64: locally administered (in its modified form the bit is 0), not a group.
  hash &= ~(std::uint64_t{3} << 56);
  return hash | 1;
}

PortCondition judge_port(bool has_interface, const InterfaceState* own, std::uint32_t port_mtu) {
  // The port's buffers were made for the MTU that it had then: a larger one changes nothing.
  const std::uint8_t code = io::path_mtu_code_for(own != nullptr ? std::min(own->mtu, port_mtu) : port_mtu);
  const bool is_up = !has_interface || (own != nullptr && own->is_up);
  // An interface that has no room for the smallest packets carries none.
  return {is_up && code != 0, std::max(code, kSmallestMtuCode)};
}

abi::DeviceInfo Device::info(const Limits& limits) const {
  abi::DeviceInfo info{};
  copy_name(info.name, name);
  copy_name(info.firmware, URDMA_VERSION);
  info.node_guid = htobe64(node_guid);
  info.system_image_guid = info.node_guid;
  info.max_mr_size = limits.max_mr_bytes;
  info.page_size_cap = kPageSizes;
  info.vendor_id = kVendorId;
  info.vendor_part_id = kVendorPartId;
  info.hardware_version = kHardwareVersion;
  info.max_qp = limits.max_qp_of_session;
  info.max_qp_wr = limits.max_qp_wr;
  info.max_sge = limits.max_sge;
  info.max_sge_rd = limits.max_sge;
  info.max_inline = limits.max_inline_bytes;
  info.max_cq = limits.max_cq_of_session;
  info.max_cqe = limits.max_cqe;
  info.max_mr = limits.max_mr_of_session;
  info.max_mw = limits.max_mw_of_session;
  info.max_pd = limits.max_pd_of_session;
  info.max_srq = limits.max_srq_of_session;
  info.max_srq_wr = limits.max_srq_wr;
  info.max_srq_sge = limits.max_sge;
  info.max_ah = limits.max_ah_of_session;
  info.max_mcast_grp = limits.max_mcast_groups_of_session;
  info.max_mcast_qp_attach = limits.max_mcast_members;
  info.max_total_mcast_qp_attach = limits.max_mcast_members_of_session;
  info.max_qp_rd_atomic = std::min(limits.max_rd_atomic, limits.max_dest_rd_atomic);
  info.max_dm_bytes = limits.max_dm_bytes_of_session;
  info.max_res_rd_atomic = limits.max_dest_rd_atomic * limits.max_qp_of_session;
  info.ports = 1;
  return info;
}

abi::QueryPortReply Device::port_info() const {
  abi::QueryPortReply reply{};
  reply.state = is_active ? kPortActive : kPortDown;
  reply.max_mtu = kLargestMtuCode;
  reply.active_mtu = active_mtu_code;
  reply.active_width = rate.width;
  reply.active_speed = rate.speed;
  reply.physical_state = is_active ? kLinkUp : kLinkDisabled;
  reply.gid_table_length = gids.capacity();
  reply.pkey_table_length = 1;
  reply.max_message_bytes = static_cast<std::uint32_t>(transport::kMaxMessageBytes);
  return reply;
}

Result<std::unique_ptr<DeviceSet>> DeviceSet::create(std::span<const std::unique_ptr<io::Port>> ports,
                                                     const std::string& node, const Limits& limits,
                                                     const std::string& sysfs_directory, Netlink& netlink) {
  const std::vector<std::uint32_t> real = SysfsTree::taken_uverbs();
  std::set<std::uint32_t> taken(real.begin(), real.end());
  std::vector<Device> devices;
  for (std::uint32_t index = 0; index < ports.size(); ++index) {
    Device& device = devices.emplace_back(limits.gid_table_length);
    device.index = index;
    device.name = fmt::format("urdma{}", index);
    device.uverbs = lowest_free(taken);
    device.port = ports[index].get();
    device.interface = interface_of(device.port->spec());
    device.mac = device.port->mac();
    if (device.port->spec().kind == io::PortSpec::Kind::kVdev && device.interface.empty()) {
      const io::PortSpec& spec = device.port->spec();
      device.neighbours =
          std::make_unique<NeighbourTable>(NeighbourTable::Own{device.mac, spec.addresses, spec.gateways});
      device.reports = std::make_unique<GroupReports>(report_sources(spec.addresses), random_u32());
    }
    device.node_guid = make_guid(*device.port, node, index);
    device.rate =
        link_rate(device.port->is_loopback() ? kLoopbackMegabits : interface_megabits(device.interface));
  }
  std::unique_ptr<DeviceSet> set(new DeviceSet(std::move(devices), netlink));
  // Once without sysfs, which shows the interface of the first GID.
  static_cast<void>(set->refresh());
  std::vector<SysfsDevice> shown;
  for (const Device& device : set->devices_) {
    SysfsDevice description = describe_for_sysfs(device, limits);
    const PortGid* first = device.gids.at(0);
    if (description.interface.empty() && first != nullptr) description.interface = first->interface;
    shown.push_back(std::move(description));
  }
  auto sysfs = SysfsTree::create(sysfs_directory, shown);
  if (!sysfs) return tl::make_unexpected(sysfs.error());
  set->sysfs_ = std::move(*sysfs);
  for (const Device& device : set->devices_) set->write_sysfs(device);
  return set;
}

std::vector<DeviceChange> DeviceSet::refresh() {
  const std::vector<InterfaceState> interfaces = netlink_.interfaces();
  std::vector<DeviceChange> changes;
  for (Device& device : devices_) {
    const DeviceChange change = refresh(device, interfaces);
    if (!change.is_any()) continue;
    if (sysfs_.has_value()) write_sysfs(device);
    changes.push_back(change);
  }
  return changes;
}

bool DeviceSet::has_link_news() const {
  return std::any_of(devices_.begin(), devices_.end(), [](const Device& device) {
    return device.neighbours != nullptr && device.port->is_link_up() != device.is_active;
  });
}

DeviceChange DeviceSet::refresh(Device& device, std::span<const InterfaceState> interfaces) {
  DeviceChange change{.device = device.index};
  const bool is_af_packet = device.port->spec().kind == io::PortSpec::Kind::kAfPacket;
  const InterfaceState* own = find_interface(interfaces, device.interface);
  if (own != nullptr && device.interface_index == 0) device.interface_index = own->index;
  // Another one of the same name: the port is on the one that is gone.
  if (own != nullptr && own->index != device.interface_index) {
    change.returned = own->is_up && is_af_packet;
    own = nullptr;
  }
  device.is_interface_gone = own == nullptr && !device.interface.empty();
  const bool follows_link = own != nullptr && is_af_packet;
  const wire::MacAddress mac = follows_link ? own->mac : device.mac;
  const std::uint32_t mtu =
      own != nullptr ? std::min(own->mtu, device.port->most_mtu()) : device.port->most_mtu();
  change.link = mac != device.mac || mtu != device.mtu;
  device.mac = mac;
  device.mtu = mtu;
  change.gids = device.gids.update(wanted_gids(device, interfaces, own));
  PortCondition now = judge_port(!device.interface.empty(), own, device.port->most_mtu());
  if (device.neighbours != nullptr && !device.port->is_link_up()) now.is_active = false;
  change.state = now.is_active != device.is_active;
  device.is_active = now.is_active;
  device.active_mtu_code = now.active_mtu_code;
  return change;
}

void DeviceSet::write_sysfs(const Device& device) {
  std::vector<SysfsGid> gids;
  for (std::uint32_t index = 0; index < device.gids.capacity(); ++index) {
    const PortGid* entry = device.gids.at(index);
    if (entry != nullptr) gids.push_back({index, entry->gid, entry->interface});
  }
  const Status port = sysfs_->update_port(device.index, {device.is_active, device.rate.text});
  const Status table = sysfs_->update_gids(device.index, gids);
  if (!port) spdlog::error("{}: {}", device.name, port.error().message);
  if (!table) spdlog::error("{}: {}", device.name, table.error().message);
}

void DeviceSet::write_counters() {
  for (const Device& device : devices_) {
    const io::Port::Counters counters = device.port->counters();
    const std::array<std::pair<const char*, std::uint64_t>, 3> shown = {
        std::pair{"port_rcv_packets", counters.received}, std::pair{"port_xmit_packets", counters.sent},
        std::pair{"port_xmit_discards", counters.send_errors}};
    for (const auto& [name, value] : shown) {
      if (const Status done = sysfs_->update_counter(device.index, name, value); !done) {
        spdlog::error("{}: {}", device.name, done.error().message);
      }
    }
  }
}

const Device* DeviceSet::find_by_gid(const wire::Gid& gid) const {
  for (const Device& device : devices_) {
    if (device.gids.find(gid) != nullptr) return &device;
  }
  return nullptr;
}

}  // namespace urdma::control
