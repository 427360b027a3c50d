// The files below NODE_DIRECTORY/sysfs: names, formats and modes are those that the kernel gives an RDMA
// device, so that programs that read them need not know. Control thread.
//
//   class/infiniband/DEV         -> ../../devices/virtual/urdma/DEV/infiniband/DEV
//   class/infiniband_verbs/uverbsN -> ../../devices/virtual/urdma/DEV/infiniband_verbs/uverbsN
//   class/urdma/DEV              -> ../../devices/virtual/urdma/DEV
//   class/misc/rdma_cm           the connection manager's device
//   dev/infiniband/uverbsN, rdma_cm -> ../../../dev/..., for programs that list /dev/infiniband
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "sysfs_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace urdma::control {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kUverbsMajor = 231;  // the kernel's IB_UVERBS_MAJOR and IB_UVERBS_BASE_MINOR
constexpr std::uint32_t kUverbsFirstMinor = 192;
constexpr const char* kUverbsClassAbi = "6";
constexpr const char* kUverbsDeviceAbi = "1";
constexpr const char* kRdmaCmAbi = "4";
constexpr const char* kRdmaCmNumber = "10:256";  // of the range that the kernel draws from for its own
constexpr const char* kIncoming = "/.incoming";  // a new file before its rename, where no program looks

// The names of ports/1/counters; whatever else is counted belongs to hw_counters.
constexpr std::array<std::string_view, 21> kPortCounters = {
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
};

// Writes below one directory. The first error sticks, and makes the rest do nothing.
class Writer {
 public:
  explicit Writer(std::string root) : root_(std::move(root)) {}

  // Makes every directory on the way, readable by whoever may enter the node's directory.
  void directory(const std::string& path) {
    for (std::size_t end = path.find('/'); status_; end = path.find('/', end + 1)) {
      make_directory(root_ + "/" + path.substr(0, end));
      if (end == std::string::npos) return;
    }
  }

  void file(const std::string& path, std::string_view content) {
    if (!status_) return;
    const std::string incoming = root_ + kIncoming;
    ::unlink(incoming.c_str());  // of a daemon that died while writing
    const int fd = ::open(incoming.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd < 0) return give_up("writing " + incoming);
    const bool is_written =
        ::write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size()) &&
        ::fchmod(fd, 0444) == 0;
    if (!is_written) give_up("writing " + incoming);
    ::close(fd);
    if (is_written && ::rename(incoming.c_str(), (root_ + "/" + path).c_str()) != 0)
      give_up("writing " + root_ + "/" + path);
  }

  void line(const std::string& path, std::string_view text) { file(path, std::string(text) + "\n"); }

  void link(const std::string& path, const std::string& target) {
    if (!status_) return;
    if (::symlink(target.c_str(), (root_ + "/" + path).c_str()) != 0)
      give_up("linking " + root_ + "/" + path);
  }

  [[nodiscard]] Status status() const { return status_; }

 private:
  void make_directory(const std::string& path) {
    if (::mkdir(path.c_str(), 0755) == 0) {
      if (::chmod(path.c_str(), 0755) != 0) give_up("making " + path);  // whatever the umask is
    } else if (errno != EEXIST) {
      give_up("making " + path);
    }
  }

  void give_up(std::string what) { status_ = fail_errno(errno, std::move(what)); }

  std::string root_;
  Status status_;
};

std::string device_path(const SysfsDevice& device) { return "devices/virtual/urdma/" + device.name; }
std::string ib_path(const SysfsDevice& device) { return device_path(device) + "/infiniband/" + device.name; }
std::string port_path(const SysfsDevice& device) { return ib_path(device) + "/ports/1"; }

std::string guid_text(std::uint64_t guid) {
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xFFFF, guid >> 16 & 0xFFFF,
                     guid & 0xFFFF);
}

// All eight groups, as the kernel writes them there.
std::string full_gid_text(const wire::Gid& gid) {
  std::string text;
  for (std::size_t i = 0; i < gid.size(); i += 2)
    text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", gid[i], gid[i + 1]);
  return text;
}

