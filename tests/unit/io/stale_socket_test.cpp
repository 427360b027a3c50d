// Tests of remove_stale_memif_socket.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/io/stale_socket.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace urdma::io {
namespace {

class StaleSocketTest : public testing::Test {
 protected:
  StaleSocketTest() : directory_(::mkdtemp(name_)), path_(directory_ + "/memif.sock") {}
  ~StaleSocketTest() override {
    ::unlink(path_.c_str());
    ::rmdir(directory_.c_str());
  }
  int listen() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket, 1), 0);
    return socket;
  }
  [[nodiscard]] bool is_there() const { return ::access(path_.c_str(), F_OK) == 0; }
  [[nodiscard]] std::string arguments(const std::string& role, const std::string& abstract) const {
    return "role=" + role + ",socket=" + path_ + ",socket-abstract=" + abstract;
  }

  char name_[32] = "/tmp/urdma-stale-XXXXXX";
  std::string directory_;
  std::string path_;
};

TEST_F(StaleSocketTest, Remove_WhatADeadServerLeft) {
  ::close(listen());
  ASSERT_TRUE(is_there());
  remove_stale_memif_socket(arguments("client", "no"));
  remove_stale_memif_socket(arguments("server", "yes"));
  remove_stale_memif_socket("role=server");
  EXPECT_TRUE(is_there());
  remove_stale_memif_socket(arguments("server", "no"));
  EXPECT_FALSE(is_there());
}

TEST_F(StaleSocketTest, Remove_NotWhereSomebodyListens) {
  const int socket = listen();
  remove_stale_memif_socket(arguments("server", "no"));
  EXPECT_TRUE(is_there());
  ::close(socket);
}

TEST_F(StaleSocketTest, Remove_NotWhatIsNoSocket) {
  std::ofstream(path_) << "a file";
  remove_stale_memif_socket(arguments("server", "no"));
  EXPECT_TRUE(is_there());
}

}  // namespace
}  // namespace urdma::io
