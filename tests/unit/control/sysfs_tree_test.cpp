// SysfsTree: the files say what the kernel's would, and change as a whole.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/sysfs_tree.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace urdma::control {
namespace {

namespace fs = std::filesystem;

class SysfsTreeTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/urdma-sysfs-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    base_ = name;
  }
  void TearDown() override { fs::remove_all(base_); }

  [[nodiscard]] std::string root() const { return base_ + "/sysfs"; }
  [[nodiscard]] std::string read(const std::string& path) const {
    std::ifstream file(root() + "/" + path);
    std::ostringstream text;
    text << (file ? "" : "unreadable: " + path) << file.rdbuf();
    return text.str();
  }
  [[nodiscard]] std::string port(const std::string& path) const {
    return read("class/infiniband/urdma0/ports/1/" + path);
  }

  static SysfsDevice device() {
    return {.name = "urdma0",
            .uverbs = 3,
            .node_guid = 0x0011223344556677,
            .system_image_guid = 0x8899AABBCCDDEEFF,
            .firmware = "1.2.3",
            .board_id = "URDMA01",
            .hca_type = "urdma",
            .vendor_id = 0x1D6B,
            .vendor_part_id = 0x42,
            .interface = "lo",
            .gid_table_length = 4};
  }
  Result<SysfsTree> make() {
    const SysfsDevice ours = device();
    return SysfsTree::create(root(), {&ours, 1});
  }
  static SysfsGid ipv4_gid(std::uint32_t index, std::uint8_t last) {
    SysfsGid gid{.index = index, .interface = "lo"};
    gid.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, last};
    return gid;
  }

  std::string base_;
};

constexpr const char* kZeroGid = "0000:0000:0000:0000:0000:0000:0000:0000\n";

TEST_F(SysfsTreeTest, Create_DeviceFiles) {
  ASSERT_TRUE(make().has_value());
  EXPECT_EQ(read("class/infiniband/urdma0/node_guid"), "0011:2233:4455:6677\n");
  EXPECT_EQ(read("class/infiniband/urdma0/sys_image_guid"), "8899:aabb:ccdd:eeff\n");
  EXPECT_EQ(read("class/infiniband/urdma0/node_type"), "1: CA\n");
  EXPECT_EQ(read("class/infiniband/urdma0/fw_ver"), "1.2.3\n");
  EXPECT_EQ(read("class/infiniband/urdma0/board_id"), "URDMA01\n");
  EXPECT_EQ(read("class/infiniband/urdma0/hca_type"), "urdma\n");
  EXPECT_EQ(read("class/infiniband/urdma0/device/vendor"), "0x1d6b\n");
  EXPECT_EQ(read("class/infiniband/urdma0/device/device"), "0x0042\n");
  EXPECT_EQ(read("class/infiniband/urdma0/device/numa_node"), "-1\n");
}

TEST_F(SysfsTreeTest, Create_UverbsFiles) {
  ASSERT_TRUE(make().has_value());
  EXPECT_EQ(read("class/infiniband_verbs/abi_version"), "6\n");
  EXPECT_EQ(read("class/infiniband_verbs/uverbs3/ibdev"), "urdma0\n");
  EXPECT_EQ(read("class/infiniband_verbs/uverbs3/dev"), "231:195\n");
  EXPECT_EQ(read("class/infiniband_verbs/uverbs3/abi_version"), "1\n");
}

TEST_F(SysfsTreeTest, Create_LinksLeadWhereTheKernelsDo) {
  ASSERT_TRUE(make().has_value());
  const std::string parent = root() + "/devices/virtual/urdma/urdma0";
  EXPECT_EQ(fs::read_symlink(root() + "/class/infiniband/urdma0"),
            "../../devices/virtual/urdma/urdma0/infiniband/urdma0");
  EXPECT_EQ(fs::canonical(root() + "/class/infiniband/urdma0/device"), parent);
  EXPECT_EQ(fs::canonical(root() + "/class/infiniband_verbs/uverbs3/device"), parent);
  EXPECT_EQ(fs::canonical(root() + "/class/infiniband/urdma0/subsystem"), root() + "/class/infiniband");
  EXPECT_EQ(fs::canonical(root() + "/class/infiniband_verbs/uverbs3/subsystem"),
            root() + "/class/infiniband_verbs");
  EXPECT_EQ(fs::canonical(parent + "/subsystem"), root() + "/class/urdma");
  EXPECT_EQ(fs::read_symlink(parent + "/net/lo"), "/sys/class/net/lo");
  EXPECT_EQ(fs::read_symlink(root() + "/dev/infiniband/uverbs3"), "../../../dev/uverbs3");
}

TEST_F(SysfsTreeTest, Create_UnusedGids) {
  ASSERT_TRUE(make().has_value());
  for (const char* index : {"0", "3"}) {
    EXPECT_EQ(port(std::string("gids/") + index), kZeroGid);
    EXPECT_EQ(port(std::string("gid_attrs/types/") + index), "");
    EXPECT_EQ(port(std::string("gid_attrs/ndevs/") + index), "");
  }
  EXPECT_FALSE(fs::exists(root() + "/class/infiniband/urdma0/ports/1/gids/4"));
}