// The NUMA node of the interface's adapter, as the kernel says it: "-1" where there is none.
std::string numa_node(const std::string& interface) {
  std::string node = "-1";
  if (!interface.empty()) std::ifstream("/sys/class/net/" + interface + "/device/numa_node") >> node;
  return node.empty() ? "-1" : node;
}

// What stands for the adapter: the parent of the RDMA device.
void write_parent(Writer& writer, const SysfsDevice& device) {
  const std::string path = device_path(device);
  writer.directory(path);
  writer.line(path + "/vendor", fmt::format("0x{:04x}", device.vendor_id));
  writer.line(path + "/device", fmt::format("0x{:04x}", device.vendor_part_id));
  writer.line(path + "/numa_node", numa_node(device.interface));
  writer.file(path + "/uevent", "");
  writer.link(path + "/subsystem", "../../../../class/urdma");
  if (!device.interface.empty()) {
    writer.directory(path + "/net");
    writer.link(path + "/net/" + device.interface, "/sys/class/net/" + device.interface);
  }
  writer.link("class/urdma/" + device.name, "../../" + path);
}

void write_uverbs(Writer& writer, const SysfsDevice& device) {
  const std::string name = fmt::format("uverbs{}", device.uverbs);
  const std::string path = device_path(device) + "/infiniband_verbs/" + name;
  const std::uint32_t minor = kUverbsFirstMinor + device.uverbs;
  writer.directory(path);
  writer.line(path + "/ibdev", device.name);
  writer.line(path + "/dev", fmt::format("{}:{}", kUverbsMajor, minor));
  writer.line(path + "/abi_version", kUverbsDeviceAbi);
  writer.file(path + "/uevent",
              fmt::format("MAJOR={}\nMINOR={}\nDEVNAME=infiniband/{}\n", kUverbsMajor, minor, name));
  writer.link(path + "/device", "../../../" + device.name);
  writer.link(path + "/subsystem", "../../../../../../class/infiniband_verbs");
  writer.link("class/infiniband_verbs/" + name, "../../" + path);
}

void write_unused_gid(Writer& writer, const std::string& port, std::uint32_t index) {
  writer.file(fmt::format("{}/gid_attrs/types/{}", port, index), "");
  writer.file(fmt::format("{}/gid_attrs/ndevs/{}", port, index), "");
  writer.line(fmt::format("{}/gids/{}", port, index), full_gid_text({}));
}

// The type comes last: libibverbs takes an entry with a type for one in use.
void write_gid(Writer& writer, const std::string& port, const SysfsGid& gid) {
  writer.line(fmt::format("{}/gids/{}", port, gid.index), full_gid_text(gid.gid));
  if (!gid.interface.empty())
    writer.line(fmt::format("{}/gid_attrs/ndevs/{}", port, gid.index), gid.interface);
  writer.line(fmt::format("{}/gid_attrs/types/{}", port, gid.index), "RoCE v2");
}

void write_port_state(Writer& writer, const std::string& path, const SysfsPort& port) {
  writer.line(path + "/rate", port.rate);
  writer.line(path + "/phys_state", port.is_active ? "5: LinkUp" : "3: Disabled");
  writer.line(path + "/state", port.is_active ? "4: ACTIVE" : "1: DOWN");
}

void write_port(Writer& writer, const SysfsDevice& device) {
  const std::string path = port_path(device);
  for (const char* name :
       {"/gids", "/pkeys", "/gid_attrs/types", "/gid_attrs/ndevs", "/counters", "/hw_counters"})
    writer.directory(path + name);
  write_port_state(writer, path, {false, "1 Gb/sec (1X SDR)"});
  writer.line(path + "/lid", "0x0");
  writer.line(path + "/lid_mask_count", "0");
  writer.line(path + "/sm_lid", "0x0");
  writer.line(path + "/sm_sl", "0");
  writer.line(path + "/cap_mask", "0x00010000");  // communication management, as verbs says
  writer.line(path + "/link_layer", "Ethernet");
  writer.line(path + "/pkeys/0", "0xffff");
  writer.line(path + "/hw_counters/lifespan", "10");
  for (const std::string_view name : kPortCounters)
    writer.line(fmt::format("{}/counters/{}", path, name), "0");
  for (std::uint32_t index = 0; index < device.gid_table_length; ++index)
    write_unused_gid(writer, path, index);
}

