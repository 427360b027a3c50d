// Channels as sockets: what well-behaved clients and others send.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/rdma_cm/service.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "tests/unit/control/lingering.hpp"
#include "tests/unit/control/rdma_cm_fixture.hpp"

namespace urdma::control::rdma_cm {
namespace {

class RdmaCmServiceTest : public testing::Test {
 protected:
  RdmaCmServiceTest() : loop(std::move(*EventLoop::create())), service(*loop, network, Limits{}, Options{}) {
    program = open_channel();
  }

  UniqueFd open_channel() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    service.add_channel(UniqueFd(ends[0]));
    return UniqueFd(ends[1]);
  }
  static bool send(int channel, std::span<const std::byte> bytes, std::span<const int> fds) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) std::array<char, 64> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(fds.size_bytes());
      cmsghdr* const rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(fds.size_bytes());
      std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
    }
    return ::sendmsg(channel, &message, MSG_NOSIGNAL) >= 0;
  }
  static std::vector<std::byte> create_command() {
    rdma_ucm_create_id body{};
    body.uid = 1;
    body.ps = static_cast<std::uint16_t>(PortSpace::kTcp);
    const abi::rdma_cm::Command header{RDMA_USER_CM_CMD_CREATE_ID, sizeof(body), 0,
                                       sizeof(rdma_ucm_create_id_resp)};
    std::vector<std::byte> bytes(sizeof(header) + sizeof(body));
    std::memcpy(bytes.data(), &header, sizeof(header));
    std::memcpy(bytes.data() + sizeof(header), &body, sizeof(body));
    return bytes;
  }
  // The answer's error; -1 when the other end has gone without one.
  int ask(int channel, std::span<const std::byte> command) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd own(ends[0]);
    UniqueFd theirs(ends[1]);
    const int fd = theirs.get();
    EXPECT_TRUE(send(channel, command, std::span(&fd, 1)));
    theirs.reset();
    loop->run_once(Instant{});
    std::array<std::byte, 64> bytes{};
    if (::recv(own.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) < 8) return -1;
    abi::rdma_cm::Answer answer{};
    std::memcpy(&answer, bytes.data(), sizeof(answer));
    return static_cast<int>(answer.error);
  }
  static bool has_ended(int channel) {
    pollfd state{channel, POLLIN, 0};
    return ::poll(&state, 1, 1000) == 1 && (state.revents & POLLHUP) != 0;
  }

  FakeNetwork network;
  std::unique_ptr<EventLoop> loop;
  Service service;
  UniqueFd program;
};

TEST_F(RdmaCmServiceTest, Command_IsAnswered) {
  EXPECT_EQ(ask(program.get(), create_command()), 0);
  EXPECT_EQ(service.summary().ids, 1U);
  auto command = create_command();
  command.resize(command.size() - 8);
  command[4] = std::byte{16};
  EXPECT_EQ(ask(program.get(), command), EINVAL) << "too short, but no nonsense";
}

struct AnswerSocket {
  AnswerSocket() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    own.reset(ends[0]);
    theirs.reset(ends[1]);
  }
  [[nodiscard]] bool is_answered() const {
    std::array<std::byte, 64> bytes{};
    return ::recv(own.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) >= 8;
  }
  UniqueFd own;
  UniqueFd theirs;
};

