// What the stand-in leaves alone: whole programs behave with it as without it.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>

#include "fake_node.hpp"
#include "urdma/abi/stub.hpp"

namespace urdma::test {
namespace {

std::string output_of(const std::string& command) {
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string output;
  char bytes[4096];
  while (const std::size_t size = std::fread(bytes, 1, sizeof(bytes), pipe)) output.append(bytes, size);
  const int status = ::pclose(pipe);
  return output + "status " + std::to_string(status) + "\n";
}

std::string kstub() { return ::getenv("URDMA_KSTUB"); }
std::string libc_calls(const std::string& environment, const std::string& which) {
  return output_of("env " + environment + " " + ::getenv("URDMA_LIBC_CALLS") + " " + which);
}

// The lines in which two outputs differ, as far as to the first three.
std::string difference(const std::string& one, const std::string& other) {
  std::istringstream ones(one);
  std::istringstream others(other);
  std::string lines;
  std::string a;
  std::string b;
  int differences = 0;
  while (differences < 3) {
    const bool has_one = static_cast<bool>(std::getline(ones, a));
    const bool has_other = static_cast<bool>(std::getline(others, b));
    if (!has_one && !has_other) break;
    if (has_one != has_other || a != b) {
      lines += "-" + a + "\n+" + b + "\n";
      ++differences;
    }
  }
  return lines;
}

TEST(Outside, LibcCalls_UnclaimedPathsWithANode) {
  const FakeNode node;
  const std::string plain = libc_calls("", "");
  ASSERT_TRUE(plain.ends_with("\nstatus 0\n")) << "the calls did not all come to their end";
  EXPECT_EQ(
      difference(plain, libc_calls("LD_PRELOAD=" + kstub() + " URDMA_NODE_DIR=" + node.directory(), "")), "");
}

TEST(Outside, LibcCalls_AllPathsWithoutANode) {
  const std::string plain = libc_calls("", "all");
  EXPECT_EQ(difference(plain, libc_calls("LD_PRELOAD=" + kstub(), "all")), "");
}

TEST(Outside, LibcCalls_AllPathsWhenTheNodeIsGone) {
  const std::string plain = libc_calls("", "all");
  const std::string preload = "LD_PRELOAD=" + kstub();
  EXPECT_EQ(difference(plain, libc_calls(preload + " URDMA_NODE_DIR=/not/there", "all")), "");
  EXPECT_EQ(difference(plain, libc_calls(preload + " URDMA_NODE_DIR=relative", "all")), "");
  EXPECT_EQ(difference(plain, libc_calls(preload + " URDMA_NODE_DIR=", "all")), "");
}

TEST(Outside, LibcCalls_TheComparisonCanFail) {
  const FakeNode node;
  const std::string with_node =
      libc_calls("LD_PRELOAD=" + kstub() + " URDMA_NODE_DIR=" + node.directory(), "all");
  EXPECT_NE(difference(libc_calls("", "all"), with_node), "");
}

// What a shell command prints in a node whose directory is named `directory`.
std::string in_node(const std::string& directory, const std::string& command) {
  return output_of("LC_ALL=C LD_PRELOAD=" + kstub() + " URDMA_NODE_DIR=" + directory + " " + command);
}

TEST(Outside, NodeDirectory_ByAnotherName) {
  const FakeNode node;
  const std::string link = node.directory() + "/link";
  std::filesystem::create_symlink(node.directory(), link);
  for (const std::string& name : {node.directory(), link, link + "/", node.directory() + "//"})
    EXPECT_EQ(in_node(name, "realpath /sys/class/infiniband/urdma0/device /dev/infiniband/uverbs0"),
              "/sys/devices/virtual/urdma/urdma0\n/dev/infiniband/uverbs0\nstatus 0\n")
        << name;
}

TEST(Outside, NodeDirectory_TooLongForASocket) {
  const FakeNode node;
  const std::string link = node.directory() + "/" + std::string(100, 'x');
  std::filesystem::create_symlink(node.directory(), link);
  const std::string output = in_node(link, "cat /dev/infiniband/uverbs0");
  EXPECT_NE(output.find("File name too long"), std::string::npos) << output;
}

TEST(Outside, RealDevices_AreShownBeside) {
  if (std::system("unshare -rm mount -t tmpfs none /mnt 2>/dev/null") != 0)
    GTEST_SKIP() << "no mount namespaces here";
  char self[4096] = "";
  ASSERT_GT(::readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
  const std::string output =
      output_of("unshare -rm " + std::string(::getenv("URDMA_REAL_DEVICES")) + " " + self);
  EXPECT_EQ(output,
            "/dev/infiniband:\n"
            "rdma_cm\nuverbs0\nuverbs1\nuverbs2\nuverbs7\n\n"
            "/sys/class/infiniband:\n"
            "mlx5_0\nurdma0\nurdma1\nurdma2\n\n"
            "/sys/class/infiniband_verbs:\n"
            "abi_version\nuverbs0\nuverbs1\nuverbs2\nuverbs7\n"
            "mlx5\nmlx5_0\n"
            "/dev/infiniband/uverbs0: character special file\n"
            "/dev/infiniband/uverbs7: fifo\n"
            "/sys/class/real/mlx5_0\n"
            "/sys/devices/virtual/urdma/urdma0/infiniband/urdma0\n"
            "status 0\n");
}

TEST(Outside, Exports_OnlyWhatLibcHasAndTheProviderAsksFor) {
  std::istringstream symbols(output_of("nm -D --defined-only " + kstub()));
  std::string line;
  int count = 0;
  while (std::getline(symbols, line) && line.rfind("status", 0) != 0) {
    const std::string name = line.substr(line.rfind(' ') + 1);
    if (name == abi::kOfferEventChannel) continue;
    EXPECT_NE(::dlsym(RTLD_DEFAULT, name.c_str()), nullptr) << name << " is not libc's";
    ++count;
  }
  EXPECT_GT(count, 50);
}

TEST(Outside, Dependencies_OnlyLibc) {
  const std::string dynamic = output_of("readelf -d " + kstub());
  EXPECT_NE(dynamic.find("[libc.so.6]"), std::string::npos);
  EXPECT_EQ(dynamic.find("libstdc++"), std::string::npos);
  EXPECT_EQ(dynamic.find("libgcc"), std::string::npos);
}

}  // namespace
}  // namespace urdma::test
