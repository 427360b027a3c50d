// Tests of the control socket from a client's side, against a whole daemon in a child process: sessions,
// objects, and what a hostile client can do, which is nothing but lose its own connection.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/server.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "datapath/limits.hpp"
#include "tests/support/withheld_page.hpp"
#include "tests/unit/control/lingering.hpp"
#include "tests/unit/control/server_fixture.hpp"
#include "urdma/abi/pages.hpp"

namespace urdma::control {
namespace {

TEST_F(ServerTest, Welcome_NamesTheDeviceAndTheDaemon) {
  const Client client(node);
  EXPECT_EQ(client.welcome.magic, abi::kMagic);
  EXPECT_EQ(client.welcome.device_index, 0U);
  EXPECT_EQ(client.welcome.daemon_pid, static_cast<std::uint32_t>(daemon));
}

TEST_F(ServerTest, Hello_GivesTheSessionItsMemory) {
  Client client(node);
  ASSERT_EQ(client.hello(client.hello_body()), 0);
  ASSERT_EQ(client.hello_fds.size(), 2 + client.info.engine_count);
  EXPECT_NE(client.info.device.node_guid, 0U);
  EXPECT_NE(client.info.device.vendor_id, 0U);
  const int engine_fd = client.hello_fds[0].get();
  EXPECT_EQ(::mmap(nullptr, sizeof(abi::EnginePage), PROT_READ | PROT_WRITE, MAP_SHARED, engine_fd, 0),
            MAP_FAILED)
      << "the daemon's page is not the client's to write";
  void* page = ::mmap(nullptr, sizeof(abi::EnginePage), PROT_READ, MAP_SHARED, engine_fd, 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_FALSE(abi::daemon_is_gone(*static_cast<const abi::EnginePage*>(page)));
  ::munmap(page, sizeof(abi::EnginePage));
}

TEST_F(ServerTest, Hello_RefusesInWords) {
  Client client(node);
  abi::Hello body = client.hello_body();
  body.version = abi::kVersion + 1;
  EXPECT_EQ(client.hello(body), EPROTO);
  body = client.hello_body();
  body.token.bytes[0] ^= 1;
  EXPECT_EQ(client.hello(body), EACCES);
  EXPECT_EQ(client.hello(client.hello_body(), "/dev/null"), EINVAL);
  EXPECT_EQ(client.hello(client.hello_body(), "/proc/self/comm"), EINVAL);
  EXPECT_EQ(client.hello(client.hello_body()), 0) << "a refusal does not end the connection";
}

TEST_F(ServerTest, PassedSocket_ThatLingersHoldsUpNobody) {
  const Client client(node);
  Connection hostile(connect_to(node + "/control.sock"));
  Lingering lingering = make_lingering();
  // Stopped, so that the daemon's descriptor is the last one when it looks at it.
  ASSERT_EQ(::kill(daemon, SIGSTOP), 0);
  const std::array fds = {lingering.socket.get()};
  const bool is_sent = hostile.send({static_cast<std::uint32_t>(abi::MessageType::kHello), 0, 1}, {}, fds);
  lingering.socket.reset();
  ASSERT_EQ(::kill(daemon, SIGCONT), 0);
  ASSERT_TRUE(is_sent);
  EXPECT_FALSE(next_message(hostile).has_value());
  EXPECT_TRUE(status().contains("sessions"));
}

// A write from memory that the client withholds keeps a file locked. Sealing the file waits for that: the
// client's copier does, and nobody else.
TEST_F(ServerTest, ConvertDone_OfALockedFileHoldsUpNobody) {
  test::WithheldPage page;
  if (!page.is_withheld()) GTEST_SKIP() << "userfaultfd that holds the kernel is not allowed here";
  Client client(node);
  ASSERT_EQ(client.hello(client.hello_body()), 0);
  const abi::ConvertBegin range{0x10000, 4096};
  const auto begun = client.ask(MessageType::kConvertBegin, range);
  ASSERT_TRUE(begun && begun->fds.size() == 1);
  const auto extent = body_of<abi::Handle>(*begun).handle;
  const int file = begun->fds[0].get();
  std::thread writer([&] { EXPECT_EQ(::pwrite(file, page.data(), 4096, 0), 4096); });
  ::usleep(50'000);  // until it hangs, with the lock

  constexpr std::uint64_t kSequence = 1000;
  ASSERT_TRUE(client.request.send({static_cast<std::uint32_t>(MessageType::kConvertDone), 0, kSequence},
                                  bytes_of(abi::ConvertDone{extent, 1}), {}));
  EXPECT_EQ(client.error_of(MessageType::kRevert, abi::Revert{extent, 0}), EBUSY);
  EXPECT_EQ(client.error_of(MessageType::kConvertDone, abi::ConvertDone{extent, 1}), EINVAL);
  Client other(node);
  EXPECT_EQ(other.hello(other.hello_body()), 0);

  page.give();
  writer.join();
  const auto sealed = next_message(client.request);
  ASSERT_TRUE(sealed);
  EXPECT_EQ(sealed->header.sequence, kSequence);
  EXPECT_EQ(sealed->header.error, 0U);
  EXPECT_LT(::pwrite(file, &extent, sizeof(extent), 0), 0) << "it is sealed now";
  EXPECT_EQ(client.error_of(MessageType::kRevert, abi::Revert{extent, 0}), 0);
}

TEST_F(ServerTest, Identity_EndsTheSessionWithItsLastCopy) {
  ASSERT_TRUE(has_sessions_within(0, 2'000));
  Client client(node);
  ASSERT_EQ(client.hello(client.hello_body()), 0);
  const UniqueFd copy(::dup(client.identity.descriptor()));
  client.identity = Connection(UniqueFd());
  EXPECT_EQ(status()["sessions"].size(), 1U);
  EXPECT_NE(client.make_pd(), 0U);
  ::shutdown(copy.get(), SHUT_RDWR);
  EXPECT_TRUE(has_sessions_within(0, 2'000));
  EXPECT_EQ(client.make_pd(), 0U) << "the request connection ends with the session";
}

TEST_F(ServerTest, Death_ReapsEverything) {
  ASSERT_TRUE(has_sessions_within(0, 2'000));
  {
    Client client(node);
    ASSERT_EQ(client.hello(client.hello_body()), 0);
    const std::uint32_t pd = client.make_pd();
    const std::uint32_t cq = client.make(MessageType::kCreateCq, cq_of(16));
    for (int i = 0; i < 20; ++i) ASSERT_NE(client.make(MessageType::kCreateQp, qp_of(pd, cq)), 0U);
    ASSERT_NE(client.make(MessageType::kRegMr, abi::RegMr{pd, kLocalAndRemoteWrite, 4096, 4096, 4096}), 0U);
    const auto session = status()["sessions"][0];
    EXPECT_EQ(session["qps"], 20);
    EXPECT_EQ(session["mrs"], 1);
  }
  EXPECT_TRUE(has_sessions_within(0, 2'000));
  EXPECT_TRUE(status()["qps"].empty());
}

TEST_F(ServerTest, Handles_OfAnotherSessionAreBad) {
  Client first(node);
  Client second(node);
  ASSERT_EQ(first.hello(first.hello_body()), 0);
  ASSERT_EQ(second.hello(second.hello_body()), 0);
  for (int i = 0; i < 5; ++i) first.make_pd();
  const std::uint32_t pd = first.make_pd();
  EXPECT_EQ(second.error_of(MessageType::kDeallocPd, abi::Handle{pd, 0}), EINVAL);
  EXPECT_EQ(second.error_of(MessageType::kRegMr, abi::RegMr{pd, 0, 4096, 4096, 4096}), EINVAL);
  EXPECT_EQ(first.error_of(MessageType::kDeallocPd, abi::Handle{pd, 0}), 0);
  EXPECT_EQ(first.error_of(MessageType::kDeallocPd, abi::Handle{pd, 0}), EINVAL);
  for (const auto type :
       {MessageType::kDeregMr, MessageType::kDestroyCq, MessageType::kDestroyQp, MessageType::kQueryQp}) {
    EXPECT_EQ(first.error_of(type, abi::Handle{12345, 0}), EINVAL);
  }
}

TEST_F(ServerTest, RegMr_JudgesFlagsAndRanges) {
  Client client(node);
  ASSERT_EQ(client.hello(client.hello_body()), 0);
  const std::uint32_t pd = client.make_pd();
  const auto error = [&](std::uint32_t access, std::uint64_t address, std::uint64_t length,
                         std::uint64_t iova) {
    return client.error_of(MessageType::kRegMr, abi::RegMr{pd, access, address, length, iova});
  };
  EXPECT_EQ(error(0, 4096, 1, 4096), 0);
  EXPECT_EQ(error(kAccessOptionalMask | kAccessLocalWrite, 4096, 1, 0), 0);
  EXPECT_EQ(error(kAccessRemoteWrite, 4096, 1, 4096), EINVAL);
  EXPECT_EQ(error(kAccessRemoteAtomic, 4096, 1, 4096), EINVAL);
  EXPECT_EQ(error(1U << 12, 4096, 1, 4096), EINVAL);
  EXPECT_EQ(error(kAccessOnDemand, 4096, 1, 4096), 0);
  EXPECT_EQ(error(kAccessOnDemand | kAccessLocalWrite, 0, UINT64_MAX, 0), 0) << "all memory";
  EXPECT_EQ(error(kAccessOnDemand, 4096, UINT64_MAX, 4096), EINVAL);
  EXPECT_EQ(error(0, 4096, 0, 4096), 0) << "of no bytes";
  EXPECT_EQ(error(0, UINT64_MAX, 2, 0), EINVAL);
  EXPECT_EQ(error(0, 0, 2, UINT64_MAX), EINVAL);
  EXPECT_EQ(error(0, 0, UINT64_MAX, 0), EINVAL);
}

TEST_F(ServerTest, Objects_InUseAreBusy) {
  Client client(node);
  ASSERT_EQ(client.hello(client.hello_body()), 0);
  const std::uint32_t pd = client.make_pd();
  const std::uint32_t cq = client.make(MessageType::kCreateCq, cq_of(16));
  const std::uint32_t qp = client.make(MessageType::kCreateQp, qp_of(pd, cq));
  ASSERT_NE(qp, 0U);
  EXPECT_EQ(client.error_of(MessageType::kDestroyCq, abi::Handle{cq, 0}), EBUSY);
  EXPECT_EQ(client.error_of(MessageType::kDeallocPd, abi::Handle{pd, 0}), EBUSY);
  EXPECT_EQ(client.error_of(MessageType::kDestroyQp, abi::Handle{qp, 0}), 0);
  EXPECT_EQ(client.error_of(MessageType::kDestroyCq, abi::Handle{cq, 0}), 0);
  const std::uint32_t mr =
      client.make(MessageType::kRegMr, abi::RegMr{pd, kLocalAndRemoteWrite, 4096, 64, 4096});
  EXPECT_EQ(client.error_of(MessageType::kDeallocPd, abi::Handle{pd, 0}), EBUSY);
  EXPECT_EQ(client.error_of(MessageType::kDeregMr, abi::Handle{mr, 0}), 0);
  EXPECT_EQ(client.error_of(MessageType::kDeallocPd, abi::Handle{pd, 0}), 0);
}

TEST_F(ServerTest, CreateCq_GivesAtLeastWhatIsAskedFor) {
  Client client(node);
  ASSERT_EQ(client.hello(client.hello_body()), 0);
  const auto reply = client.ask(MessageType::kCreateCq, cq_of(100));
  ASSERT_TRUE(reply);
  EXPECT_EQ(body_of<abi::CreateCqReply>(*reply).depth, 128U);
  EXPECT_EQ(reply->fds.size(), 1U);
  EXPECT_EQ(client.error_of(MessageType::kCreateCq, cq_of(0)), EINVAL);
  EXPECT_EQ(client.error_of(MessageType::kCreateCq, cq_of(UINT32_MAX)), EINVAL);
  const abi::CreateCq with_channel{1, 16, 1, 0, 0};
  EXPECT_EQ(client.error_of(MessageType::kCreateCq, with_channel), EINVAL) << "the channel's pipe is missing";
  const UniqueFd file(::open("/dev/null", O_RDWR));
  const int fd = file.get();
  EXPECT_EQ(client.error_of(MessageType::kCreateCq, with_channel, std::span(&fd, 1)), EINVAL)
      << "it is no pipe";
}

std::size_t descriptors_of(pid_t process) {
  const std::filesystem::directory_iterator open("/proc/" + std::to_string(process) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(open), end(open)));
}

int highest_descriptor_of(pid_t process) {
  int highest = -1;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd"))
    highest = std::max(highest, std::stoi(entry.path().filename()));
  return highest;
}

// The daemon may open no more files, and whoever connects is turned away with what it has sent.
TEST_F(ServerTest, TurnedAway_WithASocketThatLingersHoldsUpNobody) {
  Client client(node);
  ASSERT_EQ(client.hello(client.hello_body()), 0);
  const auto most = static_cast<rlim_t>(highest_descriptor_of(daemon)) + 1;
  rlimit before{};
  ASSERT_EQ(::prlimit(daemon, RLIMIT_NOFILE, nullptr, &before), 0);
  const rlimit limit{most, before.rlim_max};
  ASSERT_EQ(::prlimit(daemon, RLIMIT_NOFILE, &limit, nullptr), 0);
  std::vector<UniqueFd> fill;
  for (int waited_ms = 0; descriptors_of(daemon) < most && waited_ms < 5000; waited_ms += 10) {
    fill.push_back(connect_to(node + "/control.sock"));
    ::usleep(10'000);
  }
  Lingering lingering = make_lingering();
  ASSERT_EQ(::kill(daemon, SIGSTOP), 0);
  const UniqueFd hostile = connect_to(node + "/control.sock");
  pass_on(hostile.get(), std::move(lingering.socket));
  ASSERT_EQ(::kill(daemon, SIGCONT), 0);
  pollfd turned_away{hostile.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&turned_away, 1, kAnswerLimitMs), 1);
  EXPECT_NE(turned_away.revents & POLLHUP, 0);
  EXPECT_NE(client.make_pd(), 0U);
  lingering.peer.reset();  // its close ends
  ASSERT_EQ(::prlimit(daemon, RLIMIT_NOFILE, &before, nullptr), 0);
}

TEST_F(ServerTest, CreateCq_QueuesOfAChannelShareItsDescriptor) {
  Client client(node);
  ASSERT_EQ(client.hello(client.hello_body()), 0);
  int ends[2];
  int others[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(others, O_CLOEXEC), 0);
  const abi::CreateCq wanted{1, 16, 1, 0, 0};
  const auto make = [&](const int& end) {
    return client.make(MessageType::kCreateCq, wanted, std::span(&end, 1));
  };
  const std::uint32_t first = make(ends[0]);
  ASSERT_NE(first, 0U);
  ASSERT_NE(client.make(MessageType::kCreateCq, cq_of(16)), 0U);  // so that what was passed is closed again
  const std::size_t before = descriptors_of(daemon);
  for (int i = 0; i < 50; ++i) ASSERT_NE(make(ends[i % 2]), 0U) << "either end of the pipe is the same";
  EXPECT_LE(descriptors_of(daemon), before + 2) << "what was passed last may not be closed yet";
  for (int i = 0; i < 2; ++i) ASSERT_NE(make(others[0]), 0U);
  EXPECT_EQ(client.error_of(MessageType::kDestroyCq, abi::Handle{first, 0}), 0);
  ASSERT_NE(make(ends[0]), 0U);
  for (const int end : {ends[0], ends[1], others[0], others[1]}) ::close(end);
}

TEST_F(ServerTest, CreateQp_JudgesCapabilities) {
  Client client(node);
  ASSERT_EQ(client.hello(client.hello_body()), 0);
  const std::uint32_t pd = client.make_pd();
  const std::uint32_t cq = client.make(MessageType::kCreateCq, cq_of(16));
  const auto reply = client.ask(MessageType::kCreateQp, qp_of(pd, cq));
  ASSERT_TRUE(reply);
  const auto made = body_of<abi::CreateQpReply>(*reply);
  EXPECT_GE(made.cap.max_send_wr, 10U);
  EXPECT_GE(made.cap.max_inline_data, 64U);
  EXPECT_GE(made.send_slots, made.cap.max_send_wr);
  EXPECT_NE(made.qpn, 0U);
  abi::CreateQp bad = qp_of(pd, cq);
  bad.cap.max_inline_data = 1U << 20;
  EXPECT_EQ(client.error_of(MessageType::kCreateQp, bad), EINVAL);
  bad = qp_of(pd, cq);
  bad.cap.max_send_wr = UINT32_MAX;
  EXPECT_EQ(client.error_of(MessageType::kCreateQp, bad), EINVAL);
  bad = qp_of(pd, cq);
  bad.cap.max_recv_sge = 1000;
  EXPECT_EQ(client.error_of(MessageType::kCreateQp, bad), EINVAL);
  bad = qp_of(pd, cq);
  bad.type = 8;  // raw packets
  EXPECT_EQ(client.error_of(MessageType::kCreateQp, bad), EOPNOTSUPP);
  bad = qp_of(pd, cq + 1);
  EXPECT_EQ(client.error_of(MessageType::kCreateQp, bad), EINVAL);
}

TEST_F(ServerTest, ModifyQp_FollowsTheStateMachineAndTheAddress) {
  Client client(node);
  ASSERT_EQ(client.hello(client.hello_body()), 0);
  const std::uint32_t cq = client.make(MessageType::kCreateCq, cq_of(16));
  const std::uint32_t qp = client.make(MessageType::kCreateQp, qp_of(client.make_pd(), cq));
  const auto gids_reply = client.ask(MessageType::kQueryGidTable, abi::QueryGidTable{1, 0});
  ASSERT_TRUE(gids_reply);
  const auto gids = body_of<abi::QueryGidTableReply>(*gids_reply);
  ASSERT_GT(gids.count, 0U);

  abi::ModifyQp modify{};
  modify.handle = qp;
  modify.mask = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;
  modify.attributes.state = static_cast<std::uint8_t>(QpState::kInit);
  modify.attributes.port = 1;
  EXPECT_EQ(client.error_of(MessageType::kModifyQp, modify), 0);

  modify.mask = kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic |
                kAttrMinRnrTimer;
  modify.attributes.state = static_cast<std::uint8_t>(QpState::kRtr);
  modify.attributes.path_mtu = 3;
  modify.attributes.dest_qpn = 77;
  modify.attributes.address.port = 1;
  EXPECT_EQ(client.error_of(MessageType::kModifyQp, modify), EINVAL) << "no global route";
  modify.attributes.address.is_global = 1;
  modify.attributes.address.source_gid_index = 127;
  EXPECT_EQ(client.error_of(MessageType::kModifyQp, modify), EINVAL) << "no such source address";
  modify.attributes.address.source_gid_index = static_cast<std::uint8_t>(gids.entries[0].index);
  std::memcpy(modify.attributes.address.dest_gid, gids.entries[0].gid, 16);
  modify.attributes.address.dest_gid[8] ^= 0x55;
  EXPECT_NE(client.error_of(MessageType::kModifyQp, modify), 0) << "a loopback port reaches no other node";
  std::memcpy(modify.attributes.address.dest_gid, gids.entries[0].gid, 16);
  EXPECT_EQ(client.error_of(MessageType::kModifyQp, modify), 0);

  const auto reply = client.ask(MessageType::kQueryQp, abi::Handle{qp, 0});
  ASSERT_TRUE(reply);
  const auto query = body_of<abi::QueryQpReply>(*reply);
  EXPECT_EQ(query.attributes.state, static_cast<std::uint8_t>(QpState::kRtr));
  EXPECT_EQ(query.attributes.dest_qpn, 77U);
  EXPECT_EQ(query.attributes.path_mtu, 3);
  EXPECT_EQ(std::memcmp(query.attributes.address.dest_gid, gids.entries[0].gid, 16), 0);
}

TEST_F(ServerTest, QueryPort_HasOnePort) {
  Client client(node);
  ASSERT_EQ(client.hello(client.hello_body()), 0);
  const auto reply = client.ask(MessageType::kQueryPort, abi::QueryPort{1});
  ASSERT_TRUE(reply);
  EXPECT_EQ(body_of<abi::QueryPortReply>(*reply).active_mtu, 5);
  EXPECT_EQ(client.error_of(MessageType::kQueryPort, abi::QueryPort{2}), EINVAL);
}

TEST_F(ServerTest, Nonsense_EndsOnlyItsOwnConnection) {
  Client witness(node);
  ASSERT_EQ(witness.hello(witness.hello_body()), 0);
  const std::array<std::pair<std::uint32_t, std::size_t>, 6> nonsense = {
      std::pair{0U, std::size_t{0}},
      {999U, std::size_t{8}},
      {static_cast<std::uint32_t>(MessageType::kRegMr), std::size_t{3}},
      {static_cast<std::uint32_t>(MessageType::kHello), std::size_t{1}},
      {static_cast<std::uint32_t>(MessageType::kConvertRange), sizeof(abi::ConvertRange)},
      {static_cast<std::uint32_t>(MessageType::kAllocPd), std::size_t{4096}}};
  for (const auto& [type, size] : nonsense) {
    Client client(node);
    ASSERT_EQ(client.hello(client.hello_body()), 0);
    const std::vector<std::byte> body(size, std::byte{0xFF});
    EXPECT_FALSE(client.ask(static_cast<MessageType>(type), body)) << type;
    EXPECT_NE(witness.make_pd(), 0U);
  }
  Client talker(node);
  EXPECT_EQ(::send(talker.identity.descriptor(), "x", 1, MSG_NOSIGNAL), 1);
  EXPECT_FALSE(next_message(talker.identity)) << "an identity connection is not to be written to";
  EXPECT_TRUE(has_sessions_within(1, 2'000));
}

TEST_F(ServerTest, Descriptors_ThatNobodyAskedForEndTheConnection) {
  Client client(node);
  ASSERT_EQ(client.hello(client.hello_body()), 0);
  const int fd = STDIN_FILENO;
  EXPECT_FALSE(client.ask(MessageType::kAllocPd, std::span<const std::byte>(), std::span(&fd, 1)));
}

TEST_F(ServerTest, SlowClient_LosesItsSessionAndBlocksNobody) {
  Client slow(node);
  Client witness(node);
  ASSERT_EQ(slow.hello(slow.hello_body()), 0);
  ASSERT_EQ(witness.hello(witness.hello_body()), 0);
  const abi::QueryGidTable question{1, 0};
  int sent = 0;
  for (; sent < 100'000; ++sent) {
    const bool is_sent = slow.request.send({static_cast<std::uint32_t>(MessageType::kQueryGidTable), 0, 0},
                                           bytes_of(question), {});
    if (!is_sent && errno != EAGAIN) break;
  }
  EXPECT_LT(sent, 100'000) << "the daemon keeps a client that does not read";
  EXPECT_NE(witness.make_pd(), 0U);
}

TEST_F(ServerTest, AttachUpcall_NeedsTheTokenOfASession) {
  Client client(node);
  ASSERT_EQ(client.hello(client.hello_body()), 0);
  const auto attach = [&](const abi::Token& token) {
    Connection upcall(connect_to(node + "/control.sock"));
    const abi::AttachUpcall body{token};
    EXPECT_TRUE(
        upcall.send({static_cast<std::uint32_t>(MessageType::kAttachUpcall), 0, 1}, bytes_of(body), {}));
    const auto reply = next_message(upcall);
    return reply ? static_cast<int>(reply->header.error) : -1;
  };
  EXPECT_EQ(attach(abi::Token{}), EACCES);
  EXPECT_EQ(attach(client.welcome.token), 0);
}

TEST_F(ServerTest, Pds_EndAtTheLimitOfASession) {
  Client client(node);
  ASSERT_EQ(client.hello(client.hello_body()), 0);
  const Limits limits;
  for (std::uint32_t i = 0; i < limits.max_pd_of_session; ++i) ASSERT_NE(client.make_pd(), 0U) << i;
  const auto reply = client.ask(MessageType::kAllocPd, std::span<const std::byte>());
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->header.error, static_cast<std::uint32_t>(ENOMEM));
}

}  // namespace
}  // namespace urdma::control
