// Tests of datapath/control/node_directory.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/node_directory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "urdma/abi/control.hpp"

namespace urdma::control {
namespace {

class NodeDirectoryTest : public testing::Test {
 protected:
  NodeDirectoryTest() {
    char pattern[] = "/tmp/urdma-unit-XXXXXX";
    root_ = ::mkdtemp(pattern);
  }
  ~NodeDirectoryTest() override { std::filesystem::remove_all(root_); }
  [[nodiscard]] mode_t mode(const std::string& path) const {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 07777U : 0;
  }

  std::string root_;
};

TEST_F(NodeDirectoryTest, Open_MakesAPrivateDirectoryWithTheProcess) {
  const auto node = NodeDirectory::open(root_ + "/state/node", std::nullopt);
  ASSERT_TRUE(node) << node.error().message;
  EXPECT_EQ(mode(root_ + "/state/node"), 0700U);
  EXPECT_EQ(mode(root_ + "/state/node/dev"), 0700U);
  std::ifstream file(root_ + "/state/node/pid");
  pid_t pid = 0;
  file >> pid;
  EXPECT_EQ(pid, ::getpid());
}

TEST_F(NodeDirectoryTest, Open_ClosesADirectoryThatWasOpenToAll) {
  std::filesystem::create_directory(root_ + "/node");
  ::chmod((root_ + "/node").c_str(), 0777);
  const auto node = NodeDirectory::open(root_ + "/node", std::nullopt);
  ASSERT_TRUE(node);
  EXPECT_EQ(mode(root_ + "/node"), 0700U);
}

TEST_F(NodeDirectoryTest, Open_RefusesTheSecondDaemonWithTheFirstOnesProcess) {
  const auto first = NodeDirectory::open(root_ + "/node", std::nullopt);
  ASSERT_TRUE(first);
  const auto second = NodeDirectory::open(root_ + "/node", std::nullopt);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, EBUSY);
  EXPECT_NE(second.error().message.find(std::to_string(::getpid())), std::string::npos);
}

TEST_F(NodeDirectoryTest, Open_TakesOverWhatADeadDaemonLeft) {
  {
    const auto dead = NodeDirectory::open(root_ + "/node", std::nullopt);
    ASSERT_TRUE(dead);
    ASSERT_TRUE(dead->listen(abi::kControlSocket));
    ASSERT_TRUE(dead->listen("dev/uverbs0"));
  }
  EXPECT_TRUE(std::filesystem::exists(root_ + "/node/control.sock"));
  const auto node = NodeDirectory::open(root_ + "/node", std::nullopt);
  ASSERT_TRUE(node);
  EXPECT_FALSE(std::filesystem::exists(root_ + "/node/control.sock"));
  EXPECT_TRUE(node->listen(abi::kControlSocket));
}

TEST_F(NodeDirectoryTest, Open_WaitsForAToolThatLooks) {
  std::filesystem::create_directory(root_ + "/node");
  UniqueFd pid(::open((root_ + "/node/pid").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(pid.get(), LOCK_SH), 0);
  std::thread tool([&pid] {
    ::usleep(5'000);
    pid.reset();
  });
  EXPECT_TRUE(NodeDirectory::open(root_ + "/node", std::nullopt));
  tool.join();
}

TEST_F(NodeDirectoryTest, Open_RefusesASymbolicLink) {
  std::filesystem::create_directory(root_ + "/elsewhere");
  std::filesystem::create_symlink(root_ + "/elsewhere", root_ + "/node");
  EXPECT_FALSE(NodeDirectory::open(root_ + "/node", std::nullopt));
}

TEST_F(NodeDirectoryTest, Open_RefusesAnUnknownGroup) {
  const auto node = NodeDirectory::open(root_ + "/node", "no-such-group");
  ASSERT_FALSE(node);
  EXPECT_EQ(node.error().code, ::geteuid() == 0 ? EINVAL : EPERM);
}

TEST_F(NodeDirectoryTest, Listen_SaysWhenThePathIsTooLong) {
  const auto node = NodeDirectory::open(root_ + "/" + std::string(100, 'n'), std::nullopt);
  ASSERT_TRUE(node);
  const auto socket = node->listen(abi::kControlSocket);
  ASSERT_FALSE(socket);
  EXPECT_EQ(socket.error().code, ENAMETOOLONG);
}

TEST_F(NodeDirectoryTest, Listen_GivesASocketOfWholeMessagesUnderItsFullName) {
  const auto node = NodeDirectory::open(root_ + "/node", std::nullopt);
  ASSERT_TRUE(node);
  const auto listener = node->listen("dev/uverbs3");
  ASSERT_TRUE(listener);
  sockaddr_un name{};
  socklen_t size = sizeof(name);
  ASSERT_EQ(::getsockname(listener->get(), reinterpret_cast<sockaddr*>(&name), &size), 0);
  EXPECT_EQ(name.sun_path, node->path() + "/dev/uverbs3");
  EXPECT_EQ(mode(name.sun_path), 0600U);
}

}  // namespace
}  // namespace urdma::control
