// Tests of datapath/control/session_table.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/session_table.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

namespace urdma::control {
namespace {

int open_memory() { return ::open("/proc/self/mem", O_RDWR | O_CLOEXEC); }

TEST(IdentifyProgramTest, IdentifyProgram_KnowsThisOneAndIsStable) {
  const ProgramIdentity identity = identify_program(::getpid());
  EXPECT_TRUE(identity.is_known());
  EXPECT_EQ(identity, identify_program(::getpid()));
  EXPECT_NE(identity, identify_program(::getppid()));
}

TEST(IdentifyProgramTest, IdentifyProgram_KnowsNothingOfProcessZero) {
  EXPECT_FALSE(identify_program(0).is_known());
}

TEST(SessionTableTest, FindIdentity_FindsByTokenOnly) {
  SessionTable table;
  const Identity first = table.add_identity(1, 0);
  const Identity second = table.add_identity(2, 1);
  EXPECT_FALSE(std::equal(std::begin(first.token.bytes), std::end(first.token.bytes), second.token.bytes));
  EXPECT_EQ(table.find_identity(second.token)->connection, 2U);
  EXPECT_EQ(table.find_identity(abi::Token{}), nullptr);
  table.remove_identity(2);
  EXPECT_EQ(table.find_identity(second.token), nullptr);
}

TEST(SessionTableTest, Find_KnowsSessionsByIdRequestAndIdentity) {
  SessionTable table;
  auto made = std::make_unique<ClientSession>();
  made->identity = 1;
  made->request = 2;
  made->peer.pid = 77;
  ClientSession& session = table.add(std::move(made));
  EXPECT_EQ(table.find(session.id), &session);
  EXPECT_EQ(table.find_by_request(2), &session);
  EXPECT_EQ(table.find_for_upcall(1, 77), &session);
  EXPECT_EQ(table.find_for_upcall(1, 78), nullptr);
  EXPECT_EQ(table.ids_of_identity(1), std::vector{session.id});
  session.upcall = 3;
  EXPECT_EQ(table.find_for_upcall(1, 77), nullptr);
  session.is_ending = true;
  EXPECT_EQ(table.find_by_request(2), nullptr);
}

TEST(SessionTableTest, ProcessOf_IsSharedByTheSessionsOfAProgram) {
  SessionTable table;
  const UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const Peer self{::getpid(), ::getuid(), ::getgid()};
  auto first = table.process_of(self, UniqueFd(open_memory()), {wake.get()});
  auto second = table.process_of(self, UniqueFd(open_memory()), {wake.get()});
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*first, *second);
  auto unknown = table.process_of(Peer{}, UniqueFd(open_memory()), {wake.get()});
  ASSERT_TRUE(unknown);
  EXPECT_NE(*unknown, *first);
}

}  // namespace
}  // namespace urdma::control