void write_device(Writer& writer, const SysfsDevice& device) {
  const std::string path = ib_path(device);
  write_parent(writer, device);
  write_uverbs(writer, device);
  writer.directory(path);
  writer.line(path + "/node_type", "1: CA");
  writer.line(path + "/node_guid", guid_text(device.node_guid));
  writer.line(path + "/sys_image_guid", guid_text(device.system_image_guid));
  writer.line(path + "/node_desc", device.name);
  writer.line(path + "/fw_ver", device.firmware);
  writer.line(path + "/hw_rev", "0x0");
  writer.line(path + "/hca_type", device.hca_type);
  writer.line(path + "/board_id", device.board_id);
  writer.file(path + "/uevent", fmt::format("NAME={}\n", device.name));
  writer.link(path + "/device", "../../../" + device.name);
  writer.link(path + "/subsystem", "../../../../../../class/infiniband");
  write_port(writer, device);
  writer.link("class/infiniband/" + device.name, "../../" + path);
}

// Names in a directory of the host; none when it is not there.
std::vector<std::string> names_in(const char* path) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error))
    names.push_back(entry.path().filename());
  return names;
}

// What the host really has in `real_directory`, linked by where it really is ("/sys/devices/pci..."), but for
// what is in `tree_directory` already. Attributes of a class, such as abi_version, are no devices.
void link_real(Writer& writer, const std::string& real_directory, const std::string& tree_directory,
               std::span<const std::string> ours) {
  for (const std::string& name : names_in(real_directory.c_str())) {
    std::error_code error;
    const fs::path target = fs::canonical(real_directory + "/" + name, error);
    if (error || fs::is_regular_file(target, error) || std::ranges::find(ours, name) != ours.end()) continue;
    writer.link(tree_directory + "/" + name, target);
  }
}

// Names become parts of paths, and programs keep them in 64 bytes.
Status check_name(const std::string& name) {
  const bool is_good = !name.empty() && name.size() < 64 && name.front() != '.' &&
                       name.find_first_of("/ \n") == std::string::npos;
  return is_good ? Status{} : fail(EINVAL, fmt::format("\"{}\" cannot be a name in sysfs", name));
}

Status check_device(const SysfsDevice& device) {
  if (Status status = check_name(device.name); !status) return status;
  return device.interface.empty() ? Status{} : check_name(device.interface);
}

// The connection manager is one device of all. The host's own one has its number already.
void write_rdma_cm(Writer& writer) {
  constexpr const char* kPath = "class/misc/rdma_cm";
  std::string number;
  if (!(std::ifstream("/sys/class/misc/rdma_cm/dev") >> number)) number = kRdmaCmNumber;
  writer.directory(kPath);
  writer.line(std::string(kPath) + "/dev", number);
  writer.line(std::string(kPath) + "/abi_version", kRdmaCmAbi);
  writer.link("dev/infiniband/rdma_cm", "../../../dev/rdma_cm");
}

