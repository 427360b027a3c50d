// Messages between a program and the daemon, the program's side.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "urdma/abi/client.hpp"
#include "urdma/base/unique_fd.hpp"

namespace urdma::provider {
namespace {

TEST(AbiClient, ReceiveMessage_WithoutDescriptorsSaysSo) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd here(ends[0]);
  const UniqueFd there(ends[1]);
  const int fd = there.get();
  ASSERT_EQ(abi::send_message(there.get(), {}, {}, std::span(&fd, 1)), 0);
  ASSERT_EQ(abi::send_message(there.get(), {}, {}, {}), 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  abi::Received message;
  const int error = abi::receive_message(here.get(), message);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(error, EMFILE);
  EXPECT_EQ(message.fd_count, 0U);
  EXPECT_EQ(abi::receive_message(here.get(), message), 0) << "what comes next is as ever";
}

}  // namespace
}  // namespace urdma::provider