// Others may have taken all descriptors that the daemon may open: whoever has a channel has it still.
TEST_F(RdmaCmServiceTest, Command_WhereNoDescriptorIsFree) {
  std::array<AnswerSocket, 3> sockets;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{256, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<UniqueFd> all;
  for (int fd = 0; (fd = ::dup(program.get())) >= 0;) all.emplace_back(fd);
  for (const AnswerSocket& socket : sockets) {
    const int fd = socket.theirs.get();
    EXPECT_TRUE(send(program.get(), create_command(), std::span(&fd, 1)));
    loop->run_once(Instant{});
    EXPECT_TRUE(socket.is_answered());
  }
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(service.summary().ids, sockets.size());
}

TEST_F(RdmaCmServiceTest, Command_WhoseDescriptorIsLostIsNoNonsense) {
  const AnswerSocket lost;
  const int fd = lost.theirs.get();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_TRUE(send(program.get(), create_command(), std::span(&fd, 1)));
  loop->run_once(Instant{});
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(lost.is_answered());
  EXPECT_EQ(ask(program.get(), create_command()), 0) << "the channel lives";
}

TEST_F(RdmaCmServiceTest, Close_TakesTheIdsAlong) {
  const UniqueFd other = open_channel();
  EXPECT_EQ(ask(program.get(), create_command()), 0);
  EXPECT_EQ(ask(other.get(), create_command()), 0);
  program.reset();
  loop->run_once(Instant{});
  EXPECT_EQ(service.summary().channels, 1U);
  EXPECT_EQ(service.summary().ids, 1U);
}

TEST_F(RdmaCmServiceTest, Nonsense_CostsTheChannel) {
  const auto command = create_command();
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const UniqueFd owner(null);
  const std::array two{null, null};
  const std::vector<std::byte> too_long(4096);
  const std::vector<std::pair<std::span<const std::byte>, std::span<const int>>> all = {
      {command, std::span(two).first(1)},  // no socket
      {command, two},                      // two of them
      {std::span(command).first(5), std::span(two).first(1)},
      {too_long, std::span(two).first(1)},
  };
  for (const auto& [bytes, fds] : all) {
    const UniqueFd channel = open_channel();
    ASSERT_TRUE(send(channel.get(), bytes, fds));
    loop->run_once(Instant{});
    EXPECT_TRUE(has_ended(channel.get())) << bytes.size() << " bytes, " << fds.size() << " descriptors";
  }
  EXPECT_EQ(service.summary().channels, 1U);
  EXPECT_EQ(ask(program.get(), command), 0) << "the others have theirs";
}

// A program may write what it likes to the descriptor: what is no command goes into the channel as it is.
TEST_F(RdmaCmServiceTest, Message_WithoutAWayToAnswerIsIgnored) {
  const auto command = create_command();
  EXPECT_EQ(ask(program.get(), command), 0);
  ASSERT_TRUE(send(program.get(), command, {}));
  ASSERT_TRUE(send(program.get(), std::span(command).first(3), {}));
  ASSERT_TRUE(send(program.get(), std::vector<std::byte>(4096), {}));
  loop->run_once(Instant{});
  EXPECT_EQ(service.summary().ignored_messages, 3U);
  EXPECT_EQ(service.summary().ids, 1U) << "none of them was carried out";
  EXPECT_EQ(ask(program.get(), command), 0);
}

TEST_F(RdmaCmServiceTest, Command_OfAnotherVersionIsRefused) {
  auto command = create_command();
  abi::rdma_cm::Command header{};
  std::memcpy(&header, command.data(), sizeof(header));
  ++header.protocol;
  std::memcpy(command.data(), &header, sizeof(header));
  EXPECT_EQ(ask(program.get(), command), EPROTO);
  // Before there were versions, the body came in the place of this one.
  command.erase(command.begin() + offsetof(abi::rdma_cm::Command, protocol),
                command.begin() + sizeof(abi::rdma_cm::Command));
  EXPECT_EQ(ask(program.get(), command), EPROTO);
  EXPECT_EQ(service.summary().ids, 0U);
  EXPECT_EQ(ask(program.get(), create_command()), 0);
}

TEST_F(RdmaCmServiceTest, Nonsense_LengthsThatLie) {
  auto command = create_command();
  command[4] = std::byte{0xFF};
  EXPECT_EQ(ask(program.get(), command), -1);
  EXPECT_TRUE(has_ended(program.get()));
}

TEST_F(RdmaCmServiceTest, Answer_ThatNobodyReads) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const int fd = ends[1];
  ::close(ends[0]);
  EXPECT_TRUE(send(program.get(), create_command(), std::span(&fd, 1)));
  ::close(ends[1]);
  loop->run_once(Instant{});
  EXPECT_EQ(service.summary().ids, 1U);
  EXPECT_EQ(ask(program.get(), create_command()), 0);
}

// What closes with the socket for an answer may take long to close, and holds up nobody.
class RdmaCmAnswerSocketTest : public RdmaCmServiceTest {
 protected:
  // Sends the command with `answer`, which is the daemon's alone then, and has it carried out.
  void ask_with(UniqueFd answer, std::span<const std::byte> command) {
    const int fd = answer.get();
    ASSERT_TRUE(send(program.get(), command, std::span(&fd, 1)));
    answer.reset();
    const Instant before = monotonic_now();
    loop->run_once(Instant{});
    EXPECT_LT(monotonic_now() - before, seconds(5)) << "the close of what was passed takes 30";
  }
  // The ends of an answer's socket; what is sent into the first is in the second.
  std::array<UniqueFd, 2> make_answer() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
  }

  Lingering lingering = make_lingering();
};

TEST_F(RdmaCmAnswerSocketTest, ThatHasAMessage) {
  auto ends = make_answer();
  pass_on(ends[0].get(), std::move(lingering.socket));
  ask_with(std::move(ends[1]), create_command());
  EXPECT_EQ(ask(program.get(), create_command()), 0);
}

TEST_F(RdmaCmAnswerSocketTest, ThatHasAMessageOfNoBytes) {
  auto ends = make_answer();
  pass_on(ends[0].get(), std::move(lingering.socket), {});
  ask_with(std::move(ends[1]), create_command());
  EXPECT_EQ(ask(program.get(), create_command()), 0);
}

TEST_F(RdmaCmAnswerSocketTest, ThatHasSeveral_EmptyOnesFirst) {
  auto ends = make_answer();
  EXPECT_EQ(::send(ends[0].get(), "", 0, 0), 0);
  pass_on(ends[0].get(), std::move(lingering.socket), {});
  ask_with(std::move(ends[1]), create_command());
  EXPECT_EQ(ask(program.get(), create_command()), 0);
}

TEST_F(RdmaCmAnswerSocketTest, ThatListens) {
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  UniqueFd waiting(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(waiting.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  pass_on(waiting.get(), std::move(lingering.socket));
  waiting.reset();
  ask_with(std::move(listener), create_command());
  EXPECT_EQ(ask(program.get(), create_command()), 0);
}

TEST_F(RdmaCmAnswerSocketTest, OfNonsense) {
  auto ends = make_answer();
  pass_on(ends[0].get(), std::move(lingering.socket));
  const auto command = create_command();
  ask_with(std::move(ends[1]), std::span(command).first(5));
  EXPECT_TRUE(has_ended(program.get()));
}

TEST_F(RdmaCmAnswerSocketTest, OfAnotherKindIsNonsense) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd own(ends[0]);
  pass_on(own.get(), std::move(lingering.socket));
  ask_with(UniqueFd(ends[1]), create_command());
  EXPECT_TRUE(has_ended(program.get()));
}

}  // namespace
}  // namespace urdma::control::rdma_cm