void write_tree(Writer& writer, std::span<const SysfsDevice> devices) {
  for (const char* path : {"class/infiniband", "class/infiniband_verbs", "class/urdma", "dev/infiniband"})
    writer.directory(path);
  writer.line("class/infiniband_verbs/abi_version", kUverbsClassAbi);
  std::vector<std::string> names;
  std::vector<std::string> uverbs;
  for (const SysfsDevice& device : devices) {
    write_device(writer, device);
    names.push_back(device.name);
    uverbs.push_back(fmt::format("uverbs{}", device.uverbs));
    writer.link("dev/infiniband/" + uverbs.back(), "../../../dev/" + uverbs.back());
  }
  write_rdma_cm(writer);
  std::vector<std::string> in_dev = uverbs;
  in_dev.push_back("rdma_cm");
  link_real(writer, "/sys/class/infiniband", "class/infiniband", names);
  link_real(writer, "/sys/class/infiniband_verbs", "class/infiniband_verbs", uverbs);
  link_real(writer, "/dev/infiniband", "dev/infiniband", in_dev);
}

bool is_same(const SysfsGid& a, const SysfsGid& b) {
  return a.index == b.index && a.gid == b.gid && a.interface == b.interface;
}

}  // namespace

Result<SysfsTree> SysfsTree::create(const std::string& directory, std::span<const SysfsDevice> devices) {
  for (const SysfsDevice& device : devices)
    if (Status status = check_device(device); !status) return tl::make_unexpected(status.error());

  // Made aside and moved into place, so that nobody sees half a device.
  const std::string made = directory + ".new";
  std::error_code error;
  fs::remove_all(made, error);
  if (::mkdir(made.c_str(), 0755) != 0 || ::chmod(made.c_str(), 0755) != 0)
    return fail_errno(errno, "making " + made);
  Writer writer(made);
  write_tree(writer, devices);
  if (Status status = writer.status(); !status) return tl::make_unexpected(status.error());
  fs::remove_all(directory, error);
  if (::rename(made.c_str(), directory.c_str()) != 0) return fail_errno(errno, "making " + directory);

  SysfsTree tree(directory, {devices.begin(), devices.end()});
  tree.gids_.resize(devices.size());
  return tree;
}

std::vector<std::uint32_t> SysfsTree::taken_uverbs() {
  constexpr std::string_view kPrefix = "uverbs";
  std::vector<std::uint32_t> taken;
  for (const std::string& name : names_in("/sys/class/infiniband_verbs")) {
    std::uint32_t number = 0;
    const char* end = name.data() + name.size();
    if (name.starts_with(kPrefix) && std::from_chars(name.data() + kPrefix.size(), end, number).ptr == end)
      taken.push_back(number);
  }
  return taken;
}

Status SysfsTree::update_port(std::size_t device, const SysfsPort& port) {
  Writer writer(directory_);
  write_port_state(writer, port_path(devices_.at(device)), port);
  return writer.status();
}

Status SysfsTree::update_gids(std::size_t device, std::span<const SysfsGid> gids) {
  const SysfsDevice& target = devices_.at(device);
  for (const SysfsGid& gid : gids)
    if (gid.index >= target.gid_table_length)
      return fail(EINVAL, fmt::format("{} has no GID index {}", target.name, gid.index));

  std::vector<SysfsGid>& before = gids_.at(device);
  const auto is_in = [](std::span<const SysfsGid> table, const SysfsGid& gid) {
    return std::ranges::any_of(table, [&](const SysfsGid& other) { return is_same(gid, other); });
  };
  Writer writer(directory_);
  for (const SysfsGid& gid : before)
    if (!is_in(gids, gid)) write_unused_gid(writer, port_path(target), gid.index);
  for (const SysfsGid& gid : gids)
    if (!is_in(before, gid)) write_gid(writer, port_path(target), gid);
  before.assign(gids.begin(), gids.end());
  return writer.status();
}

Status SysfsTree::update_counter(std::size_t device, const std::string& name, std::uint64_t value) {
  if (Status status = check_name(name); !status) return status;
  const bool is_standard = std::ranges::find(kPortCounters, name) != kPortCounters.end();
  Writer writer(directory_);
  writer.line(
      fmt::format("{}/{}/{}", port_path(devices_.at(device)), is_standard ? "counters" : "hw_counters", name),
      std::to_string(value));
  return writer.status();
}

}  // namespace urdma::control