TEST_F(SysfsTreeTest, Create_ModesIgnoreTheUmask) {
  const mode_t umask_before = ::umask(077);
  const bool is_made = make().has_value();
  ::umask(umask_before);
  ASSERT_TRUE(is_made);
  struct stat status {};
  ASSERT_EQ(::stat((root() + "/class/infiniband_verbs/uverbs3/dev").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode, mode_t{S_IFREG | 0444});
  ASSERT_EQ(::stat((root() + "/class/infiniband/urdma0/ports/1").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode, mode_t{S_IFDIR | 0755});
}

TEST_F(SysfsTreeTest, Create_ReplacesAnOldTree) {
  ASSERT_TRUE(make().has_value());
  std::ofstream(root() + "/class/infiniband/left_over") << "x";
  ASSERT_TRUE(make().has_value());
  EXPECT_FALSE(fs::exists(root() + "/class/infiniband/left_over"));
  EXPECT_FALSE(fs::exists(root() + ".new"));
}

TEST_F(SysfsTreeTest, Create_RefusesNamesThatArePaths) {
  SysfsDevice bad = device();
  bad.name = "../urdma0";
  const Result<SysfsTree> tree = SysfsTree::create(root(), {&bad, 1});
  ASSERT_FALSE(tree.has_value());
  EXPECT_EQ(tree.error().code, EINVAL);
}

TEST_F(SysfsTreeTest, Create_SaysWhereItFailed) {
  const SysfsDevice ours = device();
  const Result<SysfsTree> tree = SysfsTree::create(base_ + "/not/there", {&ours, 1});
  ASSERT_FALSE(tree.has_value());
  EXPECT_EQ(tree.error().code, ENOENT);
  EXPECT_NE(tree.error().message.find(base_), std::string::npos);
}

TEST_F(SysfsTreeTest, UpdatePort_StateAndRate) {
  Result<SysfsTree> tree = make();
  ASSERT_TRUE(tree.has_value());
  EXPECT_EQ(port("state"), "1: DOWN\n");
  EXPECT_EQ(port("phys_state"), "3: Disabled\n");
  ASSERT_TRUE(tree->update_port(0, {true, "10 Gb/sec (1X QDR)"}).has_value());
  EXPECT_EQ(port("state"), "4: ACTIVE\n");
  EXPECT_EQ(port("phys_state"), "5: LinkUp\n");
  EXPECT_EQ(port("rate"), "10 Gb/sec (1X QDR)\n");
}

TEST_F(SysfsTreeTest, UpdateGids_InUseThenNot) {
  Result<SysfsTree> tree = make();
  ASSERT_TRUE(tree.has_value());
  const std::array both = {ipv4_gid(0, 1), ipv4_gid(2, 7)};
  ASSERT_TRUE(tree->update_gids(0, both).has_value());
  EXPECT_EQ(port("gids/0"), "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
  EXPECT_EQ(port("gids/2"), "0000:0000:0000:0000:0000:ffff:7f00:0007\n");
  EXPECT_EQ(port("gid_attrs/types/2"), "RoCE v2\n");
  EXPECT_EQ(port("gid_attrs/ndevs/2"), "lo\n");
  EXPECT_EQ(port("gids/1"), kZeroGid);

  ASSERT_TRUE(tree->update_gids(0, {both.data(), 1}).has_value());
  EXPECT_EQ(port("gid_attrs/types/0"), "RoCE v2\n");
  EXPECT_EQ(port("gids/2"), kZeroGid);
  EXPECT_EQ(port("gid_attrs/types/2"), "");
  EXPECT_EQ(port("gid_attrs/ndevs/2"), "");
}

TEST_F(SysfsTreeTest, UpdateGids_AnotherAddressAtOneIndex) {
  Result<SysfsTree> tree = make();
  ASSERT_TRUE(tree.has_value());
  const SysfsGid first = ipv4_gid(1, 1);
  SysfsGid second = ipv4_gid(1, 2);
  second.interface.clear();
  ASSERT_TRUE(tree->update_gids(0, {&first, 1}).has_value());
  ASSERT_TRUE(tree->update_gids(0, {&second, 1}).has_value());
  EXPECT_EQ(port("gids/1"), "0000:0000:0000:0000:0000:ffff:7f00:0002\n");
  EXPECT_EQ(port("gid_attrs/types/1"), "RoCE v2\n");
  EXPECT_EQ(port("gid_attrs/ndevs/1"), "");
}

TEST_F(SysfsTreeTest, UpdateGids_RefusesAnIndexBeyondTheTable) {
  Result<SysfsTree> tree = make();
  ASSERT_TRUE(tree.has_value());
  const SysfsGid gid = ipv4_gid(4, 1);
  EXPECT_EQ(tree->update_gids(0, {&gid, 1}).error().code, EINVAL);
}

TEST_F(SysfsTreeTest, UpdateCounter_EachInItsDirectory) {
  Result<SysfsTree> tree = make();
  ASSERT_TRUE(tree.has_value());
  EXPECT_EQ(port("counters/port_rcv_packets"), "0\n");
  ASSERT_TRUE(tree->update_counter(0, "port_rcv_packets", 12345678901234).has_value());
  ASSERT_TRUE(tree->update_counter(0, "rnr_naks_sent", 7).has_value());
  EXPECT_EQ(port("counters/port_rcv_packets"), "12345678901234\n");
  EXPECT_EQ(port("hw_counters/rnr_naks_sent"), "7\n");
  EXPECT_FALSE(tree->update_counter(0, "../state", 7).has_value());
}

TEST_F(SysfsTreeTest, UpdateCounter_AnOpenFileKeepsItsContent) {
  Result<SysfsTree> tree = make();
  ASSERT_TRUE(tree.has_value());
  std::ifstream open_before(root() + "/class/infiniband/urdma0/ports/1/counters/port_rcv_data");
  ASSERT_TRUE(tree->update_counter(0, "port_rcv_data", 9).has_value());
  std::string text;
  open_before >> text;
  EXPECT_EQ(text, "0");
  EXPECT_EQ(port("counters/port_rcv_data"), "9\n");
}

}  // namespace
}  // namespace urdma::control
