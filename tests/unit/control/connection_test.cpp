// Tests of datapath/control/connection.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/connection.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <filesystem>

namespace urdma::control {
namespace {

class ConnectionTest : public testing::Test {
 protected:
  ConnectionTest() : ends_(make()), ours_(UniqueFd(ends_[0])), theirs_(UniqueFd(ends_[1])) {}
  static std::array<int, 2> make() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    return ends;
  }
  static std::size_t open_descriptors() {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
  }

  std::array<int, 2> ends_;
  Connection ours_;
  Connection theirs_;
};

TEST_F(ConnectionTest, Receive_GivesWhatWasSent) {
  const abi::Handle body{7, 0};
  const std::array fds = {STDIN_FILENO, STDERR_FILENO};
  ASSERT_TRUE(theirs_.send({3, 0, 99}, bytes_of(body), fds));
  Message message;
  ASSERT_EQ(ours_.receive(message), Received::kMessage);
  EXPECT_EQ(message.header.type, 3U);
  EXPECT_EQ(message.header.sequence, 99U);
  ASSERT_EQ(message.body.size(), sizeof(body));
  EXPECT_EQ(std::memcmp(message.body.data(), &body, sizeof(body)), 0);
  ASSERT_EQ(message.fds.size(), 2U);
  EXPECT_NE(::fcntl(message.fds[0].get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(ConnectionTest, Receive_KeepsMessagesApart) {
  ASSERT_TRUE(theirs_.send({1, 0, 1}, {}, {}));
  ASSERT_TRUE(theirs_.send({2, 0, 2}, {}, {}));
  Message message;
  EXPECT_EQ(ours_.receive(message), Received::kMessage);
  EXPECT_EQ(ours_.receive(message), Received::kMessage);
  EXPECT_EQ(message.header.type, 2U);
  EXPECT_TRUE(message.body.empty());
  EXPECT_EQ(ours_.receive(message), Received::kNothing);
}

TEST_F(ConnectionTest, Receive_CallsAShortMessageNonsense) {
  ASSERT_EQ(::send(ends_[1], "abc", 3, 0), 3);
  Message message;
  EXPECT_EQ(ours_.receive(message), Received::kNonsense);
}

TEST_F(ConnectionTest, Receive_CallsALongMessageNonsense) {
  const std::vector<char> bytes(abi::kMaxMessageBytes + 1, 'x');
  ASSERT_EQ(::send(ends_[1], bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  Message message;
  EXPECT_EQ(ours_.receive(message), Received::kNonsense);
}

TEST_F(ConnectionTest, Receive_ClosesTheDescriptorsOfNonsense) {
  const std::size_t before = open_descriptors();
  std::vector<int> fds(abi::kMaxMessageFds + 3, STDIN_FILENO);
  abi::Header header{1, 0, 0};
  iovec part{&header, sizeof(header)};
  std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
  ASSERT_GT(::sendmsg(ends_[1], &message, 0), 0);
  {
    Message received;
    EXPECT_EQ(ours_.receive(received), Received::kNonsense);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ConnectionTest, Receive_SeesTheEnd) {
  theirs_.shut_down();
  Message message;
  EXPECT_EQ(ours_.receive(message), Received::kEnd);
}

TEST_F(ConnectionTest, Send_NeverBlocksOnAClientThatDoesNotRead) {
  const std::vector<std::byte> body(4096);
  int sent = 0;
  while (sent < 100'000 && ours_.send({1, 0, 0}, body, {})) ++sent;
  EXPECT_GT(sent, 0);
  EXPECT_LT(sent, 100'000);
}

TEST_F(ConnectionTest, Peer_IsWhatTheKernelSays) {
  EXPECT_EQ(ours_.peer().pid, ::getpid());
  EXPECT_EQ(ours_.peer().uid, ::geteuid());
}

TEST(ErrorTextTest, ErrorText_IsCutAndTerminated) {
  const abi::ErrorText text = error_text(std::string(1000, 'e'));
  EXPECT_EQ(std::strlen(text.text), sizeof(text.text) - 1);
}

}  // namespace
}  // namespace urdma::control
